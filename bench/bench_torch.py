"""What a call of an operator costs in PyTorch: 4-element tensors, one thread, beside PyTorch's own ways of adding an operator."""
import sys

import torch
from torch_calls import custom, custom_grad, in_turn, ours, row


def main(quick):
    torch.set_num_threads(1)
    direct = torch.library.Library("bench_lib", "DEF")
    direct.define("add(Tensor a, Tensor b) -> Tensor")
    direct.impl("add", torch.add, "CPU")
    library, ops = ours(), torch.ops.bench_torch
    names = {"a": torch.randn(4), "b": torch.randn(4), "out": torch.empty(4), "x": torch.randn(4, requires_grad=True),
        "f": library.add, "f_grad": library.add_grad, "f_out": library.add_out, "op": ops.add.default, "op_out": ops.add_out.default, "op_grad": ops.add_grad.default,
        "add": torch.add, "empty": torch.empty, "custom": custom, "custom_grad": custom_grad, "impl": torch.ops.bench_lib.add.default}
    with torch.no_grad():
        t = in_turn(150 if quick else 1500, names, {c: c for c in ("f(a, b)", "f_out(a, b, out)", "add(a, b)", "add(a, b, out=out)", "empty(4)",
            "custom(a, b)", "custom_grad(a, b)", "op(a, b)", "op_out(a, b, out)", "op_grad(a, b)", "impl(a, b)")})
    # goals are ratios: the figures over torch.add's there (1.10 us, with out= 0.96); forward and backward 1.15 times torch.add's
    row("function f(a, b)", t["f(a, b)"], "torch.add", t["add(a, b)"], ">= 1.83 x")
    row("function f(a, b)", t["f(a, b)"], "torch.empty", t["empty(4)"], ">= 1 x")
    row("function f(a, b)", t["f(a, b)"], "custom_op", t["custom(a, b)"])
    row("function f(a, b, out)", t["f_out(a, b, out)"], "torch.add(out=)", t["add(a, b, out=out)"], ">= 3.84 x")
    row("torch.ops call f(a, b)", t["op(a, b)"], "custom_op", t["custom(a, b)"])
    row("torch.ops call f(a, b)", t["op(a, b)"], "Library.impl in Python", t["impl(a, b)"])
    row("torch.ops call f(a, b)", t["op(a, b)"], "torch.add", t["add(a, b)"])
    row("torch.ops call f(a, b, out)", t["op_out(a, b, out)"], "torch.add(out=)", t["add(a, b, out=out)"])
    row("torch.ops call, gradient declared, none wanted", t["op_grad(a, b)"], "custom_op", t["custom_grad(a, b)"])
    row("torch.ops call, gradient declared, none wanted", t["op_grad(a, b)"], "torch.add", t["add(a, b)"], ">= 0.61 x")
    t = in_turn(60 if quick else 300, names, {name: f"{name}(x, b).sum().backward()" for name in ("f_grad", "op_grad", "custom_grad", "add")}, each=50)
    for what, name in (("f(a, b).sum()", "f_grad"), ("torch.ops' f(a, b).sum()", "op_grad")):
        row(f"forward and backward of {what}", t[name], "custom_op", t["custom_grad"])
        row(f"forward and backward of {what}", t[name], "torch.add", t["add"], ">= 0.87 x")


main("--quick" in sys.argv)
