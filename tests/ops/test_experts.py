"""fused_experts against its formula in PyTorch, token by token, in f64; weights are dequantised from their definition."""
import itertools

import pytest
import torch

import dovetail

F8 = torch.float8_e4m3fn


def activated(h, name):
    if name == "swigluoai":
        gate, up = h[::2].clamp(max=7), h[1::2].clamp(-7, 7)
        return (up + 1) * gate * torch.sigmoid(1.702 * gate)
    gate, up = h.chunk(2)
    act = {"silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu, "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh")}[name]
    return act(gate) * up


def oracle(x, w1, w2, weights, ids, activation="silu", on_input=False, expert_map=None, b1=None, b2=None, q1=lambda t: t, q2=lambda t: t):
    """x in the model's type, everything else f64. q1 and q2: what quantisation leaves of an activation."""
    rows = []
    for t in range(len(x)):
        total = torch.zeros(x.shape[1], dtype=torch.float64)
        for j in range(ids.shape[1]):
            e = int(ids[t, j])
            e = int(expert_map[e]) if e >= 0 and expert_map is not None else e
            if e < 0:
                continue
            c, v = weights[t, j], x[t].double()
            if on_input:
                c, v = 1.0, (v * c).to(x.dtype).double()
            a = activated(w1[e] @ q1(v) + (0 if b1 is None else b1[e]), activation)
            total = total + c * (w2[e] @ q2(a.to(x.dtype).double()) + (0 if b2 is None else b2[e]))
        rows.append(total)
    return torch.stack(rows) if rows else x.double()


def problem(dtype, m=5, k=6, n=4, e=3, j=2, seed=1):
    g = torch.Generator().manual_seed(seed)
    r = lambda *s: torch.randn(s, generator=g, dtype=torch.float64)
    return dict(hidden_states=r(m, k).to(dtype), w1=r(e, 2 * n, k).to(dtype), w2=r(e, k, n).to(dtype), topk_weights=torch.rand(m, j, generator=g),
                topk_ids=torch.randint(-1, e, (m, j), generator=g).int()), r(e, 2 * n).to(dtype), r(e, k).to(dtype)


def agrees(p, w1, w2, more={}, tolerance=None, **options):
    found = dovetail.ops.fused_experts(**p, **more)
    exact = oracle(p["hidden_states"], w1, w2, p["topk_weights"].double(), p["topk_ids"], **options)
    assert found.dtype == p["hidden_states"].dtype
    torch.testing.assert_close(found, exact.to(found.dtype), **({} if tolerance is None else dict(atol=tolerance, rtol=tolerance)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "swigluoai"])
@pytest.mark.parametrize("bias", [False, True])
def test_floats(dtype, activation, bias):
    p, b1, b2 = problem(dtype)
    p["hidden_states"] *= 4  # beyond the limits of swigluoai
    more = dict(w1_bias=b1, w2_bias=b2) if bias else {}
    agrees(p, p["w1"].double(), p["w2"].double(), dict(more, activation=activation), activation=activation,
           **(dict(b1=b1.double(), b2=b2.double()) if bias else {}))


@pytest.mark.parametrize("m, k, n, e, j", [(0, 6, 4, 3, 2), (130, 3, 5, 4, 3), (1, 1, 1, 1, 1), (3, 4, 0, 2, 2), (3, 0, 4, 2, 2), (3, 4, 2, 2, 0)])
def test_sizes(m, k, n, e, j):
    p, _, _ = problem(torch.float64, m, k, n, e, j)
    agrees(p, p["w1"], p["w2"])


def by_expert(x, w1, w2, weights, ids, activation="silu", b1=None, b2=None):
    """The same in f64 for many tokens: each expert's tokens at once."""
    total = torch.zeros(x.shape, dtype=torch.float64)
    for e in range(len(w1)):
        token, choice = (ids == e).nonzero(as_tuple=True)
        h = x[token].double() @ w1[e].double().T + (0 if b1 is None else b1[e].double())
        a = torch.stack([activated(row, activation) for row in h]) if len(h) else h[:, : w2.shape[2]]
        y = a.to(x.dtype).double() @ w2[e].double().T + (0 if b2 is None else b2[e].double())
        total.index_add_(0, token, y * weights[token, choice].double()[:, None])
    return total


def close(found, exact, size):
    """Roundings of the result and of a, and of f32 in sums whose terms have this size in all."""
    eps = torch.finfo(found.dtype).eps
    assert ((found.double() - exact).abs() <= eps * exact.abs() + 8 * max(eps, 1e-7) * size).all()


# tokens of one expert: one, two, up to IN_PLACE, up to FEW, a panel's rest of one vector and of two, several groups; k beyond what is loaded at once
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("m, k, n, e", [(1, 640, 70, 1), (2, 128, 64, 1), (3, 192, 128, 1), (9, 64, 33, 2), (48, 70, 25, 1), (49, 1100, 26, 1), (67, 17, 50, 1), (300, 40, 49, 2)])
@pytest.mark.parametrize("activation, bias", [("silu", False), ("swigluoai", True)])
def test_rows_of_each_instruction_set(dtype, m, k, n, e, activation, bias, isa):
    p, b1, b2 = problem(dtype, m, k, n, e, 2)
    p["w1"] /= k**0.5
    biases = dict(b1=b1, b2=b2) if bias else {}
    exact = by_expert(p["hidden_states"], p["w1"], p["w2"], p["topk_weights"], p["topk_ids"], activation, **biases)
    found = dovetail.ops.fused_experts(**p, activation=activation, **(dict(w1_bias=b1, w2_bias=b2) if bias else {}))
    close(found, exact, 8 * n**0.5)


def test_swigluoai_of_gates_near_the_least_float(isa):
    """(up + 1) * gate overflows there, the result is 0."""
    for dtype, gate in ((torch.float32, -3e38), (torch.bfloat16, -3e38), (torch.float16, -6e4), (torch.float64, -1.7e308)):
        w1 = torch.tensor([[[1.0], [0.0]]], dtype=dtype)
        b1 = torch.tensor([[0.0, 6.0]], dtype=dtype)
        p = dict(hidden_states=torch.full((3, 1), gate, dtype=dtype), w1=w1, w2=torch.ones(1, 1, 1, dtype=dtype), topk_weights=torch.ones(3, 1), topk_ids=torch.zeros(3, 1).int())
        assert (dovetail.ops.fused_experts(**p, activation="swigluoai", w1_bias=b1) == 0).all()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("scales", ["tensor", "rows", "blocks"])
@pytest.mark.parametrize("m", [1, 3, 80])
@pytest.mark.parametrize("model", [torch.float32, torch.bfloat16], ids=str)
def test_weights_of_8_bits(dtype, scales, m, model, isa):
    g = torch.Generator().manual_seed(5)
    p, _, _ = problem(model, m, 320, 130, 2)
    (e, n2, k), (_, _, n) = integers(p, dtype, g)
    shapes = {"tensor": ((e,), (e,)), "rows": ((e, n2), (e, k)), "blocks": ((e, -(-n2 // 3), -(-k // 64)), (e, -(-k // 3), -(-n // 64)))}[scales]
    s1, s2 = (torch.rand(s, generator=g) / 1000 for s in shapes)
    wide = lambda s, rows, columns: s.repeat_interleave(3, 1)[:, :rows].repeat_interleave(64, 2)[:, :, :columns] if scales == "blocks" else s.reshape(e, -1, 1)
    zero = 128 if dtype == torch.uint8 else 0
    w1, w2 = ((p[w].double() - zero) * wide(s, *p[w].shape[1:]).double() for w, s in (("w1", s1), ("w2", s2)))
    found = dovetail.ops.fused_experts(**p, use_int8_w8a16=True, w1_scale=s1, w2_scale=s2, block_shape=(3, 64) if scales == "blocks" else None)
    close(found, by_expert(p["hidden_states"], w1, w2, p["topk_weights"], p["topk_ids"]), 20)


def test_more_than_fits_at_a_time():
    p, _, _ = problem(torch.float32, 1500, 4, 8200, 3, 2)
    close(dovetail.ops.fused_experts(**p), by_expert(p["hidden_states"], p["w1"], p["w2"], p["topk_weights"], p["topk_ids"]), 1000)


def test_ids():
    p, _, _ = problem(torch.float64)
    p["topk_ids"][:] = torch.tensor([1, 1])  # twice counts twice
    agrees(p, p["w1"], p["w2"])
    p["topk_ids"] = torch.tensor([[4, 0], [2, -1], [5, 5], [1, 3], [0, 2]])
    to = torch.tensor([-1, 2, 0, -1, 1, -1], dtype=torch.int32)
    agrees(p, p["w1"], p["w2"], dict(expert_map=to, global_num_experts=6), expert_map=to)
    for ids, more, message in ((3, {}, "'topk_ids': expected an expert below 3, found 3"), (6, dict(expert_map=to), "'topk_ids': expected an expert below 6, found 6"),
                               (0, dict(expert_map=to + 4), "'expert_map': expected an expert below 3, found 3")):
        with pytest.raises(RuntimeError, match=message):
            dovetail.ops.fused_experts(**p | dict(topk_ids=torch.full((5, 2), ids)), **more)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_router_weight_on_input(dtype):
    p, _, _ = problem(dtype, j=1)
    agrees(p, p["w1"].double(), p["w2"].double(), dict(apply_router_weight_on_input=True), on_input=True)


def quantise(x, dtype, group):
    """Nearest value, with the scale of each group."""
    top = 448 if dtype == F8 else 127
    parts = []
    for part in x.split(group):
        scale = part.abs().max() / top
        parts.append(part if scale == 0 else (part / scale).to(F8).double() * scale if dtype == F8 else (part / scale).round() * scale)
    return torch.cat(parts)


def integers(p, dtype, g):
    shape1, shape2 = p["w1"].shape, p["w2"].shape
    if dtype == F8:
        p["w1"], p["w2"] = p["w1"].to(F8), p["w2"].to(F8)
    else:
        low, high = {torch.int8: (-128, 128), torch.uint8: (0, 256)}[dtype]
        p["w1"], p["w2"] = (torch.randint(low, high, s, generator=g).to(dtype) for s in (shape1, shape2))
    return shape1, shape2


@pytest.mark.parametrize("flag, dtype", [("use_fp8_w8a8", F8), ("use_int8_w8a8", torch.int8), ("use_int8_w8a16", torch.int8), ("use_int8_w8a16", torch.uint8)], ids=str)
@pytest.mark.parametrize("form", ["tensor", "channel", "channel1", "block", "rows"])
def test_eight_bits(flag, dtype, form):
    g = torch.Generator().manual_seed(3)
    p, _, _ = problem(torch.float32)
    (e, n2, k), (_, _, n) = integers(p, dtype, g)
    block = {"block": (3, 4), "rows": (0, 2)}.get(form)
    scales, wide = [], []
    for rows, columns in ((n2, k), (k, n)):
        if block:
            r = max(block[0], 1)
            s = torch.rand(e, -(-rows // r), -(-columns // block[1]), generator=g)
            wide.append(s.repeat_interleave(r, 1)[:, :rows].repeat_interleave(block[1], 2)[:, :, :columns].double())
        else:
            s = torch.rand({"tensor": (e,), "channel": (e, rows), "channel1": (e, rows, 1)}[form], generator=g)
            wide.append(s.reshape(e, -1, 1).double())
        scales.append(s / 50)
        wide[-1] = scales[-1].double().reshape(e, -1, 1) if not block else wide[-1] / 50
    zero = 128.0 if dtype == torch.uint8 else 0.0
    zeros = {}
    if block and flag == "use_int8_w8a16":
        zs = [torch.randint(0, 100, (e, rows, -(-columns // block[1])), generator=g).to(dtype) for rows, columns in ((n2, k), (k, n))]
        zeros = dict(w1_zp=zs[0], w2_zp=zs[1])
        zero = [z.double().repeat_interleave(block[1], 2)[:, :, :c] for z, c in zip(zs, (k, n))]
    z1, z2 = zero if isinstance(zero, list) else (zero, zero)
    quantised = flag.endswith("w8a8")
    q = (lambda size: lambda t: quantise(t, dtype, block[1] if block else size)) if quantised else lambda size: lambda t: t
    for given in ([False, True] if quantised and not block else [False]):
        more = dict(zeros, **{flag: True}, w1_scale=scales[0], w2_scale=scales[1], block_shape=block, per_channel_quant=form.startswith("channel") and not given)
        q1, q2 = q(k), q(n)
        if given:
            more |= dict(a1_scale=torch.tensor(0.01), a2_scale=torch.tensor([0.02]))
            static = lambda s: lambda t: ((t / s).clamp(-448, 448).to(F8).double() if dtype == F8 else (t / s).round().clamp(-128, 127)) * s
            q1, q2 = static(torch.tensor(0.01).double()), static(torch.tensor(0.02).double())
        agrees(p, (p["w1"].double() - z1) * wide[0], (p["w2"].double() - z2) * wide[1], more, 1e-4, q1=q1, q2=q2)


@pytest.mark.parametrize("form", ["channel", "rows", "zeros"])
def test_four_bits(form):
    g = torch.Generator().manual_seed(4)
    p, _, _ = problem(torch.float32)
    e, n2, k, n = 3, 8, 6, 4
    numbers = [torch.randint(0, 16, s, generator=g, dtype=torch.uint8) for s in ((e, n2, k), (e, k, n))]
    p["w1"], p["w2"] = (t[..., ::2] | t[..., 1::2] << 4 for t in numbers)
    more, wide, zero = dict(use_int4_w4a16=True), [], []
    for i, (rows, columns) in enumerate(((n2, k), (k, n))):
        s = torch.rand((e, rows) if form == "channel" else (e, rows, columns // 2), generator=g) / 8
        more[f"w{i + 1}_scale"] = s
        wide.append(s.double()[..., None] if form == "channel" else s.double().repeat_interleave(2, 2))
        if form == "zeros":
            z = torch.randint(0, 16, (e, rows, columns // 2), generator=g, dtype=torch.uint8)
            more[f"w{i + 1}_zp"] = z[:, ::2] | z[:, 1::2] << 4
            zero.append(z.double().repeat_interleave(2, 2))
        else:
            zero.append(8.0)
    if form != "channel":
        more["block_shape"] = (0, 2)
    agrees(p, *((t.double() - z) * w for t, z, w in zip(numbers, zero, wide)), more)


@pytest.mark.parametrize("activation, on_input, bias", itertools.product(["silu", "gelu", "gelu_tanh", "swigluoai"], [False, True], [False, True]))
def test_gradient_is_that_of_the_formula(activation, on_input, bias):
    p, b1, b2 = problem(torch.float64, j=1 if on_input else 2)
    p["topk_weights"] = p["topk_weights"].double()
    leaves = [p[name].requires_grad_() for name in ("hidden_states", "w1", "w2", "topk_weights")] + ([b1.requires_grad_(), b2.requires_grad_()] if bias else [])
    found = dovetail.ops.fused_experts(**p, activation=activation, apply_router_weight_on_input=on_input, **(dict(w1_bias=b1, w2_bias=b2) if bias else {}))
    exact = oracle(p["hidden_states"], p["w1"], p["w2"], p["topk_weights"], p["topk_ids"], activation, on_input, b1=b1 if bias else None, b2=b2 if bias else None)
    g = torch.randn(found.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for a, b in zip(torch.autograd.grad((found * g).sum(), leaves), torch.autograd.grad((exact * g).sum(), leaves)):
        torch.testing.assert_close(a, b)


def test_what_is_refused():
    p, _, _ = problem(torch.float32)
    scales = dict(w1_scale=torch.ones(3), w2_scale=torch.ones(3))
    for change, message in ((dict(ocp_mx_scheme="w_mxfp4"), "ocp_mx_scheme"), (dict(activation="relu"), "'activation': expected"), (scales, "w1_scale"),
                            (dict(use_fp8_w8a8=True), "argument 'w1': expected dtype f8_e4m3fn, found f32"), (dict(apply_router_weight_on_input=True), "apply_router_weight_on_input")):
        with pytest.raises(RuntimeError, match=message):
            dovetail.ops.fused_experts(**p, **change)
    p["hidden_states"].requires_grad_()
    integers(p, torch.int8, torch.Generator())
    out = dovetail.ops.fused_experts(**p, **scales, use_int8_w8a16=True)
    with pytest.raises(RuntimeError, match="fused_experts has no gradient with quantised weights"):
        out.sum().backward()
    blocks = dict(w1_scale=torch.ones(3, 8, 6), w2_scale=torch.ones(3, 6, 4), use_int8_w8a16=True)
    for shape, message in (([0, 0], r"expected block_shape\[1\] > 0 .*found block_shape = \[0, 0\]"), ([1, -3], r"found block_shape = \[1, -3\]"),):
        with pytest.raises(RuntimeError, match=message):
            dovetail.ops.fused_experts(**p, **blocks, block_shape=shape)


def test_second_derivatives_are_refused_by_name():
    p, _, _ = problem(torch.float64)
    x = p["hidden_states"].requires_grad_()
    first, = torch.autograd.grad(dovetail.ops.fused_experts(**p).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="^dovetail::fused_experts: its gradient calls dovetail::fused_experts_backward, .*second derivatives and forward mode"):
        torch.autograd.grad(first.sum(), x)
