"""The shipped operators at 1 M elements beside PyTorch: eager, and compiled by Inductor; f32 and bf16; one thread and two; with the share of
the memory's speed, measured in the same run, that they reach. Then products, mixtures of experts, the indexer and sparse attention at sizes of a large model."""
import json
import sys
import time

import torch
import torch.nn.functional as F

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
    out, heads, both = torch.empty_like(x), x.reshape(-1, 8, 128), torch.cat([x, y], -1)
    return {
        "swiglu": (lambda: dovetail.ops.swiglu(x, y), lambda f: lambda: f(x, y), lambda a, b: F.silu(a) * b, 3),
        "rms_norm": (lambda: dovetail.ops.rms_norm(x, weight), lambda f: lambda: f(x, weight), rms_norm, 2),
        "rotary_embedding": (lambda: dovetail.ops.apply_rotary(heads, positions, cache), lambda f: lambda: f(heads, positions, cache), rotary, 2),
        "sigmoid": (lambda: dovetail.ops.sigmoid(x), lambda f: lambda: f(x), torch.sigmoid, 2),
        "sin": (lambda: dovetail.ops.numpy_sin(x, out), lambda f: lambda: f(x), torch.sin, 2),
        "silu_and_mul": (lambda: dovetail.ops.silu_and_mul(both), lambda f: lambda: f(both), silu_and_mul, 3),
        "gelu": (lambda: dovetail.ops.gelu(x), lambda f: lambda: f(x), F.gelu, 2),
        "softmax": (lambda: dovetail.ops.softmax(x), lambda f: lambda: f(x), lambda x: F.softmax(x, -1), 2),
        "layer_norm": (lambda: dovetail.ops.layer_norm(x, weight, weight), lambda f: lambda: f(x, weight), layer_norm, 2),
    }


def layer_norm(x, weight):
    return F.layer_norm(x, x.shape[-1:], weight, weight)


def silu_and_mul(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def index(q, k, w):
    return (torch.einsum("bshd,btd->bsht", q, k[:, :, 0]).relu() * w[..., None]).sum(2).topk(2048).indices


def attend(q, q_rope, k, k_rope, chosen):
    """Of one sequence: each token's own gathered keys."""
    at = chosen[0, :, 0].long()
    keys, rope = k[0, :, 0][at], k_rope[0, :, 0][at]
    z = (q[0] @ keys.mT + q_rope[0] @ rope.mT) * 192**-0.5
    return z.softmax(-1) @ keys


def experts(x, w1, w2, weights, ids):
    """One expert after the other, with its tokens."""
    out = torch.zeros(x.shape)
    for e in ids.unique().tolist():
        token, choice = (ids == e).nonzero(as_tuple=True)
        out.index_add_(0, token, (silu_and_mul(x[token] @ w1[e].T) @ w2[e].T).float() * weights[token, choice, None])
    return out.to(x.dtype)


def mixtures(dtype):
    """The same as large(), for 16 experts of which a token chooses 6. PyTorch's loop depends on data: Inductor has nothing to compile."""
    g = torch.Generator().manual_seed(0)
    w1, w2 = torch.randn(16, 2048, 2048, generator=g).to(dtype) / 45, torch.randn(16, 2048, 1024, generator=g).to(dtype) / 32
    for tokens in (1, 16, 128, 512):
        x, weights = torch.randn(tokens, 2048, generator=g).to(dtype), torch.rand(tokens, 6, generator=g)
        ids = torch.rand(tokens, 16, generator=g).topk(6).indices.int()
        yield (f"fused_experts, {tokens} tokens, 6 of 16 experts of 2048 x 1024", lambda: dovetail.ops.fused_experts(x, w1, w2, weights, ids),
               lambda f: lambda: f(x, w1, w2, weights, ids), experts)


def large(dtype):
    """what: ours, PyTorch's"""
    g = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(shape, generator=g).to(dtype)
    for rows in (1, 16, 128):
        x, weight = draw(rows, 4096), draw(4096, 4096)
        yield f"linear, {rows} x 4096 x 4096", lambda: dovetail.ops.linear(x, weight), lambda f: lambda: f(x, weight), F.linear
    for keys in (8192, 65536):
        q, k, w = draw(1, 1, 64, 128), draw(1, keys, 1, 128), draw(1, 1, 64)
        yield f"lightning_indexer, 1 x {keys}", lambda: dovetail.ops.lightning_indexer(q, k, w, sparse_mode=0), lambda f: lambda: f(q, k, w), index
    for n in (1, 8):
        q, q_rope, k, k_rope = draw(1, n, 128, 512), draw(1, n, 128, 64), draw(1, 8192, 1, 512), draw(1, 8192, 1, 64)
        chosen = torch.stack([torch.randperm(8192, generator=g)[:2048] for _ in range(n)]).int().reshape(1, n, 1, 2048)
        yield (f"sparse_flash_attention, {n} x 2048 keys", lambda: dovetail.ops.sparse_flash_attention(
            q, k, k, chosen, 192**-0.5, query_rope=q_rope, key_rope=k_rope, sparse_mode=0), lambda f: lambda: f(q, q_rope, k, k_rope, chosen), attend)


def say(what, peer, ours, theirs, goal, unit="us", higher=False):
    print(json.dumps(dict(what=what, peer=peer, ours=ours, theirs=theirs, unit=unit, goal=goal, higher=higher)), flush=True)


def main():
    for threads in (1,) if QUICK else (1, 2):
        torch.set_num_threads(threads)
        dovetail.set_threads(threads)
        for dtype, short in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
            source, target = torch.empty(N, dtype=dtype), torch.empty(N, dtype=dtype)
            def compare(what, ours, bind, theirs, rounds, eager_goal=None, inductor=not QUICK):
                """Beside PyTorch's, and the time of the copy."""
                functions = [ours, bind(theirs), lambda: target.copy_(source)]
                if inductor:
                    torch._dynamo.reset()
                    compiled = bind(torch.compile(theirs, dynamic=False))
                    compiled()
                    functions.append(compiled)
                with torch.no_grad():
                    times = best(functions, rounds)
                say(what, "torch eager", times[0], times[1], eager_goal)
                if inductor:
                    say(what, "Inductor", times[0], times[3], ">= 1.0 x")
                return times

            title = f"{threads} thread{'s' * (threads > 1)}"
            for name, (ours, bind, theirs, streams) in table(dtype).items():
                what = f"{name} {short}, 1 M, {title}"
                times = compare(what, ours, bind, theirs, 40, ">= 4 x" if name == "sin" and short == "f32" else None)
                say(f"{what}: share of a copy's bandwidth", "copy", 100 * streams / 2 * times[2] / times[0], None, None, "%", True)
            for what, ours, bind, theirs in () if QUICK else large(dtype):
                compare(f"{what}, {short}, {title}", ours, bind, theirs, 8)
            for what, ours, bind, theirs in () if QUICK else mixtures(dtype):
                compare(f"{what}, {short}, {title}", ours, bind, theirs, 4, inductor=False)


if __name__ == "__main__":
    main()
