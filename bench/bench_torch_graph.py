"""What a call of an operator costs inside a compiled program: 4-element tensors, one thread, a gradient declared. Each figure is the
difference of a chain of 50 calls and one of a single call, so that what every program costs is not in it."""
import json
import pathlib
import subprocess
import sys
import tempfile
import timeit

import torch
import torch._inductor.lowering

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
    .contract = "a[*s]:T, b[*s]:T -> out[*s]:T; T in f32; parallel(*s)", .gradient = "a: grad; b: grad", .kernels = ROWS);
DV_LIBRARY(bench_graph, &dv_op_add);
"""
CALLS = 50


def ours():
    root = pathlib.Path(__file__).resolve().parents[1]
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "ops.c").write_text(SOURCE)
    subprocess.run(["cc", "-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{root / 'include'}", folder / "ops.c", "-o", folder / "ops.so"],
                   check=True)
    return dovetail.load(folder / "ops.so")


@torch.library.custom_op("bench_graph_peer::add", mutates_args=())
def custom(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.add(a, b)


custom.register_fake(lambda a, b: torch.empty_like(a))
custom.register_autograd(lambda ctx, g: (g, g))


def us(f, *args, n):
    for _ in range(100):
        f(*args)
    return min(timeit.repeat(lambda: f(*args), number=n, repeat=9)) / n * 1e6


def chain(op, count):
    class Chain(torch.nn.Module):
        def forward(self, a, b):
            for _ in range(count):
                a = op(a, b)
            return a
    return Chain()


def per_call(op, compiled, a, b):
    """A figure for one call of op in the programs that compiled() makes of chains."""
    torch._dynamo.reset()
    with torch.no_grad():
        long, short = compiled(chain(op, CALLS)), compiled(chain(op, 1))
        return (us(long, a, b, n=1000) - us(short, a, b, n=1000)) / (CALLS - 1)


def jit(module):
    return torch.compile(module, fullgraph=True)


def aot(module):
    a = torch.randn(4)
    path = torch._inductor.aoti_compile_and_package(torch.export.export(module, (a, a)))
    return torch._inductor.aoti_load_package(path)


def row(what, ours, peer, theirs, goal=None):
    print(json.dumps({"what": what, "peer": f"{peer} (torch {torch.__version__})", "ours": round(ours, 3), "theirs": round(theirs, 3), "unit": "us",
                      "goal": goal, "higher": False}), flush=True)


def main(quick):
    torch.set_num_threads(1)
    torch._inductor.config.fx_graph_cache = torch._functorch.config.enable_autograd_cache = False  # the same graph is compiled in two ways
    a, b = torch.randn(4), torch.randn(4)
    f = ours().add
    eager = us(torch.add, a, b, n=20_000)
    mine = per_call(f, jit, a, b)
    row("a call inside a compiled graph", mine, "torch.add, eager", eager, "<= 0.8")
    row("a call inside a compiled graph", mine, "custom_op", per_call(custom, jit, a, b), "<= 0.8")
    lowerings, overload = torch._inductor.lowering.lowerings, torch.ops.bench_graph.add.default
    lowering = lowerings.pop(overload)
    row("a call inside a compiled graph", mine, "the same, as torch lowers it", per_call(f, jit, a, b), "<= 0.8")
    lowerings[overload] = lowering  # torch's own cannot be compiled by its C++ wrapper
    if not quick:
        row("a call inside a compiled graph", mine, "the same, by AOTInductor", per_call(f, aot, a, b))


main("--quick" in sys.argv)
