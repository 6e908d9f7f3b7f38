"""Gradients from the declaration."""
import pytest
import torch


def test_formula(ops):
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ops.cube, (x,)) and torch.autograd.gradgradcheck(ops.cube, (x,))


def test_native_form_where_none_is_written(ops):
    x, y = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(ops.gated, (x, y)) and torch.autograd.gradgradcheck(ops.gated, (x, y))
    ops.gated(x, y.detach()).sum().backward()
    assert torch.allclose(x.grad, torch.sigmoid(y))


def test_several_results_and_unused_ones(ops):
    x = torch.randn(6, requires_grad=True)
    low, high = ops.halves(x)
    (low * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2, 0, 0, 0]


def test_only_what_is_needed_is_saved(ops):
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        ops.cube(x)
        ops.halves(torch.randn(6, requires_grad=True))
    assert sizes == [4]


def test_no_gradient_is_dropped_in_silence(ops):
    """An operator that writes has no gradient: an error, also while tracing."""
    y = torch.randn(3, requires_grad=True) * 1
    message = "torch_ops::inc: argument 'x' requires grad, and this operator, which writes"
    with pytest.raises(RuntimeError, match=message):
        ops.inc(y)

    def f(x):
        y = x * 1
        ops.inc(y)
        return y.sum()

    torch._dynamo.reset()
    for backend in ("eager", "aot_eager"):
        with pytest.raises(Exception, match=message):
            torch.compile(f, backend=backend, fullgraph=True)(torch.randn(3, requires_grad=True))
    with torch.no_grad():
        assert torch.compile(f, backend="aot_eager", fullgraph=True)(torch.zeros(3, requires_grad=True)).item() == 3


def test_in_a_graph(ops):
    torch._dynamo.reset()
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)

    def f(x):
        return (ops.gated(ops.cube(x), x) * 2).sum()

    expected, = torch.autograd.grad(f(x), x)
    found, = torch.autograd.grad(torch.compile(f, fullgraph=True, dynamic=True, backend="aot_eager")(x), x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name, make", [
    ("cube", lambda: (torch.randn(3, dtype=torch.float64, requires_grad=True),)),
    ("gated", lambda: tuple(torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))),
    ("halves", lambda: (torch.randn(6, requires_grad=True),)),
    ("like", lambda: (torch.randn(3, 2).t(),)),
    ("badd", lambda: (torch.zeros(3, 1), torch.zeros(2).int())),
    ("cat", lambda: ([torch.randn(3), torch.randn(2)], 0)),
    ("inc", lambda: (torch.randn(3),)),
    ("inc_all", lambda: ([torch.randn(3), torch.randn(2)],)),
    ("pick", lambda: (torch.randn(2, 3), torch.randn(3))),
    ("total", lambda: (torch.randn(3),)),
])
def test_opcheck(ops, name, make):
    torch.library.opcheck(getattr(ops, name).default, make())


def test_what_aten_does_not_have():
    """Base operators with a name of their own, as formulas call them: of the gradient of base::cat."""
    from dovetail.torch.formula import TORCH
    xs = [torch.randn(2, n, requires_grad=True) for n in (1, 0, 3, 2, 5)]
    out = torch.cat(xs, 1)
    grad = torch.randn_like(out)
    for found, expected in zip(TORCH.lookup("base::cat_backward")(grad, xs, 1), torch.autograd.grad(out, xs, grad)):
        assert torch.equal(found, expected)


LONG = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; int64_t n; dv_tensor *out; };
DV_OPERATOR(f, struct f, (x, n, out), .schema = "f(Tensor x, int n) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32", .native = "%s");
DV_LIBRARY(long_formulas, &dv_op_f);
"""


@pytest.mark.parametrize("native, n, expected", [
    ("if(n in " + " ".join(map(str, range(1000))) + ", x, -x)", 999, 2), ("if(n in " + " ".join(map(str, range(1000))) + ", x, -x)", 1000, -2),
    ("-" * 198 + "x", 0, 2), (" + ".join(["x"] * 198), 0, 396), ("exp(x) * 0 + " * 60 + "exp(x) / exp(x)", 0, 1)], ids=["in", "not in", "negations", "sum", "shared"])
def test_long_formulas(load, native, n, expected):
    """Python takes 200 nested parentheses."""
    library = load(LONG % native)
    assert (torch.vmap(library.f, in_dims=(0, None))(torch.full((3, 1), 2.0), n) == expected).all()
    assert (library.f(torch.full((3,), 2.0), n) == expected).all()
