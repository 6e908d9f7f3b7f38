"""Operators written once, in C: on the arrays and tensors of every framework that Dovetail has a bridge for.

    my_ops = dovetail.load("my_ops.so")          # what `dovetail build` made
    my_ops.swiglu(gate, up)                      # arrays in, an array out; tensors in, a tensor out
    my_ops.swiglu(gate, up, out=out)             # writes into out
    help(my_ops.swiglu)                          # typed from the declaration
    print(my_ops.swiglu.explain(gate, up))       # which kernel, and why not the others

    print(dovetail.check(my_ops))                # what is wrong with its operators
    print(dovetail.bench(my_ops.swiglu, gate, up))   # microseconds, GB/s, GFLOP/s

    dovetail.ops.swiglu(gate, up)                # an operator that comes with Dovetail
    dovetail.ops.my_ops.swiglu                   # any that is loaded, by namespace
"""
import os as _os

from . import _core
from ._core import Generator, Operator, get_isa, get_threads, seed, set_isa, set_row, set_threads
from ._errors import DovetailError
from ._library import Library, export, find, libraries, load, site

__version__ = _core.version()
__all__ = ["DovetailError", "Generator", "Library", "Operator", "bench", "check", "command", "export", "find", "get_isa", "get_threads", "include_dir",
           "libraries", "library_dir", "list", "load", "ops", "policy", "seed", "set_isa", "set_row", "set_threads", "site"]


def list():
    """The names of all operators that are loaded, in order."""
    return _core.names()


def include_dir():
    """The folder with dovetail.h and dovetail_op.h."""
    return _os.path.join(_home(), "include")


def library_dir():
    """The folder with libdovetail.so.1."""
    return _os.path.join(_home(), "lib")


def command():
    """The path of the `dovetail` command that belongs to this package."""
    return _os.path.join(_home(), "bin", "dovetail")


def _home():
    return _os.path.dirname(_os.path.abspath(__file__))


def __getattr__(name):
    from . import _bridges
    if name == "ops" or name in _bridges.names:
        return _bridges.module(name)
    if name in ("bench", "check", "policy"):
        import importlib
        globals()[name] = getattr(importlib.import_module(f"._{name}", __name__), name)
        return globals()[name]
    bridge = None if name.startswith("_") else _bridges.offered(name)
    if bridge:
        globals()[name] = bridge.offer(name)
        return globals()[name]
    raise AttributeError(f"module 'dovetail' has no attribute '{name}'")

from . import _bridges  # noqa: E402

for _name in _bridges.names:  # attaches bridges whose framework is imported before or after dovetail
    _bridges.module(_name)
