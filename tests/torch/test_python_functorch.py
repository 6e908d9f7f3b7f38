"""Operators written in Python under torch.func's transforms and in nested compile regions: the same function without an operator is the oracle."""
import numpy
import pytest
import torch
from torch.func import functionalize, grad, grad_and_value, jacrev, jvp, vjp, vmap

import dovetail


@pytest.fixture(scope="module")
def ops():
    @dovetail.custom_op("python_functorch::scale", mutates_args=())
    def scale(x: torch.Tensor, by: float) -> torch.Tensor:
        return x.detach() * by

    @dovetail.custom_op("python_functorch::sin", mutates_args=())
    def sin(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(numpy.sin(x.detach().numpy()))

    @dovetail.custom_op("python_functorch::cos", mutates_args=())
    def cos(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(numpy.cos(x.detach().numpy()))

    @dovetail.custom_op("python_functorch::triple", mutates_args=())
    def triple(x: torch.Tensor, *, k: int = 3) -> torch.Tensor:
        return x * k

    @dovetail.custom_op("python_functorch::two", mutates_args=())
    def two(xs: list[torch.Tensor], b: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        return xs[0] * xs[1], xs[0] + (0 if b is None else b)

    @dovetail.custom_op("python_functorch::multiples", mutates_args=())
    def multiples(x: torch.Tensor, n: int) -> list[torch.Tensor]:
        return [x * (i + 1) for i in range(n)]

    @dovetail.custom_op("python_functorch::add_to", mutates_args=("d",))
    def add_to(d: torch.Tensor, x: torch.Tensor) -> None:
        d.add_(x)

    @dovetail.custom_op("python_functorch::add_and_scale", mutates_args=("d",))
    def add_and_scale(d: torch.Tensor, x: torch.Tensor, by: int = 2) -> torch.Tensor:
        d.add_(x)
        return x * by

    scale.register_fake(lambda x, by: torch.empty_like(x))
    add_and_scale.register_fake(lambda d, x, by=2: torch.empty_like(x))
    for f in (sin, cos):
        f.register_fake(torch.empty_like)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    def keep_by(ctx, inputs, output):
        ctx.by = inputs[1]

    def keep_two(ctx, inputs, output):
        ctx.save_for_backward(*inputs[0])
        ctx.given = inputs[1] is not None

    def two_backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return [g * y + h, g * x], h if ctx.given else None

    scale.register_autograd(lambda ctx, g: (g * ctx.by, None), setup_context=keep_by)
    sin.register_autograd(lambda ctx, g: g * cos(*ctx.saved_tensors), setup_context=keep)
    cos.register_autograd(lambda ctx, g: -g * sin(*ctx.saved_tensors), setup_context=keep)
    triple.register_autograd(lambda ctx, g: g * 3)
    two.register_autograd(two_backward, setup_context=keep_two)
    multiples.register_autograd(lambda ctx, gs: (sum(g * (i + 1) for i, g in enumerate(gs)), None))
    return {"scale": lambda x: scale(x, 2.0), "sin": sin, "triple": triple, "two": lambda x: sum(two([x, Y], Y)),
            "multiples": lambda x: sum(multiples(x, 2)), "add_to": add_to, "add_and_scale": add_and_scale}


X, Y = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([1.5, 0.25, -0.5])
PLAIN = {"scale": lambda x: x * 2.0, "sin": torch.sin, "triple": lambda x: x * 3, "two": lambda x: x * Y + x + Y,
         "multiples": lambda x: x * 3}


def outside(f):
    """Returns a gradient through the result of a transform, taken after the transform has ended."""
    x = X.clone().requires_grad_()
    value, backward = vjp(f, x)
    return torch.autograd.grad(backward(torch.ones(3))[0].sum() + value.sum(), x, allow_unused=True)


TRANSFORMS = {
    "grad": lambda f: grad(lambda x: f(x).sum())(X), "grad twice": lambda f: grad(lambda x: grad(lambda x: (f(x) ** 2).sum())(x).sum())(X),
    "vjp": lambda f: vjp(f, X)[1](torch.ones(3)), "jacrev": lambda f: jacrev(f)(X), "jacrev twice": lambda f: jacrev(jacrev(lambda x: (f(x) ** 2).sum()))(X),
    "value": lambda f: grad_and_value(lambda x: f(x).sum())(X), "outside": outside, "vmap grad": lambda f: vmap(grad(lambda x: f(x).sum()))(torch.stack([X, Y])),
    "grad vmap": lambda f: grad(lambda x: vmap(f)(x).sum())(torch.stack([X, Y])),
    "compiled": lambda f: torch.compile(lambda x: grad(lambda x: f(x).sum())(x), backend="aot_eager", fullgraph=True)(X)}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", PLAIN)
def test_transforms(ops, name, transform):
    if "vmap" in transform and (name in ("two", "multiples")):
        pytest.skip("torch.vmap has no loop for operators with lists or several results: register_vmap")
    if transform == "compiled" and name not in ("scale", "sin"):
        pytest.skip("has no fake function")
    torch._dynamo.reset()
    found, expected = TRANSFORMS[transform](ops[name]), TRANSFORMS[transform](PLAIN[name])
    torch.testing.assert_close(found, expected)


def test_a_tangent_is_never_dropped(ops):
    with pytest.raises(NotImplementedError, match="python_functorch::scale: an argument has a forward-mode tangent"):
        jvp(ops["scale"], (X,), (Y,))
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match="python_functorch::sin: an argument has a forward-mode tangent"):
            ops["sin"](torch.autograd.forward_ad.make_dual(X, Y))
        torch.testing.assert_close(ops["sin"](X), X.sin())


def written(ops):
    def both(d, x):
        ops["add_to"](d, x)
        return d + ops["add_and_scale"](d, x, 3)

    def view(d, x):
        ops["add_to"](d[1:], x[1:])
        return d + 1

    return both, view


def plain(which):
    def both(d, x):
        d.add_(x)
        return d + x + x * 3 if d.add_(x) is None else d + x * 3

    def view(d, x):
        d[1:].add_(x[1:])
        return d + 1

    return (both, view)[which]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", ["functionalize", "aot_eager", "inductor"])
def test_written_arguments(ops, how, which):
    """Operators that write run in torch.func.functionalize, and twice in one program as a nested region."""
    f, twice = written(ops)[which], how != "functionalize"
    d, e = torch.arange(3.0), torch.arange(3.0)
    expected = plain(which)(e, X) + (plain(which)(e, X) if twice else 0)
    if twice:
        torch._dynamo.reset()
        region = torch.compiler.nested_compile_region(f)
        with torch.no_grad():
            found = torch.compile(lambda d, x: region(d, x) + region(d, x), backend=how, fullgraph=True)(d, X)
    else:
        found = functionalize(f)(d, X)
    torch.testing.assert_close((found, d), (expected, e))


def test_gradients_of_nested_regions(ops):
    torch._dynamo.reset()
    region = torch.compiler.nested_compile_region(lambda d, x: ops["sin"](x) * d)
    x = X.clone().requires_grad_()
    out = torch.compile(lambda d, x: (region(d, x) + region(d, x)).sum(), backend="aot_eager", fullgraph=True)(Y, x)
    torch.testing.assert_close(torch.autograd.grad(out, x)[0], 2 * X.cos() * Y)
