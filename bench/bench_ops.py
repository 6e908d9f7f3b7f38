"""The shipped operators at 1 M elements beside PyTorch: eager, and compiled by Inductor; f32 and bf16; one thread and two. The last lines
are the memory's speed, measured in the same run, and what share of it the operators that only stream reach."""
import json
import sys
import time

import torch

import dovetail

N = 1 << 20
QUICK = "--quick" in sys.argv


def best(functions, rounds=40):
    """The best time of each in microseconds, taken in turns, so that all see the same machine."""
    times = [float("inf")] * len(functions)
    for _ in range(rounds):
        for i, f in enumerate(functions):
            t = time.perf_counter()
            f()
            times[i] = min(times[i], time.perf_counter() - t)
    return [t * 1e6 for t in times]


def tensors(dtype):
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(N // 1024, 1024, generator=g).to(dtype) for _ in range(2))
    weight = torch.randn(1024, generator=g).to(dtype)
    angle = torch.rand(2048, 64, generator=g) * 6
    cache, positions = torch.cat([angle.cos(), angle.sin()], -1).to(dtype), torch.arange(N // 1024)
    return x, y, weight, cache, positions


def rotary(x, positions, cache):
    cos, sin = cache[positions].unsqueeze(1).chunk(2, -1)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rms_norm(x, weight):
    y = x.float()
    return (y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6) * weight.float()).to(x.dtype)


def table(dtype):
    """name: ours, PyTorch's, how many tensors of N elements go through memory"""
    x, y, weight, cache, positions = tensors(dtype)
    out, heads = torch.empty_like(x), x.reshape(-1, 8, 128)
    return {
        "swiglu": (lambda: dovetail.ops.swiglu(x, y), lambda f: lambda: f(x, y), lambda a, b: torch.nn.functional.silu(a) * b, 3),
        "rms_norm": (lambda: dovetail.ops.rms_norm(x, weight), lambda f: lambda: f(x, weight), rms_norm, 2),
        "rotary_embedding": (lambda: dovetail.ops.apply_rotary(heads, positions, cache), lambda f: lambda: f(heads, positions, cache), rotary, 2),
        "sigmoid": (lambda: dovetail.ops.sigmoid(x), lambda f: lambda: f(x), torch.sigmoid, 2),
        "sin": (lambda: dovetail.ops.numpy_sin(x, out), lambda f: lambda: f(x), torch.sin, 2),
    }


def say(what, peer, ours, theirs, goal, unit="us", higher=False):
    print(json.dumps(dict(what=what, peer=peer, ours=ours, theirs=theirs, unit=unit, goal=goal, higher=higher)), flush=True)


def main():
    for threads in (1,) if QUICK else (1, 2):
        torch.set_num_threads(threads)
        dovetail.set_threads(threads)
        for dtype, short in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
            source, target = torch.empty(N, dtype=dtype), torch.empty(N, dtype=dtype)
            for name, (ours, bind, theirs, streams) in table(dtype).items():
                functions = [ours, bind(theirs), lambda: target.copy_(source)]
                if not QUICK:
                    torch._dynamo.reset()
                    compiled = bind(torch.compile(theirs, dynamic=False))
                    compiled()
                    functions.append(compiled)
                with torch.no_grad():
                    times = best(functions)
                what = f"{name} {short}, 1 M, {threads} thread{'s' * (threads > 1)}"
                say(what, "torch eager", times[0], times[1], ">= 4 x" if name == "sin" and short == "f32" else None)
                if not QUICK:
                    say(what, "Inductor", times[0], times[3], ">= 1.0 x")
                say(f"{what}: share of a copy's bandwidth", "copy", 100 * streams / 2 * times[2] / times[0], None, None, "%", True)


if __name__ == "__main__":
    main()
