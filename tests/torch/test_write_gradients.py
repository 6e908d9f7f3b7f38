"""Gradients of operators that write, eager and in compiled graphs: the same program with torch's own operator that writes is the oracle."""
import functools

import pytest
import torch

OPERATORS = {"add_": lambda ops, y, x, k: ops.add_(y, x, k), "add_back_": lambda ops, y, x, k: ops.add_back_(y, x, k=k)}
EAGER = "eager"


def middle(write, a, b):
    y = a * 2
    write(y, b, 2.0)
    return (y * y).sum()


def views(write, a, b):
    y = a * 2
    write(y[0], b[1], 0.5)
    write(y.t()[1], b[:, 0], -1.0)
    write(y.view(-1)[1:4], y.view(-1)[6:], 3.0)
    return (y * b).sum()


def twice(write, a, b):
    y = a.sin()
    write(y, b, 1.0)
    z = y * 3
    write(y, z, 2.0)
    return (y * z).sum()


def a_constant(write, a, b):
    """What is written required no gradient before."""
    y = torch.zeros_like(a)
    write(y, a, 3.0)
    write(y, b.detach(), 1.0)
    return (y * y).sum() + b.sum()


def an_input(write, a, b):
    """The caller's tensor, which is not a leaf."""
    write(a, b, 2.0)
    return (a * b).sum()


def a_view_of_an_input(write, a, b):
    write(a[1:], b[1:], 2.0)
    return (a.sin() * b).sum()


PROGRAMS = [middle, views, twice, a_constant, an_input, a_view_of_an_input]


def run(f, write):
    """Result, gradients, and what became of the tensor that was given, with its version."""
    torch.manual_seed(0)
    a, b = (torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    given = a * 1
    version = given._version
    out = f(lambda y, x, k: write(y, x, k), given, b)
    (out + given.sum()).backward()
    return out.detach(), a.grad, b.grad, given.detach(), given._version - version


def native(y, x, k):
    y.add_(x, alpha=k)


def compiled(program, backend):
    if backend == EAGER:
        return program
    torch._dynamo.reset()
    return lambda write, a, b: torch.compile(lambda a, b: program(write, a, b), backend=backend, fullgraph=True)(a, b)


@functools.cache  # the same for each of our operators
def expected(program, backend):
    return run(compiled(program, backend), native)


def check(grad, name, program, backend):
    write = OPERATORS[name]
    found = run(compiled(program, backend), lambda y, x, k: write(grad, y, x, k))
    for x, y in zip(found, expected(program, backend)):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("backend", [EAGER, "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", OPERATORS)
def test_as_torchs_own(grad, name, program, backend):
    check(grad, name, program, backend)


@pytest.mark.parametrize("name, program", [("add_", views), pytest.param("add_back_", twice, marks=pytest.mark.slow),
                                           pytest.param("add_", an_input, marks=pytest.mark.slow)], ids=lambda x: getattr(x, "__name__", x))
def test_by_inductor(grad, name, program):
    check(grad, name, program, "inductor")


@pytest.mark.parametrize("backend", [EAGER, "aot_eager"])
@pytest.mark.parametrize("name", OPERATORS)
def test_what_was_saved_and_then_written_is_an_error(grad, name, backend):
    def saved(write, a, b):
        z = a * a
        write(a, b, 1.0)
        return z.sum()

    for write in (native, lambda y, x, k: OPERATORS[name](grad, y, x, k)):
        with pytest.raises(Exception, match="one of the variables needed for gradient computation has been modified by an inplace operation"):
            run(compiled(saved, backend), write)


@pytest.mark.parametrize("backend", [EAGER, "aot_eager"])
def test_a_leaf_and_an_operator_without_gradient_are_errors(grad, backend):
    x = torch.ones(3, dtype=torch.float64)
    leaf, other = x.clone().requires_grad_(), x.clone().requires_grad_() * 1
    with pytest.raises(Exception, match="a leaf that requires grad cannot be written|a leaf Variable that requires grad"):
        compiled(lambda write, a, b: write(a, b, 1.0), backend)(lambda y, x, k: grad.add_(y, x, k), leaf, x)
    with pytest.raises(Exception, match="add_bare_.*declares no gradient"):
        compiled(lambda write, a, b: write(a, b, 1.0), backend)(lambda y, x, k: grad.add_bare_(y, x, k), other, x)
    assert torch.equal(leaf.detach(), x) and torch.equal(other.detach(), x)


WRITES_AND_RETURNS = """
#include <dovetail_op.h>
struct both { const dv_tensor *x; dv_tensor *sum, *out; };
static int both(dv_context *ctx, const struct both *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = ((double *)a->sum->data)[i] += ((const double *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(both, struct both, (x, sum, out), .schema = "both(Tensor x, Tensor(a!) sum) -> Tensor out", .contract = "x[*s]:f64, sum[*s]:f64 -> out[*s]:f64",
    .gradient = "x: grads[0] + grads[1]; sum: grads[0] + grads[1]", .kernels = DV_KERNELS(DV_KERNEL(struct both, "cpu", NULL, both)));
DV_LIBRARY(writes_and_returns, &dv_op_both);
"""


def test_a_view_cannot_be_written_by_what_has_other_results(load):
    both, x, sums = load(WRITES_AND_RETURNS).both, torch.ones(3, dtype=torch.float64, requires_grad=True), torch.zeros(2, 3, dtype=torch.float64)
    for f in (both, torch.ops.writes_and_returns.both):
        with pytest.raises(RuntimeError, match="writes_and_returns::both: argument 'sum': a view cannot be written to where a gradient is wanted"):
            f(x, sums[0])
    assert not sums.any()
    both(x.detach(), sums[0])
    with torch.no_grad():
        both(x, sums[1])
    assert sums.sum() == 6
    both(x, sums.sum(0)).sum().backward()
    assert torch.equal(x.grad, torch.ones(3, dtype=torch.float64))
