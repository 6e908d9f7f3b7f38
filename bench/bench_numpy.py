"""A call on small NumPy arrays: f(a, b, out) and f(a, b) beside ctypes with pointers, and beside NumPy's own add."""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import timeit

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
sys.path.insert(0, str(BUILD / "python"))

import numpy as np

import dovetail

REPEAT = 200 if "--quick" in sys.argv else 1500


def best(call, **names):
    """Microseconds: the best of many runs that are shorter than a slice of the scheduler's, so that other work on the machine does not count."""
    timer = timeit.Timer(call, globals=names)
    return min(timer.repeat(REPEAT, 1000)) / 1000 * 1e6


def row(what, ours, peer, theirs, goal=None):
    print(json.dumps({"what": what, "ours": ours, "peer": peer, "theirs": theirs, "unit": "us", "goal": goal, "higher": False}))


def plain_c(folder):
    """The same loop as a C function, for ctypes."""
    source = folder / "plain.c"
    source.write_text("void add(const float *a, const float *b, float *out, long n) { for (long i = 0; i < n; i++) out[i] = a[i] + b[i]; }\n")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", folder / "plain.so", source], check=True)
    add = ctypes.CDLL(str(folder / "plain.so")).add
    add.restype, add.argtypes = None, [ctypes.c_void_p] * 3 + [ctypes.c_long]
    return add


def started(code):
    """Milliseconds that code takes in a fresh Python, beyond starting Python; the best of some."""
    def run(text):
        import time
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", text], check=True, env={**os.environ, "PYTHONPATH": str(BUILD / "python")})
        return time.perf_counter() - begin
    n = 5 if "--quick" in sys.argv else 20
    return 1e3 * (min(run(code) for _ in range(n)) - min(run("pass") for _ in range(n)))


def main():
    f, g = dovetail.ops.swiglu, dovetail.ops.add_custom if hasattr(dovetail.ops, "add_custom") else dovetail.ops.swiglu
    a, b, out = (np.ones((4, 8), np.float32) for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        add = plain_c(pathlib.Path(folder))
        pointers = best("add(a.ctypes.data, b.ctypes.data, out.ctypes.data, 32)", add=add, a=a, b=b, out=out)
        names = {"f": f, "g": g, "a": a, "b": b, "out": out, "np": np}
        row("f(a, b, out) on NumPy arrays, 4x8 f32", best("f(a, b, out)", **names), "ctypes with .ctypes.data pointers", pointers, "<= 0.3")
        row("f(a, b, out), beside numpy.add", best("g(a, b, out)", **names), "numpy.add(a, b, out)", best("np.add(a, b, out)", **names))
        row("f(a, b) -> array", best("f(a, b)", **names), "numpy.add(a, b)", best("np.add(a, b)", **names))
    operators = BUILD / "ops" / "swiglu.so"
    row("import dovetail and load a library", 1e3 * started(f"import dovetail; dovetail.load({str(operators)!r})"),
        "import numpy", 1e3 * started("import numpy"))


if __name__ == "__main__":
    main()
