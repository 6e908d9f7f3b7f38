import custom_pypto  # noqa: F401
import torch
from graph import compiled

op = torch.ops.custom_pypto.npu_sparse_attention_pto
torch.manual_seed(0)
b, s, h, r, n, dn, dr, c, ni, di, size, pages = 2, 2, 6, 5, 3, 4, 2, 4, 2, 4, 16, 300
m = pages // b
t = lambda *shape: torch.randn(*shape) / shape[0] ** 0.5
given = dict(x=torch.randn(b, s, h), w_dq=t(h, r), w_uq_qr=t(r, n * (dn + dr)), w_uk=torch.randn(n, dn, c) / 2, w_dkv_kr=t(h, c + dr),
             gamma_cq=torch.rand(r) + 0.5, gamma_ckv=torch.rand(c) + 0.5, sin=torch.randn(b, s, dr).sin(), cos=torch.randn(b, s, dr).cos(),
             cache_index=None, kv_cache=torch.randn(pages, size, 1, c), kr_cache=torch.randn(pages, size, 1, dr),
             block_table=torch.randperm(pages, dtype=torch.int32).reshape(b, m), act_seqs=torch.tensor([2300, 9], dtype=torch.int32),
             w_idx_qb=t(r, ni * di), w_idx_k=t(h, di), w_idx_proj=t(h, ni), in_gamma_k=torch.rand(di) + 0.5, in_beta_k=torch.randn(di),
             index_k_cache=torch.randn(pages, size, 1, di))
place = given["act_seqs"].long()[:, None] - s + torch.arange(s)  # the new tokens are the last ones
given["cache_index"] = (given["block_table"].long().gather(1, place // size) * size + place % size).int()


def expected(x, w_dq, w_uq_qr, w_uk, w_dkv_kr, gamma_cq, gamma_ckv, sin, cos, cache_index, kv_cache, kr_cache, block_table, act_seqs, w_idx_qb, w_idx_k,
             w_idx_proj, in_gamma_k, in_beta_k, index_k_cache, chosen):
    """The formulas of the layer, in double. It writes the caches, as the operator does."""
    rms = lambda x, gamma: x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gamma

    def rope(x):  # [b s heads dr]
        x = torch.cat([x[..., 0::2], x[..., 1::2]], -1)
        first, second = x.chunk(2, -1)
        return x * cos[:, :, None] + torch.cat([-second, first], -1) * sin[:, :, None]
    cq = rms(x @ w_dq, gamma_cq)
    q = (cq @ w_uq_qr).reshape(b, s, n, dn + dr)
    q_latent, q_rope = torch.einsum("bsnd,ndc->bsnc", q[..., :dn], w_uk), rope(q[..., dn:])
    kv = x @ w_dkv_kr
    k = torch.nn.functional.layer_norm(x @ w_idx_k, (di,), in_gamma_k, in_beta_k, 1e-6)[:, :, None]
    index_q = (cq @ w_idx_qb).reshape(b, s, ni, di)
    index_q, k = (torch.cat([rope(y[..., :dr]), y[..., dr:]], -1) for y in (index_q, k))
    at = cache_index.long().flatten()
    for cache, new in ((kv_cache, rms(kv[..., :c], gamma_ckv)), (kr_cache, rope(kv[..., None, c:])), (index_k_cache, k)):
        cache.view(-1, cache.shape[-1])[at] = new.reshape(b * s, -1)
    out = torch.zeros(b, s, n, c, dtype=x.dtype)
    for i in range(b):
        keys, ropes, indexed = (cache[block_table[i].long()].reshape(-1, cache.shape[-1]) for cache in (kv_cache, kr_cache, index_k_cache))
        for j in range(s):
            seen = int(act_seqs[i]) - s + j + 1
            best = ((x[i, j] @ w_idx_proj) @ torch.relu(index_q[i, j] @ indexed[:seen].T)).argsort(descending=True, stable=True)[:chosen]
            p = ((q_latent[i, j] @ keys[best].T + q_rope[i, j] @ ropes[best].T) * (dn + dr) ** -0.5).softmax(-1)
            out[i, j] = p @ keys[best]
    return out


copy = lambda convert: {name: convert(x) if x.is_floating_point() else x for name, x in given.items()}
exact = copy(torch.Tensor.double)
result = expected(**exact, chosen=2048)
assert not torch.allclose(result[0], expected(**copy(torch.Tensor.double), chosen=2300)[0])  # the choice matters
for f in (lambda **a: op(**a), compiled(lambda **a: op(**a))):
    mine = copy(torch.clone)
    torch.testing.assert_close(f(**mine).double(), result, rtol=1e-5, atol=1e-6)
    for cache in ("kv_cache", "kr_cache", "index_k_cache"):
        torch.testing.assert_close(mine[cache].double(), exact[cache], rtol=1e-6, atol=1e-6)
        assert not torch.equal(mine[cache], given[cache])
print("npu_sparse_attention_pto: ok")
