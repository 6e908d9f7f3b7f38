"""Gradients: the same function of torch's own operators is the oracle."""
import gc
import os
import threading
import weakref

import pytest
import torch
import torch._dynamo.testing
from conftest import ROOT, compile_ops
from torch.utils._python_dispatch import TorchDispatchMode

from dovetail import _core
from dovetail.torch import register, unregister


def r(*shape, grad=True):
    return torch.randn(*(shape or (3,)), dtype=torch.float64, requires_grad=grad)


def after_add(op):
    """In place on a tensor that is not a leaf, and a use of the result."""
    def f(y, x):
        z = y * 1
        op(z, x, k=3.0)
        return z * z
    return f


def on_a_view(op):
    def f(y, x):
        z = y * 1
        op(z[1:], x[1:], k=3.0)
        return z * z
    return f


def into(g):
    def f(y, x):
        z = y * 1
        g.exp_into(x, z)
        return z * z
    return f


CHECKS = {
    "formula": lambda g: (g.times, 2, True),
    "declared tangent": lambda g: (g.times_declared, 2, True),
    "decomposition": lambda g: (g.times_native, 2, True),
    "formula of own operators": lambda g: (g.cosine, 1, True),
    "lists": lambda g: (lambda x, y, w: g.mixed([x, y], w, k=3.0)[:2], 3, False),
    "no optional": lambda g: (lambda x, y: g.mixed([x, y])[:2], 2, False),
    "the same tensor twice": lambda g: (lambda x: g.times(x, x), 1, True),
    "one sum": lambda g: (lambda x: g.spread(x, 3), 1, True),
    "written": lambda g: (after_add(g.add_), 2, False),
    "written and returned": lambda g: (after_add(g.add_back_), 2, False),
    "written through a view": lambda g: (on_a_view(g.add_), 2, False),
    "overwritten": lambda g: (into(g), 2, False),
}


@pytest.mark.parametrize("name", CHECKS)
def test_first_and_second_derivatives(grad, name):
    f, n, forward = CHECKS[name](grad)
    inputs = tuple(r() for _ in range(n))
    assert torch.autograd.gradcheck(f, inputs, check_forward_ad=forward)
    assert torch.autograd.gradgradcheck(f, inputs, check_fwd_over_rev=forward)


def test_native_results_are_the_same(grad):
    x, y = r(), r()
    for ours, theirs in ((grad.times, torch.mul), (grad.times_native, torch.mul), (lambda a, b: grad.cosine(a) * b, lambda a, b: a.cos() * b)):
        torch.testing.assert_close(ours(x, y), theirs(x, y))
        for a, b in zip(torch.autograd.grad(ours(x, y).sum(), (x, y)), torch.autograd.grad(theirs(x, y).sum(), (x, y))):
            torch.testing.assert_close(a, b)


# ---- what is kept, what is computed

def saved_by(f):
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t) or t, lambda t: t):
        f()
    return sizes


def test_only_what_the_formulas_name_is_kept(grad):
    x, y = r(), r()
    assert [t.data_ptr() for t in saved_by(lambda: grad.times(x, y))] == [x.data_ptr(), y.data_ptr()]
    assert [t.data_ptr() for t in saved_by(lambda: grad.times_left(x, y))] == [y.data_ptr()]
    assert saved_by(lambda: grad.spread(x, 2)) == []


def test_only_what_is_needed_is_computed(grad):
    class Count(TorchDispatchMode):
        seen = []

        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            self.seen.append(str(f))
            return f(*args, **(kwargs or {}))

    for a, b, count in ((r(), r(), 2), (r(), r(grad=False), 1)):
        out = grad.times(a, b).sum()
        with Count() as mode:
            mode.seen.clear()
            out.backward()
        assert mode.seen.count("aten.mul.Tensor") == count


def test_nothing_flows_back(grad):
    x, y = r(), r()
    total, product, count, least = grad.mixed([x, y])
    assert total.requires_grad and product.requires_grad and not count.requires_grad
    assert not least.requires_grad  # no formula names its gradient
    gx, gy = torch.autograd.grad(total.sum(), (x, y))
    assert gx.tolist() == gy.tolist() == [2, 2, 2]
    assert total.grad_fn.apply(None, None, None, None)[-2:] == (None, None)


def test_a_leaf_that_has_no_formula_wants_no_gradient(grad):
    x, y = r(), r()
    assert not grad.times_left(x.detach(), y).requires_grad
    assert grad.times_left(x, y).requires_grad
    assert torch.autograd.grad(grad.times_left(x, y).sum(), (x, y), allow_unused=True)[1] is None


def test_no_gradient_is_an_error_in_backward(grad):
    out = grad.times_bare(r(), r())
    with pytest.raises(RuntimeError, match="grad_ops::times_bare: it declares no gradient and no decomposition"):
        out.sum().backward()


def test_nothing_is_kept_alive(grad):
    x = r()
    out = grad.times(x, x)
    seen = weakref.ref(out)
    with torch.no_grad():
        grad.times(x, x)
    del out
    gc.collect()
    assert seen() is None


# ---- writes

def test_writes_are_counted_once(grad):
    for device in ("cpu", "meta"):
        y, x = torch.zeros(3, dtype=torch.float64, device=device), torch.ones(3, dtype=torch.float64, device=device)
        grad.add_(y, x)
        assert y._version == 1 and x._version == 0
        with torch.no_grad():
            grad.add_back_(y, x)
        assert y._version == 2
    y = torch.zeros(3, dtype=torch.float64)
    grad.add_(y, r())
    assert y._version == 1 and y.requires_grad
    with torch.inference_mode():
        grad.add_(y.detach(), x.new_zeros(3, device="cpu"))


def test_what_backward_needs_cannot_be_written(grad):
    x = r()
    z = x * 1
    out = z * z
    grad.add_(z, x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_leaves_cannot_be_written(grad):
    x = r()
    for f in (grad.add_, grad.add_back_, grad.add_bare_):
        before = x.detach().clone()
        with pytest.raises(RuntimeError, match="argument 'y': a leaf that requires grad cannot be written to in place"):
            f(x, r())
        assert torch.equal(x.detach(), before)
    with torch.no_grad():
        grad.add_(x, before)
    with pytest.raises(RuntimeError, match="requires grad, and this operator, which writes to its arguments, declares no gradient"):
        grad.add_bare_(x * 1, before)


# ---- views

def test_views_are_torchs_own(ops):
    x = r(3, 4)
    for ours, theirs in ((lambda t: ops.swapped(t, 0, 1), lambda t: t.transpose(0, 1)), (lambda t: ops.part(t, 1, 1, 2), lambda t: t.narrow(1, 1, 2)),
                         (ops.diagonal, torch.diagonal)):
        torch.testing.assert_close(torch.autograd.grad((ours(x) ** 2).sum(), x), torch.autograd.grad((theirs(x) ** 2).sum(), x))
        y, z = x.detach().clone(), x.detach().clone()
        w = r()[0]
        a, b = ours(y), theirs(z)
        assert a._is_view() and a._base is y
        a.mul_(w)
        b.mul_(w)
        assert y._version == z._version == 1 and y.requires_grad
        torch.testing.assert_close(torch.autograd.grad(y.sum(), w), torch.autograd.grad(z.sum(), w))


# ---- exceptions

class Stop(BaseException):
    pass


@pytest.mark.parametrize("error", [KeyError("key"), KeyboardInterrupt(), Stop("stop")], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("wanted", [False, True])
def test_exceptions_arrive_as_they_are(grad, error, wanted):
    class Raises(TorchDispatchMode):
        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            if "times" in str(f):
                raise error from ValueError("the cause")
            return f(*args, **(kwargs or {}))

    x = r(grad=wanted)
    with pytest.raises(type(error)) as caught, Raises():
        grad.times(x, x)
    assert caught.value is error and str(error.__cause__) == "the cause"


def test_errors_of_kernels_say_the_same_with_gradients(grad):
    for x, y in ((r(3), r(4)), (r(3, grad=False), r(4, grad=False))):
        with pytest.raises(RuntimeError, match=r"grad_ops::times: argument 'y': expected shape \[3\]"):
            grad.times(x, y)


# ---- graphs, hooks, checkpoints

def test_compiled(grad):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    f = torch.compile(lambda x, y: (grad.times(grad.cosine(x), y) * 2).sum(), backend=counter, fullgraph=True, dynamic=True)
    for n in (3, 5, 8):
        x, y = r(n), r(n)
        expected = torch.autograd.grad((x.cos() * y * 2).sum(), (x, y))
        torch.testing.assert_close(torch.autograd.grad(f(x, y), (x, y)), expected)
    assert counter.frame_count == 1


def test_symbolic_numbers_stay_symbols(grad):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    f = torch.compile(lambda x, n: grad.spread(x, n + 1).sum(), backend=counter, fullgraph=True, dynamic=True)
    for n in (3, 4, 7):
        x = r(4)
        assert torch.autograd.grad(f(x, n), x)[0].tolist() == [n + 1.0] * 4
    assert counter.frame_count == 1


def test_writes_in_a_graph(grad):
    torch._dynamo.reset()

    def f(x, y):
        z = y * 1
        grad.add_(z, x, 3.0)
        return z * z

    with torch.no_grad():
        x, y = r(), r()
        torch.testing.assert_close(torch.compile(f, backend="aot_eager", fullgraph=True)(x, y), f(x, y))


def test_checkpoint_and_compiled_autograd(grad):
    x, y = r(), r()
    expected = torch.autograd.grad((x * y).cos().sum(), (x, y))
    out = torch.utils.checkpoint.checkpoint(lambda x, y: grad.cosine(grad.times(x, y)), x, y, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), (x, y)), expected)
    torch._dynamo.reset()
    with torch._dynamo.compiled_autograd._enable(lambda graph: torch.compile(graph, backend="eager")):
        x.grad = None
        grad.cosine(grad.times(x, y)).sum().backward()
    torch.testing.assert_close(x.grad, expected[0])


# ---- threads, processes, lifetimes

def test_backward_in_another_thread_and_after_fork(grad):
    x = r()
    out, found = grad.times(x, x).sum(), []
    worker = threading.Thread(target=lambda: found.append(torch.autograd.grad(out, x)[0]))
    worker.start()
    worker.join()
    torch.testing.assert_close(found[0], 2 * x)
    child = os.fork()
    if not child:
        y = torch.ones(3, dtype=torch.float64, requires_grad=True)
        with torch.no_grad():
            right = grad.times(y, y).tolist() == [1, 1, 1]
        os._exit(0 if right and grad.times(y, y).requires_grad else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_backward_after_the_library_is_gone(tmp_path):
    source = (ROOT / "tests/torch/grad_ops.c").read_text().replace("DV_LIBRARY(grad_ops", "DV_LIBRARY(grad_gone")
    (tmp_path / "gone.c").write_text(source)
    library = _core.load(compile_ops(tmp_path / "gone.c", tmp_path / "gone.so"))
    register(library)
    x = r()
    by_torch, by_ours, held = torch.ops.grad_gone.times(x, x), torch.ops.grad_gone.cosine(x), torch.ops.grad_gone.times
    unregister(library)
    torch.testing.assert_close(torch.autograd.grad(by_torch.sum(), x)[0], 2 * x)  # its formula is of torch's operators
    with pytest.raises(Exception, match="grad_gone"):
        torch.autograd.grad(by_ours.sum(), x)
    with pytest.raises(RuntimeError, match="was unloaded"):
        held(x, x)
    _core.library_free(library)


def test_opcheck(grad):
    for name, args in (("times", (r(), r())), ("times_native", (r(), r())), ("spread", (r(), 2)), ("mixed", ([r(), r()], r())), ("add_", (r(grad=False), r(grad=False)))):
        torch.library.opcheck(getattr(grad, name).default, args)


def test_an_optional_argument_that_is_written():
    """rotary_embedding turns query, and key if there is one, in place."""
    import dovetail
    angle = torch.arange(10, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.1], dtype=torch.float64)
    cache, positions = torch.cat([angle.cos(), angle.sin()], 1), torch.tensor([[0, 5, 9], [1, 2, 3]])
    query, key = (torch.randn(2, 3, n, dtype=torch.float64, requires_grad=True) for n in (8, 4))

    def turned(query, key=None):
        query, key = query.clone(), None if key is None else key.clone()
        dovetail.ops.rotary_embedding(positions, query, key, 4, cache, True)
        return query if key is None else (query, key)

    for f, inputs in ((turned, (query, key)), (turned, (query,)), (lambda q, k: turned(q, k)[1], (query, key))):
        assert torch.autograd.gradcheck(f, inputs) and torch.autograd.gradgradcheck(f, inputs)


# ---- unusual schemas (more_ops.c), by the function and by torch.ops

@pytest.fixture(params=["function", "torch.ops"])
def either(request, more):
    return more if request.param == "function" else torch.ops.more_ops


def gradient_of(f):
    x = torch.ones(3, requires_grad=True)
    return torch.autograd.grad(f(x).sum(), x)[0].tolist()


def test_a_default_that_is_a_dtype(either):
    assert gradient_of(either.cast) == [2, 2, 2]
    assert torch.func.vjp(either.cast, torch.ones(3))[1](torch.ones(3))[0].tolist() == [2, 2, 2]
    assert either.cast(torch.ones(3, device="meta")).dtype == torch.float32
    assert gradient_of(torch.compile(either.cast, fullgraph=True, backend="aot_eager")) == [2, 2, 2]
    assert torch.vmap(either.cast)(torch.ones(2, 3)).tolist() == [[2, 2, 2]] * 2


def test_one_tensor_and_a_native_form(either):
    assert gradient_of(either.native_only) == [2, 2, 2]
    assert torch.equal(torch.func.hessian(lambda x: (either.native_only(x) ** 2).sum())(torch.ones(3)), 8 * torch.eye(3))
    assert gradient_of(either.asks) == [2, 2, 2]


def test_a_result_that_is_an_argument_under_transforms(either):
    def f(x):
        return either.scale_(x * 1, 5.0)

    x = torch.ones(3)
    assert gradient_of(f) == [5, 5, 5]
    assert torch.func.grad(lambda x: f(x).sum())(x).tolist() == [5, 5, 5]
    assert torch.func.vjp(f, x)[1](x)[0].tolist() == [5, 5, 5]
    assert torch.equal(torch.func.jacrev(f)(x), 5 * torch.eye(3))
    assert torch.func.vmap(torch.func.grad(lambda x: (f(x) ** 2).sum()))(torch.ones(2, 3)).tolist() == [[50, 50, 50]] * 2
    assert torch.func.grad(lambda x: torch.func.grad(lambda x: (f(x) ** 2).sum())(x).sum())(x).tolist() == [50, 50, 50]


def test_saved_tensors_may_be_written(either):
    """torch keeps what was saved by its version: a write is counted after it."""
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        for saved in (torch.ones(3), torch.ones(3, requires_grad=True) * 1):
            x = torch.ones(3, requires_grad=True)
            out = x * saved
            either.scale_(saved, 5.0)
            assert torch.autograd.grad(out.sum(), x)[0].tolist() == [1, 1, 1] and saved[0] == 5
