"""Graph mode: torchair makes one node AddCustom of the operator. Without torchair, torch.compile's own backend."""
import pathlib
import sys

import torch

import custom_ops  # noqa: F401

try:
    import torchair
except ImportError:
    backend = "inductor"
else:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "graph"))
    import converter  # noqa: F401  the document's, with the generated AddCustom
    backend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())


class Network(torch.nn.Module):
    def forward(self, x, y):
        return torch.ops.myops.my_op(x, y)


x, y = torch.rand(8, 2048), torch.rand(8, 2048)
z = torch.compile(Network(), backend=backend, fullgraph=True)(x, y)
assert torch.equal(z, x + y)
print(f"add_custom: {'torchair' if backend != 'inductor' else backend} is right")
