"""The shipped operators beside the machine's limits and beside PyTorch, eager and compiled by Inductor, with one thread and with all.

Elementwise operators and those over rows: 1 M elements, which lie in the cache, and 16 M. Then products, mixtures of experts, the indexer and
sparse attention at sizes of a large model. One JSON object a line (run.py); one of all lines has the limits by themselves.

A case is its name, the call of ours, how a function of PyTorch's is called on the same tensors, that function, the arguments of Limit (least
operations and bytes), and goals: the share of the limit in percent, how many times as fast as a peer, or as the best of them.
"""
import ctypes
import itertools
import json
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

import dovetail
import limits

QUICK = "--quick" in sys.argv
THREADS = limits.THREADS[:1] if QUICK else limits.THREADS
SECONDS = 0.1 if QUICK else 0.7  # for a case, or until each function has had four turns
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def in_turn(functions, limit=None):
    """The best microseconds of each. They take turns, so that all see the same machine; a short one is called some times in a turn, since what it
    uses must first come into the cache again."""
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    end, turns = time.perf_counter() + SECONDS, 0
    while turns < 4 or time.perf_counter() < end:
        turns += 1
        if limit:
            limit.measure()
        for name, function in functions.items():
            begin = before = time.perf_counter()
            while before < begin + 0.002:
                function()
                after = time.perf_counter()
                best[name] = min(best[name], after - before)
                before = after
    return {name: t * 1e6 for name, t in best.items()}


def compare(what, ours, bind, theirs, limit, goals, inductor=True):
    for threads in THREADS:
        torch.set_num_threads(threads)
        dovetail.set_threads(threads)
        functions = {"ours": ours, "torch eager": bind(theirs)}
        if inductor and not QUICK:
            torch._dynamo.reset()
            functions["Inductor"] = bind(torch.compile(theirs, dynamic=False))
        least = limits.Limit(threads, **limit)
        with torch.no_grad():
            times = in_turn(functions, least)
        print(json.dumps({"case": what, "ours": times.pop("ours"), "peers": times, "goals": goals, **least.row()}), flush=True)


def rotary(x, positions, cache):
    cos, sin = cache[positions].unsqueeze(1).chunk(2, -1)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rms_norm(x, weight):
    y = x.float()
    return (y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6) * weight.float()).to(x.dtype)


def lines(dtype, n):
    """Elementwise operators and those over rows of 1024: the case, and what its limit counts: operations of the formula for an element, exp, erf and
    sin one each; tensors of n elements that are read."""
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n // 1024, 1024, generator=g).to(dtype) for _ in range(2))
    weight = torch.randn(1024, generator=g).to(dtype)
    angle = torch.rand(n // 1024, 64, generator=g) * 6
    cache, positions = torch.cat([angle.cos(), angle.sin()], -1).to(dtype), torch.arange(n // 1024)
    out, heads, both = torch.empty_like(x), x.reshape(-1, 8, 128), torch.cat([x, y], -1)
    ops, of_x, of_weight = dovetail.ops, lambda f: lambda: f(x), lambda f: lambda: f(x, weight)
    yield "swiglu", lambda: ops.swiglu(x, y), lambda f: lambda: f(x, y), lambda a, b: F.silu(a) * b, 5, 2
    yield "sigmoid", lambda: ops.sigmoid(x), of_x, torch.sigmoid, 4, 1
    yield "sin", lambda: ops.numpy_sin(x, out), of_x, torch.sin, 1, 1
    yield "rms_norm", lambda: ops.rms_norm(x, weight), of_weight, rms_norm, 4, 1
    yield "softmax", lambda: ops.softmax(x), of_x, lambda x: F.softmax(x, -1), 5, 1
    if n == 1 << 20:
        yield "silu_and_mul", lambda: ops.silu_and_mul(both), lambda f: lambda: f(both), silu_and_mul, 5, 2
        yield "gelu", lambda: ops.gelu(x), of_x, F.gelu, 5, 1
        yield "layer_norm", lambda: ops.layer_norm(x, weight, weight), of_weight, layer_norm, 8, 1
        yield "rotary_embedding", lambda: ops.apply_rotary(heads, positions, cache), lambda f: lambda: f(heads, positions, cache), rotary, 3, 1


def line_goals(name, short, n):
    if n > 1 << 20:
        return {"f32": {"share": 90, "Inductor": 1.25 if name == "swiglu" else 1.35}, "bf16": {"share": 60, "Inductor": 1.8}, "f16": {}}[short]
    if name not in ("swiglu", "sigmoid", "sin", "rms_norm", "softmax"):
        return {}
    return {"f32": {"torch eager": 1, "Inductor": 1.7 if name == "sin" else 1.5}, "bf16": {"torch eager": 1.5, "Inductor": 1.5}, "f16": {"best": 1.3}}[short]


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


def index_i8(q, k, w, q_scale, k_scale):
    return (torch._int_mm(q[0, 0], k[0, :, 0].T).relu() * (w * q_scale).reshape(-1, 1)).sum(0).mul(k_scale.flatten()).topk(2048).indices


def large(short):
    g = torch.Generator().manual_seed(0)
    dtype, bits = DTYPES[short], DTYPES[short].itemsize
    draw = lambda *shape: torch.randn(shape, generator=g).to(dtype)
    turn = itertools.cycle([draw(4096, 4096) for _ in range(8 // bits)])  # 128 MB: weights are cold, as in a model
    for rows, share in ((1, 90), (16, 90), (128, 80)):
        x = draw(rows, 4096)
        yield (f"linear, {rows} x 4096 x 4096", lambda: dovetail.ops.linear(x, next(turn)), lambda f: lambda: f(x, next(turn)), F.linear,
               dict(flops=rows * 2 * 4096**2, size=(4096**2 + rows * 8192) * bits, cold=True), {"share": share, "torch eager": 1} if short == "bf16" else {})
    for queries, keys, share, times in ((1, 8192, 80, 3 if short == "bf16" else 3.5), (1, 65536, 88 if short == "bf16" else 80, 2.5), (64, 8192, None, 2.3)):
        if queries > 1 and short != "bf16":
            continue
        q, k, w = draw(1, queries, 64, 128), draw(1, keys, 1, 128), draw(1, queries, 64)
        yield (f"lightning_indexer, {queries} x {keys} keys", lambda: dovetail.ops.lightning_indexer(q, k, w, sparse_mode=0), lambda f: lambda: f(q, k, w), index,
               dict(flops=queries * keys * 64 * 2 * 128, size=keys * 128 * bits), {"Inductor": times, **({"share": share} if share else {})})
    for n, share, times in ((1, 88, 1.9), (8, 84, 1.4)):
        q, q_rope, k, k_rope = draw(1, n, 128, 512), draw(1, n, 128, 64), draw(1, 8192, 1, 512), draw(1, 8192, 1, 64)
        chosen = torch.stack([torch.randperm(8192, generator=g)[:2048] for _ in range(n)]).int().reshape(1, n, 1, 2048)
        yield (f"sparse_flash_attention, {n} x 2048 keys", lambda: dovetail.ops.sparse_flash_attention(
            q, k, k, chosen, 192**-0.5, query_rope=q_rope, key_rope=k_rope, sparse_mode=0), lambda f: lambda: f(q, q_rope, k, k_rope, chosen), attend,
            dict(flops=n * 128 * 2048 * 2 * (2 * 512 + 64), size=(min(8192, n * 2048) + n * 128) * 576 * bits),
            {"share": share, "Inductor": times} if short == "bf16" else {})


def large_i8():
    g = torch.Generator().manual_seed(0)
    for keys, share, times in ((8192, 70, 3.5), (65536, 85, 8)):
        q, k = (torch.randint(-127, 128, shape, generator=g, dtype=torch.int8) for shape in ((1, 1, 64, 128), (1, keys, 1, 128)))
        tensors = q, k, torch.rand(1, 1, 64, generator=g), torch.rand(1, 1, 64, generator=g), torch.rand(1, keys, 1, generator=g)
        yield (f"lightning_indexer, 1 x {keys} keys", lambda: dovetail.ops.npu_lightning_indexer_quant(*tensors, sparse_mode=0), lambda f: lambda: f(*tensors), index_i8,
               dict(flops=keys * 64 * 2 * 128, size=keys * 128), {"share": share, "torch eager": times})


def experts(x, w1, w2, weights, ids):
    """One expert after the other, with its tokens."""
    out = torch.zeros(x.shape)
    for e in ids.unique().tolist():
        token, choice = (ids == e).nonzero(as_tuple=True)
        out.index_add_(0, token, (silu_and_mul(x[token] @ w1[e].T) @ w2[e].T).float() * weights[token, choice, None])
    return out.to(x.dtype)


def mixtures(short):
    """PyTorch's loop depends on data: Inductor has nothing to compile. A single token chooses other experts in each call: their weights are cold."""
    g = torch.Generator().manual_seed(0)
    dtype, k = DTYPES[short], 2048
    some = (torch.randn(3 * 64 * 1408 * k // 16, generator=g) / 40).to(dtype).repeat(16)
    for tokens, count, n, top, share in ((1, 60, 1408, 6, 90), (16, 64, 1408, 6, 92), (128, 64, 1408, 6, 73), (512, 64, 768, 8, 85)):
        w1, w2 = some[:count * 2 * n * k].view(count, 2 * n, k), some[-count * n * k:].view(count, k, n)
        x, weights = torch.randn(tokens, k, generator=g).to(dtype), torch.rand(tokens, top, generator=g)
        ids = torch.rand(tokens, count, generator=g).topk(top).indices.int() if tokens > 1 else torch.randperm(count, generator=g).int()
        turn = itertools.cycle(ids.view(-1, tokens, top))
        yield (f"fused_experts, {tokens} token{'s' * (tokens > 1)}, {top} of {count} experts of {k} x {n}",
               lambda: dovetail.ops.fused_experts(x, w1, w2, weights, next(turn)), lambda f: lambda: f(x, w1, w2, weights, next(turn)), experts,
               dict(flops=6 * tokens * top * n * k, size=ids.view(-1, tokens, top)[0].unique().numel() * 3 * n * k * dtype.itemsize, cold=True),
               {"share": share} if short == "bf16" else {"share": 85} if tokens != 16 else {})


def say(what, peer, ours, theirs, goal):
    print(json.dumps(dict(what=what, peer=peer, ours=ours, theirs=theirs, unit="us", goal=goal, higher=False)), flush=True)


def top_k():
    """The indexer with one head of one element: a score is its key."""
    x, one = torch.rand(65536, generator=torch.Generator().manual_seed(0)), torch.ones(1, 1, 1, 1)
    for threads in THREADS:
        torch.set_num_threads(threads)
        dovetail.set_threads(threads)
        times = in_turn({"ours": lambda: dovetail.ops.lightning_indexer(one, x.view(1, -1, 1, 1), one[0], sparse_mode=0, return_value=True),
            "theirs": lambda: x.topk(2048)})
        say(f"top-k 2048 of 65536, f32, by lightning_indexer, {threads} thread{'s' * (threads > 1)}", "torch.topk", times["ours"], times["theirs"], ">= 1.5 x")


def step_of_64():
    """advance_step; the lengths begin anew after each call, and the time of that is taken off."""
    def draw():
        g = torch.Generator().manual_seed(0)
        whole = lambda *shape, most=1000: torch.randint(0, most, shape, generator=g)
        return [whole(64), whole(64, 1), whole(64), whole(64, most=100).int(), whole(64), whole(64, 256).int()]

    def eager(tokens, sampled, positions, lengths, slots, tables):
        at = lengths.long()
        tokens.copy_(sampled[:, 0]), positions.copy_(at), lengths.add_(1)
        slots.copy_(tables.gather(1, (at // 16)[:, None])[:, 0].long() * 16 + at % 16)

    def pair(function, tensors, *first):
        return lambda: [(function(*first, *tensors), tensors[3].fill(0) if isinstance(tensors[3], np.ndarray) else tensors[3].zero_()) for _ in range(50)]

    torch.set_num_threads(1)
    dovetail.set_threads(1)
    mine, arrays = draw(), [x.numpy() for x in draw()]
    times = in_turn({"dovetail.ops": pair(dovetail.ops.advance_step, mine, 64, 64, 16), "NumPy": pair(dovetail.ops.advance_step, arrays, 64, 64, 16),
        "torch.ops": pair(torch.ops.dovetail.advance_step, mine, 64, 64, 16), "eager": pair(eager, draw()),
        "again": pair(lambda *tensors: None, mine), "again, NumPy": pair(lambda *tensors: None, arrays)})
    for what, again, goal in (("dovetail.ops", "again", 20), ("NumPy", "again, NumPy", 20), ("torch.ops", "again", 7)):
        say(f"advance_step, 64 sequences, {what}", "torch eager", (times[what] - times[again]) / 50, (times["eager"] - times["again"]) / 50, f">= {goal} x")


def decode_step():
    """examples/decode_step at the published sizes: it checks the results, and prints its times."""
    example = pathlib.Path(__file__).resolve().parents[1] / "examples" / "decode_step" / "decode_step.py"
    for threads in THREADS:
        printed = subprocess.run([sys.executable, example, "--threads", str(threads)], capture_output=True, text=True, check=True).stdout
        times = {name.strip(): float(ms) * 1000 for name, ms in re.findall(r"^(.+?) +([\d.]+) ms", printed, re.M)}
        for name in ("Dovetail in PyTorch", "Dovetail in C"):
            say(f"decode step of a layer like DeepSeek-V3.2's, {name}, {threads} thread{'s' * (threads > 1)}", "plain PyTorch", times[name],
                times["plain PyTorch"], ">= 1.5 x")


def main():
    # Freed memory stays with the process, as an allocator that caches keeps it: else each call with a large result waits for fresh pages.
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-4, 0), libc.mallopt(-1, -1)  # M_MMAP_MAX, M_TRIM_THRESHOLD
    figures = limits.table()
    for n, title in ((1 << 20, "1 M"),) if QUICK else ((1 << 20, "1 M"), (1 << 24, "16 M")):
        for short, dtype in DTYPES.items():
            for name, ours, bind, theirs, operations, reads in lines(dtype, n):
                if n == 1 << 20 or short != "f16":
                    compare(f"{name} {short}, {title}", ours, bind, theirs, dict(kind="f32", flops=n * operations, size=n * (reads + 1) * dtype.itemsize,
                        reads=reads, writes=1), line_goals(name, short, n))
    if not QUICK:
        for short in ("f32", "bf16"):
            for what, *case, limit, goals in large(short):
                compare(f"{what}, {short}", *case, dict(kind=short, **limit), goals)
            for what, *case, limit, goals in mixtures(short):
                compare(f"{what}, {short}", *case, dict(kind=short, **limit), goals, inductor=False)
        for what, *case, limit, goals in large_i8():
            compare(f"{what}, i8", *case, dict(kind="i8", **limit), goals, inductor=False)
    top_k()
    step_of_64()
    if not QUICK:
        decode_step()
    print(json.dumps({"limits": limits.table(figures), "threads": limits.THREADS}))


if __name__ == "__main__":
    main()
