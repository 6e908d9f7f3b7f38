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


REFUSED = """
#include <dovetail_op.h>
struct add { dv_tensor *d; const dv_tensor *x; };
DV_OPERATOR(add_into, struct add, (d, x), .schema = "add_into(Tensor(a!) d, Tensor x) -> ()", .contract = "d[*s]:f32, x[*s]:f32; parallel(*s)",
    .gradient = "d: grad; x: grad", .native = "d + x");
DV_OPERATOR(add_, struct add, (d, x), .schema = "add_(Tensor(a!) d, Tensor x) -> Tensor(a!)", .contract = "d[*s]:f32, x[*s]:f32; parallel(*s)",
    .gradient = "d: grad; x: grad", .native = "d + x");
DV_OPERATOR(copy_to, struct add, (x, d), .schema = "copy_to(Tensor x, *, Tensor(a!) d) -> ()", .contract = "d[*s]:f32, x[*s]:f32; parallel(*s)",
    .gradient = "x: grad", .native = "x + 0");
struct each { dv_mut_tensors xs; const dv_tensor *y; };
DV_OPERATOR(add_each, struct each, (xs, y), .schema = "add_each(Tensor(a!)[] xs, Tensor y) -> ()", .contract = "xs{i}[*s]:f32, y[*s]:f32; parallel(*s)",
    .gradient = "xs: grad; y: grad[0] + grad[1]", .native = "xs: [xs[0] + y, xs[1] + y]");
DV_LIBRARY(refused, &dv_op_add_into, &dv_op_add_, &dv_op_copy_to, &dv_op_add_each);
"""


class Slice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[:2]

    @staticmethod
    def backward(ctx, g):
        return torch.cat([g, g.new_zeros(1)])


def without_grad(p):
    with torch.no_grad():
        return p[:2]


def in_inference(p):
    with torch.inference_mode():
        return p.detach()[:2]


WRITTEN = {
    "leaf": lambda p: p, "view of leaf": lambda p: p[:2], "transposed leaf": lambda p: p.view(3, 1).t(), "unbind": lambda p: (p * 1).view(3, 1).unbind()[1],
    "unbind of leaf": lambda p: p.view(3, 1).unbind()[0], "view of split": lambda p: (p * 1).split(2)[0][1:], "custom": lambda p: Slice.apply(p * 1),
    "no grad": without_grad, "no grad, no leaf": lambda p: without_grad(p * 1), "inference": in_inference, "expand": lambda p: p[:1].expand(3),
    "detached": lambda p: p.detach()[1:], "view": lambda p: (p * 1)[:2], "steps": lambda p: (p * 1)[::2], "parameter": lambda p: torch.nn.Parameter(p.detach())}


@pytest.mark.parametrize("of_x", [False, True])
@pytest.mark.parametrize("kind", WRITTEN)
def test_a_refused_call_has_written_nothing(load, kind, of_x):
    """Refused where torch's own operator is refused, and then neither the elements nor the version have changed; otherwise with torch's gradients."""
    f, ops = load(REFUSED), torch.ops.refused
    calls = {"torch": lambda d, x: d.add_(x), "torch copy_": lambda d, x: d.copy_(x), "function": f.add_into, "ops": ops.add_into, "returned": f.add_,
             "keywords": lambda d, x: ops.add_into(x=x, d=d), "copy": lambda d, x: f.copy_to(x, d=d), "copy, ops": lambda d, x: ops.copy_to(d=d, x=x)}
    outcomes = {}
    for name, call in calls.items():
        p = torch.ones(3, requires_grad=True)
        d = WRITTEN[kind](p)
        x = torch.full(d.shape, 2.0, requires_grad=of_x)
        before, version = d.detach().clone(), d._version
        try:
            call(d, x)
        except RuntimeError:
            outcomes[name] = "refused"
            assert torch.equal(d.detach(), before) and d._version == version, name
            continue
        whole = d._base if d._is_view() and d._base.requires_grad else d
        gradients = torch.autograd.grad((d.sum() + whole.sum()), [t for t in (p, x) if t.requires_grad], allow_unused=True) if d.requires_grad else []
        outcomes[name] = d._version - version, d.tolist(), [None if g is None else g.tolist() for g in gradients]
    copies = {name for name in outcomes if "copy" in name}
    for name, outcome in outcomes.items():
        assert outcome == outcomes["torch copy_" if name in copies else "torch"], (name, outcomes)


@pytest.mark.parametrize("kind", [k for k in WRITTEN if k not in ("detached", "expand")])
@pytest.mark.parametrize("by_ops", [False, True])
def test_a_refused_list_has_written_nothing(load, kind, by_ops):
    """The second of two written tensors is refused: the first is as before."""
    f = load(REFUSED).add_each
    p = torch.ones(3, requires_grad=True)
    second = WRITTEN[kind](p)
    first = torch.zeros(second.shape)
    with pytest.raises(RuntimeError, match="refused::add_each: argument 'xs'"):
        (torch.ops.refused.add_each if by_ops else f)([first, second], torch.ones(second.shape, requires_grad=True))
    assert not first.any() and first._version == 0 and not first.requires_grad and second.eq(1).all() and second._version == 0
