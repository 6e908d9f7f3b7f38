"""DTensor: two ranks, and a mesh of two by two, give what one device gives. The ranks are processes that run this file."""
import os
import signal
import subprocess
import sys

import pytest
import torch

LINE, SQUARE = (2,), (2, 2)  # meshes
CHECKS = {LINE: {}, SQUARE: {}}


def check(f):
    CHECKS[LINE][f.__name__] = f
    return f


def check_of_a_square(f):
    CHECKS[SQUARE][f.__name__] = f
    return f


SOURCE = """
#include <dovetail_op.h>
#include <string.h>
struct mm { const dv_tensor *a, *b; dv_tensor *out; };
static int mm(dv_context *ctx, const struct mm *a)
{
    (void)ctx;
    for (int64_t i = 0, m = a->a->shape[0], k = a->a->shape[1], n = a->b->shape[1]; i < m * n; i++) {
        float sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += ((const float *)a->a->data)[i / n * k + j] * ((const float *)a->b->data)[j * n + i % n];
        ((float *)a->out->data)[i] = sum;
    }
    return DV_OK;
}
DV_OPERATOR(mm, struct mm, (a, b, out), .schema = "mm(Tensor a, Tensor b) -> Tensor out",
    .contract = "a[m k]:f32, b[k n]:f32 -> out[m n]:f32; sum(k); parallel(m, n)", .native = "matmul(a, b)",
    .kernels = DV_KERNELS(DV_KERNEL(struct mm, "cpu", "f32", mm)));
struct mmb { const dv_tensor *a, *b, *bias; dv_tensor *out; };
static int mmb(dv_context *ctx, const struct mmb *a)
{
    const int status = mm(ctx, &(struct mm){ a->a, a->b, a->out });
    for (int64_t i = 0; !status && i < dv_numel(a->out); i++)
        ((float *)a->out->data)[i] += ((const float *)a->bias->data)[i % a->b->shape[1]];
    return status;
}
DV_OPERATOR(mmb, struct mmb, (a, b, bias, out), .schema = "mmb(Tensor a, Tensor b, *, Tensor bias) -> Tensor out",
    .contract = "a[m k]:f32, b[k n]:f32, bias[n]:f32 -> out[m n]:f32; sum(k); parallel(m, n)",
    .kernels = DV_KERNELS(DV_KERNEL(struct mmb, "cpu", "f32", mmb)));
struct two { dv_tensors xs; const dv_tensor *y; dv_tensor *a, *b; };
static int two(dv_context *ctx, const struct two *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->a); i++) {
        float sum = a->y ? ((const float *)a->y->data)[0] : 0;
        for (size_t k = 0; k < a->xs.size; k++)
            sum += ((const float *)a->xs.data[k]->data)[i];
        ((float *)a->a->data)[i] = sum;
        ((float *)a->b->data)[i] = -sum;
    }
    return DV_OK;
}
DV_OPERATOR(two, struct two, (xs, y, a, b), .schema = "two(Tensor[] xs, Tensor? y=None) -> (Tensor a, Tensor b)",
    .contract = "xs{i}[n *s]:f32, y[]:f32 -> a[n *s]:f32, b[n *s]:f32; parallel(n, *s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct two, "cpu", "f32", two)));
struct total { const dv_tensor *x; dv_tensor *out; };
static int total(dv_context *ctx, const struct total *a)
{
    const int64_t m = a->out->shape[0], n = m ? dv_numel(a->x) / m : 0;
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        float sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += ((const float *)a->x->data)[i * n + k];
        ((float *)a->out->data)[i] = sum;
    }
    return DV_OK;
}
DV_OPERATOR(total, struct total, (x, out), .schema = "total(Tensor x) -> Tensor out", .contract = "x[m *s]:f32 -> out[m]:f32; parallel(m); sum(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct total, "cpu", "f32", total)));
struct limited { const dv_tensor *x; int64_t n; dv_tensor *out; };
static int limited(dv_context *ctx, const struct limited *a)
{
    (void)ctx;
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * 4);
    return DV_OK;
}
DV_OPERATOR(limited, struct limited, (x, n, out), .schema = "limited(Tensor x, int n) -> Tensor out",
    .contract = "x[b k]:f32 -> out[b k]:f32; parallel(b, k); b == n", .kernels = DV_KERNELS(DV_KERNEL(struct limited, "cpu", "f32", limited)));
struct kwonly { const dv_tensor *x, *w; double f; dv_tensor *out; };
DV_OPERATOR(kwonly, struct kwonly, (x, w, f, out), .schema = "kwonly(Tensor x, *, Tensor? w=None, float f=2.0) -> Tensor out",
    .contract = "x[*s]:f32, w[*s]:f32 -> out[*s]:f32; parallel(*s)", .native = "if(present(w), x * f + w, x * f)");
struct all_kw { dv_tensors xs; const dv_tensor *y; dv_tensor *out; };
DV_OPERATOR(all_kw, struct all_kw, (xs, y, out), .schema = "all_kw(*, Tensor[] xs, Tensor y) -> Tensor out",
    .contract = "xs{i}[*s]:f32, y[*s]:f32 -> out[*s]:f32; parallel(*s)", .native = "xs[0] - y");
struct optional { const dv_tensor *x, *a, *b; dv_tensor *out; };
DV_OPERATOR(optional, struct optional, (x, a, b, out), .schema = "optional(Tensor x, Tensor? a=None, Tensor? b=None) -> Tensor out",
    .contract = "x[*s]:f32, a[*s]:f32, b[*s]:f32 -> out[*s]:f32; parallel(*s)",
    .native = "if(present(a), if(present(b), x + a - b, x + a), if(present(b), x - b, x + 0))");
struct wide { const dv_tensor *x; dv_ints n; dv_tensor *out; };
DV_OPERATOR(wide, struct wide, (x, n, out), .schema = "wide(Tensor x, *, int[] n) -> Tensor out",
    .contract = "x[a b]:f32 -> out[a n[0]]:f32; parallel(a)", .native = "expand(sum(x, [1], True), [x.shape[0], n[0]])");
struct into_ { const dv_tensor *x; dv_tensor *d; };
DV_OPERATOR(into_, struct into_, (x, d), .schema = "into_(Tensor x, *, Tensor(a!) d) -> Tensor(a!)",
    .contract = "x[*s]:f32, d[*s]:f32; parallel(*s)", .native = "d: d + x; result: d + x");
struct each_ { dv_mut_tensors xs; dv_tensors ys; };
DV_OPERATOR(each_, struct each_, (xs, ys), .schema = "each_(Tensor(a!)[] xs, Tensor[] ys) -> ()",
    .contract = "xs{i}[*s]:f32, ys{i}[*s]:f32; parallel(*s)", .native = "xs: [xs[0] + ys[0], xs[1] * ys[1]]");
struct pair { const dv_tensor *x, *y; dv_tensor *a, *b; };
DV_OPERATOR(pair, struct pair, (x, y, a, b), .schema = "pair(Tensor x, *, Tensor y) -> (Tensor a, Tensor b)",
    .contract = "x[m k]:f32, y[m k]:f32 -> a[m k]:f32, b[m]:f32; parallel(m)", .native = "x + y, sum(x * y, [1])");
struct draw { const dv_tensor *x; const dv_generator *generator; dv_tensor *out; };
DV_OPERATOR(draw, struct draw, (x, generator, out), .schema = "draw(Tensor x, *, Generator? generator=None) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)", .tags = "nondeterministic_seeded", .native = "x + 1");
DV_LIBRARY(sharded, &dv_op_kwonly, &dv_op_all_kw, &dv_op_optional, &dv_op_wide, &dv_op_into_, &dv_op_each_, &dv_op_pair, &dv_op_draw, &dv_op_mm, &dv_op_mmb, &dv_op_two, &dv_op_total, &dv_op_limited);
"""


def shards(mesh, tensors, placements):
    from torch.distributed.tensor import distribute_tensor
    given = [p if isinstance(p, tuple) else (p,) for p in placements]
    return [distribute_tensor(t.detach(), mesh, p).requires_grad_(t.requires_grad) for t, p in zip(tensors, given)]


@check
def elementwise(mesh, P):
    """Sharded inputs give sharded results, with no communication; gradients too."""
    from torch.distributed.tensor.debug import CommDebugMode
    f = torch.ops.dovetail.swiglu
    for dim in (0, 1):
        x, y = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6, requires_grad=True)
        expected = f(x, y)
        a, b = shards(mesh, (x, y), (P.Shard(dim), P.Shard(dim)))
        with CommDebugMode() as communication:
            found = f(a, b)
        assert communication.get_total_counts() == 0 and found.placements == (P.Shard(dim),), found.placements
        torch.testing.assert_close(found.full_tensor(), expected)
        weight = torch.randn(4, 6)
        expected = torch.autograd.grad((expected * weight).sum(), (x, y))
        found = torch.autograd.grad((found * shards(mesh, [weight], [P.Shard(dim)])[0]).sum(), (a, b))
        for g, e in zip(found, expected):
            torch.testing.assert_close(g.full_tensor(), e)


@check
def norm(mesh, P):
    """Along the run it is sharded; along d, which is not parallel, it is gathered first."""
    f = torch.ops.dovetail.rms_norm
    for placement, result in ((P.Shard(0), P.Shard(0)), (P.Shard(1), P.Shard(1)), (P.Replicate(), P.Replicate()), (P.Shard(2), None)):
        x, w = torch.randn(2, 4, 6, requires_grad=True), torch.randn(6, requires_grad=True)
        expected = f(x, w)
        a, b = shards(mesh, (x, w), (placement, P.Replicate()))
        found = f(a, b)
        assert result is None or found.placements == (result,), found.placements
        torch.testing.assert_close(found.full_tensor(), expected)
        for g, e in zip(torch.autograd.grad(found.square().sum(), (a, b)), torch.autograd.grad(expected.square().sum(), (x, w))):
            torch.testing.assert_close(g.full_tensor(), e)


@check
def without_a_result(mesh, P):
    """rotary_embedding writes to the shards; what is written never moves."""
    f = torch.ops.dovetail.rotary_embedding
    positions, cache = torch.arange(4), torch.randn(8, 4)
    q, k = torch.randn(4, 8), torch.randn(4, 4)
    a, b, c = shards(mesh, (positions, q, k), (P.Shard(0), P.Shard(0), P.Shard(0)))
    f(a, b, c, 4, shards(mesh, [cache], [P.Replicate()])[0], True)
    f(positions, q, k, 4, cache, True)
    torch.testing.assert_close(b.full_tensor(), q)
    torch.testing.assert_close(c.full_tensor(), k)
    a, b = shards(mesh, (positions, q), (P.Replicate(), P.Shard(0)))
    f(a, b, None, 4, shards(mesh, [cache], [P.Replicate()])[0], True)
    f(positions, q, None, 4, cache, True)
    torch.testing.assert_close(b.full_tensor(), q)
    a, b = shards(mesh, (positions, q), (P.Replicate(), P.Shard(1)))
    with pytest.raises(RuntimeError, match="rotary_embedding: no way to run it where its arguments lie.*'query' is placed as"):
        f(a, b, None, 4, shards(mesh, [cache], [P.Replicate()])[0], True)


@check
def written(mesh, P):
    """add_rms_norm writes and returns."""
    x, r, w = torch.randn(4, 6), torch.randn(4, 6), torch.randn(6)
    a, b, c = shards(mesh, (x, r, w), (P.Replicate(), P.Shard(0), P.Replicate()))
    found, expected = torch.ops.dovetail.add_rms_norm(a, b, c), torch.ops.dovetail.add_rms_norm(x, r, w)
    torch.testing.assert_close(found.full_tensor(), expected)
    torch.testing.assert_close(b.full_tensor(), r)


@check
def sums(mesh, P):
    f = torch.ops.sharded.mm
    a, b = torch.randn(4, 6, requires_grad=True), torch.randn(6, 2, requires_grad=True)
    for x, y, result in ((P.Shard(1), P.Shard(0), P.Partial()), (P.Shard(0), P.Replicate(), P.Shard(0)), (P.Replicate(), P.Shard(1), P.Shard(1)),
                         (P.Replicate(), P.Replicate(), P.Replicate())):
        c, d = shards(mesh, (a, b), (x, y))
        found = f(c, d)
        assert found.placements == (result,), (found.placements, result)
        torch.testing.assert_close(found.full_tensor(), a @ b)
        for g, e in zip(torch.autograd.grad(found.square().sum(), (c, d)), torch.autograd.grad((a @ b).square().sum(), (a, b))):
            torch.testing.assert_close(g.full_tensor(), e)
    a, b, bias = torch.randn(4, 6), torch.randn(6, 2), torch.randn(2)
    c, d, e = shards(mesh, (a, b, bias), (P.Shard(1), P.Shard(0), P.Replicate()))
    found = torch.ops.sharded.mmb(c, d, bias=e)
    assert found.placements != (P.Partial(),)  # the bias would be added twice
    torch.testing.assert_close(found.full_tensor(), a @ b + bias)
    x = torch.randn(2, 4, 6)
    for place, result in ((P.Shard(0), P.Shard(0)), (P.Shard(1), P.Partial()), (P.Shard(2), P.Partial())):  # of a run, each dim
        found = torch.ops.sharded.total(shards(mesh, (x,), (place,))[0])
        assert found.placements == (result,), (found.placements, result)
        torch.testing.assert_close(found.full_tensor(), x.sum((1, 2)))


@check
def several(mesh, P):
    """Lists, optional tensors, several results."""
    f = torch.ops.sharded.two
    x, y, z = torch.randn(4, 3, 2), torch.randn(4, 3, 2), torch.randn(())
    for place in (P.Shard(0), P.Shard(2)):
        a, b, c = shards(mesh, (x, y, z), (place, place, P.Replicate()))
        for found, expected in ((f([a, b], c), f([x, y], z)), (f([a, b]), f([x, y]))):
            assert [r.placements for r in found] == [(place,)] * 2
            for r, e in zip(found, expected):
                torch.testing.assert_close(r.full_tensor(), e)


@check
def limits(mesh, P):
    """A dim that the contract says more about is not sharded."""
    x = torch.randn(4, 6)
    for place, result in ((P.Shard(0), P.Replicate()), (P.Shard(1), P.Shard(1))):
        a, = shards(mesh, [x], [place])
        found = torch.ops.sharded.limited(a, 4)
        assert found.placements == (result,) or place == P.Shard(0), found.placements
        torch.testing.assert_close(found.full_tensor(), x)


@check_of_a_square
def elementwise_of_a_square(mesh, P):
    """Each dim of the mesh has a placement of its own, also twice the same dim; no communication, gradients too."""
    from torch.distributed.tensor.debug import CommDebugMode
    f, (S, R) = torch.ops.dovetail.swiglu, (P.Shard, P.Replicate())
    for place in ((S(0), S(1)), (S(1), S(0)), (S(0), S(0)), (S(0), R), (R, S(1)), (R, R)):
        x, y = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6, requires_grad=True)
        expected = f(x, y)
        a, b = shards(mesh, (x, y), (place, place))
        with CommDebugMode() as communication:
            found = f(a, b)
        assert communication.get_total_counts() == 0 and found.placements == place, found.placements
        torch.testing.assert_close(found.full_tensor(), expected)
        for g, e in zip(torch.autograd.grad(found.square().sum(), (a, b)), torch.autograd.grad(expected.square().sum(), (x, y))):
            torch.testing.assert_close(g.full_tensor(), e)


@check_of_a_square
def sums_of_a_square(mesh, P):
    """Rows over one dim of the mesh, columns or the summed dim over the other."""
    f, S, R = torch.ops.sharded.mm, P.Shard, P.Replicate()
    a, b = torch.randn(4, 6, requires_grad=True), torch.randn(6, 2, requires_grad=True)
    for x, y, result in (((S(0), R), (R, S(1)), (S(0), S(1))), ((R, S(0)), (S(1), R), (S(1), S(0))), ((S(0), S(1)), (R, S(0)), (S(0), P.Partial())),
                         ((S(1), R), (S(0), S(1)), (P.Partial(), S(1))), ((S(1), S(1)), (S(0), S(0)), (P.Partial(), P.Partial()))):
        c, d = shards(mesh, (a, b), (x, y))
        found = f(c, d)
        assert found.placements == result, (found.placements, result)
        torch.testing.assert_close(found.full_tensor(), a @ b)
        for g, e in zip(torch.autograd.grad(found.square().sum(), (c, d)), torch.autograd.grad((a @ b).square().sum(), (a, b))):
            torch.testing.assert_close(g.full_tensor(), e)


@check_of_a_square
def norm_of_a_square(mesh, P):
    """What is not parallel is gathered along the dim of the mesh that has it, and only there."""
    f, S, R = torch.ops.dovetail.rms_norm, P.Shard, P.Replicate()
    for place, kept in (((S(0), S(1)), (S(0), S(1))), ((S(1), R), (S(1), R)), ((S(2), S(0)), None), ((S(0), S(2)), None)):
        x, w = torch.randn(2, 4, 6), torch.randn(6)
        a, b = shards(mesh, (x, w), (place, (R, R)))
        found = f(a, b)
        assert kept is None or found.placements == kept, found.placements
        torch.testing.assert_close(found.full_tensor(), f(x, w))


@check_of_a_square
def written_of_a_square(mesh, P):
    f, S, R = torch.ops.dovetail.add_rms_norm, P.Shard, P.Replicate()
    x, r, w = torch.randn(4, 2, 6), torch.randn(4, 2, 6), torch.randn(6)
    a, b, c = shards(mesh, (x, r, w), ((R, S(1)), (S(0), S(1)), (R, R)))
    found, expected = f(a, b, c), f(x, r, w)
    torch.testing.assert_close(found.full_tensor(), expected)
    torch.testing.assert_close(b.full_tensor(), r)
    a, b, c = shards(mesh, (x, r, w), ((S(0), S(2)), (S(0), S(2)), (R, R)))
    with pytest.raises(RuntimeError, match="add_rms_norm: no way to run it where its arguments lie"):
        f(a, b, c)


def python_operators():
    """Operators in Python, for which only replicas are known to be right."""
    import dovetail

    @dovetail.custom_op("sharded_py::plus", mutates_args=())
    def plus(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return x + 1 if y is None else x + y

    @dovetail.custom_op("sharded_py::add_to", mutates_args=("d",))
    def add_to(d: torch.Tensor, x: torch.Tensor) -> None:
        d.add_(x)

    @dovetail.custom_op("sharded_py::draw", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
    def draw(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    plus.register_fake(lambda x, y=None: torch.empty_like(x))
    draw.register_fake(torch.empty_like)


def some_call(choice, r):
    """Returns a random call: its operator, arguments and keyword arguments. r(*shape) makes a tensor."""
    m, k, n = choice([1, 2, 3, 4, 5, 8]), choice([1, 2, 4, 6]), choice([2, 3, 4])
    s = choice([(m,), (m, k), (m, k, n)])
    ours, py = torch.ops.sharded, torch.ops.sharded_py
    return choice([
        lambda: (ours.kwonly, [r(*s)], choice([{}, {"w": r(*s)}, {"w": r(*s), "f": 3.0}, {"f": 4.0}, {"w": None}])),
        lambda: (ours.kwonly, [], {"w": r(*s), "x": r(*s)}),
        lambda: (ours.kwonly.out, [r(*s)], choice([{"out": r(*s)}, {"w": r(*s), "out": r(*s)}])),
        lambda: (ours.all_kw, [], {"y": r(*s), "xs": [r(*s) for _ in range(choice([1, 2, 3]))]}),
        lambda: (ours.optional, [r(*s), choice([None, r(*s)]), choice([None, r(*s)])], {}),
        lambda: (ours.optional, [r(*s)], choice([{"a": r(*s)}, {"b": r(*s)}, {"b": r(*s), "a": r(*s)}])),
        lambda: (ours.wide, [r(m, k)], {"n": [n]}),
        lambda: (ours.into_, [r(*s)], {"d": r(*s)}),
        lambda: (ours.each_, [[r(*s), r(*s)], [r(*s), r(*s)]], {}),
        lambda: (ours.pair, [r(m, k)], {"y": r(m, k)}),
        lambda: (ours.pair.out, [r(m, k)], {"y": r(m, k), "a": r(m, k), "b": r(m)}),
        lambda: (ours.mm, [r(m, k), r(k, n)], {}),
        lambda: (ours.mm.out, [r(m, k), r(k, n)], {"out": r(m, n)}),
        lambda: (ours.draw, [r(*s)], choice([{}, {"generator": torch.Generator()}])),
        lambda: (py.plus, [r(*s)], choice([{}, {"y": r(*s)}])),
        lambda: (py.add_to, [r(*s), r(*s)], {}),
    ])()


def flat(value):
    if isinstance(value, dict):
        return flat(list(value.values()))
    return [y for x in value for y in flat(x)] if isinstance(value, (list, tuple)) else [value] if isinstance(value, torch.Tensor) else []


def map_tensors(f, value):
    if isinstance(value, dict):
        return {name: map_tensors(f, x) for name, x in value.items()}
    return [map_tensors(f, x) for x in value] if isinstance(value, list) else f(value) if isinstance(value, torch.Tensor) else value


@check_of_a_square
@check
def in_any_order(mesh, P):
    """Random calls with random placements, of positional and keyword arguments: the result is that of one device, or the call is refused for the
    placement of what it writes and nothing has changed. An emptied cache changes nothing."""
    import random
    pick = random.Random(7)

    def placed(x):
        places = [pick.choice([P.Replicate(), P.Partial()] + [P.Shard(d) for d in range(x.dim())] * 2) for _ in range(mesh.ndim)]
        local = P.distribute_tensor(x, mesh, [P.Replicate() if p.is_partial() else p for p in places]).to_local().clone()
        if any(p.is_partial() and mesh.get_local_rank(i) for i, p in enumerate(places)):
            local.zero_()
        return P.DTensor.from_local(local, mesh, places, run_check=False, shape=x.shape, stride=x.stride())

    def copied(x):
        return P.DTensor.from_local(x.to_local().clone(), mesh, x.placements, run_check=False, shape=x.shape, stride=x.stride())

    def outcome(f, args, kwargs):
        try:
            return [(x.placements, x.full_tensor()) for x in flat(f(*args, **kwargs))], None
        except RuntimeError as error:
            assert "no way to run it where its arguments lie" in str(error), error
            return [], str(error)

    refused, count = 0, 120
    for i in range(count):
        f, args, kwargs = some_call(pick.choice, lambda *shape: torch.randint(-4, 5, shape).float())
        a, k = map_tensors(placed, args), map_tensors(placed, kwargs)
        again = map_tensors(copied, a), map_tensors(copied, k)
        before = [(x.placements, x.full_tensor()) for x in flat([a, k])]
        found, error = outcome(f, a, k)
        about = f, [x.placements for x in flat([a, k])], [x.shape for x in flat([a, k])]
        if error is None:
            expected = flat(f(*args, **kwargs))
            assert len(found) == len(expected) and all(torch.equal(x, e) for (_, x), e in zip(found, expected)), (about, found, expected)
        refused += error is not None
        for x, e, (places, old) in zip(flat([a, k]), flat([args, kwargs]), before):
            assert x.placements == places and torch.equal(x.full_tensor(), old if error else e), (about, x, e)
        if i % 4 == 0:
            P.DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache_clear()
            getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", lambda: None)()
            assert [p for p, _ in outcome(f, *again)[0]] == [p for p, _ in found], about
    assert 0 < refused < count / 2


@check
def random_operators(mesh, P):
    known = P.DTensor._op_dispatcher._random_ops
    assert {torch.ops.sharded.draw.default, torch.ops.sharded_py.draw.default} <= known and torch.ops.sharded.mm.default not in known


@check
def strategies_of_the_program(mesh, P):
    """A strategy that the program registers comes before Dovetail's."""
    from torch.distributed.tensor.experimental import register_sharding
    x = torch.randn(4)
    a, = shards(mesh, [x], [P.Shard(0)])
    assert torch.ops.sharded_py.draw(a).placements == (P.Replicate(),)
    register_sharding(torch.ops.sharded_py.draw.default)(lambda x: [([P.Replicate()], [P.Replicate()]), ([P.Shard(0)], [P.Shard(0)])])
    found = torch.ops.sharded_py.draw(a)
    assert found.placements == (P.Shard(0),)
    torch.testing.assert_close(found.full_tensor(), x + 1)


@check
def out_of_another_shape(mesh, P):
    a, b, out = shards(mesh, (torch.randn(4, 6), torch.randn(6, 2), torch.randn(4, 3)), (P.Shard(0), P.Replicate(), P.Shard(0)))
    with pytest.raises(RuntimeError, match=r"sharded::mm: argument 'out': expected .* shape \[4, 2\], found .* \[4, 3\]: a DTensor is not resized"):
        torch.ops.sharded.mm.out(a, b, out=out)
    assert out.shape == (4, 3) and out.to_local().shape == (2, 3)


@check
def results_that_may_be_none(mesh, P):
    """Called by hand, and by autograd; in a compiled graph too. A None stays None."""
    x, weight, bias = torch.randn(2, 4, 6, requires_grad=True), torch.randn(4, 3, requires_grad=True), torch.randn(4, requires_grad=True)
    f, backward = torch.ops.dovetail.causal_conv1d, torch.ops.dovetail.causal_conv1d_backward
    for given in ((x, weight), (x, weight, bias), (x, weight, None, torch.randn(2, 4, 2, requires_grad=True))):
        tensors = [t for t in given if t is not None]
        for placement in (P.Shard(0), P.Replicate()):
            placed = iter(shards(mesh, tensors, [placement] + [P.Replicate()] * (len(tensors) - 1)))
            there = [None if t is None else next(placed) for t in given]
            grad = torch.randn(2, 4, 6)
            expected, found = backward(grad, *given), backward(shards(mesh, [grad], [placement])[0], *there)
            assert [t is None for t in expected] == [t is None for t in found]
            for e, g in zip(expected, found):
                assert e is None or torch.testing.assert_close(g.full_tensor(), e) is None
            call = f if placement == P.Shard(0) else torch.compile(f, backend="aot_eager", fullgraph=True)
            expected = torch.autograd.grad(f(*given).square().sum(), tensors)
            found = torch.autograd.grad(call(*there).square().sum(), [t for t in there if t is not None])
            for e, g in zip(expected, found):
                torch.testing.assert_close(g.full_tensor(), e)


@check
def compiled(mesh, P):
    """Graphs contain the operators themselves."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    def f(x, w, d):
        torch.ops.sharded.into_(x, d=d)
        return torch.ops.sharded.kwonly(x, w=w) + torch.ops.sharded.kwonly.out(x, out=torch.empty_like(x))

    from torch._dynamo.backends.common import aot_autograd
    x, w, d = torch.randn(4), torch.randn(4), torch.randn(4)
    a, b, c = shards(mesh, (x, w, d), (P.Shard(0), P.Shard(0), P.Shard(0)))
    found = torch.compile(f, backend=aot_autograd(fw_compiler=backend), fullgraph=True)(a, b, c)
    torch.testing.assert_close(found.full_tensor(), 4 * x + w)
    torch.testing.assert_close(c.full_tensor(), d + x)
    assert "sharded.kwonly" in graphs[0].code and "positional" not in graphs[0].code, graphs[0].code


def run_rank(rank, size, store):
    import torch.distributed as dist
    import torch.distributed.tensor as P
    python_operators()
    dist.init_process_group("gloo", rank=rank, world_size=size, store=dist.FileStore(store, size))
    shape = LINE if size == 2 else SQUARE
    mesh = P.init_device_mesh("cpu", shape)
    for name, f in CHECKS[shape].items():
        torch.manual_seed(0)
        f(mesh, P)
        if rank == 0:
            print(name, flush=True)
    dist.destroy_process_group()


def main(size, store, binary):
    """The ranks are forks: what they import is imported once. When one fails the others are ended."""
    import dovetail
    from dovetail.torch import register
    names = [n for n in ("swiglu", "rms_norm", "add_rms_norm", "rotary_embedding", "causal_conv1d") if getattr(dovetail.ops, n)]
    library = dovetail.load(binary)
    register(library)
    assert "torch.distributed.tensor" not in sys.modules and names
    import torch.distributed.tensor  # noqa: F401
    ranks = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            return run_rank(rank, size, store)
        ranks.append(child)
    while ranks:
        child, status = os.wait()
        ranks.remove(child)
        if status:
            for other in ranks:
                os.kill(other, signal.SIGKILL)


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    from conftest import compile_ops
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "sharded.c").write_text(SOURCE)
    return compile_ops(folder / "sharded.c", folder / "sharded.so")


def run_ranks(binary, size):
    """The ranks' output: (names of the checks that passed, errors)."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen([sys.executable, __file__, str(size), str(binary.parent / f"store{size}"), str(binary)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    try:
        said, errors = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return said.split(), errors


@pytest.fixture(scope="module")
def line(binary):
    return run_ranks(binary, 2)


@pytest.fixture(scope="module")
def square(binary):
    return run_ranks(binary, 4)


@pytest.mark.parametrize("name", CHECKS[LINE])
def test_two_ranks(line, name):
    passed, errors = line
    assert name in passed, errors[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS[SQUARE])
def test_four_ranks(square, name):
    passed, errors = square
    assert name in passed, errors[-3000:]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
