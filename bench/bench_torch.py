"""What a call of an operator costs in PyTorch: 4-element tensors, one thread, beside PyTorch's own ways of adding an operator."""
import json
import pathlib
import subprocess
import sys
import tempfile
import timeit

import torch

import dovetail

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
    root = pathlib.Path(__file__).resolve().parents[1]
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "ops.c").write_text(SOURCE)
    subprocess.run(["cc", "-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{root / 'include'}", folder / "ops.c", "-o", folder / "ops.so"],
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
_library = torch.library.Library("bench_lib", "DEF")
_library.define("add(Tensor a, Tensor b) -> Tensor")
_library.impl("add", torch.add, "CPU")


def us(f, *args, n=20_000):
    for _ in range(1000):
        f(*args)
    return min(timeit.repeat(lambda: f(*args), number=n, repeat=9)) / n * 1e6 - EMPTY


def in_graph(op, a, b, n=50):
    """One call inside a compiled graph: the difference of a long and a short chain."""
    def chain(count):
        def f(a, b):
            for _ in range(count):
                a = op(a, b)
            return a
        return torch.compile(f, fullgraph=True)

    long, short = chain(n), chain(1)
    with torch.no_grad():
        return (us(long, a, b, n=1000) - us(short, a, b, n=1000)) / (n - 1)


EMPTY = 0
EMPTY = us(lambda a, b: None, 0, 0)


def row(what, ours, peer, theirs, goal=None):
    print(json.dumps({"what": what, "peer": f"{peer} (torch {torch.__version__})", "ours": round(ours, 3), "theirs": round(theirs, 3), "unit": "us",
                      "goal": goal, "higher": False}), flush=True)


def main(quick):
    torch.set_num_threads(1)
    a, b, out = torch.randn(4), torch.randn(4), torch.empty(4)
    x = torch.randn(4, requires_grad=True)
    library, ops = ours(), torch.ops.bench_torch
    f, g = ops.add.default, ops.add_grad.default
    mine, direct = us(f, a, b), us(library.add, a, b)
    row("function f(a, b)", direct, "torch.add", us(torch.add, a, b), "<= 0.60 where torch.add is 1.10")
    row("function f(a, b)", direct, "torch.empty", us(torch.empty, 4))
    row("function f(a, b)", direct, "custom_op", us(custom, a, b))
    row("function f(a, b, out)", us(library.add_out, a, b, out), "torch.add(out=)", us(lambda a, b: torch.add(a, b, out=out), a, b),
        "<= 0.25 where torch.add(out=) is 0.96")
    row("torch.ops call f(a, b)", mine, "custom_op", us(custom, a, b), "<= 1.8")
    row("torch.ops call f(a, b)", mine, "Library.impl in Python", us(torch.ops.bench_lib.add.default, a, b))
    row("torch.ops call f(a, b)", mine, "torch.add", us(torch.add, a, b))
    row("torch.ops call f(a, b, out)", us(ops.add_out.default, a, b, out), "torch.add(out=)", us(lambda a, b: torch.add(a, b, out=out), a, b))
    with torch.no_grad():
        row("torch.ops call, gradient declared, none wanted", us(g, a, b), "custom_op", us(custom_grad, a, b), "<= 1.8")
    row("forward and backward of f(a, b).sum()", us(lambda a, b: g(a, b).sum().backward(), x, b, n=3000), "custom_op",
        us(lambda a, b: custom_grad(a, b).sum().backward(), x, b, n=3000), "<= 42")
    if not quick:
        row("a call inside a compiled graph", in_graph(f, a, b), "custom_op", in_graph(custom, a, b), "<= 2.7")


main("--quick" in sys.argv)
