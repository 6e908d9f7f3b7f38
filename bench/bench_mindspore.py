"""What a call of an operator costs in MindSpore's eager mode, PyNative: f32[4, 8], beside mint.add. Rows as the other files of this folder print them,
and a table in a terminal. It needs MindSpore, which is in an environment of its own (make test-mindspore makes it):

    PYTHONPATH=build/python .venv-mindspore/bin/python bench/bench_mindspore.py [--quick]
"""
import importlib.util
import json
import pathlib
import sys
import tempfile
import timeit

if not importlib.util.find_spec("mindspore"):
    sys.exit(0)  # bench/run.py runs in another environment

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "build" / "python"))

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint

import dovetail

SOURCE = """
#include <dovetail_op.h>
struct add { const dv_tensor *a, *b; dv_tensor *out; };
static int add(dv_context *ctx, const struct add *f)
{
    const float *a = f->a->data, *b = f->b->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(f->out); i < n; i++)
        ((float *)f->out->data)[i] = a[i] + b[i];
    return DV_OK;
}
DV_OPERATOR(add, struct add, (a, b, out), .schema = "add(Tensor a, Tensor b) -> Tensor out", .contract = "a[*s]:f32, b[*s]:f32 -> out[*s]:f32",
    .gradient = "a: grad; b: grad", .kernels = DV_KERNELS(DV_KERNEL(struct add, "cpu", "f32", add)));
struct transposed { const dv_tensor *x; dv_tensor *out; };
DV_OPERATOR(transposed, struct transposed, (x, out), .schema = "transposed(Tensor(a) x) -> Tensor(a) out",
    .contract = "x[n m]:f32 -> out[m n]:f32 view(x) strides[stride(x, 1) stride(x, 0)]");
DV_LIBRARY(bench_mindspore, &dv_op_add, &dv_op_transposed);
"""
# what, ours, theirs, goal; "p" is a tensor that an operator is still computing
CALLS = (
    ("a result given", "f(a, b, out)", "mint.add(a, b)", "<= 3"),
    ("a new result", "f(a, b)", "mint.add(a, b)", "<= 5"),
    ("of tensors that are not contiguous", "f(t, t)", "mint.add(t, t)", None),
    ("a view", "transposed(a)", "mint.transpose(a, 0, 1)", None),
    ("a pending input", "f(mint.add(a, b), b, out)", "mint.add(mint.add(a, b), b)", None),
    ("a pending input, waited for", "f(mint.add(a, b), b, out)", "mint.add(mint.add(a, b), b).asnumpy()", None),
    ("forward and backward of f(a, b).sum()", "grad_f(a, b)", "grad_add(a, b)", None),
)


def in_turn(slices, names, calls, each):
    """Microseconds of each call, the best of many slices, taken in turn: other work on the machine affects all of them alike."""
    timers = {call: timeit.Timer(call, globals=names) for call in calls}
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(slices):
        for call, timer in timers.items():
            best[call] = min(best[call], timer.timeit(each) / each * 1e6)
            names["wait"]()  # what was issued is not the next one's cost
    return best


def main(quick):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "bench_mindspore.c"
        source.write_text(SOURCE)
        ours = dovetail.load(source)
    a, b, out = (Tensor(np.ones((4, 8), np.float32)) for _ in range(3))
    names = {"f": ours.add, "transposed": ours.transposed, "mint": mint, "a": a, "b": b, "out": out, "t": a.T, "wait": lambda: mint.add(a, b).asnumpy(),
             "grad_f": ms.grad(lambda a, b: ours.add(a, b).sum(), (0, 1)), "grad_add": ms.grad(lambda a, b: mint.add(a, b).sum(), (0, 1))}
    rows = []
    for what, f, theirs, goal in CALLS:
        slow = goal is None and "t, t" not in f  # calls that wait for MindSpore's threads: milliseconds
        t = in_turn((2 if slow else 20) * (1 if quick else 5), names, (f, theirs), 5 if slow else 500)
        rows.append({"what": f"MindSpore, {what}: {f}" if "grad" not in f else f"MindSpore, {what}", "peer": f"{theirs} (mindspore {ms.__version__})",
                     "ours": round(t[f], 3), "theirs": round(t[theirs], 3), "unit": "us", "goal": goal, "higher": False})
        print(f"{rows[-1]['what']:76}{t[f]:8.2f} us {theirs:>40}{t[theirs]:8.2f} us   {goal or ''}" if sys.stdout.isatty() else json.dumps(rows[-1]), flush=True)


main("--quick" in sys.argv)
