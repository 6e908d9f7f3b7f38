"""The base set against ATen: same names, same arguments, so the oracle is the operator of the same name."""
import itertools

import pytest
import torch

from kernels import DTYPES, KernelError, Kernels, SPECIAL, floats, ulps

base = Kernels("base")
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
SHAPES = [((), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 1, 4), (3, 1)), ((5, 1), (1, 7)), ((0, 3), (3,)), ((2, 3, 4), (2, 3, 4)),
          ((1, 1), (2, 2)), ((2, 3, 1, 5), (1, 1, 4, 1)), ((1027,), (1027,)), ((4, 700), (4, 1)), ((4, 700), (700,)), ((3,), ())]


def values(shape, dtype, seed=0):
    g = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=g, dtype=torch.float64).mul(2).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, generator=g).to(dtype)


def call(name, /, *, expect, **fields):
    """Run the base operator into a tensor like the oracle's result; the shape function must agree when there is one."""
    out = torch.empty(expect.shape, dtype=expect.dtype)
    fields = {k: v.contiguous() if isinstance(v, torch.Tensor) else v for k, v in fields.items()}
    if base.operators[name].shape:
        assert base.shape(name, **fields, out=out) == [(expect.dtype, tuple(expect.shape))]
    base.run(name, None, **fields, out=out)
    return out


def same(found, expect, near=0.0):
    """near: how far a float may be off, in epsilons of its type times this magnitude; 0: not at all."""
    assert found.dtype == expect.dtype and found.shape == expect.shape
    if near and expect.dtype.is_floating_point:
        assert torch.allclose(found.double(), expect.double(), rtol=0, atol=torch.finfo(expect.dtype).eps * near)
    else:
        assert torch.equal(found.nan_to_num(), expect.nan_to_num()) and torch.equal(found.isnan(), expect.isnan())


UNARY = {"exp": 2, "log": 2, "sin": 2, "cos": 2, "tanh": 3, "sigmoid": 3, "silu": 3, "sqrt": 0, "rsqrt": 1.6, "reciprocal": 0,
         "neg": 0, "abs": 0, "sign": 0, "relu": 0}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", [0, 1, 7, 513, 1030])
def test_unary(name, dtype, n):
    x = torch.cat([floats(n, dtype), torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)]) if n else floats(0, dtype)
    oracle = getattr(torch, name) if name not in ("silu", "relu") else getattr(torch.nn.functional, name)
    # f64 is compared with torch's own f64 result, the others with the f64 result rounded
    exact = oracle(x if dtype == torch.float64 else x.double())
    if name == "silu":  # torch computes x / (1 + exp(-x)): not NaN only by overflow for these
        exact[x == -float("inf")] = float("nan")
    out = call(name, self=x, expect=x)
    assert ulps(out, exact) <= max(UNARY[name], 0.5) + (1 if dtype == torch.float64 else 0)


@pytest.mark.parametrize("name", ["neg", "abs", "sign", "relu"])
@pytest.mark.parametrize("dtype", INTS[:-1], ids=str)
def test_unary_integers(name, dtype):
    info = torch.iinfo(dtype)
    x = torch.tensor([0, 1, 5, info.max, info.min, info.max - 1], dtype=dtype)
    oracle = getattr(torch, name)
    same(call(name, self=x, expect=x), oracle(x))


BINARY = ["add", "sub", "rsub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_binary_broadcasts(name, shapes):
    x, y = values(shapes[0], torch.float32, 1), values(shapes[1], torch.float32, 2)
    expect = getattr(torch, name)(x, y)
    alpha = {"alpha": 1} if name in ("add", "sub", "rsub") else {}
    same(call(name + "_Tensor", self=x, other=y, **alpha, expect=expect), expect)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtypes", list(itertools.product(FLOATS + INTS, repeat=2)), ids=str)
@pytest.mark.parametrize("shapes", [((6,), (6,)), ((6,), ()), ((), (6,))], ids=str)
def test_binary_promotes(name, dtypes, shapes):
    x, y = values(shapes[0], dtypes[0], 1), values(shapes[1], dtypes[1], 2)
    if name == "div" and not dtypes[0].is_floating_point:
        pytest.skip("div is for floating point")
    try:
        expect = getattr(torch, name)(x, y)
    except RuntimeError:
        pytest.skip("torch refuses bool here")
    alpha = {"alpha": 1} if name in ("add", "sub", "rsub") else {}
    same(call(name + "_Tensor", self=x, other=y, **alpha, expect=expect), expect, 100.0 if name in BINARY[:5] else 0)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
@pytest.mark.parametrize("other", [2, -3, 0.5, 0.1, True], ids=str)
def test_binary_scalar(name, dtype, other):
    x = values((600,), dtype, 1)
    if name == "div" and not dtype.is_floating_point:
        pytest.skip("div is for floating point")
    try:
        expect = getattr(torch, name)(x, other)
    except RuntimeError:
        pytest.skip("torch refuses this")
    alpha = {"alpha": 1} if name in ("add", "sub", "rsub") else {}
    same(call(name + "_Scalar", self=x, other=other, **alpha, expect=expect), expect, 100.0 if name in BINARY[:5] else 0)


@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
@pytest.mark.parametrize("alpha", [2, -0.5])
def test_alpha(name, alpha):
    x, y = values((4, 5), torch.float64, 1), values((5,), torch.float64, 2)
    expect = getattr(torch, name)(x, y, alpha=alpha)
    assert torch.allclose(call(name + "_Tensor", self=x, other=y, alpha=alpha, expect=expect), expect, rtol=1e-15)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_silu_backward_and_pow(dtype):
    x, g = floats(700, dtype, 1), floats(700, dtype, 2)
    expect = torch.ops.aten.silu_backward(g.double(), x.double())
    out = call("silu_backward", grad_output=g, self=x, expect=x)
    assert torch.allclose(out.double(), expect, rtol=torch.finfo(dtype).eps * 3, atol=torch.finfo(dtype).eps)
    for exponent in (2, 3, 0.5, -1, 0, 2.5):
        positive = x.abs()
        assert ulps(call("pow_Tensor_Scalar", self=positive, exponent=exponent, expect=x), positive.double() ** exponent) <= 1.6


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.int64, torch.float16), (torch.int8, torch.uint8)], ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_where(dtypes, shapes):
    x, y = values(shapes[0], dtypes[0], 1), values(shapes[1], dtypes[1], 2)
    c = values(shapes[0], torch.bool, 3)
    expect = torch.where(c, x, y)
    same(call("where_self", condition=c, self=x, other=y, expect=expect), expect)
    expect = torch.where(c, 0.5, y)
    same(call("where_ScalarSelf", condition=c, self=0.5, other=y, expect=expect), expect)
    expect = torch.where(c, x, 3)
    same(call("where_ScalarOther", condition=c, self=x, other=3, expect=expect), expect)


@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
@pytest.mark.parametrize("shape, dims", [((), []), ((7,), [0]), ((3, 4), []), ((3, 4), [1]), ((3, 4), [0]), ((2, 3, 4), [0, 2]), ((2, 3, 4), [-2]),
                                         ((2, 3, 4, 5), [1, 2]), ((0, 3), [0]), ((3, 0), [0]), ((2, 1500), [1]), ((1500, 2), [0]), ((2, 1, 3), [1])], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions(dtype, shape, dims, keepdim):
    x = values(shape, dtype)
    eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0
    want = torch.sum(x.double() if eps else x, dims, keepdim)
    out = call("sum_dim_IntList", self=x, dim=dims, keepdim=keepdim, expect=want.to(dtype) if eps else want)
    assert torch.allclose(out.double(), want.double(), rtol=eps, atol=eps * float(x.double().abs().sum()))
    if not dims and not keepdim:
        assert torch.equal(out, call("sum", self=x, expect=out))
    if eps:
        want = torch.mean(x.double(), dims, keepdim)
        out = call("mean_dim", self=x, dim=dims, keepdim=keepdim, expect=want.to(dtype))
        assert torch.allclose(out.double(), want, rtol=eps, atol=eps * 10, equal_nan=True)
    if all(s for s in shape):
        want = torch.amax(x, dims, keepdim)
        same(call("amax", self=x, dim=dims, keepdim=keepdim, expect=want), want)


def test_amax_keeps_nan_and_refuses_nothing():
    x = torch.tensor([[1, float("nan"), 3], [-float("inf"), -5, -float("inf")]])
    same(call("amax", self=x, dim=[1], keepdim=False, expect=x[:, 0]), torch.amax(x, 1))
    with pytest.raises(KernelError, match="no elements"):
        base.run("amax", None, self=torch.empty(0, 3), dim=[0], keepdim=False, out=torch.empty(3))


@pytest.mark.parametrize("shape, size", [((2, 3), [3]), ((2, 3), [1, 3]), ((2, 3), [2, 1]), ((4, 2, 3), [2, 1]), ((2, 3), []), ((5,), [5]), ((0, 3), [1, 3])], ids=str)
def test_sum_to_size(shape, size):
    x = values(shape, torch.float64)
    want = x.sum_to_size(size)
    assert torch.allclose(call("sum_to_size", self=x, size=size, expect=want), want, rtol=1e-14)


@pytest.mark.parametrize("a, b", [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 1, 2, 3), (4, 3, 5)), ((2, 0), (0, 3)), ((0, 3), (3, 2)), ((1, 7, 64), (6, 64, 33))], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_matmul(a, b, dtype):
    x, y = values(a, dtype, 1), values(b, dtype, 2)
    want = torch.matmul(x.double(), y.double())
    out = call("matmul", self=x, other=y, expect=want.to(dtype))
    assert torch.allclose(out.double(), want, rtol=torch.finfo(dtype).eps * 2, atol=torch.finfo(dtype).eps * 200)


X = torch.arange(2 * 3 * 4).reshape(2, 3, 4)
SHAPE_ROWS = [
    ("transpose_int", dict(dim0=0, dim1=-1), lambda x: x.transpose(0, -1)),
    ("transpose_int", dict(dim0=1, dim1=1), lambda x: x.transpose(1, 1)),
    ("reshape", dict(shape=[6, -1]), lambda x: x.reshape(6, -1)),
    ("reshape", dict(shape=[24]), lambda x: x.reshape(24)),
    ("expand", dict(size=[5, 2, 3, 4]), lambda x: x.expand(5, 2, 3, 4)),
    ("expand", dict(size=[-1, 3, -1]), lambda x: x.expand(-1, 3, -1)),
    ("unsqueeze", dict(dim=-1), lambda x: x.unsqueeze(-1)),
    ("unsqueeze", dict(dim=1), lambda x: x.unsqueeze(1)),
    ("squeeze_dim", dict(dim=1), lambda x: x.squeeze(1)),
    ("flip", dict(dims=[0, -1]), lambda x: x.flip(0, -1)),
    ("flip", dict(dims=[]), lambda x: x),
    ("narrow", dict(dim=-1, start=1, length=2), lambda x: x.narrow(-1, 1, 2)),
    ("narrow", dict(dim=1, start=-2, length=2), lambda x: x.narrow(1, -2, 2)),
    ("constant_pad_nd", dict(pad=[1, 2], value=7), lambda x: torch.constant_pad_nd(x, [1, 2], 7)),
    ("constant_pad_nd", dict(pad=[-1, 2, 3, -2], value=0), lambda x: torch.constant_pad_nd(x, [-1, 2, 3, -2], 0)),
    ("constant_pad_nd", dict(pad=[0, 0, -2, 0, 1, 1], value=0), lambda x: torch.constant_pad_nd(x, [0, 0, -2, 0, 1, 1], 0)),
    ("index_select", dict(dim=1, index=torch.tensor([2, 0, 2])), lambda x: x.index_select(1, torch.tensor([2, 0, 2]))),
    ("index_select", dict(dim=-1, index=torch.tensor([3], dtype=torch.int32)), lambda x: x.index_select(-1, torch.tensor([3]))),
    ("clone", {}, lambda x: x),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float64], ids=str)
@pytest.mark.parametrize("name, fields, oracle", SHAPE_ROWS, ids=lambda v: str(v) if not callable(v) else "")
def test_shape_operators(name, fields, oracle, dtype):
    x = X.to(dtype)
    want = oracle(x)
    same(call(name, self=x, **fields, expect=want), want)


@pytest.mark.parametrize("start", [None, 0, 1, -2, -9, 9])
@pytest.mark.parametrize("end", [None, 0, 2, -1, -9, 99])
@pytest.mark.parametrize("step", [1, 2, 3, 10])
def test_slice_and_scatter(start, end, step):
    x = X.float()
    for dim in (0, -1):
        want = torch.ops.aten.slice(x, dim, start, end, step)
        out = call("slice_Tensor", self=x, dim=dim, start=start, end=end, step=step, expect=want)
        same(out, want)
        want = torch.slice_scatter(x, -out, dim, start, end, step)
        same(call("slice_scatter", self=x, src=-out, dim=dim, start=start, end=end, step=step, expect=want), want)


def test_cat_and_index_add():
    xs = [X.float(), X.float()[:, :1], X.float()[:, :0]]
    want = torch.cat(xs, 1)
    same(call("cat", tensors=[t.contiguous() for t in xs], dim=-2, expect=want), want)
    parts = [torch.empty(t.shape) for t in xs]
    base.run("cat_backward", None, grad=want, tensors=[t.contiguous() for t in xs], dim=1, out=parts)
    for part, t in zip(parts, xs):
        same(part, t)
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.float64):
        x, source, index = X.to(dtype), X.to(dtype)[:, [0, 1, 1, 2]], torch.tensor([2, 2, 0, 1])
        want = torch.index_add(x, 1, index, source, alpha=2)
        same(call("index_add", self=x, dim=1, index=index, source=source, alpha=2, expect=want), want)


BAD = [
    ("transpose_int", dict(self=X, dim0=0, dim1=3), "out of range"),
    ("flip", dict(self=X, dims=[1, -2]), "appears twice"),
    ("slice_scatter", dict(self=X, src=X, dim=0, start=0, end=1, step=1), "expected 1"),
    ("index_select", dict(self=X, dim=0, index=torch.tensor([2])), "2 is out of range"),
    ("index_select", dict(self=X, dim=0, index=torch.tensor([-1])), "-1 is out of range"),
]
BAD_SHAPES = [
    ("reshape", dict(self=X, shape=[5, -1]), "24 elements"), ("reshape", dict(self=X, shape=[-1, -1]), "not a size"), ("reshape", dict(self=X, shape=[25]), "24 elements"),
    ("expand", dict(self=X, size=[3, 4]), "2 dims"), ("expand", dict(self=X, size=[2, 5, 4]), "cannot be expanded"), ("expand", dict(self=X, size=[-1, 2, 3, 4]), "cannot"),
    ("slice_Tensor", dict(self=X, dim=0, start=0, end=1, step=0), "'step'"), ("slice_Tensor", dict(self=X, dim=3, start=0, end=1, step=1), "out of range"),
    ("narrow", dict(self=X, dim=0, start=1, length=2), "outside dim 0"), ("constant_pad_nd", dict(self=X, pad=[1], value=0), "two numbers"),
    ("constant_pad_nd", dict(self=X, pad=[-5, 0], value=0), "no valid size"), ("unsqueeze", dict(self=X, dim=4), "out of range"),
]


@pytest.mark.parametrize("name, fields, message", BAD, ids=lambda v: "")
def test_kernels_refuse(name, fields, message):
    with pytest.raises(KernelError, match=message):
        base.run(name, None, **fields, out=torch.empty_like(X))


@pytest.mark.parametrize("name, fields, message", BAD_SHAPES, ids=lambda v: "")
def test_shape_functions_refuse(name, fields, message):
    with pytest.raises(KernelError, match=message):
        base.shape(name, **fields, out=X)


@pytest.mark.parametrize("source", FLOATS + INTS, ids=str)
@pytest.mark.parametrize("target", FLOATS + INTS, ids=str)
def test_conversions(source, target):
    x = values((1030,), source)
    if source.is_floating_point and not target.is_floating_point:
        x = x.abs() if target == torch.uint8 else x  # a negative float to u8 is undefined in C
    want = x.to(target)
    same(call("to_dtype", self=x, dtype=target, non_blocking=False, copy=False, expect=want), want)
    same(call("type_as", self=x, other=torch.empty(2, dtype=target), expect=want), want)
    want = torch.full_like(x, 3, dtype=target)
    same(call("full_like", self=x, fill_value=3, dtype=target, expect=want), want)
    same(call("zeros_like", self=x, dtype=None, expect=x), torch.zeros_like(x))
    same(call("ones_like", self=x, dtype=None, expect=x), torch.ones_like(x))
