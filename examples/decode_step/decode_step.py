"""A layer of a model shaped like DeepSeek-V3.2, for one new token of each sequence: plain PyTorch, Dovetail's operators in PyTorch, and the C program
beside this file, on the same weights. The chosen keys must be equal, and the results within 2 % of the largest. Prints the best time of each, without
its first call."""
import argparse
import math
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import time


def ended(number, frame):
    """Of a signal: with one line, and the temporary folder is removed."""
    raise SystemExit(f"decode_step.py: ended by {signal.Signals(number).name}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, ended)
    signal.signal(signal.SIGTERM, ended)

import torch
import torch.nn.functional as F

import dovetail
from dovetail import ops

TOLERANCE = 0.02  # of the largest result: bf16 has 8 bits, and a step rounds about ten times
EPS = 1e-6
PUBLISHED = dict(hidden=7168, query=1536, heads=128, nope=128, rope=64, latent=512, value=128, index_heads=64, index=128, chosen=2048, keys=8192, page=64,
                 experts=16, groups=4, of_groups=2, choices=8, units=2048)  # 16 experts of 256, 4 groups of 8: what 4 GB hold
SMALL = dict(hidden=256, query=96, heads=8, nope=32, rope=16, latent=64, value=32, index_heads=8, index=64, chosen=64, keys=300, page=16,
             experts=8, groups=4, of_groups=2, choices=4, units=80)
BF16, F32, I32, I64 = torch.bfloat16, torch.float32, torch.int32, torch.int64


def layout(z, sequences):
    """name: dtype, shape. Everything that a step reads or writes."""
    pages = -(-z["keys"] // z["page"])
    paged = (sequences * pages, z["page"], 1)
    return dict(
        x=(BF16, (sequences, z["hidden"])), norm_in=(BF16, (z["hidden"],)), norm_query=(BF16, (z["query"],)), norm_latent=(BF16, (z["latent"],)),
        norm_out=(BF16, (z["hidden"],)), norm_index=(BF16, (z["index"],)), bias_index=(BF16, (z["index"],)),
        w_query_down=(BF16, (z["query"], z["hidden"])), w_query=(BF16, (z["heads"] * (z["nope"] + z["rope"]), z["query"])),
        w_latent=(BF16, (z["latent"] + z["rope"], z["hidden"])), w_key=(BF16, (z["heads"], z["latent"], z["nope"])),
        w_value=(BF16, (z["heads"], z["value"], z["latent"])), w_out=(BF16, (z["hidden"], z["heads"] * z["value"])),
        w_index_query=(BF16, (z["index_heads"] * z["index"], z["query"])), w_index_key=(BF16, (z["index"], z["hidden"])),
        w_index_weight=(BF16, (z["index_heads"], z["hidden"])), w_router=(BF16, (z["experts"], z["hidden"])), router_bias=(F32, (z["experts"],)),
        w_up=(BF16, (z["experts"], 2 * z["units"], z["hidden"])), w_down=(BF16, (z["experts"], z["hidden"], z["units"])),
        w_shared_up=(BF16, (2 * z["units"], z["hidden"])), w_shared_down=(BF16, (z["hidden"], z["units"])),
        angles=(F32, (z["keys"], z["rope"])), positions=(I64, (sequences,)), slots=(I64, (sequences,)), lengths=(I32, (sequences,)),
        block_table=(I32, (sequences, pages)), latents=(BF16, (*paged, z["latent"])), ropes=(BF16, (*paged, z["rope"])), index_keys=(BF16, (*paged, z["index"])))


def mapped(path, tensors):
    """The tensors in one file, which PyTorch and the C program map; tensors.txt says where each lies."""
    at, places = 0, {}
    for name, (dtype, shape) in tensors.items():
        places[name], at = at, at + -(-math.prod(shape) * dtype.itemsize // 64) * 64
    free = shutil.disk_usage(path).free
    if at > free:
        raise SystemExit(f"decode_step.py: the tensors need {at / 1e9:.1f} GB, and {path.parent} has {free / 1e9:.1f} GB free: ask for fewer --sequences, or set TMPDIR")
    memory = torch.from_file(str(path / "tensors.bin"), shared=True, size=at, dtype=torch.uint8)
    names = {BF16: "bf16", F32: "f32", I32: "i32", I64: "i64"}
    (path / "tensors.txt").write_text("".join(f"{n} {names[d]} {places[n]} {len(s)} {' '.join(map(str, s))}\n" for n, (d, s) in tensors.items()))
    return {n: memory[places[n]:places[n] + math.prod(s) * d.itemsize].view(d).reshape(s) for n, (d, s) in tensors.items()}


def draw(t, z):
    torch.manual_seed(0)
    for name, x in t.items():
        if name.startswith("w_"):
            x.normal_(std=x.shape[-1] ** -0.5)
        elif x.dtype == BF16:
            x.normal_()
        if name.startswith("norm"):
            x.fill_(1)
    t["w_index_weight"] *= (z["index_heads"] * z["index"]) ** -0.5
    t["router_bias"].uniform_(-0.1, 0.1)
    angle = torch.arange(z["keys"])[:, None] * 10000.0 ** (torch.arange(z["rope"] // 2) / (-z["rope"] / 2))
    t["angles"].copy_(torch.cat([angle.cos(), angle.sin()], 1))
    sequences, pages = t["block_table"].shape
    t["block_table"].copy_(torch.randperm(sequences * pages).reshape(sequences, pages))
    t["positions"].fill_(z["keys"] - 1)  # the cache has all keys but the new token's
    t["lengths"].fill_(z["keys"])
    last = z["keys"] - 1
    t["slots"].copy_(t["block_table"][:, last // z["page"]].long() * z["page"] + last % z["page"])
    # Keys that this token should see: they lie in the direction that its indexer scores highest, so no rounding decides who is chosen.
    query, _, weight = index_parts(t, z)
    flat = t["index_keys"].view(-1, z["index"])
    for b in range(sequences):
        direction = (query[b].float() * weight[b].float()[:, None].clamp(min=0)).sum(0)
        chosen = torch.randperm(last)[:z["chosen"]]
        flat[slots_of(t, z, b, chosen)] += (direction / direction.norm() * 3 * z["index"] ** 0.5).to(BF16)


def slots_of(t, z, b, at):
    return t["block_table"][b, at // z["page"]].long() * z["page"] + at % z["page"]


# ---- plain PyTorch ----------------------------------------------------------------------------------------------------------------------

def norm(x, weight):
    return F.rms_norm(x, weight.shape, weight, EPS)


def turn(x, t, neox):
    """x [sequences, heads, ...]: its first elements are turned by the position."""
    cos, sin = t["angles"][t["positions"]].unsqueeze(1).chunk(2, -1)
    n = t["angles"].shape[1]
    part = x[..., :n].float()
    a, b = part.chunk(2, -1) if neox else (part[..., ::2], part[..., 1::2])
    both = (a * cos - b * sin, b * cos + a * sin)
    turned = torch.cat(both, -1) if neox else torch.stack(both, -1).flatten(-2)
    return torch.cat([turned.to(x.dtype), x[..., n:]], -1)


def index_parts(t, z):
    n = norm(t["x"], t["norm_in"])
    low = norm(F.linear(n, t["w_query_down"]), t["norm_query"])
    query = turn(F.linear(low, t["w_index_query"]).view(-1, z["index_heads"], z["index"]), t, True)
    key = F.layer_norm(F.linear(n, t["w_index_key"]), (z["index"],), t["norm_index"], t["bias_index"], EPS)
    return query, turn(key[:, None], t, True), F.linear(n, t["w_index_weight"])


def plain(t, z):
    sequences = len(t["x"])
    n = norm(t["x"], t["norm_in"])
    low = norm(F.linear(n, t["w_query_down"]), t["norm_query"])
    query = F.linear(low, t["w_query"]).view(sequences, z["heads"], -1)
    absorbed = torch.einsum("bhd,hcd->bhc", query[..., :z["nope"]], t["w_key"])
    query_rope = turn(query[..., z["nope"]:], t, False)
    latent = F.linear(n, t["w_latent"])
    index_query, index_key, index_weight = index_parts(t, z)
    latents, ropes, keys = (t[name].view(-1, t[name].shape[-1]) for name in ("latents", "ropes", "index_keys"))
    latents[t["slots"]] = norm(latent[:, :z["latent"]], t["norm_latent"])
    ropes[t["slots"]] = turn(latent[:, None, z["latent"]:], t, False)[:, 0]
    keys[t["slots"]] = index_key[:, 0]
    found, attended = [], []
    for b in range(sequences):
        seen = t["index_keys"][t["block_table"][b].long()].view(-1, z["index"])[:z["keys"]]
        scores = ((index_query[b] @ seen.T).relu().float() * index_weight[b].float()[:, None]).sum(0)
        chosen = scores.topk(z["chosen"]).indices
        at = slots_of(t, z, b, chosen)
        some = latents[at]
        weights = ((absorbed[b] @ some.T + query_rope[b] @ ropes[at].T).float() * (z["nope"] + z["rope"]) ** -0.5).softmax(-1).to(BF16)
        found.append(chosen)
        attended.append(weights @ some)
    heads = torch.einsum("bhc,hvc->bhv", torch.stack(attended), t["w_value"])
    x = t["x"] + F.linear(heads.flatten(1), t["w_out"])
    n = norm(x, t["norm_out"])
    scores = F.linear(n, t["w_router"]).float().sigmoid()
    biased = (scores + t["router_bias"]).view(sequences, z["groups"], -1)
    best = biased.topk(2).values.sum(-1).topk(z["of_groups"]).indices
    outside = torch.ones(sequences, z["groups"], dtype=torch.bool).scatter(1, best, False)
    ids = biased.masked_fill(outside[..., None], -torch.inf).flatten(1).topk(z["choices"]).indices
    weights = scores.gather(1, ids)
    weights = weights / weights.sum(-1, keepdim=True) * 2.5
    routed = torch.zeros(x.shape)
    for e in ids.unique().tolist():
        token, choice = (ids == e).nonzero(as_tuple=True)
        gate, up = F.linear(n[token], t["w_up"][e]).chunk(2, -1)
        routed.index_add_(0, token, F.linear(F.silu(gate) * up, t["w_down"][e]).float() * weights[token, choice, None])
    gate, up = F.linear(n, t["w_shared_up"]).chunk(2, -1)
    return torch.stack(found), x + routed.to(BF16) + F.linear(F.silu(gate) * up, t["w_shared_down"])


# ---- Dovetail's operators -----------------------------------------------------------------------------------------------------------------

def ours(t, z):
    sequences = len(t["x"])
    n = ops.rms_norm(t["x"], t["norm_in"], EPS)
    low = ops.rms_norm(ops.linear(n, t["w_query_down"]), t["norm_query"], EPS)
    query = ops.linear(low, t["w_query"]).view(sequences, z["heads"], -1)
    absorbed = torch.einsum("bhd,hcd->bhc", query[..., :z["nope"]], t["w_key"])
    query_rope = ops.apply_rotary(query[..., z["nope"]:], t["positions"], t["angles"], False)
    latent = ops.linear(n, t["w_latent"])
    index_query = ops.apply_rotary(ops.linear(low, t["w_index_query"]).view(sequences, z["index_heads"], z["index"]), t["positions"], t["angles"])
    index_key = ops.layer_norm(ops.linear(n, t["w_index_key"]), t["norm_index"], t["bias_index"], EPS)
    index_key = ops.apply_rotary(index_key[:, None], t["positions"], t["angles"])
    key = ops.rms_norm(latent[:, :z["latent"]], t["norm_latent"], EPS)[:, None]
    ops.paged_kv_write(key, index_key, t["latents"], t["index_keys"], t["slots"])
    rope = ops.apply_rotary(latent[:, None, z["latent"]:], t["positions"], t["angles"], False)
    ops.paged_kv_write(rope, rope[..., :0], t["ropes"], t["ropes"][..., :0], t["slots"])
    paged = dict(block_table=t["block_table"])
    found, _ = ops.lightning_indexer(index_query[:, None], t["index_keys"], ops.linear(n, t["w_index_weight"])[:, None], **paged,
                                     actual_seq_lengths_key=t["lengths"], layout_key="PA_BSND", sparse_count=z["chosen"])
    attended, _, _ = ops.sparse_flash_attention(absorbed[:, None], t["latents"], t["latents"], found, (z["nope"] + z["rope"]) ** -0.5, **paged,
                                                actual_seq_lengths_kv=t["lengths"], query_rope=query_rope[:, None], key_rope=t["ropes"], layout_kv="PA_BSND")
    heads = torch.einsum("bhc,hvc->bhv", attended[:, 0], t["w_value"])
    x = t["x"].clone()
    n = ops.add_rms_norm(ops.linear(heads.flatten(1), t["w_out"]), x, t["norm_out"], EPS)  # x: the sum
    weights, ids = ops.grouped_topk(ops.linear(n, t["w_router"]), z["choices"], True, z["groups"], z["of_groups"], "sigmoid", 2.5, t["router_bias"])
    routed = ops.fused_experts(n, t["w_up"], t["w_down"], weights, ids)
    shared = ops.linear(ops.silu_and_mul(ops.linear(n, t["w_shared_up"])), t["w_shared_down"])
    return found[:, 0, 0], x + routed + shared


# ---- the C program, and the comparison ----------------------------------------------------------------------------------------------------

def ran(command):
    """What a program printed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as e:
        raise SystemExit(f"decode_step.py: {command[0]} cannot run: {e.strerror}; a C compiler (cc, or CC) and `dovetail` must be on PATH")
    if done.returncode:
        raise SystemExit(f"decode_step.py: {command[0]} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


def compiled(path):
    source = pathlib.Path(__file__).with_name("decode_step.c")
    ran(shlex.split(os.environ.get("CC", "cc")) + ["-O2", "-Wall", "-Wextra", "-Werror", str(source), *shlex.split(ran(["dovetail", "--cflags"])),
                                                  *shlex.split(ran(["dovetail", "--libs"])), "-o", str(path / "decode_step")])


def in_c(path, t, z, threads, rounds):
    """Its chosen keys, results and best time in seconds."""
    numbers = [z[name] for name in ("groups", "of_groups", "choices", "chosen")]
    best = ran([str(path / "decode_step"), ran(["dovetail", "--home"]), str(path), *map(str, numbers), str(threads), str(rounds)])
    found = torch.from_file(str(path / "found.bin"), size=len(t["x"]) * z["chosen"], dtype=I32).view(len(t["x"]), -1)
    return found, torch.from_file(str(path / "out.bin"), size=t["x"].numel(), dtype=BF16).view(t["x"].shape), float(best)


def number(least, most):
    def read(word):
        n = int(word)
        if not least <= n <= most:
            raise argparse.ArgumentTypeError(f"expected {least} to {most}, found {n}")
        return n
    read.__name__ = "number"
    return read


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="small sizes: a test, not a measurement")
    parser.add_argument("--sequences", type=number(1, 1 << 16), default=1, metavar="N", help="new tokens, each of a sequence with its own cache (default: 1)")
    parser.add_argument("--threads", type=number(1, 256), default=min(os.cpu_count(), 256), metavar="N", help="threads of each of the three (default: all processors)")
    parser.add_argument("--rounds", type=number(1, 1 << 20), default=5, metavar="N", help="measured calls of each, after one that is not measured (default: 5)")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    dovetail.set_threads(a.threads)
    z = SMALL if a.small else PUBLISHED
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = pathlib.Path(folder)
        compiled(path)
        t = mapped(path, layout(z, a.sequences))
        draw(t, z)
        times, results = {}, {}
        for i in range(1 + a.rounds):
            for name, step in (("plain PyTorch", plain), ("Dovetail in PyTorch", ours)):
                begin = time.perf_counter()
                results[name] = step(t, z)
                times[name] = min(times.get(name, math.inf), time.perf_counter() - begin) if i else math.inf
        *results["Dovetail in C"], times["Dovetail in C"] = in_c(path, t, z, a.threads, a.rounds)
        keys, want = results["plain PyTorch"]
        for name, (found, out) in results.items():
            error = float((out.float() - want.float()).abs().max() / want.float().abs().max())
            print(f"{name:20} {times[name] * 1e3:9.2f} ms  {times['plain PyTorch'] / times[name]:5.2f} x  largest difference {error:.4f} of the largest result")
            assert torch.equal(found.long().sort().values, keys.sort().values), f"{name}: other keys were chosen"
            assert error <= TOLERANCE, f"{name}: the results differ"


if __name__ == "__main__":
    main()
