from call import call
from memory import libc
import locale
import signal
import sys
import numpy


def environment():
    """The rounding mode, whether denormals are flushed to zero, the locale, the signal mask."""
    return libc.fegetround(), float(numpy.float32(1e-40) * numpy.float32(0.5)), locale.setlocale(locale.LC_ALL), signal.pthread_sigmask(signal.SIG_BLOCK, [])


before = environment()
call()
after = environment()
if before != after:
    sys.exit(f"the environment was {before} and is {after}")
