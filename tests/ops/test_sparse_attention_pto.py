"""npu_sparse_attention_pto against its four steps in PyTorch, token by token, in f64."""
import pytest
import torch

import dovetail

H, Q, N, P, R, C, G, D = 7, 5, 3, 2, 4, 6, 2, 5
PAGE, COLUMNS = 4, 3
NAMES = ("x w_dq w_uq_qr w_uk w_dkv_kr gamma_cq gamma_ckv sin cos cache_index kv_cache kr_cache block_table act_seqs w_idx_qb w_idx_k w_idx_proj "
         "in_gamma_k in_beta_k index_k_cache").split()


def problem(lengths, new, dtype, seed=0):
    """Sequences with these lengths, whose last `new` tokens are new."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)
    b, pages = len(lengths), len(lengths) * COLUMNS + 2
    table = torch.randperm(pages, generator=g)[:b * COLUMNS].reshape(b, COLUMNS).int()
    slots = torch.full((b, new), -1)
    for i, length in enumerate(lengths):
        for j in range(new):
            at = length - new + j
            if at >= 0:
                slots[i, j] = table[i, at // PAGE] * PAGE + at % PAGE
        table[i, -(-length // PAGE):] = -1  # not read
    values = [draw(b, new, H), draw(H, Q), draw(Q, N * (P + R)), draw(N, P, C), draw(H, C + R), draw(Q), draw(C), draw(b, new, R), draw(b, new, R), slots,
              draw(pages, PAGE, 1, C), draw(pages, PAGE, 1, R), table, torch.tensor(lengths).int(), draw(Q, G * D), draw(H, D), draw(H, G), draw(D), draw(D),
              draw(pages, PAGE, 1, D)]
    return dict(zip(NAMES, values))


def rms(x, gamma, eps):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], gamma, eps)


def rotate(x, sin, cos):
    x = torch.cat([x[..., 0::2], x[..., 1::2]], -1)
    half = torch.cat([-x[..., R // 2:], x[..., :R // 2]], -1)
    return x * cos + half * sin


def oracle(given, count=2048, eps=1e-5, scale=None):
    """The result and the three caches; what goes through a cache is rounded to its dtype."""
    dtype = given["x"].dtype
    caches = {name: given[name].clone() for name in ("kv_cache", "kr_cache", "index_k_cache")}
    v = {name: t.double() if t.is_floating_point() else t for name, t in given.items()}
    b, s, _ = v["x"].shape
    latent, rotary = (v["x"] @ v["w_dkv_kr"]).split([C, R], -1)
    index = torch.nn.functional.layer_norm(v["x"] @ v["w_idx_k"], (D,), v["in_gamma_k"], v["in_beta_k"], 1e-6)
    index = torch.cat([rotate(index[..., :R], v["sin"], v["cos"]), index[..., R:]], -1)
    for name, new in (("kv_cache", rms(latent, v["gamma_ckv"], eps)), ("kr_cache", rotate(rotary, v["sin"], v["cos"])), ("index_k_cache", index)):
        for i in range(b):
            for j in range(s):
                if (slot := v["cache_index"][i, j]) >= 0:
                    caches[name].flatten(0, 2)[slot] = new[i, j].to(dtype)
    keys = {name: cache.double().flatten(0, 2) for name, cache in caches.items()}
    out = torch.zeros(b, s, N, C, dtype=torch.float64)
    for i in range(b):
        for j in range(s):
            sin, cos = v["sin"][i, j], v["cos"][i, j]
            cq = rms(v["x"][i, j] @ v["w_dq"], v["gamma_cq"], eps)
            plain, turned = (cq @ v["w_uq_qr"]).reshape(N, P + R).split([P, R], -1)
            query = torch.cat([torch.einsum("np,npc->nc", plain, v["w_uk"]), rotate(turned, sin, cos)], -1)
            looks = (cq @ v["w_idx_qb"]).reshape(G, D)
            looks = torch.cat([rotate(looks[:, :R], sin, cos), looks[:, R:]], -1)
            seen = max(0, int(v["act_seqs"][i]) - s + j + 1)
            rows = torch.tensor([int(v["block_table"][i, t // PAGE]) * PAGE + t % PAGE for t in range(seen)], dtype=torch.long)
            if not seen:
                continue
            scores = (looks @ keys["index_k_cache"][rows].T).relu().T @ (v["x"][i, j] @ v["w_idx_proj"])
            rows = rows[scores.sort(descending=True, stable=True).indices[:count]]  # the lower one first among equals
            key = torch.cat([keys["kv_cache"][rows], keys["kr_cache"][rows]], -1)
            weights = (query @ key.T * ((P + R) ** -0.5 if scale is None else scale)).softmax(-1)
            out[i, j] = weights @ keys["kv_cache"][rows]
    return out.to(dtype), caches


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lengths, new", [([9, 1, 12], 1), ([9, 4, 12], 3), ([1, 3], 2), ([0], 1), ([5] * 40, 1)])
def test_against_torch(lengths, new, dtype):
    given = problem(lengths, new, dtype)
    wanted, caches = oracle(given, count=5)
    found = dovetail.ops.npu_sparse_attention_pto(*given.values(), sparse_count=5)
    torch.testing.assert_close(found, wanted)
    for name, cache in caches.items():
        torch.testing.assert_close(given[name], cache)


def test_keywords():
    given = problem([9, 4], 1, torch.float64, seed=3)
    wanted, _ = oracle(given, count=2, eps=0.5, scale=2.0)
    torch.testing.assert_close(dovetail.ops.npu_sparse_attention_pto(*given.values(), sparse_count=2, eps=0.5, scale_value=2.0), wanted)
    wanted, _ = oracle(given)
    torch.testing.assert_close(torch.ops.dovetail.npu_sparse_attention_pto(*given.values()), wanted)


def test_slots():
    """A slot that is given twice has the later token; a negative one is not written."""
    given = problem([9, 4], 1, torch.float64)
    given["cache_index"][:] = given["cache_index"][0]
    wanted, caches = oracle(given)
    torch.testing.assert_close(dovetail.ops.npu_sparse_attention_pto(*given.values()), wanted)
    torch.testing.assert_close(given["kv_cache"], caches["kv_cache"])
    given["cache_index"][:] = -1
    before = given["kv_cache"].clone()
    dovetail.ops.npu_sparse_attention_pto(*given.values())
    assert torch.equal(given["kv_cache"], before)


@pytest.mark.parametrize("name, at, value, message", [
    ("cache_index", (1, 0), 8 * PAGE, r"'cache_index': expected a slot below 32, found 32 at \[1, 0\]"),
    ("act_seqs", (0,), 13, r"'act_seqs': expected a length from 0 to 12, found 13 at \[0\]"),
    ("block_table", (0, 1), 8, r"'block_table': expected a page from 0 to 7, found 8 at \[0, 1\]"),
])
def test_errors_write_nothing(name, at, value, message):
    given = problem([9, 4], 1, torch.float32)
    given[name][at] = value
    before = {n: t.clone() for n, t in given.items()}
    with pytest.raises(ValueError, match=message):
        dovetail.ops.npu_sparse_attention_pto(*given.values())
    assert all(torch.equal(given[n], before[n]) for n in given)


def test_compiled():
    given = problem([9, 4], 1, torch.float64)
    wanted, caches = oracle(given)
    found = torch.compile(lambda *args: torch.ops.dovetail.npu_sparse_attention_pto(*args) * 2, backend="aot_eager", fullgraph=True)(*given.values())
    torch.testing.assert_close(found, wanted * 2)
    torch.testing.assert_close(given["index_k_cache"], caches["index_k_cache"])
