"""The same binary in PyTorch: eager with gradients, and one compilation for three sizes."""
import torch

import dovetail
from host import BINARY, check, microseconds, report

my_ops = dovetail.load(BINARY)
swiglu = torch.ops.my_ops.swiglu
right = lambda gate, up: torch.nn.functional.silu(gate) * up
torch.manual_seed(0)

gate, up = torch.randn(64, 64), torch.randn(64, 64)
error = (swiglu(gate, up) - right(gate, up)).abs().max().item()
check(error < 1e-5, f"eager: error {error}")
report("PyTorch, eager", "swiglu, 64 x 64", f"error {error:.0e}", microseconds(lambda: swiglu(gate, up)))

small = torch.randn(4), torch.randn(4)
check(torch.equal(my_ops.swiglu(*small), swiglu(*small)), "the function and torch.ops differ")
report("PyTorch, eager", "my_ops.swiglu, 4 elements", "straight to the kernel", microseconds(lambda: my_ops.swiglu(*small)))
report("PyTorch, eager", "torch.ops.my_ops.swiglu, 4 elements", "by the dispatcher", microseconds(lambda: swiglu(*small)))

x, y = torch.randn(6, 8, dtype=torch.float32, requires_grad=True), torch.randn(6, 8, requires_grad=True)
weight = torch.randn(6, 8)
found, expected = (torch.autograd.grad((f(x, y) * weight).sum(), (x, y)) for f in (swiglu, right))
error = max((a - b).abs().max().item() for a, b in zip(found, expected))
check(error < 1e-5, f"gradient: error {error}")
report("PyTorch, eager", "gradient, against autograd's", f"error {error:.0e}",
       microseconds(lambda: torch.autograd.grad((swiglu(x, y) * weight).sum(), (x, y))))

from torch._dynamo.testing import CompileCounterWithBackend

counter = CompileCounterWithBackend("inductor")
compiled = torch.compile(lambda gate, up: swiglu(gate * 2, up) + 1, backend=counter, fullgraph=True, dynamic=True)
for size in ((16, 32), (64, 64), (300, 1000)):
    gate, up = torch.randn(size), torch.randn(size)
    error = (compiled(gate, up) - (right(gate * 2, up) + 1)).abs().max().item()
    check(error < 1e-4, f"compiled at {size}: error {error}")
    report("torch.compile", f"swiglu(2 gate, up) + 1, {size[0]} x {size[1]}", f"error {error:.0e}", microseconds(lambda: compiled(gate, up)))
check(counter.frame_count == 1, f"{counter.frame_count} compilations for three sizes")
report("torch.compile", "fullgraph=True, dynamic=True, three sizes", "1 compilation")
