from call import call
from memory import libc
import contextlib
import ctypes
import itertools
import locale
import os
import signal
import sys
import tempfile
import dovetail
import numpy


def handler(number):
    held = ctypes.create_string_buffer(256)
    libc.sigaction(number, None, held)
    return held.raw[:8]


def environment():
    """The rounding mode, whether denormals are flushed to zero, the locale, signals, environment variables, the folder, processors, what was printed."""
    floats = libc.fegetround(), float(numpy.float32(1e-40) * numpy.float32(0.5))
    variables = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, []), [handler(n) for n in range(1, 32)]
    libc.fflush(None)
    return floats, locale.setlocale(locale.LC_ALL), signals, list(itertools.takewhile(bool, variables)), os.getcwd(), os.sched_getaffinity(0), os.lseek(1, 0, os.SEEK_CUR)


with tempfile.TemporaryFile() as printed:
    os.dup2(printed.fileno(), 1)
before = environment()
with contextlib.suppress(dovetail.DovetailError):
    call()
after = environment()
with contextlib.suppress(ChildProcessError):
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    sys.exit("a process was started that nobody waits for")
if before != after:
    sys.exit(f"the environment was {before} and is {after}")
