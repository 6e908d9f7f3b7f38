"""Every row of every shipped operator against torch in f64: all lengths around the vector width, special values, all dtypes."""
import itertools

import pytest
import torch

from kernels import KernelError, Kernels, SPECIAL, floats, ulps

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
LENGTHS = [*range(0, 67), 127, 128, 129, 191, 1000]
EPS = {d: torch.finfo(d).eps for d in FLOATS}
kernels = {name: Kernels(name) for name in ("sigmoid", "swiglu", "numpy_sin", "add_custom", "rms_norm", "rotary_embedding", "advance_step")}


def near(found, exact, dtype, scale=None, tolerance=3):
    """|found - exact| within a few roundings of a number of size scale."""
    assert found.dtype == dtype and found.shape == exact.shape
    size = exact.abs() if scale is None else torch.maximum(scale, exact.abs())
    bound = EPS[dtype] * (tolerance if dtype in (torch.float32, torch.float64) else 0.55) * size + torch.finfo(dtype).smallest_normal * EPS[dtype] * 2
    wrong = ~((found.double() - exact).abs() <= bound) & ~(found.isnan() & exact.isnan()) & (found.double() != exact.to(dtype).double())
    assert not wrong.any(), (found[wrong][:5], exact[wrong][:5])


def special(dtype):
    return torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)


def cases(library, operator):
    return [(library, operator, dtype, row) for dtype in FLOATS for row in kernels[library].runnable(operator, dtype)]


ELEMENTWISE = {
    ("sigmoid", "sigmoid"): (["x"], ["out"], lambda x: [torch.sigmoid(x)]),
    ("sigmoid", "sigmoid_backward"): (["grad_output", "output"], ["grad_input"], lambda g, y: [g * y * (1 - y)]),
    ("swiglu", "swiglu"): (["gate", "up"], ["out"], lambda g, u: [torch.nn.functional.silu(g) * u]),
    ("swiglu", "swiglu_backward"): (["grad_output", "gate", "up"], ["grad_gate", "grad_up"],
                                    lambda d, g, u: [torch.ops.aten.silu_backward(d * u, g), d * torch.nn.functional.silu(g)]),
    ("numpy_sin", "numpy_sin"): (["input"], ["output"], lambda x: [torch.sin(x)]),
}


@pytest.mark.parametrize("library, operator, dtype, row", [c for key in ELEMENTWISE for c in cases(*key)], ids=str)
def test_elementwise(library, operator, dtype, row):
    inputs, outputs, oracle = ELEMENTWISE[library, operator]
    for n in LENGTHS:
        args = {name: floats(n, dtype, seed) for seed, name in enumerate(inputs)}
        guard = {name: torch.full((n + 16,), 7.0, dtype=dtype) for name in outputs}
        kernels[library].run(operator, row, **args, **{name: g[:n] for name, g in guard.items()})
        for name, exact in zip(outputs, oracle(*[t.double() for t in args.values()])):
            scale = None
            if operator.endswith("backward"):  # products cancel inside
                scale = torch.stack([t.double().abs() for t in args.values()]).prod(0) + 4 * torch.stack([t.double().abs() for t in args.values()][:1]).prod(0)
            near(guard[name][:n], exact, dtype, scale)
            assert (guard[name][n:] == 7).all(), "wrote past the end"


@pytest.mark.parametrize("library, operator, dtype, row", cases("sigmoid", "sigmoid") + cases("swiglu", "swiglu") + cases("numpy_sin", "numpy_sin"), ids=str)
def test_special_values(library, operator, dtype, row):
    inputs, outputs, oracle = ELEMENTWISE[library, operator]
    x = special(dtype)
    if operator == "numpy_sin":
        x = torch.cat([x, torch.tensor([1e4, 6400.5, 1e5, 1e10, 3.14159274, 355.0], dtype=torch.float64).to(dtype)])
        if dtype == torch.float64:
            x = x[x.abs() < 1e30]
    args = {name: x if i == 0 else torch.ones_like(x) for i, name in enumerate(inputs)}
    out = torch.empty_like(x)
    kernels[library].run(operator, row, **args, **{outputs[0]: out})
    exact = oracle(*[t.double() for t in args.values()])[0]
    if dtype == torch.float16 and operator != "numpy_sin":
        exact = exact.to(dtype).double()
    near(out, exact, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_halves_are_rounded_once(dtype):
    """All 65536 values: what comes out is the f32 result rounded to nearest even."""
    x = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
    x32 = x.float()
    for row in kernels["sigmoid"].runnable("sigmoid", dtype):
        out, out32 = torch.empty_like(x), torch.empty_like(x32)
        kernels["sigmoid"].run("sigmoid", row, x=x, out=out)
        reference = row.endswith("reference")
        kernels["sigmoid"].run("sigmoid", row, x=x32, out=out32)
        want = out32.to(dtype)
        assert torch.equal(out.isnan(), want.isnan()) and torch.equal(out[~out.isnan()], want[~want.isnan()]), reference


ADD_SHAPES = [((), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 1, 4), (3, 1)), ((5, 1), (1, 7)), ((0, 3), (3,)), ((1,), (4, 1)), ((130,), (130,)), ((3,), ())]


@pytest.mark.parametrize("row", kernels["add_custom"].runnable("add_custom"))
@pytest.mark.parametrize("a, b", ADD_SHAPES, ids=str)
def test_add_custom(row, a, b):
    types = FLOATS + [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
    g = torch.Generator().manual_seed(1)
    for t, u in itertools.product(types, types):
        x, y = (torch.randint(0, 100, a, generator=g) - 50).to(t), (torch.randint(0, 100, b, generator=g) - 50).to(u)
        want = torch.add(x, y)
        out = torch.empty_like(want)
        kernels["add_custom"].run("add_custom", row, self=x, other=y, out=out)
        assert torch.equal(out, want), (t, u)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("a, b", ADD_SHAPES, ids=str)
def test_add_custom_backward(dtype, a, b):
    grad = floats(max(torch.zeros(a).add(torch.zeros(b)).numel(), 0), dtype).reshape(torch.broadcast_shapes(a, b))
    outs = torch.empty(a, dtype=dtype), torch.empty(b, dtype=dtype)
    kernels["add_custom"].run("add_custom_backward", None, grad_output=grad, self_size=list(a), other_size=list(b), grad_self=outs[0], grad_other=outs[1])
    for out in outs:
        near(out, grad.double().sum_to_size(out.shape), dtype, grad.double().abs().sum_to_size(out.shape), 1)


SHAPES = [(1, 1), (3, 1), (2, 7), (4, 63), (4, 64), (3, 65), (2, 3, 128), (1, 1000), (0, 5), (5, 17)]


def exact_rms(x, weight, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


@pytest.mark.parametrize("library, operator, dtype, row", cases("rms_norm", "rms_norm"), ids=str)
def test_rms_norm(library, operator, dtype, row):
    for shape in SHAPES:
        x, w = floats(torch.Size(shape).numel(), dtype, 1).reshape(shape), floats(shape[-1], dtype, 2)
        out = torch.empty_like(x)
        kernels["rms_norm"].run("rms_norm", row, x=x, weight=w, eps=1e-5, out=out)
        near(out, exact_rms(x.double(), w.double(), 1e-5), dtype, tolerance=20)


@pytest.mark.parametrize("library, operator, dtype, row", cases("rms_norm", "add_rms_norm"), ids=str)
def test_add_rms_norm(library, operator, dtype, row):
    for shape in SHAPES:
        x, w = floats(torch.Size(shape).numel(), dtype, 1).reshape(shape), floats(shape[-1], dtype, 2)
        residual = floats(x.numel(), dtype, 3).reshape(shape)
        sum_, exact_sum, out = x + residual, x.double() + residual.double(), torch.empty_like(x)
        kernels["rms_norm"].run("add_rms_norm", row, x=x, residual=residual, weight=w, eps=1e-5, out=out)
        assert torch.equal(residual, sum_)
        near(out, exact_rms(exact_sum, w.double(), 1e-5), dtype, tolerance=20)  # of the sum before it is rounded
        kernels["rms_norm"].run("add_rms_norm", row, x=x, residual=None, weight=w, eps=1e-5, out=out)
        near(out, exact_rms(x.double(), w.double(), 1e-5), dtype, tolerance=20)


@pytest.mark.parametrize("library, operator, dtype, row", cases("rms_norm", "rms_norm_backward"), ids=str)
def test_rms_norm_backward(library, operator, dtype, row):
    for shape in SHAPES:
        x, g = (floats(torch.Size(shape).numel(), dtype, s).reshape(shape) for s in (1, 2))
        w = floats(shape[-1], dtype, 3)
        out, out_w = torch.empty_like(x), torch.empty_like(w)
        kernels["rms_norm"].run("rms_norm_backward", row, grad_output=g, x=x, weight=w, eps=1e-5, grad_x=out, grad_weight=out_w)
        xd, wd = x.double().requires_grad_(), w.double().requires_grad_()
        exact_rms(xd, wd, 1e-5).backward(g.double())
        near(out, xd.grad, dtype, (g.double() * w.double()).abs().amax(-1, keepdim=True) * 4 if x.numel() else None, 6)
        near(out_w, wd.grad, dtype, (g.double().abs() * 4).reshape(-1, shape[-1]).sum(0) if x.numel() else None, 6)


def exact_rotary(x, positions, cache, neox, inverse=False):
    """x: [tokens, heads, size]"""
    rot = cache.shape[1]
    cos, sin = (t[:, None, :] for t in cache[positions].chunk(2, -1))
    sin = -sin if inverse else sin
    head, rest = x[..., :rot], x[..., rot:]
    a, b = head.chunk(2, -1) if neox else (head[..., ::2], head[..., 1::2])
    parts = (a * cos - b * sin, b * cos + a * sin)
    turned = torch.cat(parts, -1) if neox else torch.stack(parts, -1).flatten(-2)
    return torch.cat([turned, rest], -1)


@pytest.mark.parametrize("library, operator, dtype, row", cases("rotary_embedding", "rotary_embedding"), ids=str)
@pytest.mark.parametrize("neox", [True, False])
def test_rotary_embedding(library, operator, dtype, row, neox):
    for tokens, heads, kv_heads, size, rot in [(1, 1, 1, 2, 2), (3, 2, 1, 64, 64), (5, 4, 2, 128, 128), (4, 2, 2, 80, 32), (2, 1, 1, 10, 6), (0, 2, 1, 8, 8), (3, 1, 1, 300, 258)]:
        for index in (torch.int64, torch.int32):
            q, k = (floats(tokens * h * size, dtype, s).reshape(tokens, h * size) for h, s in ((heads, 1), (kv_heads, 2)))
            angle = torch.rand(20, rot // 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 6
            cache = torch.cat([angle.cos(), angle.sin()], -1).to(torch.float32 if index == torch.int32 else dtype)
            positions = torch.randint(0, 20, (tokens,), generator=torch.Generator().manual_seed(4)).to(index)
            want = [exact_rotary(t.double().reshape(tokens, t.shape[1] // size, size), positions, cache.double(), neox).reshape(t.shape) for t in (q, k)]
            scale = [t.double().abs().amax() * 1.5 * torch.ones_like(w) if t.numel() else None for t, w in zip((q, k), want)]
            x = q.reshape(tokens, heads, size).clone()
            kernels[library].run(operator, row, positions=positions, query=q, key=k, head_size=size, cos_sin_cache=cache, is_neox=neox)
            near(q, want[0], dtype, scale[0])
            near(k, want[1], dtype, scale[1])
            apply = row.replace("rotary_embedding", "apply_rotary")
            out = torch.empty_like(x)
            kernels[library].run("apply_rotary", apply, x=x, positions=positions, cos_sin_cache=cache, is_neox=neox, inverse=False, out=out)
            assert torch.equal(out.reshape(q.shape), q)
            kernels[library].run("apply_rotary", apply, x=x, positions=positions, cos_sin_cache=cache, is_neox=neox, inverse=True, out=out)
            near(out, exact_rotary(x.double(), positions, cache.double(), neox, True), dtype, scale[0].reshape(x.shape) if scale[0] is not None else None)


def test_rotary_positions_are_checked():
    for row in kernels["rotary_embedding"].runnable("rotary_embedding", torch.float32):
        for bad in (-1, 4):
            q = torch.ones(2, 4)
            with pytest.raises(KernelError, match=f"position {bad} is outside"):
                kernels["rotary_embedding"].run("rotary_embedding", row, positions=torch.tensor([0, bad]), query=q, key=None, head_size=4,
                                                cos_sin_cache=torch.zeros(4, 4), is_neox=True)
            if not row.endswith("reference"):
                assert (q == 1).all()


STEP_NAMES = ["input_tokens", "sampled_token_ids", "input_positions", "seq_lens", "slot_mapping", "block_tables"]


@pytest.mark.parametrize("operator", ["advance_step", "adv_step_flash", "advance_step_tensors", "advance_step_v2"])
@pytest.mark.parametrize("tokens, lengths", [(torch.int64, torch.int32), (torch.int64, torch.int64), (torch.int32, torch.int32)], ids=str)
@pytest.mark.parametrize("n, q, block", [(0, 0, 16), (1, 1, 1), (5, 3, 16), (64, 64, 128), (7, 0, 4)])
def test_advance_step(operator, tokens, lengths, n, q, block):
    g = torch.Generator().manual_seed(n)
    columns = 9
    fields = dict(input_tokens=torch.full((n,), 5), sampled_token_ids=torch.randint(0, 1000, (q, 1), generator=g), input_positions=torch.full((n,), 6),
                  seq_lens=torch.randint(0, columns * block, (n,), generator=g), slot_mapping=torch.full((n,), 8))
    fields = {k: v.to(lengths if k == "seq_lens" else tokens) for k, v in fields.items()}
    wide = torch.randint(0, 50, (n, columns + 4), generator=g).to(lengths)
    tables = wide[:, :columns]  # a row stride that is not the number of columns
    want = {k: v.clone() for k, v in fields.items()}
    for i in range(n):
        p = int(fields["seq_lens"][i])
        want["input_tokens"][i] = fields["sampled_token_ids"][i, 0] if i < q else 0
        want["input_positions"][i] = p if i < q else 0
        want["slot_mapping"][i] = tables[i, p // block] * block + p % block if i < q else -1
        want["seq_lens"][i] = p + (i < q)
    kernels["advance_step"].run(operator, None, **fields, block_tables=tables, num_seqs=n, num_queries=q, block_size=block)
    for name in fields:
        assert torch.equal(fields[name], want[name]), name


@pytest.mark.parametrize("length, table, block, message", [(32, 3, 16, "has room for 2 blocks of 16"), (-1, 3, 16, "length -1"), (0, -1, 16, "block -1"),
                                                           (0, 2**62, 16, "is not valid")])
def test_advance_step_refuses_and_writes_nothing(length, table, block, message):
    fields = dict(input_tokens=torch.tensor([7, 7]), sampled_token_ids=torch.tensor([[1], [2]]), input_positions=torch.tensor([7, 7]),
                  seq_lens=torch.tensor([0, length]), slot_mapping=torch.tensor([7, 7]))
    before = {k: v.clone() for k, v in fields.items()}
    with pytest.raises(KernelError, match=message):
        kernels["advance_step"].run("advance_step", None, **fields, block_tables=torch.tensor([[1, 1], [table, table]]), num_seqs=2, num_queries=2, block_size=block)
    assert all(torch.equal(fields[k], before[k]) for k in fields)


def test_advance_step_slots_past_2_31():
    fields = dict(input_tokens=torch.tensor([0]), sampled_token_ids=torch.tensor([[1]]), input_positions=torch.tensor([0]),
                  seq_lens=torch.tensor([3], dtype=torch.int32), slot_mapping=torch.tensor([0]))
    kernels["advance_step"].run("advance_step", None, **fields, block_tables=torch.tensor([[2**30]], dtype=torch.int32), num_seqs=1, num_queries=1, block_size=1024)
    assert fields["slot_mapping"].tolist() == [2**40 + 3]
