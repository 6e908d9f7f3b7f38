from names import AXES, NARGS, WRITTEN
from load import op
from case import arguments, results
import os
import signal
import sys
import dovetail
import numpy

# One call, and how two calls differ.


def refused(kind, error, trace):
    """A call that is refused does not show the fault."""
    if not issubclass(kind, dovetail.DovetailError):
        return sys.__excepthook__(kind, error, trace)
    print(error, flush=True)
    os._exit(0)


sys.excepthook = refused


def call(args=None, out=None):
    """What it writes: {(slot, number): a copy}."""
    signal.alarm(20)  # it must end
    args = arguments() if args is None else args
    out = results() if out is None else out
    given = op(**args, **({"out": out if len(out) > 1 else out[0]} if out else {}))
    signal.alarm(0)
    given = given if isinstance(given, tuple) else (given,)
    written = {(NARGS + i, k): a for i, r in enumerate(given) if r is not None for k, a in enumerate(r if isinstance(r, list) else [r])}
    for slot, name in WRITTEN.items():
        listed = args[name] if isinstance(args[name], list) else [args[name]]
        written.update({(slot, k): a for k, a in enumerate(listed) if a is not None})
    return {key: numpy.array(a) for key, a in written.items()}


def differ(a, b, slot=None, rtol=-1, atol=0):
    """Words, where two calls wrote what differs: in a bit (rtol < 0), or by more than this."""
    for key in [key for key in a if slot is None or key[0] == slot]:
        x, y = a[key], b[key]
        if rtol >= 0 and x.shape == y.shape:
            wide = "complex128" if x.dtype.kind == "c" else "float64"
            if numpy.allclose(x.astype(wide), y.astype(wide), rtol, atol, equal_nan=True):
                continue
        elif x.shape == y.shape and x.tobytes() == y.tobytes():
            continue
        return f"{x} and {y}"
    return None


def part(args, low, high):
    """[low, high) of each tensor along its axis, contiguous."""
    def cut(a, axis):
        return None if a is None else numpy.array(a if axis < 0 else a[(slice(None),) * axis + (slice(low, high),)], order="C")

    def one(v, axes):
        return [cut(a, axis) for a, axis in zip(v, axes)] if isinstance(v, list) else cut(v, axes[0])
    return {name: one(v, AXES[name]) if name in AXES else v for name, v in args.items()}
