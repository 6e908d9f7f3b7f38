"""python -m dovetail.torchair [--reg-op] LIBRARY...: prints converters of torchair for the operators of these binaries, or REG_OP."""
import argparse
import sys

from .. import load
from . import export, prototypes

parser = argparse.ArgumentParser(prog="python -m dovetail.torchair", description=__doc__.partition(": ")[2])
parser.add_argument("library", nargs="+", help="what `dovetail build` made, or source files")
parser.add_argument("--reg-op", action="store_true", help="the prototypes for a package of operators for CANN, in C++")
options = parser.parse_args()
try:
    libraries = [load(path, attach=False) for path in options.library]
except Exception as error:
    sys.exit(str(error))
sys.stdout.write((prototypes if options.reg_op else export)(*libraries))
