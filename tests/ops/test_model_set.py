"""The smaller operators of a model, against PyTorch's own in f64 and against their definitions."""
import pytest
import torch
import torch.nn.functional as F

import dovetail

ops = dovetail.ops
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = [(1,), (7,), (3, 8), (2, 3, 130), (0, 4), (70, 6), (3, 600)]


def draw(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def same(found, exact):
    """One rounding of the f64 result, up to a unit in the last place."""
    torch.testing.assert_close(found, exact.to(found.dtype), rtol=torch.finfo(found.dtype).eps * 2, atol=1e-12 if found.dtype == torch.float64 else 1e-6)


def within(found, exact, size):
    """One rounding of the result, and some of f32 in sums whose terms have this size in all."""
    eps = torch.finfo(found.dtype).eps
    assert ((found.double() - exact).abs() <= eps * exact.abs() + min(eps, 1e-7) * 8 * (size + 1)).all()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_of_one_tensor(shape, dtype, isa):
    x = draw(*shape, dtype=dtype)
    for how in ("none", "tanh"):
        same(ops.gelu(x, how), F.gelu(x.double(), approximate=how))
    for dim in range(-x.ndim, x.ndim):
        same(ops.softmax(x, dim), x.double().softmax(dim))
    gate, up = draw(*shape, dtype=dtype, seed=1), draw(*shape, dtype=dtype, seed=2)
    same(ops.silu_and_mul(torch.cat([gate, up], -1)), F.silu(gate.double()) * up.double())
    w, b = draw(shape[-1], dtype=dtype, seed=3), draw(shape[-1], dtype=dtype, seed=4)
    for weight, bias in ((None, None), (w, None), (None, b), (w, b)):
        exact = F.layer_norm(x.double(), shape[-1:], *(None if t is None else t.double() for t in (weight, bias)), 1e-3)
        if shape[-1] > 1:
            same(ops.layer_norm(x, weight, bias, 1e-3), exact)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_special_numbers(dtype, isa):
    inf, nan = float("inf"), float("nan")
    for row in ([-inf, -inf], [inf, 1.0], [nan, 1.0], [-inf, 2.0], [3e4, 0.0], [-3e4, -3e4]):
        x = torch.tensor(row, dtype=dtype)
        torch.testing.assert_close(ops.softmax(x), x.softmax(0), equal_nan=True)
        torch.testing.assert_close(ops.layer_norm(x), F.layer_norm(x.double(), (2,)).to(dtype), equal_nan=True)
    x = torch.tensor([inf, nan, 0.0, -0.0, 1e4, -1e4], dtype=dtype)
    for how in ("none", "tanh"):
        exact = F.gelu(x.double(), approximate=how).to(dtype)  # torch's f32 form gives NaN for inf
        torch.testing.assert_close(ops.gelu(x, how), exact, equal_nan=True)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("inner", [2, 15, 16, 17, 31, 32, 33, 48, 65, 100])
def test_softmax_of_lines_side_by_side_and_of_short_ones(inner, dtype, isa):
    """One line's NaN or infinity is its own."""
    inf, nan = float("inf"), float("nan")
    for before, n in ((1, 1), (3, 2), (2, 3), (1, 64), (2, 65), (1, 131)):
        x = draw(before, n, inner, dtype=dtype, seed=n) * 4
        same(ops.softmax(x, 1), x.double().softmax(1))
        same(ops.softmax(x, 2), x.double().softmax(2))
        for line, value in enumerate((nan, inf, -inf)):
            x[0, n // 2, line * 7 % inner] = value
        x[-1, :, inner - 1] = -inf
        for dim in (1, 2):
            torch.testing.assert_close(ops.softmax(x, dim), x.double().softmax(dim).to(dtype), equal_nan=True, rtol=torch.finfo(dtype).eps * 4, atol=1e-6)


@pytest.mark.parametrize("shape, dim", [((32, 48), 1), ((131, 48), 0), ((1000, 32), 0), ((40, 131), 1)])
def test_error_of_softmax(shape, dim, isa):
    """That of the page: a sum of many small terms beside 1 loses digits in f32."""
    for seed in range(30):
        x = (draw(*shape, seed=seed) * 10).float()
        exact = x.double().softmax(dim)
        off = (x.double() - x.double().amax(dim, keepdim=True)).abs()
        allowed = exact * (off + (exact * off).sum(dim, keepdim=True)) * 2.0**-24 + 4 * exact.clamp(min=2.0**-126) * 2.0**-23
        assert ((ops.softmax(x, dim) - exact).abs() <= allowed).all()
        most = exact > 0.5
        assert ((ops.softmax(x, dim) - exact).abs()[most] <= (4 + (exact * off).sum(dim, keepdim=True).expand(shape)[most]) * 2.0**-24).all()


@pytest.mark.parametrize("how", ["none", "tanh"])
def test_gelu_far_below_0(how, isa):
    """1 + erf and 1 + tanh cancel there: the result keeps its digits all the same."""
    x = torch.linspace(-13, 6, 20001, dtype=torch.float32)
    wide = x.double()
    exact = 0.5 * wide * torch.special.erfc(-wide / 2**0.5) if how == "none" else wide * torch.sigmoid(2 * (2 / torch.pi)**0.5 * (wide + 0.044715 * wide**3))
    error = (ops.gelu(x, how).double() - exact).abs() / torch.finfo(torch.float32).eps
    assert (error <= 5 * exact.abs() + 2 * torch.finfo(torch.float32).smallest_normal).all(), (error / exact.abs()).max()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape, n", [((5,), 3), ((65, 1100), 17), ((1, 640), 24), ((2, 192), 16), ((2, 3, 8), 1), ((130, 7), 9), ((16, 129), 97), ((17, 33), 5), ((12, 256), 16), ((20, 641), 40), ((3, 1), 96), ((0, 4), 2), ((3, 0), 2), ((2, 3), 0)])
@pytest.mark.parametrize("bias", [False, True])
def test_linear(dtype, shape, n, bias, isa):
    x, w, b = draw(*shape, dtype=dtype), draw(n, shape[-1], dtype=dtype, seed=1), draw(n, dtype=dtype, seed=2) if bias else None
    exact = lambda w: x.double() @ w.T + (b.double() if bias else 0)
    within(ops.linear(x, w, b), exact(w.double()), x.double().abs() @ w.double().abs().T)
    q, scale = torch.randint(-128, 128, w.shape, generator=torch.Generator().manual_seed(3), dtype=torch.int8), torch.rand(n) / 100
    wide = q.double() * scale.double()[:, None]
    within(ops.linear(x, q, b, scale), exact(wide), x.double().abs() @ wide.abs().T)
    with pytest.raises(RuntimeError, match="weight_scale"):
        ops.linear(x, q, b)


@pytest.mark.parametrize("name", ["gelu", "softmax", "silu_and_mul", "layer_norm", "linear"])
def test_gradients(name):
    x = draw(2, 6).requires_grad_()
    f = {"gelu": lambda x: ops.gelu(x, "tanh") + ops.gelu(x), "softmax": lambda x: ops.softmax(x, 0), "silu_and_mul": ops.silu_and_mul,
         "layer_norm": lambda x: ops.layer_norm(x, draw(6, seed=1), draw(6, seed=2)), "linear": lambda x: ops.linear(x, draw(3, 6, seed=1), draw(3, seed=2))}[name]
    assert torch.autograd.gradcheck(f, x)
    weight = draw(6, 6, seed=1).requires_grad_()
    if name in ("linear", "layer_norm"):
        call = (lambda w, b: ops.linear(x, w, b)) if name == "linear" else lambda w, b: ops.layer_norm(x, w[0], b)
        assert torch.autograd.gradcheck(call, (weight, draw(6, seed=2).requires_grad_()))


@pytest.mark.parametrize("policy", ["all", "none"])
def test_f16_whose_squares_are_too_large(policy):
    """The decomposition, and the gradient that comes from it, compute in f32."""
    x, w = torch.tensor([[600.0, 1.0, 2.0, 3.0], [3e4, -3e4, 5.0, 0.0]], dtype=torch.float16), torch.ones(4, dtype=torch.float16)
    grad = torch.tensor([1.0, 2.0, -1.0, 0.5], dtype=torch.float16)
    for ours, theirs in ((ops.layer_norm, lambda x, w: F.layer_norm(x, (4,), w)), (ops.rms_norm, lambda x, w: F.rms_norm(x, (4,), w, 1e-6))):
        given, wide = [t.clone().requires_grad_() for t in (x, w)], [t.double().requires_grad_() for t in (x, w)]
        with dovetail.policy(policy):
            found, exact = ours(*given), theirs(*wide)
            torch.testing.assert_close(found.double(), exact, rtol=2e-3, atol=1e-6)
            (found * grad).sum().backward()
        (exact * grad).sum().backward()
        for f, e in zip(given, wide):
            torch.testing.assert_close(f.grad.double(), e.grad, rtol=5e-3, atol=2e-7)
    with dovetail.policy(policy):
        assert torch.equal(ops.softmax(torch.zeros(70000, dtype=torch.float16)), torch.full((70000,), 1 / 70000, dtype=torch.float16))


def test_layer_norm_of_numbers_that_are_nearly_equal(isa):
    for n in (5, 64, 1000, 100003):
        x = (draw(3, n) + 1000).float()
        assert (ops.layer_norm(x, None, None, 1e-9).double() - F.layer_norm(x.double(), (n,), eps=1e-9)).abs().max() < 1e-6, n


@pytest.mark.parametrize("n", [4096, 100003, 1000000])
def test_sums_of_long_rows(isa, n):
    """In f32 alone the sum of many equal terms loses digits: all are rounded to the same side."""
    g = torch.Generator().manual_seed(0)
    for x in ((torch.rand(2, n, generator=g) < 0.1).float() * 0.7, torch.where(torch.rand(2, n, generator=g) < 0.5, -0.7, 0.7), torch.randn(2, n, generator=g)):
        wide = x.double()
        centred = wide - wide.mean(-1, keepdim=True)
        for found, exact in ((dovetail.ops.layer_norm(x), centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()),
                             (dovetail.ops.rms_norm(x, torch.ones(n)), wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt())):
            assert ((found - exact).abs() <= (exact.abs() * 3e-7).clamp(min=1e-6)).all()
        likely, exact = dovetail.ops.softmax(x), wide.softmax(-1)
        assert ((likely - exact).abs() <= exact * (4 + (wide - wide.amax(-1, keepdim=True)).abs()) * 2.0**-23).all()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("rows, n", [(3, 2), (5, 7), (300, 64), (70, 100), (2, 1030), (0, 5)])
@pytest.mark.parametrize("has_weight, has_bias", [(False, False), (True, False), (False, True), (True, True)])
def test_gradient_of_layer_norm(dtype, rows, n, has_weight, has_bias, isa):
    leaves = [(draw(rows, n) * 2 + 3).to(dtype), draw(n, dtype=dtype, seed=1) if has_weight else None, draw(n, dtype=dtype, seed=2) if has_bias else None]
    out = draw(rows, n, dtype=dtype, seed=3)

    def gradients(norm, to):
        those = [None if t is None else t.to(to).requires_grad_() for t in leaves]
        return torch.autograd.grad(norm(*those), [t for t in those if t is not None], out.to(to))

    exact = gradients(lambda x, w, b: F.layer_norm(x, (n,), w, b), torch.float64)
    for found, right in zip(gradients(ops.layer_norm, dtype), exact):
        assert found.dtype == dtype and found.shape == right.shape
        terms = (right.abs().max() + out.abs().max() * (leaves[1].abs().max() if has_weight else 1) / leaves[0].double().std(-1, correction=0).min()) if right.numel() * rows else 0
        eps = torch.finfo(dtype).eps
        assert ((found.double() - right).abs() <= eps * right.abs() + max(eps * 16 if dtype == torch.float64 else 0, min(eps, 2.4e-7) * 4 * (dtype != torch.float64)) * terms).all()


@pytest.mark.parametrize("scale", [1e37, 1e20, 1e-19, 1e-30, 1e-36, 1e-38, 3e-40])
def test_norms_whose_squares_are_no_floats(isa, scale):
    for n in (3, 64, 70, 5000):
        wide = (torch.randn(2, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64) * scale).float().double()
        for eps in (0.0, 1e-5):
            torch.testing.assert_close(dovetail.ops.layer_norm(wide.float(), eps=eps).double(), dovetail.ops.layer_norm(wide, eps=eps), rtol=1e-6, atol=2e-6)
            torch.testing.assert_close(dovetail.ops.rms_norm(wide.float(), torch.ones(n), eps).double(), dovetail.ops.rms_norm(wide, torch.ones(n).double(), eps), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [2, 64, 100])
def test_norms_whose_deviation_has_no_inverse_in_f32(isa, dtype, n):
    """With a mean that is larger than the deviation, with weight and bias."""
    x = (1e-38 + draw(3, n, seed=n) * 1e-39).to(dtype)
    w, b = draw(n, seed=1).to(dtype), draw(n, seed=2).to(dtype)
    for found, exact in ((ops.layer_norm(x, w, b, 0.0), ops.layer_norm(x.double(), w.double(), b.double(), 0.0)),
                         (ops.rms_norm(x / 64, w, 0.0), ops.rms_norm((x / 64).double(), w.double(), 0.0)),
                         (ops.add_rms_norm(x / 64, torch.zeros_like(x), w, 0.0), ops.rms_norm((x / 64).double(), w.double(), 0.0))):
        torch.testing.assert_close(found, exact.to(dtype), rtol=torch.finfo(dtype).eps * 2, atol=2e-6)


@pytest.mark.parametrize("name, scale", [("rms_norm", 1e-30), ("rms_norm", 1e30), ("layer_norm", 1e-18), ("layer_norm", 1e-13), ("layer_norm", 1e15), ("layer_norm", 1e18)])
def test_gradients_of_norms_whose_cubes_are_no_floats(name, scale, isa):
    """One over the deviation, cubed, leaves f32 long before the gradient does."""
    g = torch.Generator().manual_seed(3)
    x, w, out = torch.randn(4, 64, generator=g) * scale, torch.randn(64, generator=g), torch.randn(4, 64, generator=g)

    def gradients(dtype, norm):
        leaves = [t.to(dtype).requires_grad_() for t in (x, w)]
        return torch.autograd.grad(norm(*leaves), leaves, out.to(dtype))

    plain = {"rms_norm": lambda x, w: x * (x * x).mean(-1, keepdim=True).rsqrt() * w, "layer_norm": lambda x, w: torch.nn.functional.layer_norm(x, (64,), w, eps=0)}
    ours = {"rms_norm": lambda x, w: torch.ops.dovetail.rms_norm(x, w, 0.0), "layer_norm": lambda x, w: torch.ops.dovetail.layer_norm(x, w, None, 0.0)}
    for found, exact in zip(gradients(torch.float32, ours[name]), gradients(torch.float64, plain[name])):
        assert ((found.double() - exact).abs() <= 1e-6 * exact.abs().max()).all()


def test_a_row_of_one_number_becomes_0(isa):
    for value in (1.0, 1e8, 1.1e10, 1e15, 1e17, 3e18, 1e20):
        for n in (3, 64, 800, 937, 4999):
            assert not dovetail.ops.layer_norm(torch.full((1, n), value)).any(), (value, n)


def test_the_slope_of_gelu_far_from_0(isa):
    for dtype in TYPES:
        x = torch.tensor([1e4, -1e4, float("inf"), -float("inf"), float("nan")] + [1e20, -1e20] * (dtype != torch.float16), dtype=dtype)
        expected = [1.0, 0.0, 1.0, 0.0, float("nan")] + [1.0, 0.0] * (dtype != torch.float16)
        torch.testing.assert_close(ops.gelu_backward(torch.ones_like(x), x, "tanh"), torch.tensor(expected, dtype=dtype), equal_nan=True)


@pytest.mark.parametrize("scale", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_gradient_of_int8_weights(scale):
    """The scale is not rounded, whatever the weights' types are."""
    x, w, s = draw(3, 7).requires_grad_(), torch.randint(-127, 128, (5, 7), dtype=torch.int8), (draw(5, seed=1) / 50).to(scale)
    assert torch.autograd.gradcheck(lambda x: ops.linear(x, w, None, s), x)
    with dovetail.policy("none"):
        torch.testing.assert_close(ops.linear(x, w, None, s), x @ (w.double() * s.double()[:, None]).T)


# ---- routing -----------------------------------------------------------------------------------------------------------------

def routed(gating, k, renormalize, groups=1, kept=1, scoring="softmax", factor=1.0, bias=None):
    """By definition, in f64, with stable sorts."""
    scores = gating.double().softmax(-1) if scoring == "softmax" else gating.double().sigmoid()
    by = scores if bias is None else scores + bias.double()
    parts = by.unflatten(1, (groups, -1))
    best = parts.amax(-1) if bias is None else parts.topk(min(2, parts.shape[-1]), -1).values.sum(-1)
    some = best.sort(dim=-1, descending=True, stable=True).indices[:, :kept]
    mask = torch.zeros_like(best, dtype=torch.bool).scatter_(1, some, True)
    by = parts.masked_fill(~mask[..., None], -torch.inf).flatten(1)
    ids = by.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    weights = scores.gather(1, ids)
    return (weights / weights.sum(-1, keepdim=True) if renormalize else weights) * factor, ids.int()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("options", [dict(), dict(groups=4, kept=2), dict(groups=4, kept=2, scoring="sigmoid", factor=2.5), dict(groups=3, kept=3, bias=True),
                                     dict(groups=4, kept=1, scoring="sigmoid", bias=True), dict(scoring="sigmoid")], ids=str)
@pytest.mark.parametrize("renormalize", [False, True])
def test_grouped_topk(dtype, options, renormalize):
    gating = (draw(9, 12) * 2).round().div(2).to(dtype)  # with ties
    bias = draw(12, dtype=dtype, seed=1) if options.get("bias") else None
    weights, ids = routed(gating, 3, renormalize, **options | dict(bias=bias))
    found, at = ops.grouped_topk(gating, 3, renormalize, options.get("groups", 1), options.get("kept", 1), options.get("scoring", "softmax"),
                                 options.get("factor", 1.0), bias)
    assert torch.equal(at, ids)
    torch.testing.assert_close(found, weights.to(found.dtype))
    if not set(options) - {"bias"}:
        index = torch.int64 if renormalize else torch.int32
        out = torch.empty(9, 3), torch.empty(9, 3, dtype=index), torch.empty(9, 3, dtype=torch.int32)
        ops.topk_softmax(*out, gating, renormalize, bias)
        assert torch.equal(out[1].int(), ids) and torch.equal(out[2], (torch.arange(3) * 9 + torch.arange(9)[:, None]).int())
        torch.testing.assert_close(out[0], weights.float())


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
@pytest.mark.parametrize("renormalize", [False, True])
def test_gradient_of_routing(scoring, renormalize):
    gating = draw(3, 8).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ops.grouped_topk(x, 3, renormalize, 4, 2, scoring, 2.5)[0], gating)


# ---- in place ----------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["paged_kv_write", "reshape_and_cache"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_paged_kv_write(name, dtype):
    r = lambda *s: torch.randint(-100, 100, s).to(dtype)
    key, value, keys, values = r(5, 2, 3), r(5, 2, 4), r(6, 4, 2, 3), r(6, 4, 2, 4)
    slots = torch.tensor([23, -1, 0, 7, 0])
    exact = [t.clone() for t in (keys, values)]
    for i, s in enumerate(slots.tolist()):
        if s >= 0:
            exact[0][s // 4, s % 4], exact[1][s // 4, s % 4] = key[i], value[i]
    getattr(ops, name)(key, value, keys, values, slots.int())
    assert torch.equal(keys, exact[0]) and torch.equal(values, exact[1])
    with pytest.raises(RuntimeError, match=r"'slot_mapping': expected a slot below 24, found 24 at \[4\]"):
        getattr(ops, name)(key * 0, value * 0, keys, values, torch.tensor([1, 2, 3, 4, 24]))
    assert torch.equal(keys, exact[0]) and torch.equal(values, exact[1])


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_adamw(amsgrad, maximize):
    params = [draw(3, 4), draw(5, seed=1), draw(0)]
    mine, theirs = [p.clone() for p in params], [p.clone().requires_grad_() for p in params]
    state = [[torch.zeros_like(p) for p in params] for _ in range(3)]
    adamw = torch.optim.AdamW(theirs, lr=0.1, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2, amsgrad=amsgrad, maximize=maximize)
    for step in range(1, 4):
        grads = [draw(*p.shape, seed=10 * step + k) for k, p in enumerate(params)]
        ops.adamw_step_(mine, grads, state[0], state[1], state[2] if amsgrad else [], step, lr=0.1, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.2,
                        amsgrad=amsgrad, maximize=maximize)
        for p, g in zip(theirs, grads):
            p.grad = g
        adamw.step()
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b.detach())
    with pytest.raises(RuntimeError, match="grads"):
        ops.adamw_step_(mine, mine[:2], state[0], state[1], [], 1)


@pytest.mark.parametrize("types", [(torch.float32,) * 3, (torch.bfloat16, torch.bfloat16, torch.float32), (torch.float32, torch.float16, torch.float32), (torch.float64, torch.float32, torch.bfloat16)], ids=str)
@pytest.mark.parametrize("amsgrad", [False, True])
def test_adamw_of_other_types(types, amsgrad, isa):
    """As in f64, but for the rounding of f32 and of what is stored; more elements than a piece has."""
    param, grad, state = types
    sizes = [1, 63, 64, 65, 40001]
    p, g, m, v = ([(draw(n, seed=n + k) ** (2 if k == 3 else 1)).to(t) for n in sizes] for k, t in enumerate((param, grad, state, state)))
    most = [t + draw(len(t), seed=5).to(state) * 0.1 for t in v] if amsgrad else []
    g[1][5] = float("nan")
    exact = [[t.double() for t in those] for those in (p, g, m, v, most)]
    for those in ((p, g, m, v, most), exact):
        ops.adamw_step_(*those, 3, lr=0.1, beta1=0.8, weight_decay=0.2, amsgrad=amsgrad)
    for those, right in zip((p, m, v, most), (exact[0], *exact[2:])):
        for found, x in zip(those, right):
            eps = max(torch.finfo(found.dtype).eps, 0 if torch.float64 in types else 1.2e-7)
            torch.testing.assert_close(found.double(), x.to(found.dtype).double(), rtol=eps * 4, atol=eps * 4, equal_nan=True)


# ---- causal_conv1d -----------------------------------------------------------------------------------------------------------

def conv(x, weight, bias, states, activation):
    w = weight.shape[1]
    past = torch.cat([torch.zeros(*x.shape[:2], w - 1, dtype=x.dtype) if states is None else states, x], -1)
    y = F.conv1d(past, weight[:, None], bias, groups=len(weight)) if x.numel() else x * 1
    return F.silu(y) if activation else y


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("b, d, l, w", [(2, 3, 7, 4), (1, 1, 1, 1), (2, 2, 2, 5), (3, 2, 0, 3), (1, 4, 100, 2)])
@pytest.mark.parametrize("bias, states, activation", [(False, False, None), (True, False, "silu"), (True, True, "swish"), (False, True, None)])
def test_causal_conv1d(dtype, b, d, l, w, bias, states, activation):
    x, weight = draw(b, d, l, dtype=dtype), draw(d, w, dtype=dtype, seed=1)
    bias, states = draw(d, dtype=dtype, seed=2) if bias else None, draw(b, d, w - 1, dtype=dtype, seed=3) if states else None
    wide = [None if t is None else t.double() for t in (x, weight, bias, states)]
    same(ops.causal_conv1d(x, weight, bias, states, activation=activation), conv(*wide, activation))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("b, d, l, w", [(2, 3, 64, 4), (3, 2, 1, 4), (1, 5, 130, 1), (2, 2, 65, 16), (1, 2, 70, 17), (2, 3, 10, 12), (1, 1, 200, 3), (2, 2, 0, 3)])
@pytest.mark.parametrize("bias, states, activation", [(False, False, None), (True, True, "silu"), (False, True, None), (True, False, "swish")])
def test_causal_conv1d_in_lanes(dtype, b, d, l, w, bias, states, activation, isa):
    """The results and the gradients of all four, against PyTorch's in f64."""
    x, weight = draw(b, d, l, dtype=dtype), draw(d, w, dtype=dtype, seed=1)
    leaves = [x, weight, draw(d, dtype=dtype, seed=2) if bias else None, draw(b, d, w - 1, dtype=dtype, seed=3) if states else None]
    out = draw(b, d, l, dtype=dtype, seed=4)

    def run(f, to):
        those = [None if t is None else t.to(to).requires_grad_() for t in leaves]
        y = f(*those)
        return y, *torch.autograd.grad(y, [t for t in those if t is not None], out.to(to), materialize_grads=True)

    exact = run(lambda *t: conv(*t, activation), torch.float64)
    eps = torch.finfo(dtype).eps
    for found, right in zip(run(lambda *t: ops.causal_conv1d(*t, activation=activation), dtype), exact):
        assert found.dtype == dtype and found.shape == right.shape
        assert ((found.double() - right).abs() <= eps * right.abs() + (2e-12 if dtype == torch.float64 else 3e-7) * (w + l) * 4).all()


def test_infinity_in_causal_conv1d_stays_where_the_window_is(isa):
    x, weight, out = draw(1, 1, 70, dtype=torch.float32), draw(1, 4, dtype=torch.float32, seed=1), draw(1, 1, 70, dtype=torch.float32, seed=2)
    x[0, 0, -1] = float("inf")
    x.requires_grad_(), weight.requires_grad_()
    y = ops.causal_conv1d(x, weight)
    grads = torch.autograd.grad(y, (x, weight), out)
    assert y[0, 0, :-1].isfinite().all() and not y[0, 0, -1].isfinite()
    assert grads[0].isfinite().all() and grads[1].isfinite().tolist() == [[True, True, True, False]]


@pytest.mark.parametrize("activation", [None, "silu"])
def test_gradient_of_causal_conv1d(activation):
    leaves = [draw(*s, seed=k).requires_grad_() for k, s in enumerate([(2, 3, 4), (3, 3), (3,), (2, 3, 2)])]
    assert torch.autograd.gradcheck(lambda *t: ops.causal_conv1d(*t, activation=activation), leaves)
    assert torch.autograd.gradcheck(lambda *t: ops.causal_conv1d(*t, activation=activation), leaves[:2])
