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
DV_LIBRARY(sharded, &dv_op_mm, &dv_op_mmb, &dv_op_two, &dv_op_total, &dv_op_limited);
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


def without_a_result(mesh, P):
    """rotary_embedding writes to the shards; what is written never moves. (DTensor of torch 2.10 refuses every operator that returns nothing.)"""
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


if torch.__version__ >= "2.11":
    check(without_a_result)


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


def run_rank(rank, size, store):
    import torch.distributed as dist
    import torch.distributed.tensor as P
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
    names = [n for n in ("swiglu", "rms_norm", "add_rms_norm", "rotary_embedding") if getattr(dovetail.ops, n)]
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
