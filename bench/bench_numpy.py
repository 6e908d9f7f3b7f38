"""A call on small NumPy arrays, of an operator that adds in a plain loop: beside the loop by ctypes with pointers, and beside NumPy's own add."""
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


SOURCE = """
#include <dovetail_op.h>
void plain_add(const float *a, const float *b, float *out, long n) { for (long i = 0; i < n; i++) out[i] = a[i] + b[i]; }
struct add { const dv_tensor *a, *b; dv_tensor *out; };
static int add(dv_context *ctx, const struct add *f)
{
    (void)ctx;
    plain_add(f->a->data, f->b->data, f->out->data, dv_numel(f->out));
    return DV_OK;
}
DV_OPERATOR(add, struct add, (a, b, out), .schema = "add(Tensor a, Tensor b) -> Tensor out",
    .contract = "a[*s]:f32, b[*s]:f32 -> out[*s]:f32; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct add, "cpu", "f32", add)));
DV_LIBRARY(bench_numpy, &dv_op_add);
"""


def compiled(folder):
    """(an operator, the function that it calls, for ctypes)"""
    (folder / "add.c").write_text(SOURCE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{ROOT / 'include'}", "-o", folder / "add.so", folder / "add.c"], check=True)
    plain = ctypes.CDLL(str(folder / "add.so")).plain_add
    plain.restype, plain.argtypes = None, [ctypes.c_void_p] * 3 + [ctypes.c_long]
    return dovetail.load(folder / "add.so").add, plain


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
    a, b, out = (np.ones((4, 8), np.float32) for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        add, plain = compiled(pathlib.Path(folder))
        names = {"add": add, "plain": plain, "add_custom": dovetail.ops.add_custom, "np": np, "a": a, "b": b, "out": out}
        t = {call: best(call, **names) for call in ("add(a, b, out)", "add_custom(a, b, out)", "np.add(a, b, out)", "np.add(a, b, out=out)", "add(a, b)",
             "np.add(a, b)", "plain(a.ctypes.data, b.ctypes.data, out.ctypes.data, 32)")}
        row("add(a, b, out) on NumPy arrays, 4x8 f32", t["add(a, b, out)"], "ctypes with .ctypes.data pointers",
            t["plain(a.ctypes.data, b.ctypes.data, out.ctypes.data, 32)"], "<= 0.3")
        row("add(a, b, out)", t["add(a, b, out)"], "numpy.add(a, b, out=out)", t["np.add(a, b, out=out)"], ">= 2.22 x")
        row("add(a, b, out)", t["add(a, b, out)"], "numpy.add(a, b, out)", t["np.add(a, b, out)"])
        row("add_custom(a, b, out), which broadcasts and promotes as NumPy's", t["add_custom(a, b, out)"], "numpy.add(a, b, out)", t["np.add(a, b, out)"])
        row("add(a, b) -> array", t["add(a, b)"], "numpy.add(a, b)", t["np.add(a, b)"])
    operators = BUILD / "ops" / "swiglu.so"
    row("import dovetail and load a library", 1e3 * started(f"import dovetail; dovetail.load({str(operators)!r})"),
        "import numpy", 1e3 * started("import numpy"))


if __name__ == "__main__":
    main()
