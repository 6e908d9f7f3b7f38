"""What the benchmarks of PyTorch share: an operator of ours, the same by torch.library.custom_op, and how a call is timed."""
import json
import pathlib
import subprocess
import tempfile
import timeit

import torch

import dovetail

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE = r"""
#include <dovetail_op.h>
struct add { const dv_tensor *a, *b; dv_tensor *out; };
static int add(dv_context *ctx, const struct add *f)
{
    const float *a = f->a->data, *b = f->b->data;
    float *out = f->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(f->out); i < n; i++)
        out[i] = a[i] + b[i];
    return DV_OK;
}
#define ROWS DV_KERNELS(DV_KERNEL(struct add, "cpu", "f32", add))
DV_OPERATOR(add, struct add, (a, b, out), .schema = "add(Tensor a, Tensor b) -> Tensor out",
    .contract = "a[*s]:T, b[*s]:T -> out[*s]:T; T in f32; parallel(*s)", .kernels = ROWS);
DV_OPERATOR(add_out, struct add, (a, b, out), .schema = "add_out(Tensor a, Tensor b, Tensor(a!) out) -> ()",
    .contract = "a[*s]:T, b[*s]:T, out[*s]:T; T in f32; parallel(*s)", .kernels = ROWS);
DV_OPERATOR(add_grad, struct add, (a, b, out), .schema = "add_grad(Tensor a, Tensor b) -> Tensor out",
    .contract = "a[*s]:T, b[*s]:T -> out[*s]:T; T in f32; parallel(*s)", .gradient = "a: grad; b: grad", .kernels = ROWS);
DV_LIBRARY(bench_torch, &dv_op_add, &dv_op_add_out, &dv_op_add_grad);
"""


def ours():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "ops.c").write_text(SOURCE)
    subprocess.run(["cc", "-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'include'}", folder / "ops.c", "-o", folder / "ops.so"],
                   check=True)
    return dovetail.load(folder / "ops.so")


@torch.library.custom_op("bench_peer::custom", mutates_args=())
def custom(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.add(a, b)


@torch.library.custom_op("bench_peer::custom_grad", mutates_args=())
def custom_grad(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.add(a, b)


custom_grad.register_autograd(lambda ctx, g: (g, g))
custom.register_fake(lambda a, b: torch.empty_like(a))
custom_grad.register_fake(lambda a, b: torch.empty_like(a))


def in_turn(slices, names, calls, warm=1000, each=200):
    """Microseconds of each call (a dict of expressions), the best of many slices, taken in turn: other work on the machine affects all of them alike."""
    timers = {what: timeit.Timer(call, globals=names) for what, call in {**calls, "nothing": "pass"}.items()}
    for timer in timers.values():
        timer.timeit(warm)
    best = dict.fromkeys(timers, float("inf"))
    for _ in range(slices):
        for what, timer in timers.items():
            best[what] = min(best[what], timer.timeit(each))
    return {what: (best[what] - best["nothing"]) / each * 1e6 for what in calls}


def row(what, ours, peer, theirs, goal=None, unit="us"):
    print(json.dumps({"what": what, "peer": f"{peer} (torch {torch.__version__})", "ours": round(ours, 4), "theirs": theirs and round(theirs, 4),
                      "unit": unit, "goal": goal}), flush=True)
