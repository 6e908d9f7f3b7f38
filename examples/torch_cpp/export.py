"""A model that uses Dovetail operators, for run_model: writes model.pt2, traced.pt and inputs.pt, and prints how to run them.

    python export.py FOLDER
"""
import pathlib
import sys

import torch

import dovetail.ops

HEAD, WIDTH, HIDDEN, POSITIONS = 8, 16, 32, 64


class Layer(torch.nn.Module):
    """A layer with one query head, far too small to be of use: positions, a residual that is updated in place, a gated half."""

    def __init__(self):
        super().__init__()
        angles = torch.outer(torch.arange(POSITIONS), 10000 ** (-torch.arange(0, HEAD, 2) / HEAD))
        self.register_buffer("cache", torch.cat([angles.cos(), angles.sin()], -1))
        self.first, self.second = torch.nn.Parameter(torch.rand(WIDTH)), torch.nn.Parameter(torch.rand(WIDTH))
        self.query = torch.nn.Linear(WIDTH, HEAD, bias=False)
        self.mix = torch.nn.Linear(HEAD, WIDTH, bias=False)
        self.gate, self.up = (torch.nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))

    def forward(self, x, positions):
        ops = torch.ops.dovetail
        query = self.query(ops.rms_norm(x, self.first))
        ops.rotary_embedding(positions, query, None, HEAD, self.cache, True)
        residual = x.clone()
        normed = ops.add_rms_norm(self.mix(query), residual, self.second)
        return ops.swiglu(self.gate(normed), self.up(normed)), residual


def main(folder):
    folder = pathlib.Path(folder)
    _ = dovetail.ops.rms_norm, dovetail.ops.rotary_embedding, dovetail.ops.swiglu  # loads them: torch.ops.dovetail has them
    torch.manual_seed(0)
    model = Layer().eval().requires_grad_(False)
    inputs = torch.randn(5, WIDTH), torch.arange(5)
    tokens = torch.export.Dim("tokens", min=2, max=POSITIONS)
    program = torch.export.export(model, inputs, dynamic_shapes=({0: tokens}, {0: tokens}))
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    torch.jit.trace(model, inputs).save(str(folder / "traced.pt"))
    torch.save(list(inputs), folder / "inputs.pt")
    binaries = ":".join(library.path for library in dovetail.libraries())
    print(f"run_model {binaries} {folder}/model.pt2 {folder}/inputs.pt {folder}/outputs.pt")
    return model


if __name__ == "__main__":
    main(sys.argv[1])
