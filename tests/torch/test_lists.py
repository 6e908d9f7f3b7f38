"""Lists whose tensors share their shapes in pairs, and lists that are returned: torch._foreach_* and torch.optim are the oracles."""
import numpy
import pytest
import torch

from conftest import ROOT, compile_ops

import dovetail

SHAPES = [(2, 3), (4,), (), (0, 5), (3, 1, 2)]


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    return dovetail.load(compile_ops(ROOT / "tests/torch/list_ops.c", tmp_path_factory.mktemp("list_ops") / "list_ops.so"))


@pytest.fixture
def ops(lib):
    lib.foreach_add  # registers
    return torch.ops.list_ops


def randn(**options):
    return [torch.randn(s, **options) for s in SHAPES]


def equal(a, b):
    return len(a) == len(b) and all(torch.allclose(x, y) and x.shape == y.shape for x, y in zip(a, b))


def test_numpy(lib):
    xs, ys = ([numpy.random.random_sample(s).astype("f") if s else numpy.float32(1).reshape(()) for s in SHAPES] for _ in range(2))
    out = lib.foreach_add(xs, ys, alpha=2)
    assert isinstance(out, list) and all(numpy.allclose(o, x + 2 * y) and o.shape == x.shape for o, x, y in zip(out, xs, ys))
    parts = lib.split_copy(numpy.arange(14, dtype="f").reshape(7, 2), 3)
    assert [p.shape for p in parts] == [(3, 2), (3, 2), (1, 2)] and parts[2].tolist() == [[12, 13]]
    assert lib.split_copy(numpy.zeros((0, 2), "f"), 3) == []


def test_eager(lib, ops):
    xs, ys = randn(), randn()
    expected = torch._foreach_add(xs, ys, alpha=3)
    assert equal(lib.foreach_add(xs, ys, alpha=3), expected)
    assert equal(ops.foreach_add(xs, ys, alpha=3), expected)
    x = torch.randn(7, 2)
    assert equal(ops.split_copy(x, 3), torch.split_copy(x, 3))


@pytest.mark.parametrize("xs, ys, words", [
    (["2,3", "4"], ["2,3"], "argument 'ys': expected as many tensors as 'xs' has, 2, found 1"),
    (["2,3", "4"], ["2,3", "5"], r"argument 'ys\[1\]': expected shape \[4\] \('\*s{i}' is bound by 'xs\[1\]'\), found \[5\]"),
    ([], [], "argument 'xs': expected at least one tensor, found an empty list")])
def test_what_does_not_fit(lib, ops, xs, ys, words):
    xs, ys = ([torch.zeros([int(n) for n in s.split(",")]) for s in lists] for lists in (xs, ys))
    with pytest.raises((RuntimeError, ValueError), match=words):
        ops.foreach_add(xs, ys)
    with pytest.raises(ValueError, match=words):
        lib.foreach_add([x.numpy() for x in xs], [y.numpy() for y in ys])
    if xs:
        with torch._subclasses.FakeTensorMode() as mode, pytest.raises((RuntimeError, ValueError), match=words):
            ops.foreach_add([mode.from_tensor(x) for x in xs], [mode.from_tensor(y) for y in ys])


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("kernel, words", [
    (lambda x, size: [x[:4], x[4:]], "'parts': the Python kernel gives a list of 2, but it must be a list of 3 tensors"),
    (lambda x, size: list(x.split([2, 2, 3])), r"'parts\[0\]': the Python kernel gives f32\[2, 2\], but it must be f32\[3, 2\]"),
    (lambda x, size: [*x.split(3)[:2], x[:1].double()], r"'parts\[2\]': the Python kernel gives f64\[1, 2\], but it must be f32\[1, 2\]"),
    (lambda x, size: [None, *x.split(3)[1:]], r"'parts\[0\]': the Python kernel gives None, but it must be f32\[3, 2\]"),
    (lambda x, size: x, "'parts': the Python kernel gives Tensor, but it must be a list of 3 tensors"),
    (lambda x, size: list(x.split(3)), None)])
def test_a_python_kernel(lib, ops, kernel, words):
    x = torch.arange(14.).reshape(7, 2)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: ops.split_copy(x, 3), fullgraph=True)
    library = torch.library.Library("list_ops", "IMPL")
    library.impl("split_copy", kernel, "CPU")
    for f in (ops.split_copy, lib.split_copy, lambda x, size: compiled(x)):
        if words:
            with pytest.raises(RuntimeError, match="list_ops::split_copy: result " + words):
                f(x, 3)
        else:
            parts = f(x, 3)
            assert equal(parts, torch.split_copy(x, 3)) and x.data_ptr() not in [p.data_ptr() for p in parts]
    library._destroy()


def test_fake(ops):
    with torch._subclasses.FakeTensorMode() as mode:
        out = ops.foreach_add([mode.from_tensor(x) for x in randn()], [mode.from_tensor(x) for x in randn()])
        assert [tuple(o.shape) for o in out] == SHAPES
        assert [tuple(p.shape) for p in ops.split_copy(mode.from_tensor(torch.ones(7, 2)), 3)] == [(3, 2), (3, 2), (1, 2)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(ops, dynamic):
    torch._dynamo.reset()
    f = torch.compile(lambda xs, ys: [o * 2 for o in ops.foreach_add(xs, ys, alpha=2)], fullgraph=True, dynamic=dynamic)
    xs, ys = randn(), randn()
    assert equal(f(xs, ys), [2 * (x + 2 * y) for x, y in zip(xs, ys)])
    g = torch.compile(lambda x: [p.sum() for p in ops.split_copy(x, 3)], fullgraph=True, dynamic=dynamic)
    for n in (7, 9):
        x = torch.randn(n, 2)
        assert equal(g(x), [p.sum() for p in torch.split(x, 3)])


def test_gradient(ops):
    xs, ys = randn(requires_grad=True), randn(requires_grad=True)
    ours = torch.autograd.grad(sum((o * o).sum() for o in ops.foreach_add(xs, ys, alpha=3)), xs + ys)
    theirs = torch.autograd.grad(sum((o * o).sum() for o in torch._foreach_add(xs, ys, alpha=3)), xs + ys)
    assert equal(ours, theirs)


def test_gradient_of_one_result(ops):
    """Zeros flow back where nothing does."""
    xs, ys = randn(requires_grad=True), randn(requires_grad=True)
    ours = torch.autograd.grad(ops.foreach_add(xs, ys, alpha=3)[1].sum(), [xs[0], xs[1], ys[1]])
    assert equal(ours, [torch.zeros(2, 3), torch.ones(4), 3 * torch.ones(4)])


def test_compiled_gradient(ops):
    torch._dynamo.reset()
    xs, ys = [torch.randn(2, 3, requires_grad=True), torch.randn(4, requires_grad=True)], [torch.randn(2, 3), torch.randn(4)]
    f = torch.compile(lambda xs, ys: sum((o * o).sum() for o in ops.foreach_add(xs, ys, alpha=3)), fullgraph=True)
    assert equal(torch.autograd.grad(f(xs, ys), xs), [2 * (x + 3 * y) for x, y in zip(xs, ys)])


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_adamw(lib, amsgrad, compiled):
    """Ten steps of torch.optim.AdamW."""
    torch._dynamo.reset()
    params = [torch.nn.Parameter(p) for p in randn()]
    ours, optimizer = [p.detach().clone() for p in params], torch.optim.AdamW(params, lr=.1, weight_decay=.3, amsgrad=amsgrad)
    state = [[torch.zeros_like(p) for p in ours] for _ in range(3)]

    def step(grads, n):
        torch.ops.list_ops.adamw_(ours, grads, state[0], state[1], state[2] if amsgrad else [], n, .1, .9, .999, 1e-8, .3, amsgrad)
    lib.adamw_  # registers
    run = torch.compile(step, fullgraph=True) if compiled else step
    for n in range(1, 4 if compiled else 11):
        grads = randn()
        for p, g in zip(params, grads):
            p.grad = g
        optimizer.step()
        run(grads, n)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(ours, params))
