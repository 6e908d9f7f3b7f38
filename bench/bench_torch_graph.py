"""What a call of an operator costs inside a compiled program: 4-element tensors, one thread, a gradient declared. Each figure is the
difference of a chain of 50 calls and one of a single call, so that what every program costs is not in it."""
import sys

import torch
import torch._inductor.lowering
from torch_calls import custom_grad, in_turn, ours, row

CALLS = 50


def chain(op, count):
    """A module of its own code: chains that shared theirs would look through one another's guards."""
    names = {"op": op}
    exec("def forward(self, a, b):\n" + count * "    a = op(a, b)\n" + "    return a", names)
    return type("Chain", (torch.nn.Module,), {"forward": names["forward"]})()


def per_call(op, compiled, a, b):
    """Microseconds of one call of op in the programs that compiled() makes of chains."""
    torch._dynamo.reset()
    with torch.no_grad():
        names = {"long": compiled(chain(op, CALLS)), "short": compiled(chain(op, 1)), "a": a, "b": b}
        t = in_turn(300, names, {"long": "long(a, b)", "short": "short(a, b)"}, warm=100, each=50)
    return (t["long"] - t["short"]) / (CALLS - 1)


def jit(module):
    return torch.compile(module, fullgraph=True)


def aot(module):
    a = torch.randn(4)
    path = torch._inductor.aoti_compile_and_package(torch.export.export(module, (a, a)))
    return torch._inductor.aoti_load_package(path)


def main(quick):
    torch.set_num_threads(1)
    torch._inductor.config.fx_graph_cache = torch._functorch.config.enable_autograd_cache = False  # the same graph is compiled in two ways
    a, b = torch.randn(4), torch.randn(4)
    ours()
    f = torch.ops.bench_torch.add_grad.default
    mine = per_call(f, jit, a, b)
    with torch.no_grad():
        eager = in_turn(300, {"a": a, "b": b, "add": torch.add}, {"add": "add(a, b)"})["add"]
    row("a call inside a compiled graph", mine, "torch.add, eager", eager, "<= 0.8")
    row("a call inside a compiled graph", mine, "custom_op", per_call(custom_grad, jit, a, b), "<= 0.8")
    lowerings = torch._inductor.lowering.lowerings
    lowering = lowerings.pop(f)
    plain = per_call(f, jit, a, b)
    row("a call inside a compiled graph", mine, "the same, as torch lowers it", plain)
    row("a call inside a compiled graph, as torch lowers it", plain, "custom_op", per_call(custom_grad, jit, a, b), "<= 2.7")
    lowerings[f] = lowering  # torch's own cannot be compiled by its C++ wrapper
    if not quick:
        row("a call inside a compiled graph", mine, "the same, by AOTInductor", per_call(f, aot, a, b))


main("--quick" in sys.argv)
