"""sparse_flash_attention against dense attention in PyTorch, sequence by sequence, in f64: a token that is selected n times has weight n."""
import pytest
import torch

import dovetail
from sequences import INT, LAYOUTS, LENGTHS, Sequences, draw, visible
from test_indexer import expect

SLOTS, SCALE = 4, 0.3


def selected(indices, n, block):
    """How often each of n visible tokens is selected by one list."""
    count = torch.zeros(n, dtype=torch.float64)
    for i in indices[:-(-n // block)].tolist():
        if i < 0:
            break
        count[i * block:(i + 1) * block] += 1
    return count


def oracle(q, qr, k, kr, v, indices, mode, block):
    """Of one sequence: q [n, h, d], k [m, g, d], v [m, g, e], indices [n, g, SLOTS] -> out [n, h, e], max and sum [n, g, h / g]."""
    groups = k.shape[1]
    z = SCALE * (torch.einsum("nghd,mgd->nghm", q.unflatten(1, (groups, -1)), k) + torch.einsum("nghr,mgr->nghm", qr.unflatten(1, (groups, -1)), kr))
    times = torch.zeros(len(q), groups, 1, len(k), dtype=torch.float64)
    for s in range(len(q)):
        for g in range(groups):
            n = visible(len(q), len(k), s, mode)
            times[s, g, 0, :n] = selected(indices[s, g], n, block)
    none = (times.sum(-1, keepdim=True) == 0)
    top = torch.where(times > 0, z, -torch.inf).amax(-1, keepdim=True) if len(k) else torch.zeros(*z.shape[:3], 1, dtype=z.dtype)
    top = torch.where(none, torch.zeros_like(top), top)
    e = times * torch.exp(torch.where(times > 0, z - top, 0))
    total = e.sum(-1, keepdim=True)
    out = torch.einsum("nghm,mge->nghe", e / torch.where(none, 1.0, total), v)
    return out.flatten(1, 2), top[..., 0], total[..., 0]


def problem(queries, keys, dtype, seed, groups=1, block=1, heads=2, d=5, r=3, e=4):
    g = torch.Generator().manual_seed(seed)
    q, k = Sequences(queries, g), Sequences(keys, g)
    of_q = [[draw((n, groups * heads, size), dtype, g) for n in queries] for size in (d, r)]
    of_k = [[draw((n, groups, size), dtype, g) for n in keys] for size in (d, r, e)]
    indices = [torch.randint(-1, max(2, -(-m // block) + 1), (n, groups, SLOTS), generator=g).to(INT) for n, m in zip(queries, keys)]
    return q, k, of_q, of_k, indices


def call(q, k, of_q, of_k, indices, layouts, mode, block, op=None, fill=None, **more):
    place = lambda s, x, layout: s.place(x, layout) if fill is None else s.place(x, layout).nan_to_num(fill)
    query, query_rope = (place(q, x, layouts[0]) for x in of_q)
    key, key_rope, value = (place(k, x, layouts[1]) for x in of_k)
    return (op or dovetail.ops.sparse_flash_attention)(
        query, key, value, q.place(indices, layouts[0]), SCALE, query_rope=query_rope, key_rope=key_rope, sparse_block_size=block, sparse_mode=mode,
        actual_seq_lengths_query=q.actual(layouts[0]), actual_seq_lengths_kv=k.actual(layouts[1]), layout_query=layouts[0], layout_kv=layouts[1],
        block_table=k.table if layouts[1] == "PA_BSND" else None, return_softmax_lse=True, **more)


def expected(both, q, layout):
    """out, max and sum as the operator has them: max and sum with the groups in front of the queries."""
    out, top, total = (expect([b[i] for b in both], q, layout, 0.0) for i in range(3))
    return [out] + [t.movedim(-2, 0 if layout == "TND" else 1) for t in (top, total)]


@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("sizes", LENGTHS, ids=str)
@pytest.mark.parametrize("mode, block, groups, dtype", [(0, 1, 1, torch.float64), (3, 1, 2, torch.float32), (3, 2, 1, torch.float64), (0, 3, 2, torch.bfloat16),
                                                        (3, 100, 1, torch.float16)], ids=str)
def test_against_dense_attention(layouts, sizes, mode, block, groups, dtype):
    q, k, of_q, of_k, indices = problem(*sizes, dtype, 1, groups, block)
    both = [oracle(a.double(), ar.double(), b.double(), br.double(), v.double(), i, mode, block) for a, ar, b, br, v, i in zip(*of_q, *of_k, indices)]
    for op in (dovetail.ops.sparse_flash_attention, dovetail.ops.npu_sparse_flash_attention):
        found = call(q, k, of_q, of_k, indices, layouts, mode, block, op)
        for a, b in zip(found, expected(both, q, layouts[0])):
            assert a.dtype in (dtype, torch.float32)
            torch.testing.assert_close(a, b.to(a.dtype), **rounded(a.dtype))


def test_without_rope_lengths_or_lse():
    g = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(s, generator=g, dtype=torch.float64) for s in ((2, 3, 4, 5), (2, 6, 1, 5), (2, 6, 1, 5)))
    every = torch.arange(6, dtype=INT).expand(2, 3, 1, 6)
    out, top, total = dovetail.ops.sparse_flash_attention(q, k, v, every, SCALE)
    mask = torch.ones(3, 6, dtype=torch.bool).tril(3)
    exact = torch.nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2).expand(2, 4, 6, 5), v.transpose(1, 2).expand(2, 4, 6, 5), mask, scale=SCALE)
    torch.testing.assert_close(out, exact.transpose(1, 2))
    assert top.shape == total.shape == (0,)


def test_nan_only_where_it_is_selected():
    q, k = torch.ones(1, 2, 1, 2), torch.ones(1, 3, 1, 2)
    k[0, 1] = float("nan")
    out, top, _ = dovetail.ops.sparse_flash_attention(q, k, torch.ones(1, 3, 1, 2), torch.tensor([[0, 2], [0, 1]], dtype=INT).reshape(1, 2, 1, 2), 1.0, sparse_mode=0, return_softmax_lse=True)
    assert (out[0, 0] == 1).all() and out[0, 1].isnan().all() and top.isnan().tolist() == [[[[False], [True]]]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_score_of_minus_infinity_has_weight_0(dtype):
    """In whatever order the tokens come. With nothing else all is NaN, as in a softmax."""
    q, k, v = (torch.tensor(x, dtype=dtype).reshape(1, -1, 1, 1) for x in ([-1.0], [float("inf"), 1.0, 1.0], [5.0, 1.0, 3.0]))
    for order in ([0, 1, 2], [1, 0, 2], [2, 1, 0]):
        out, most, total = dovetail.ops.sparse_flash_attention(q, k, v, torch.tensor(order).int().reshape(1, 1, 1, 3), 1.0, sparse_mode=0, return_softmax_lse=True)
        assert (out.item(), most.item(), total.item()) == (2, -1, 2), order
    assert dovetail.ops.sparse_flash_attention(q, k, v, torch.tensor([0, 0, -1]).int().reshape(1, 1, 1, 3), 1.0, sparse_mode=0)[0].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [2, 4, 1024, 1030])
def test_a_score_or_a_part_of_it_that_f32_cannot_hold(dtype, n, isa):
    """It may be negative: as -inf it would have weight 0."""
    q, v = torch.full((1, 1, 1, n), 1e19).to(dtype), torch.tensor([0.0, 1.0], dtype=dtype).reshape(1, 2, 1, 1)
    whole = torch.tensor([0.5e20 / n, -1e20 / n]).reshape(1, 2, 1, 1).expand(1, 2, 1, n)
    part = torch.stack([torch.cat([torch.full((n // 2,), -2e21 / n), torch.full((n - n // 2,), 2.01e21 / n)]), torch.full((n,), 1e18 / n)]).reshape(1, 2, 1, n)
    for k in (whole.to(dtype), part.to(dtype)):
        call = lambda *x: dovetail.ops.sparse_flash_attention(*x, torch.tensor([0, 1]).int().reshape(1, 1, 1, 2), 1e-39, sparse_mode=0, return_softmax_lse=True)
        for found, exact in zip(call(q, k, v), call(q.double(), k.double(), v.double())):
            torch.testing.assert_close(found.double(), exact, rtol=1e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-3 if dtype is torch.bfloat16 else 1e-6)


def test_large_scores_do_not_overflow():
    q, k = torch.full((1, 1, 1, 1), 1e4), torch.tensor([-1e4, 1e4, 0.0]).reshape(1, 3, 1, 1)
    out, _, total = dovetail.ops.sparse_flash_attention(q, k, k, torch.tensor([0, 1, 2], dtype=INT).reshape(1, 1, 1, 3), 1.0, return_softmax_lse=True)
    assert out.item() == 1e4 and total.item() == 1


@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("mode, block, groups", [(3, 1, 1), (0, 2, 2)])
def test_gradient_is_that_of_the_formula(layouts, mode, block, groups):
    q, k, of_q, of_k, indices = problem([1, 4, 2], [7, 3, 6], torch.float64, 5, groups, block)
    flat = [t.requires_grad_() for x in (*of_q, *of_k) for t in x]
    found = call(q, k, of_q, of_k, indices, layouts, mode, block, fill=0.0)
    exact = expected([oracle(a, ar, b, br, v, i, mode, block) for a, ar, b, br, v, i in zip(*of_q, *of_k, indices)], q, layouts[0])
    g = torch.Generator().manual_seed(6)
    weights = [torch.randn(t.shape, generator=g, dtype=torch.float64) for t in exact]
    a, b = (torch.autograd.grad(sum((t * w).sum() for t, w in zip(x, weights)), flat) for x in (found, exact))
    for x, y in zip(a, b):
        torch.testing.assert_close(x, y)


def rounded(dtype):
    """exp(score - max) may be rounded to bf16."""
    return {"rtol": 0.016, "atol": 2**-9} if dtype == torch.bfloat16 else {}


def check_lines(q, qr, k, kr, v, indices, block, dtype):
    """Of one sequence, with lse."""
    out, top, total = dovetail.ops.sparse_flash_attention(q, k, v, indices, 0.1, query_rope=qr, key_rope=kr, sparse_block_size=block, sparse_mode=0,
                                                          return_softmax_lse=True)
    z = 0.1 * (q[0].double() @ k[0, :, 0].double().T + (qr[0].double() @ kr[0, :, 0].double().T if qr is not None else 0))
    for t in range(q.shape[1]):
        times = selected(indices[0, t, 0], k.shape[1], block)
        if not times.sum():
            assert not out[0, t].any() and not top[0, 0, t].any() and not total[0, 0, t].any()
            continue
        most = z[t][:, times > 0].amax(-1)
        weights = times * torch.exp(z[t] - most[:, None])
        torch.testing.assert_close(top[0, 0, t].double(), most, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(total[0, 0, t].double(), weights.sum(-1), rtol=1e-4, atol=0)
        torch.testing.assert_close(out[0, t], (weights / weights.sum(-1, keepdim=True) @ v[0, :, 0].double()).to(dtype), **rounded(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", [5, 130])
def test_few_lines_of_many_tokens_are_cut_into_strips(heads, dtype, isa):
    g = torch.Generator().manual_seed(heads)
    draw = lambda *shape: torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)
    for ends in ([2100], [1700, 600], [2100, 513, 512, 0]):
        n = len(ends)
        indices = torch.randint(0, 2500, (1, n, 1, 2100), generator=g).int()
        for t, end in enumerate(ends):
            indices[0, t, 0, end:] = -1
        check_lines(draw(1, n, heads, 20), draw(1, n, heads, 4), draw(1, 2500, 1, 20), draw(1, 2500, 1, 4), draw(1, 2500, 1, 30), indices, 1, dtype)
    k, v = torch.zeros(1, 2500, 1, 20, dtype=dtype), torch.ones(1, 2500, 1, 30, dtype=dtype)
    v[0, 7] = float("inf")
    indices = torch.arange(2500).flip(0).int().reshape(1, 1, 1, -1)  # the last strip has it
    out, _, _ = dovetail.ops.sparse_flash_attention(draw(1, 1, heads, 20), k, v, indices, 1.0, sparse_mode=0)
    assert out.isposinf().all()
    out, _, _ = dovetail.ops.sparse_flash_attention(draw(1, 1, 0, 20), k, v, indices, 1.0, sparse_mode=0)
    assert out.shape == (1, 1, 0, 30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tokens, keys, heads, d, r, e, slots, block", [(1, 300, 70, 66, 5, 70, 150, 1), (3, 40, 2, 512, 64, 512, 7, 4), (2, 9, 17, 1, 0, 1, 9, 1)])
def test_fast_rows(tokens, keys, heads, d, r, e, slots, block, dtype, isa):
    g = torch.Generator().manual_seed(keys)
    draw = lambda *shape: torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)
    q, k, v = draw(1, tokens, heads, d), draw(1, keys, 1, d), draw(1, keys, 1, e)
    qr, kr = (draw(1, tokens, heads, r), draw(1, keys, 1, r)) if r else (None, None)
    indices = torch.randint(-1, -(-keys // block), (1, tokens, 1, slots), generator=g).int()
    check_lines(q, qr, k, kr, v, indices, block, dtype)


def test_what_is_not_finite_is_as_in_the_reference(isa):
    q, k, v = torch.full((1, 2, 2, 3), 1e30), torch.full((1, 4, 1, 3), 1e10), torch.ones(1, 4, 1, 2)
    k[0, 1] = -1e10
    indices = torch.tensor([[0, 1, -1], [1, 2, 3]]).int().reshape(1, 2, 1, 3)
    out, top, _ = dovetail.ops.sparse_flash_attention(q, k, v, indices, 1.0, return_softmax_lse=True, sparse_mode=0)
    assert torch.equal(out, torch.ones_like(out)) and top.isinf().all()
    v[0, 0] = float("nan")
    out, _, _ = dovetail.ops.sparse_flash_attention(q / 1e30, k / 1e10, v, indices, 1.0, sparse_mode=0)
    assert out[0, 0].isnan().all() and torch.equal(out[0, 1], torch.ones(2, 2))
