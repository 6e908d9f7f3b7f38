"""torch.func and forward mode over gradients: equal to the same function of torch's own operators, or refused."""
import pytest
import torch
import torch.autograd.forward_ad as fw
from torch.func import grad as grad_of, hessian, jacfwd, jacrev, jvp, vjp, vmap


def r(grad=True):
    return torch.randn(3, dtype=torch.float64, requires_grad=grad)


PAIRS = {
    "formula": (lambda g: g.times, lambda x, y: x * y),
    "declared tangent": (lambda g: g.times_declared, lambda x, y: x * y),
    "decomposition": (lambda g: g.times_native, lambda x, y: x * y),
    "own operators": (lambda g: lambda x, y: g.cosine(x) * y, lambda x, y: x.cos() * y),
    "both": (lambda g: lambda x, y: g.times(g.cosine(x), g.times_native(x, y)), lambda x, y: x.cos() * x * y),
}


def total(f):
    return lambda *xs: (f(*xs) ** 3).sum()


TRANSFORMS = {
    "grad": lambda f, x, y: grad_of(total(f), (0, 1))(x, y),
    "grad of grad": lambda f, x, y: grad_of(lambda x, y: grad_of(total(f))(x, y).sum(), (0, 1))(x, y),
    "third": lambda f, x, y: grad_of(lambda x: grad_of(lambda x: grad_of(total(f))(x, y).sum())(x).sum())(x),
    "hessian": lambda f, x, y: hessian(total(f), (0, 1))(x, y),
    "jacrev": lambda f, x, y: jacrev(f, (0, 1))(x, y),
    "jacfwd": lambda f, x, y: jacfwd(f, (0, 1))(x, y),
    "jacrev of jacrev": lambda f, x, y: jacrev(jacrev(f))(x, y),
    "jacfwd of jacfwd": lambda f, x, y: jacfwd(jacfwd(f))(x, y),
    "vjp": lambda f, x, y: vjp(f, x, y)[1](x + y),
    "jvp": lambda f, x, y: jvp(f, (x, y), (y, x)),
    "jvp of jvp": lambda f, x, y: jvp(lambda x: jvp(lambda x: f(x, y), (x,), (y,))[1], (x,), (x,)),
    "jvp of grad": lambda f, x, y: jvp(lambda x: grad_of(total(f))(x, y), (x,), (y,)),
    "grad of jvp": lambda f, x, y: grad_of(lambda x: jvp(lambda x: f(x, y), (x,), (y,))[1].sum())(x),
    "vmap of grad": lambda f, x, y: vmap(grad_of(total(f), (0, 1)))(torch.stack([x, y]), torch.stack([y, x])),
    "grad of vmap": lambda f, x, y: grad_of(lambda x: vmap(f, (0, None))(torch.stack([x, y]), y).sum())(x),
    "vmap of jvp": lambda f, x, y: vmap(lambda t: jvp(f, (x, y), (t, x))[1])(torch.stack([x, y])),
    "one level of constants": lambda f, x, y: grad_of(lambda x: grad_of(lambda y: f(x, y).sum())(y).sum())(x),
    "autograd outside": lambda f, x, y: torch.autograd.grad(grad_of(total(f))(x, y).sum(), (x, y)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("pair", PAIRS)
def test_equal_to_torchs_own(grad, pair, transform):
    ours, theirs = PAIRS[pair]
    x, y = r(), r()
    run = TRANSFORMS[transform]
    torch.testing.assert_close(run(ours(grad), x, y), run(theirs, x, y))


def test_forward_mode_over_and_under_backward(grad):
    x, y, t = r(), r(), r(grad=False)
    for f in (grad.times, grad.times_declared, grad.times_native, torch.mul):
        with fw.dual_level():
            out = f(fw.make_dual(x, t), y)
            tangent = fw.unpack_dual(out).tangent
            over, = torch.autograd.grad(tangent.sum(), y, retain_graph=True)
            under, = torch.autograd.grad(fw.unpack_dual(out).primal.sum(), y, create_graph=True)
        torch.testing.assert_close(tangent, t * y)
        torch.testing.assert_close(over, t)
        torch.testing.assert_close(under, x)


def test_a_tangent_is_never_dropped(grad, ops):
    x = torch.ones(3, dtype=torch.float64)
    with fw.dual_level():
        dual = fw.make_dual(x, x)
        with pytest.raises(NotImplementedError, match="grad_ops::times_bare: an argument has a forward-mode tangent"):
            grad.times_bare(dual, x)
        for f in (grad.add_, grad.add_bare_):
            with pytest.raises(NotImplementedError, match="operator that writes to its arguments are not supported"):
                f(dual, x)
        with pytest.raises(NotImplementedError, match="has lists of tensors: declare a tangent"):
            grad.mixed([dual, x])
        assert fw.unpack_dual(ops.part(dual, 0, 1, 2)).tangent.tolist() == [1, 1]
        assert fw.unpack_dual(grad.times(x, x)).tangent is None
    with pytest.raises(NotImplementedError, match="times_bare"):
        jvp(grad.times_bare, (x, x), (x, x))
    assert not grad.times_bare(x, x).requires_grad


def test_no_gradient_is_an_error_here_too(grad):
    x = torch.ones(3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="grad_ops::times_bare: it declares no gradient"):
        grad_of(lambda x: grad.times_bare(x, x).sum())(x)


def test_compiled_transforms(grad):
    torch._dynamo.reset()
    x, y = r(grad=False), r(grad=False)
    f = torch.compile(lambda x, y: grad_of(lambda x: (grad.times(x, y) ** 2).sum())(x), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(f(x, y), 2 * x * y * y)


@pytest.mark.parametrize("pair", PAIRS)
def test_leaves_that_require_nothing_outside(grad, pair):
    """What torch.func differentiates need not require a gradient outside of it; vjp's function may run after its level is gone."""
    ours, theirs = PAIRS[pair]
    x, y, t = r(False), r(False), r(False)
    for f in (lambda f: vjp(f, x, y)[1](t), lambda f: hessian(total(f))(x, y), lambda f: jvp(lambda x: vjp(f, x, y)[1](t)[0], (x,), (y,)),
              lambda f: vmap(vjp(f, x, y)[1])(torch.stack([x, t]))):
        torch.testing.assert_close(f(ours(grad)), f(theirs))
