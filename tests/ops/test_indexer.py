"""lightning_indexer against its formula in PyTorch, sequence by sequence, in f64."""
import pytest
import torch

import dovetail
from sequences import INT, LAYOUTS, LENGTHS, Sequences, draw, visible

COUNT = 5


def oracle(q, k, w, mode, scale=None):
    """Of one sequence: q [n, h, d], k [m, g, d], w [n, h] -> indices and scores [n, g, COUNT]."""
    groups = k.shape[1]
    z = torch.einsum("nghd,mgd->nghm", q.unflatten(1, (groups, -1)), k).relu()
    scores = torch.einsum("nghm,ngh->ngm", z, w.unflatten(1, (groups, -1)))
    scores = scores if scale is None else scores * scale.T
    at, values = torch.full((len(q), groups, COUNT), -1, dtype=INT), torch.full((len(q), groups, COUNT), -float("inf"), dtype=q.dtype)
    for s in range(len(q)):
        n = visible(len(q), len(k), s, mode)
        best, order = scores[s, :, :n].sort(dim=-1, descending=True, stable=True)
        at[s, :, :min(n, COUNT)], values[s, :, :min(n, COUNT)] = order[:, :COUNT].to(INT), best[:, :COUNT]
    return at, values


def problem(queries, keys, dtype, seed, groups=1, heads=3, d=5, ties=False):
    g = torch.Generator().manual_seed(seed)
    make = (lambda *s: torch.randint(-1, 2, s, generator=g).to(dtype)) if ties else (lambda *s: draw(s, dtype, g))
    q, k = Sequences(queries, g), Sequences(keys, g)
    return q, k, [make(n, groups * heads, d) for n in queries], [make(n, groups, d) for n in keys], \
        [make(n, groups * heads).to(dtype if dtype != torch.int8 else torch.float32) for n in queries]


def lengths(q, k, layout_query, layout_key):
    return dict(actual_seq_lengths_query=q.actual(layout_query), actual_seq_lengths_key=k.actual(layout_key),
                block_table=k.table if layout_key == "PA_BSND" else None, layout_query=layout_query, layout_key=layout_key)


def expect(parts, q, layout, fill):
    """Oracles of the sequences, in the layout of the queries; padded rows are `fill`."""
    if layout == "TND":
        return torch.cat(parts)
    out = torch.full((len(parts), max(q.lengths), *parts[0].shape[1:]), fill, dtype=parts[0].dtype)
    for b, part in enumerate(parts):
        out[b, :len(part)] = part
    return out


@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("sizes", LENGTHS, ids=str)
@pytest.mark.parametrize("mode", [0, 3])
@pytest.mark.parametrize("dtype, groups, ties", [(torch.float64, 1, False), (torch.float32, 2, False), (torch.bfloat16, 1, True), (torch.float16, 1, True)], ids=str)
def test_indices_and_values(layouts, sizes, mode, dtype, groups, ties):
    q, k, query, key, weights = problem(*sizes, dtype, 1, groups, ties=ties)
    both = [oracle(*(t.double() for t in x), mode) for x in zip(query, key, weights)]
    at, values = (expect([b[i] for b in both], q, layouts[0], fill) for i, fill in ((0, -1), (1, -float("inf"))))
    tensors = q.place(query, layouts[0]), k.place(key, layouts[1]), q.place(weights, layouts[0])
    named = dict(lengths(q, k, *layouts), sparse_count=COUNT, sparse_mode=mode)
    for op in (dovetail.ops.lightning_indexer, dovetail.ops.npu_lightning_indexer):
        found_at, found = op(*tensors, **named, return_value=True)
        assert torch.equal(found_at, at) and found.dtype == dtype
        torch.testing.assert_close(found, values.to(dtype))
        found_at, found = op(*tensors, **named)
        assert torch.equal(found_at, at) and found.numel() == 0
    assert torch.equal(dovetail.ops.npu_lightning_indexer_pto(*tensors, **named), at)


@pytest.mark.parametrize("keys", [1023, 1024, 5000, 20000])
@pytest.mark.parametrize("count", [63, 64, 1000, 2048])
@pytest.mark.parametrize("weights", [(1, -1, 2), (0, 0, 0), (-1, -1, -1), (3e4, -1, 1e-9)], ids=str)
def test_many_of_many(keys, count, weights):
    """Many of many are chosen by their digits: also ties, which are most of the scores of small integers, scores below 0, zeros and others far apart."""
    g = torch.Generator().manual_seed(keys + count)
    q, k, w = (torch.randint(-2, 3, s, generator=g).float() for s in ((1, 1, 3, 4), (1, keys, 1, 4), (1, 1, 3)))
    w[0, 0] = torch.tensor(weights)
    at, values = dovetail.ops.lightning_indexer(q, k, w, sparse_count=count, sparse_mode=0, return_value=True)
    scores = (torch.einsum("hd,td->ht", q[0, 0], k[0, :, 0]).relu() * w[0, 0, :, None]).sum(0)
    best, order = scores.sort(descending=True, stable=True)
    n = min(keys, count)
    assert torch.equal(at.flatten()[:n], order[:n].to(INT)) and (at.flatten()[n:] == -1).all()
    assert torch.equal(values.flatten()[:n], best[:n])


@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=str)
def test_quantised(layouts, dtype):
    q, k, query, key, weights = problem([1, 4, 2], [7, 4, 12], torch.float32, 2)
    query, key = ([(t * (20 if dtype == torch.int8 else 1)).to(dtype) for t in x] for x in (query, key))
    g = torch.Generator().manual_seed(3)
    query_scale, key_scale = ([torch.rand(t.shape[:-1], generator=g) for t in x] for x in (query, key))
    both = [oracle(a.double() * sa.double()[..., None], b.double(), w.double(), 3, sb.double()) for a, b, w, sa, sb in zip(query, key, weights, query_scale, key_scale)]
    place = {dtype: lambda s, x, layout: s.place([t.view(torch.int8) for t in x], layout).view(dtype)}.get(dtype)
    found = dovetail.ops.npu_lightning_indexer_quant(place(q, query, layouts[0]), place(k, key, layouts[1]), q.place(weights, layouts[0]),
                                                     q.place(query_scale, layouts[0]), k.place(key_scale, layouts[1]), **lengths(q, k, *layouts), sparse_count=COUNT)
    assert torch.equal(found, expect([b[0] for b in both], q, layouts[0], -1))


def test_without_lengths_all_are_used():
    q, k, query, key, weights = problem([3, 3], [6, 6], torch.float64, 4)
    both = [oracle(*x, 3) for x in zip(query, key, weights)]
    at, values = dovetail.ops.lightning_indexer(torch.stack(query), torch.stack(key), torch.stack(weights), sparse_count=COUNT, return_value=True)
    assert torch.equal(at, torch.stack([b[0] for b in both]))
    torch.testing.assert_close(values, torch.stack([b[1] for b in both]))


@pytest.mark.parametrize("n, count", [(3000, 2048), (3000, 1), (100, 100), (0, 7)])
def test_many_keys_in_exact_order(n, count):
    g = torch.Generator().manual_seed(n + count)
    q, w, k = torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1), torch.randint(0, 40, (1, n, 1, 1), generator=g).float()  # many ties
    at, values = dovetail.ops.lightning_indexer(q, k, w, sparse_count=count, return_value=True)
    best, order = k.flatten().sort(descending=True, stable=True)
    assert torch.equal(at.flatten()[:min(n, count)], order[:count].to(INT)) and torch.equal(values.flatten()[:min(n, count)], best[:count])
    assert (at.flatten()[n:] == -1).all() and (values.flatten()[n:] == -float("inf")).all()


def drawn(n):
    """The scores that top_guess() of ops/topk.h draws as its sample."""
    size, random = n // 32 + 256, 1
    for i in range(size):
        random = (random * 1664525 + 1013904223) % 2**32
        yield i * (n // size) + (n // size * random >> 32)


@pytest.mark.parametrize("n", [8192, 65536, 300007])
@pytest.mark.parametrize("count", [64, 2048, 8191])
@pytest.mark.parametrize("kind", ["any", "ascending", "equal", "zeros", "few reach the guess", "many reach the guess", "far apart"])
def test_the_guess_of_a_bound(n, count, kind, isa):
    """Scores of which a sample says much, little or what is wrong: the result is exact."""
    g = torch.Generator().manual_seed(n)
    k = torch.rand(n, generator=g)
    if kind == "ascending":
        k = torch.arange(n).float()
    elif kind == "equal":
        k[:] = 1
    elif kind == "zeros":  # of both signs
        k = torch.where(k < 0.999, torch.where(k < 0.5, -0.0, 0.0), k)
    elif kind == "few reach the guess":
        k[list(drawn(n))] += 1
    elif kind == "many reach the guess":
        k[list(drawn(n))] = 0
    elif kind == "far apart":
        k = 2 ** (k * 200 - 100)
    one = torch.ones(1, 1, 1, 1)
    at, values = dovetail.ops.lightning_indexer(one, k.reshape(1, n, 1, 1), one[0], sparse_count=count, sparse_mode=0, return_value=True)
    best, order = k.sort(descending=True, stable=True)
    assert torch.equal(at.flatten(), order[:count].to(INT)) and torch.equal(values.flatten(), best[:count])


@pytest.mark.parametrize("heads, d", [(1, 1), (1, 16), (16, 1), (4, 4), (3, 5)])
@pytest.mark.parametrize("keys", [1, 239, 240, 241, 1000])
def test_small_keys(keys, heads, d, isa):
    """Integers, whose scores are exact: in pages, for two groups."""
    g = torch.Generator().manual_seed(keys)
    pages = (keys + 6) // 7
    q, k, w = (torch.randint(-3, 4, s, generator=g).float() for s in ((1, 2, 2 * heads, d), (pages, 7, 2, d), (1, 2, 2 * heads)))
    table = torch.randperm(pages, generator=g).to(INT).reshape(1, pages)
    at, values = dovetail.ops.lightning_indexer(q, k, w, actual_seq_lengths_key=torch.tensor([keys], dtype=INT), block_table=table, layout_key="PA_BSND",
                                                sparse_count=keys, sparse_mode=0, return_value=True)
    flat = k[table[0].long()].flatten(0, 1)[:keys]
    scores = (torch.einsum("bsghd,tgd->bsght", q.unflatten(2, (2, heads)), flat).relu() * w.unflatten(2, (2, heads))[..., None]).sum(3)
    best, order = scores.sort(descending=True, stable=True)
    assert torch.equal(at, order.to(INT)) and torch.equal(values, best)


def test_nan_ranks_first():
    k = torch.tensor([1.0, float("nan"), 3.0, float("nan"), float("inf")]).reshape(1, 5, 1, 1)
    at, _ = dovetail.ops.lightning_indexer(torch.ones(1, 1, 1, 1), k, torch.ones(1, 1, 1), sparse_count=6)
    assert at.flatten().tolist() == [1, 3, 4, 2, 0, -1]


@pytest.mark.parametrize("change, message", [
    (dict(actual_seq_lengths_key=torch.tensor([7, 5, 13], dtype=INT)), r"'actual_seq_lengths_key': expected a length from 0 to 12, found 13 at \[2\]"),
    (dict(actual_seq_lengths_query=torch.tensor([-1, 0, 0], dtype=INT)), "'actual_seq_lengths_query': expected a length from 0 to 4, found -1"),
    (dict(pre_tokens=3), "'pre_tokens': expected pre_tokens == 9223372036854775807"), (dict(sparse_mode=4), "'sparse_mode': expected"),
    (dict(sparse_count=0), "'sparse_count': expected sparse_count > 0")])
def test_refusals(change, message):
    q, k, query, key, weights = problem([1, 4, 2], [7, 4, 12], torch.float32, 1)
    named = dict(lengths(q, k, "BSND", "BSND"), sparse_count=COUNT) | change
    with pytest.raises(RuntimeError, match=message):
        dovetail.ops.lightning_indexer(q.place(query, "BSND"), k.place(key, "BSND"), q.place(weights, "BSND"), **named)


def test_prefix_sums_and_pages_are_checked():
    q, k, query, key, weights = problem([1, 4, 2], [7, 4, 12], torch.float32, 1)
    named = dict(lengths(q, k, "TND", "PA_BSND"), sparse_count=COUNT)
    tensors = q.place(query, "TND"), k.place(key, "PA_BSND"), q.place(weights, "TND")
    with pytest.raises(RuntimeError, match=r"expected a prefix sum from 5 to 7, found 3 at \[2\]"):
        dovetail.ops.lightning_indexer(*tensors, **named | dict(actual_seq_lengths_query=torch.tensor([1, 5, 3], dtype=INT)))
    table = k.table.clone()
    table[2, 2] = k.pages
    with pytest.raises(RuntimeError, match=rf"'block_table': expected a page from 0 to {k.pages - 1}, found {k.pages} at \[2, 2\]"):
        dovetail.ops.lightning_indexer(*tensors, **named | dict(block_table=table))


@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
@pytest.mark.parametrize("groups", [1, 2])
def test_gradient_is_that_of_the_formula(layouts, groups):
    q, k, query, key, weights = problem([1, 4, 2], [7, 3, 6], torch.float64, 5, groups)
    leaves = [[t.requires_grad_() for t in x] for x in (query, key, weights)]
    _, values = dovetail.ops.lightning_indexer(q.place(query, layouts[0]).nan_to_num(), k.place(key, layouts[1]).nan_to_num(), q.place(weights, layouts[0]).nan_to_num(),
                                               **lengths(q, k, *layouts), sparse_count=COUNT, return_value=True)
    g = torch.randn(values.shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    flat = [t for x in leaves for t in x]
    finite = lambda x: torch.where(x.isfinite(), x, 0)
    found = torch.autograd.grad((finite(values) * g).sum(), flat)
    exact = expect([oracle(*x, 3)[1] for x in zip(query, key, weights)], q, layouts[0], 0.0)
    for a, b in zip(found, torch.autograd.grad((finite(exact) * g).sum(), flat)):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("queries, keys, heads, d", [(1, 700, 40, 70), (3, 257, 3, 64), (33, 5, 1, 1), (2, 1030, 64, 128)])
def test_fast_rows(queries, keys, heads, d, dtype, isa):
    """Scores in f32, in pieces of the keys; the keys that are chosen are the best ones up to rounding."""
    g = torch.Generator().manual_seed(keys)
    q, k, w = (torch.randn(shape, generator=g, dtype=torch.float64).to(dtype) for shape in ((2, queries, 2 * heads, d), (2, keys, 2, d), (2, queries, 2 * heads)))
    count = min(keys, 50)
    at, values = dovetail.ops.lightning_indexer(q, k, w, sparse_count=count, sparse_mode=0, return_value=True)
    scores = (torch.einsum("bsghd,btgd->bsght", q.double().unflatten(2, (2, heads)), k.double()).relu() * w.double().unflatten(2, (2, heads))[..., None]).sum(3)
    size = (scores.abs().amax() + 1) * 1e-5
    best = scores.topk(count, -1).values
    mine = scores.gather(-1, at.long())
    assert ((mine - best).abs() <= size).all() and all(len(set(line)) == count for line in at.flatten(0, 2).tolist())
    assert ((values.double() - mine).abs() <= size + torch.finfo(dtype).eps * mine.abs()).all()


def test_a_score_that_is_not_finite(isa):
    """f32 overflows where f64 does not: the order is that of f64."""
    q, k, w = torch.full((1, 1, 1, 2), 3e38), torch.tensor([[1.0, 0], [3, 3], [2, 2], [-1, 0]]).reshape(1, 4, 1, 2), torch.ones(1, 1, 1)
    at, _ = dovetail.ops.lightning_indexer(q, k, w, sparse_count=4, sparse_mode=0)
    assert at.flatten().tolist() == [1, 2, 0, 3]
    k[0, 2] = float("nan")
    at, _ = dovetail.ops.lightning_indexer(q, k, w, sparse_count=4, sparse_mode=0)
    assert at.flatten().tolist() == [2, 1, 0, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads, n", [(1, 2), (2, 4), (3, 1024), (64, 128)])
def test_a_sum_that_leaves_f32_on_the_way(dtype, heads, n, isa):
    """Below it: relu would make 0 of it, and the score would be finite."""
    q, w = torch.full((1, 1, heads, n), 1e19).to(dtype), torch.full((1, 1, heads), 1e-38).to(dtype)
    k = torch.full((1, 50, 1, n), 1e18 / n)
    k[0, 7, 0] = torch.cat([torch.full((n // 2,), -2e21 / n), torch.full((n - n // 2,), 2.01e21 / n)])
    k = k.to(dtype)
    at, values = dovetail.ops.lightning_indexer(q, k, w, sparse_count=2, sparse_mode=0, return_value=True)
    exact_at, exact = dovetail.ops.lightning_indexer(q.double(), k.double(), w.double(), sparse_count=2, sparse_mode=0, return_value=True)
    assert exact_at.flatten().tolist() == [7, 0] and torch.equal(at, exact_at)
    torch.testing.assert_close(values, exact.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size, weight", [(1e-30, 1e38), (1e-22, 1e30), (1e-19, 1.0)])
def test_products_that_underflow(dtype, size, weight, isa):
    """f32 loses digits where f64 does not: the order is that of f64."""
    q, w = torch.full((1, 1, 1, 2), size).to(dtype), torch.full((1, 1, 1), weight).to(dtype)
    k = (torch.arange(1, 401)[torch.randperm(400, generator=torch.Generator().manual_seed(1))] % 256 * size).to(dtype).reshape(1, 400, 1, 1).expand(1, 400, 1, 2).contiguous()
    at, values = dovetail.ops.lightning_indexer(q, k, w, sparse_count=400, sparse_mode=0, return_value=True)
    scores = (q.double() * k.double()).sum(-1).flatten() * w.double().item()
    best, order = scores.sort(descending=True, stable=True)
    assert torch.equal(at.flatten().long(), order)
    torch.testing.assert_close(values.flatten().double(), best, rtol=2 * torch.finfo(dtype).eps, atol=1e-44)


@pytest.mark.parametrize("keys, heads, d", [(1, 1, 1), (300, 40, 70), (513, 3, 64), (1030, 64, 128), (7, 33, 5), (20, 2, 0)])
def test_bytes(keys, heads, d, isa):
    g = torch.Generator().manual_seed(keys)
    q, k = (torch.randint(-128, 128, s, generator=g, dtype=torch.int8) for s in ((1, 3, heads, d), (1, keys, 1, d)))
    q[0, 1], k[0, -1] = -128, 127  # the largest sums
    k[0, 0] = -128
    w, qs, ks = torch.randn(1, 3, heads, generator=g), torch.rand(1, 3, heads, generator=g), torch.rand(1, keys, 1, generator=g)
    at = dovetail.ops.npu_lightning_indexer_quant(q, k, w, qs, ks, sparse_count=keys, sparse_mode=0)[0, :, 0].long()
    z = torch.einsum("shd,td->sht", q[0].double(), k[0, :, 0].double()).relu() * (w * qs)[0, :, :, None].double()
    scores, size = z.sum(1) * ks[0, :, 0].double(), (z.abs().sum(1) * ks[0, :, 0].double()).max() * 1e-5
    mine = scores.gather(-1, at)
    assert all(sorted(line) == list(range(keys)) for line in at.tolist()) and (mine[:, 1:] <= mine[:, :-1] + size).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8])
@pytest.mark.parametrize("heads, d", [(10, 1), (40, 70), (64, 128)])
def test_equal_keys_have_equal_scores(heads, d, dtype, isa):
    """Whatever other keys are scored with them: so the lower index comes first."""
    g = torch.Generator().manual_seed(heads)
    draw = lambda *shape: torch.randint(-128, 128, shape, generator=g).to(dtype) if dtype == torch.int8 else torch.randn(shape, generator=g).to(dtype)
    q, few, w = draw(1, 4, heads, d), draw(7, d), torch.randn(1, 4, heads, generator=g)
    of = torch.randint(0, 7, (500,), generator=g)
    k = few[of].reshape(1, 500, 1, d)
    if dtype == torch.int8:
        at = dovetail.ops.npu_lightning_indexer_quant(q, k, w, torch.ones(1, 4, heads), torch.ones(1, 500, 1), sparse_count=500, sparse_mode=0)
    else:
        at, _ = dovetail.ops.lightning_indexer(q, k, w.to(dtype), sparse_count=500, sparse_mode=0)
    for line in at.flatten(0, 2).long():
        groups = [of[i].item() for i in line]
        assert sum(a != b for a, b in zip(groups, groups[1:])) == 6  # each of the seven in one piece
        assert all(a < b for a, b, x, y in zip(line, line[1:], groups, groups[1:]) if x == y)
