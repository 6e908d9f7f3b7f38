"""Operators whose types torch's C interface does not carry, which are therefore called through Python (packed.py): transforms, autocast and out= treat them like any other."""
import pytest
import torch

SOURCE = r"""
#include <dovetail_op.h>
struct axpy { const dv_tensor *x, *y; dv_scalar alpha; dv_tensor *out; };
static double value(dv_scalar s) { return s.kind == DV_SCALAR_INT ? (double)s.as.i : s.as.f; }
static int axpy(dv_context *ctx, const struct axpy *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * (float)value(a->alpha) + ((const float *)a->y->data)[i];
    return DV_OK;
}
DV_OPERATOR(axpy, struct axpy, (x, y, alpha, out), .schema = "axpy(Tensor x, Tensor y, *, Scalar alpha=1) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T; parallel(*s)", .gradient = "x: grad * alpha; y: grad",
    .kernels = DV_KERNELS(DV_KERNEL(struct axpy, "cpu", "f32", axpy)));
struct loop { const dv_tensor *x; dv_complex by; dv_tensor *out; };
static int loop(dv_context *ctx, const struct loop *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * (float)a->by.im + (float)dv_numel(a->x);
    return DV_OK;
}
DV_OPERATOR(loop, struct loop, (x, by, out), .schema = "loop(Tensor x, complex by) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct loop, "cpu", "f32", loop)));
struct add_ { dv_tensor *x; dv_scalar by; };
static int add_(dv_context *ctx, const struct add_ *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->x->data)[i] += (float)value(a->by);
    return DV_OK;
}
DV_OPERATOR(add_, struct add_, (x, by), .schema = "add_(Tensor(a!) x, Scalar by) -> ()", .contract = "x[*s]:f32; parallel(*s)", .gradient = "x: grad",
    .kernels = DV_KERNELS(DV_KERNEL(struct add_, "cpu", "f32", add_)));
DV_LIBRARY(by_python, &dv_op_axpy, &dv_op_loop, &dv_op_add_);
"""


@pytest.fixture
def mine(load):
    return load(SOURCE, "by_python")


@pytest.fixture(params=["function", "torch.ops"])
def f(request, mine):
    return mine if request.param == "function" else torch.ops.by_python


x, y = torch.arange(12.).reshape(4, 3), torch.arange(12.).reshape(4, 3).cos()


def test_vmap(f):
    same = torch.testing.assert_close
    same(torch.vmap(lambda a, b: f.axpy(a, b, alpha=2))(x, y), x * 2 + y)
    same(torch.vmap(lambda a: f.axpy(a, y[0], alpha=0.5), in_dims=1, out_dims=1)(x[:, :3].t()), (x * 0.5 + y[0]).t())
    same(torch.vmap(torch.vmap(lambda a: f.axpy(a, a)))(x), x * 2)
    same(torch.vmap(lambda a: f.loop(a, 2j))(x), x * 2 + 3)  # nothing is parallel: a loop, for which a slice has three elements
    z = torch.zeros(4, 3)
    torch.vmap(lambda a: f.add_(a, 2) or a)(z)
    same(z, torch.full((4, 3), 2.))


def test_vmap_refuses_what_cannot_be_batched(f):
    z = torch.zeros(3)
    with pytest.raises(RuntimeError, match="by_python::add_.*Expected a value of type 'number' for argument 'by'"):
        torch.vmap(lambda a: f.add_(z, a.sum()) or a)(x)
    assert torch.equal(z, torch.zeros(3))


def test_autocast(f):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = f.axpy(x.bfloat16(), y, alpha=2)
    assert found.dtype is torch.float32 and torch.equal(found, x.bfloat16().float() * 2 + y)


def test_transforms(f):
    same, three = torch.testing.assert_close, torch.full((4, 3), 3.)
    same(torch.func.grad(lambda a: f.axpy(a, y, alpha=3).sum())(x), three)
    same(torch.vmap(torch.func.grad(lambda a: f.axpy(a, y[0], alpha=3).sum()))(x), three)
    same(torch.func.jvp(lambda a: f.axpy(a, y, alpha=3), (x,), (torch.ones_like(x),))[1], three)
    same(torch.func.functionalize(lambda a: f.axpy(a, y, alpha=3))(x), x * 3 + y)


def test_graphs(f):
    def g(a):
        b = a * 1
        f.add_(b, 2)
        return f.axpy(b, b, alpha=3) + f.loop(b[0], 2j)

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(g, fullgraph=True, backend="aot_eager")(x), g(x))


def test_out(mine):
    """As other operators have it: resized, checked, counted, in graphs."""
    op, expected = torch.ops.by_python.axpy, x * 2 + y
    for call in (op.out, op, mine.axpy):
        given = torch.empty(0)
        assert call(x, y, alpha=2, out=given) is given and torch.equal(given, expected)
        given, version = torch.empty(4, 3).t().contiguous().t(), None
        version = given._version
        call(x, y, alpha=2, out=given)
        assert torch.equal(given, expected) and given.stride() == (1, 4) and given._version == version + 1
        with pytest.raises(RuntimeError, match="by_python::axpy: .*'out': expected.*f32.*found.*f64"):
            call(x, y, out=torch.empty(4, 3, dtype=torch.float64))
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            call(x.clone().requires_grad_(), y, out=torch.empty(4, 3))
    assert str(op.out._schema).endswith("axpy.out(Tensor x, Tensor y, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)")
    assert set(torch.library.opcheck(op.out, (x, y), {"alpha": 2, "out": torch.empty(4, 3)}).values()) == {"SUCCESS"}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_out_in_graphs(mine, backend):
    def g(a, given):
        torch.ops.by_python.axpy(a * 1, a, alpha=0.5, out=given)
        return mine.axpy(given, a, alpha=2) + 1

    torch._dynamo.reset()
    a, b = torch.empty(4, 3), torch.empty(4, 3)
    torch.testing.assert_close(torch.compile(g, fullgraph=True, backend=backend)(x, a), g(x, b))
    torch.testing.assert_close(a, b)


def test_what_is_unloaded_is_not_found_by_export(load):
    """Export asks every operator in torch.ops for each of its overloads."""
    library = load(SOURCE.replace("DV_LIBRARY(by_python", "DV_LIBRARY(by_python_gone"), "by_python_gone")
    torch.ops.by_python_gone.loop(torch.ones(3), 2j)  # by its kernel, which asks for the packed operator
    library.close()
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(3),)).run_decompositions()
    assert torch.equal(program.module()(x[0]), x[0])
