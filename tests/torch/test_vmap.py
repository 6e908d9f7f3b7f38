"""vmap of every operator equals a Python loop over the batch."""
import copy
import functools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from hypothesis import given, settings
from hypothesis import strategies as st

from test_shipped import ALL, SAMPLES, samples, split, with_gradients

MANY = settings(max_examples=25, deadline=None, derandomize=True, database=None)

RUNS = [n for n in ALL if n.partition("::")[2] in SAMPLES]


def loop(f, args, in_dims, size):
    """What vmap means: f of each slice; results stacked, written arguments changed in place."""
    rows = []
    for i in range(size):
        sliced = [[select(x, e, i) for x, e in zip(a, d)] if isinstance(d, list) else select(a, d, i) for a, d in zip(args, in_dims)]
        rows.append(f(*sliced))
    return tuple(torch.stack(column) for column in zip(*rows))


def select(x, dim, i):
    return x if dim is None else x.select(dim, i)


def batched(x, dim, size):
    """Different slices, the first of which is x. Integers stay as they are: they may be positions."""
    more = [x if i == 0 or not x.is_floating_point() else x * (1 + 0.25 * i) for i in range(size)]
    return torch.stack(more, dim)


def compare(f, args, in_dims, size):
    """vmap and the loop, on copies: results and what was written."""
    ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
    found = torch.vmap(only_tensors(f), in_dims=tuple(in_dims))(*ours)
    torch.testing.assert_close(found, loop(only_tensors(f), theirs, in_dims, size), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close([a for a in ours if isinstance(a, (torch.Tensor, list))], [a for a in theirs if isinstance(a, (torch.Tensor, list))])


def only_tensors(f):
    """torch.vmap refuses results that are None, and a function without results."""
    def call(*args):
        found = f(*args)
        return tuple(x for x in (found if isinstance(found, tuple) else (found,)) if x is not None) or (torch.zeros(()),)
    return call


@pytest.mark.parametrize("examples", [5, pytest.param(25, marks=pytest.mark.slow)])
def test_every_shipped_operator(examples):
    @settings(MANY, max_examples=examples)
    @given(st.data())
    def check(name, data):
        op = ALL[name]
        for args in samples(name):
            args, named = split(args)
            size = data.draw(st.integers(1, 3), "size")
            in_dims, values = [], []
            for i, a in enumerate(args):
                can = isinstance(a, torch.Tensor) and a.numel()
                must = i in op.writes
                dim = data.draw(st.one_of(st.none(), st.integers(0, a.dim())) if not must else st.integers(0, a.dim()), f"dim {i}") if can else None
                in_dims.append(dim)
                values.append(a if dim is None else batched(a, dim, size))
            if all(d is None for d in in_dims):
                continue
            compare(functools.partial(op.overload, **named), values, in_dims, size)

    for name in RUNS:
        check(name)


@pytest.mark.parametrize("name, calls", [("swiglu", 1), ("rms_norm", 1), ("apply_rotary", 1), ("crop", 1), ("rms_norm_backward", 4)])
def test_a_run_is_called_once(name, calls):
    op = ALL["dovetail::" + name]
    args = samples(op.name)[0]
    values = [batched(a, 0, 4) if isinstance(a, torch.Tensor) and a.dim() > 1 and "cos" not in op.arguments[i].name else a for i, a in enumerate(args)]
    in_dims = tuple(0 if v is not a else None for v, a in zip(values, args))
    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Record():
        torch.vmap(op.overload, in_dims=in_dims)(*values)
    assert seen.count(op.overload) == calls


FOLD = """
#include <dovetail_op.h>
#include <string.h>
struct rows { const dv_tensor *x, *scale; dv_tensor *out; };
static int rows(dv_context *ctx, const struct rows *a)
{
    (void)ctx;
    for (int64_t i = 0, n = a->x->shape[0], k = a->x->shape[1]; i < n; i++)
        for (int64_t j = 0; j < k; j++)
            ((float *)a->out->data)[i * k + j] = ((const float *)a->x->data)[i * k + j] * ((const float *)a->scale->data)[j] + (float)n;
    return DV_OK;
}
DV_OPERATOR(rows, struct rows, (x, scale, out), .schema = "rows(Tensor x, Tensor scale) -> Tensor out",
    .contract = "x[b k]:f32, scale[k]:f32 -> out[b k]:f32; parallel(b)", .kernels = DV_KERNELS(DV_KERNEL(struct rows, "cpu", "f32", rows)));
struct bump { dv_tensor *x; const dv_tensor *by; };
static int bump(dv_context *ctx, const struct bump *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->x->data)[i] += ((const float *)a->by->data)[i];
    return DV_OK;
}
DV_OPERATOR(bump, struct bump, (x, by), .schema = "bump(Tensor(a!) x, Tensor by) -> ()",
    .contract = "x[b k]:f32, by[b k]:f32; parallel(b)", .kernels = DV_KERNELS(DV_KERNEL(struct bump, "cpu", "f32", bump)));
struct soft { const dv_tensor *x; int64_t dim; dv_tensor *out; };
static int soft(dv_context *ctx, const struct soft *a)
{
    const int64_t dim = a->dim < 0 ? a->dim + a->x->ndim : a->dim, n = a->x->shape[dim], step = a->x->strides[dim];
    float *out = a->out->data;
    (void)ctx;
    memcpy(out, a->x->data, (size_t)dv_numel(a->x) * 4);
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        if (i / step % n > 0)
            out[i] += out[i - step];
    return DV_OK;
}
DV_OPERATOR(soft, struct soft, (x, dim, out), .schema = "soft(Tensor x, int dim) -> Tensor out",
    .contract = "x[*a n *b]:f32 -> out[*a n *b]:f32; rank(*a) == axis(dim, x); parallel(*a, *b)",
    .kernels = DV_KERNELS(DV_KERNEL(struct soft, "cpu", "f32", soft)));
struct mixed { const dv_tensor *x, *y; dv_tensor *out; };
static int mixed(dv_context *ctx, const struct mixed *a)
{
    (void)ctx;
    memset(a->out->data, 0, (size_t)dv_numel(a->out) * a->out->dtype.bits / 8);
    return DV_OK;
}
DV_OPERATOR(mixed, struct mixed, (x, y, out), .schema = "mixed(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:T, y[]:U -> out[*s]:promote(T, U); parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct mixed, "cpu", NULL, mixed)));
struct noise { const dv_tensor *x; dv_tensor *out; };
static int64_t noises;
static int noise(dv_context *ctx, const struct noise *a)
{
    (void)ctx;
    noises++;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + (float)noises;
    return DV_OK;
}
DV_OPERATOR(noise, struct noise, (x, out), .schema = "noise(Tensor x) -> Tensor out", .tags = "nondeterministic_seeded",
    .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct noise, "cpu", "f32", noise)));
struct each { dv_tensors xs; dv_mut_tensors out; };
static int each(dv_context *ctx, const struct each *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->xs.size; k++)
        for (int64_t i = 0, n = dv_numel(a->xs.data[k]); i < n; i++)
            ((float *)a->out.data[k]->data)[i] = ((const float *)a->xs.data[k]->data)[i] + (float)n;
    return DV_OK;
}
DV_OPERATOR(each, struct each, (xs, out), .schema = "each(Tensor[] xs) -> Tensor[] out",
    .contract = "xs{i}[n]:f32 -> out{i}[n]:f32; parallel(n)", .kernels = DV_KERNELS(DV_KERNEL(struct each, "cpu", "f32", each)));
DV_LIBRARY(vmapped, &dv_op_rows, &dv_op_bump, &dv_op_soft, &dv_op_mixed, &dv_op_noise, &dv_op_each);
"""


@pytest.fixture
def mine(fresh):
    fresh(FOLD, "vmapped")
    return torch.ops.vmapped


def test_a_batch_is_folded_into_a_dim(mine):
    """rows() adds how many rows it was given: the trace of a fold, which a contract that tells the truth does not show."""
    x, scale = torch.randn(4, 3, 2), torch.randn(2)
    assert torch.equal(torch.vmap(mine.rows, in_dims=(1, None))(x, scale), x.transpose(0, 1) * scale + 12)
    assert torch.equal(torch.vmap(mine.rows, in_dims=(0, 0))(x, scale.expand(4, 2)), x * scale + 3)  # scale has no b: a loop


def test_a_batch_is_folded_into_a_dim_of_lists(mine):
    """each() adds how many elements a tensor has."""
    x, y = torch.randn(4, 3), torch.randn(3, 4)
    found = torch.vmap(lambda a, b: tuple(mine.each([a, b])), in_dims=(0, 1))(x, y)
    assert torch.equal(found[0], x + 12) and torch.equal(found[1], y.t() + 12)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_a_batch_is_folded_into_a_run(mine, dim):
    x = torch.randn(2, 3, 4, 5)
    compare(mine.soft.default, [x, dim], [2, None], 4)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_fold_writes_through(mine, dim):
    x = torch.zeros(3, 3, 3)
    compare(mine.bump.default, [x, torch.randn(3, 3, 3)], [dim, 1], 3)


def test_promotion_is_that_of_a_slice(mine):
    found = torch.vmap(mine.mixed)(torch.zeros(3, dtype=torch.int32), torch.zeros(3, dtype=torch.int64))
    assert found.dtype == mine.mixed(torch.zeros((), dtype=torch.int32), torch.zeros((), dtype=torch.int64)).dtype == torch.int64
    found = torch.vmap(mine.mixed, in_dims=(0, None))(torch.zeros(3, 2, dtype=torch.int32), torch.zeros((), dtype=torch.int64))
    assert found.dtype == torch.int32


def test_randomness(mine):
    x = torch.zeros(3, 2)
    with pytest.raises(RuntimeError, match="called random operation vmapped::noise while in randomness error mode"):
        torch.vmap(mine.noise)(x)
    with pytest.raises(RuntimeError, match="called random operation"):
        torch.vmap(lambda a: a + mine.noise(torch.zeros(2)))(x)
    for f in (mine.noise, lambda a: a + mine.noise(torch.zeros(2))):
        found = torch.vmap(f, randomness="different")(x)
        assert found.shape == (3, 2) and len(set(found[:, 0].tolist())) == 3
    found = torch.vmap(lambda a: a + mine.noise(torch.zeros(2)), randomness="same")(x)
    assert found.shape == (3, 2) and len(set(found[:, 0].tolist())) == 1
    with pytest.raises(RuntimeError, match="same randomness with a batched tensor input"):
        torch.vmap(mine.noise, randomness="same")(x)


def test_lists_and_optional_tensors(ops):
    xs = [torch.randn(4, 2, 3), torch.randn(5, 4, 3)]
    found = torch.vmap(lambda a, b, c: ops.cat([a, b, c], 0), in_dims=(0, 1, None))(*xs, torch.ones(1, 3))
    assert torch.equal(found, torch.stack([torch.cat([xs[0][i], xs[1][:, i], torch.ones(1, 3)]) for i in range(4)]))
    x, bias = torch.randn(4, 2, 3), torch.randn(4, 3)
    assert torch.equal(torch.vmap(ops.pick)(x, bias), x + bias[:, None])
    assert torch.equal(torch.vmap(ops.pick, in_dims=(None, 0))(x[0], bias), x[0] + bias[:, None])
    assert torch.equal(torch.vmap(ops.pick)(x), x)
    assert torch.equal(torch.vmap(lambda a: ops.pick(a, None, "N"))(x[:, 0]), x[:, 0])


def test_writing(ops):
    x, y = torch.zeros(4, 2), torch.zeros(2, 4)
    same = []
    torch.vmap(lambda a: same.append(ops.inc_(a) is a) or ops.inc(a) or a)(x)
    assert same == [True] and x.eq(2).all()
    torch.vmap(lambda a, b: ops.inc_all([a, b]) or a, in_dims=(0, 1))(x, y)
    assert x.eq(3).all() and y.eq(1).all()
    before = x._version
    torch.vmap(lambda a: ops.inc(a) or a)(x)
    assert x._version > before
    with pytest.raises(RuntimeError, match="vmap: torch_ops::inc_all: argument 'xs' is written to in place and is not being vmapped over"):
        torch.vmap(lambda a: ops.inc_all([a, y]) or a)(x)
    with pytest.raises(RuntimeError, match="refers to a single memory location"):
        torch.vmap(lambda a: ops.inc_(a))(torch.zeros(2).expand(4, 2))
    with pytest.raises(RuntimeError, match="add_rms_norm: argument 'residual' is written to in place .* Tensor 'x'"):
        torch.vmap(torch.ops.dovetail.add_rms_norm, in_dims=(0, None, None))(torch.randn(3, 4), torch.randn(4), torch.randn(4))


def test_an_unbatched_argument_may_be_written_where_nothing_is_batched(ops):
    y = torch.zeros(2)
    torch.vmap(lambda a: ops.inc(y) or a)(torch.zeros(3))
    assert y.tolist() == [1, 1]


def test_views(ops):
    x = torch.randn(5, 2, 3)
    torch.vmap(lambda a: ops.swapped(a, 0, -1).mul_(2))(y := x.clone())
    assert torch.equal(y, x * 2)
    torch.vmap(lambda a: ops.part(a, -1, 1, 2).zero_(), in_dims=1)(y := x.clone())
    assert y[..., 1:].eq(0).all() and torch.equal(y[..., :1], x[..., :1])
    torch.vmap(lambda a: ops.diagonal(a).zero_())(y := x.clone())
    assert y.diagonal(dim1=1, dim2=2).eq(0).all() and y.ne(0).sum() == x.ne(0).sum() - 10


def test_what_cannot_be_batched_is_an_error(ops):
    with pytest.raises(RuntimeError, match="vmap: torch_ops::nonzero: the size of its result depends on data"):
        torch.vmap(ops.nonzero)(torch.ones(3, 2))
    with pytest.raises(RuntimeError, match="result 1 is a number that differs between slices: 2.0, 4.0"):
        torch.vmap(lambda a: a + ops.stats(a)[1])(torch.tensor([[1., 1], [2, 2]]))
    assert torch.equal(torch.vmap(lambda a: a + ops.stats(a)[0])(torch.ones(3, 2)), torch.full((3, 2), 3.))
    with pytest.raises(RuntimeError, match=r"argument 'up': expected shape \[4\]"):
        torch.vmap(torch.ops.dovetail.swiglu)(torch.randn(3, 4), torch.randn(3, 5))


def test_nothing(ops):
    """A batch of no slices has the shapes of one that has some."""
    f = torch.ops.dovetail
    assert torch.vmap(f.swiglu)(torch.ones(0, 4), torch.ones(0, 4)).shape == (0, 4)
    a, b = torch.vmap(f.rms_norm_backward)(torch.ones(0, 3, 4), torch.ones(0, 3, 4), torch.ones(0, 4))
    assert a.shape == (0, 3, 4) and b.shape == (0, 4) and a.device == torch.device("cpu")


def test_out_dims_and_nested_levels():
    f = ALL["dovetail::rms_norm"].overload
    x, w = torch.randn(3, 4, 5, 6), torch.randn(5, 6)
    expected = torch.stack([torch.stack([f(x[i, :, j], w[j]) for j in range(5)]) for i in range(3)])
    found = torch.vmap(torch.vmap(f, in_dims=(1, 0), out_dims=1), in_dims=(0, None), out_dims=2)(x, w)
    torch.testing.assert_close(found, expected.permute(2, 1, 0, 3))
    found = torch.vmap(torch.vmap(f, in_dims=(None, 0)), in_dims=(0, None))(x[:, :, 0], w)
    torch.testing.assert_close(found, torch.stack([torch.stack([f(x[i, :, 0], w[j]) for j in range(5)]) for i in range(3)]))


def test_chunks():
    x = torch.randn(7, 4)
    torch.testing.assert_close(torch.vmap(torch.ops.dovetail.swiglu, chunk_size=3)(x, x), torch.ops.dovetail.swiglu(x, x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_in_a_graph(dynamic, ops):
    torch._dynamo.reset()

    def f(x, w):
        y = torch.vmap(torch.ops.dovetail.rms_norm, in_dims=(1, None))(x, w[0])
        z = torch.vmap(torch.ops.dovetail.rms_norm, in_dims=(1, 0))(x, w)
        return y + z

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for n in (4, 6):
        x, w = torch.randn(n, 3, 5), torch.randn(3, 5)
        torch.testing.assert_close(compiled(x, w), f(x, w))


def test_writing_in_a_graph(ops):
    torch._dynamo.reset()

    def f(x):
        y = x * 2
        torch.vmap(lambda a: ops.inc_(a), in_dims=1)(y)
        return y

    x = torch.randn(4, 3)
    torch.testing.assert_close(torch.compile(f, backend="aot_eager", fullgraph=True)(x), f(x))


# ---- together with gradients: what torch gives for the decomposition is the oracle

def scalar(f):
    """A number from the results, in which no element counts as another."""
    def call(*args):
        out = f(*args)
        return sum((x * torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).reshape(x.shape)).sum() for x in (out if isinstance(out, tuple) else (out,)))
    return call


def native(op):
    def call(*args):
        out = op.native(dict(zip([a.name for a in op.arguments], op.bind(args, {}))))
        return out[0] if len(out) == 1 else tuple(out)
    return call


DIFFERENTIABLE = [n for n in RUNS if ALL[n].gradient and ALL[n].native and not ALL[n].writes
                  and samples(n)[0][0].dtype == torch.float64 and not n.endswith(("_backward", "::fused_moe"))]  # whose form is fused_experts, which has none


def differentiable(op, args):
    """Which arguments have a gradient by declaration."""
    return tuple(i for i, a in enumerate(with_gradients(op, args)) if isinstance(a, torch.Tensor) and a.requires_grad)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_vmap_of_grad_and_grad_of_vmap(name):
    op = ALL[name]
    for args in samples(name):
        at = differentiable(op, args)
        values = [batched(a, 0, 3) if i in at else a for i, a in enumerate(args)]
        every, first = tuple(0 if i in at else None for i in range(len(args))), tuple(0 if i == at[0] else None for i in range(len(args)))
        for in_dims in (every, first):
            given = [v if d is not None else a for v, a, d in zip(values, args, in_dims)]
            found, expected = (torch.vmap(torch.func.grad(scalar(f), at), in_dims=in_dims)(*given) for f in (op.overload, native(op)))
            torch.testing.assert_close(found, expected)
            found, expected = (torch.func.grad(scalar(torch.vmap(f, in_dims=in_dims)), at)(*given) for f in (op.overload, native(op)))
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_jacobian_and_hessian(name):
    op, args = ALL[name], samples(name)[0]
    at = differentiable(op, args)
    found, expected = (torch.func.jacrev(f, at)(*args) for f in (op.overload, native(op)))
    torch.testing.assert_close(found, expected)
    found, expected = (torch.func.jacrev(torch.func.grad(scalar(f), at[0]), at[0])(*args) for f in (op.overload, native(op)))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_batched_gradients(name):
    """torch.autograd.grad(is_grads_batched=True): a vmap over backward alone."""
    op, args = ALL[name], samples(name)[0]
    at = differentiable(op, args)
    args = [a.clone().requires_grad_() if i in at else a for i, a in enumerate(args)]
    assert torch.autograd.gradcheck(op.overload, args, check_batched_grad=True)


def test_out_is_refused_as_torch_refuses_its_own():
    x = torch.randn(3, 4)
    for f, name in ((torch.add, "aten::add.out"), (torch.ops.dovetail.swiglu, "dovetail::swiglu.out")):
        with pytest.raises(RuntimeError, match=f"Batching rule not implemented for {name}"):
            torch.vmap(lambda a, b: f(a, a, out=b))(x, x.clone())
