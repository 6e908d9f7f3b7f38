"""Trains one small transformer four ways and plots the loss curves: PyTorch's own operations and Dovetail's operators, each eager and
compiled. The Dovetail model gets rms_norm, swiglu and rotary_embedding from the operators that come with Dovetail; all else is the same
code, the same weights and the same batches. The curves must lie on each other: the script fails when they do not.

    python examples/torch_train/train.py [--steps 150] [--out out/train]

The text to learn is Dovetail's own documentation, byte by byte.
"""
import argparse
import math
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

import dovetail

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS, WIDTH, HEADS, HIDDEN, CONTEXT, BATCH = 2, 64, 4, 176, 64, 16
HEAD = WIDTH // HEADS


class Native:
    """The three operations as one writes them in PyTorch."""

    @staticmethod
    def rms_norm(x, weight):
        return F.rms_norm(x, weight.shape, weight, 1e-6)

    @staticmethod
    def swiglu(gate, up):
        return F.silu(gate) * up

    @staticmethod
    def rotary(x, positions, cache):
        """x: [batch, tokens, heads, head size]."""
        cos, sin = cache[positions].unsqueeze(-2).chunk(2, -1)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Dovetail:
    """The same three, from dovetail.ops: written once, in C, with their gradients declared."""

    @staticmethod
    def rms_norm(x, weight):
        return dovetail.ops.rms_norm(x, weight)

    @staticmethod
    def swiglu(gate, up):
        return dovetail.ops.swiglu(gate, up)

    @staticmethod
    def rotary(x, positions, cache):
        """rotary_embedding turns in place: autograd knows from the declaration that it writes."""
        turned = x.flatten(-2).clone()
        dovetail.ops.rotary_embedding(positions, turned, None, HEAD, cache, True)
        return turned.view(x.shape)


class Block(torch.nn.Module):
    def __init__(self, ops):
        super().__init__()
        self.ops = ops
        self.norm_attention, self.norm_feed_forward = (torch.nn.Parameter(torch.ones(WIDTH)) for _ in range(2))
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_up = torch.nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = torch.nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x, positions, cache):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.ops.rms_norm(x, self.norm_attention)).view(batch, tokens, 3 * HEADS, HEAD).split(HEADS, 2)
        q, k = self.ops.rotary(q, positions, cache), self.ops.rotary(k, positions, cache)
        attended = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, WIDTH))
        gate, up = self.gate_up(self.ops.rms_norm(x, self.norm_feed_forward)).chunk(2, -1)
        return x + self.down(self.ops.swiglu(gate, up))


class Transformer(torch.nn.Module):
    def __init__(self, ops):
        super().__init__()
        self.ops = ops
        self.embedding = torch.nn.Embedding(256, WIDTH)
        self.blocks = torch.nn.ModuleList(Block(ops) for _ in range(LAYERS))
        self.norm = torch.nn.Parameter(torch.ones(WIDTH))
        angles = torch.arange(CONTEXT)[:, None] * 10_000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        self.register_buffer("cache", torch.cat([angles.cos(), angles.sin()], 1))

    def forward(self, text):
        """text: [batch, tokens] of bytes -> the mean loss of guessing each next one."""
        tokens, wanted = text[:, :-1], text[:, 1:]
        x = self.embedding(tokens)
        positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
        for block in self.blocks:
            x = block(x, positions, self.cache)
        guess = F.linear(self.ops.rms_norm(x, self.norm), self.embedding.weight)
        return F.cross_entropy(guess.flatten(0, 1), wanted.flatten())


def batches(steps):
    """The same pieces of text for every run."""
    text = b"\n".join(p.read_bytes() for p in sorted(ROOT.glob("docs/*.md")) + [ROOT / "README.md"])
    text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=generator)
        yield torch.stack([text[s:s + CONTEXT + 1] for s in starts.tolist()])


def train(ops, compiled, steps):
    """The losses of all steps, and the median time of one in milliseconds."""
    torch.manual_seed(0)
    model = Transformer(ops)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.02 if "embedding" in name else 1 / math.sqrt(p.shape[1]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = torch.compile(model, fullgraph=True) if compiled else model
    losses, times = [], []
    for text in batches(steps):
        start = time.perf_counter()
        loss = step(text)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
    return losses, sorted(times)[len(times) // 2] * 1e3


def plot(curves, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 7), sharex=True, height_ratios=[3, 1])
    for (name, losses), style in zip(curves.items(), ("-", "--", "-.", ":")):
        above.plot(losses, style, label=name, linewidth=1 + 2 * (style == "-"))
        below.plot([abs(a - b) for a, b in zip(losses, curves["PyTorch, eager"])], style, label=name)
    above.set_ylabel("loss (nats a byte)")
    above.legend()
    below.set_ylabel("distance from\nPyTorch, eager")
    below.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    below.set_xlabel("step")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out/train")
    options = parser.parse_args()
    console, curves, table = Console(), {}, Table("", "first loss", "last loss", "farthest from PyTorch", "ms a step")
    for ops in (Native, Dovetail):
        for compiled in (False, True):
            name = f"{'PyTorch' if ops is Native else 'Dovetail'}, {'compiled' if compiled else 'eager'}"
            with console.status(name):
                curves[name], ms = train(ops, compiled, options.steps)
            far = max(abs(a - b) for a, b in zip(curves[name], curves["PyTorch, eager"]))
            table.add_row(name, f"{curves[name][0]:.4f}", f"{curves[name][-1]:.4f}", f"{far:.1e}", f"{ms:.2f}")
    console.print(table)
    options.out.mkdir(parents=True, exist_ok=True)
    plot(curves, options.out / "loss.png")
    console.print(f"plotted in {options.out / 'loss.png'}")
    far = max(abs(a - b) for losses in curves.values() for a, b in zip(losses, curves["PyTorch, eager"]))
    learned = curves["Dovetail, eager"][0] - curves["Dovetail, eager"][-1]
    if far > 0.02 or (options.steps >= 100 and learned < 1):
        sys.exit(f"the curves differ by {far:.3g}, and the loss fell by {learned:.3g}")


if __name__ == "__main__":
    main()
