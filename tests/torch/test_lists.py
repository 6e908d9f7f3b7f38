"""Lists whose tensors share their shapes in pairs, and lists that are returned: torch._foreach_* and torch.optim are the oracles."""
import numpy
import pytest
import torch

from conftest import ROOT, compile_ops

import dovetail

SHAPES = [(2, 3), (4,), (), (0, 5), (3, 1, 2)]

BACKENDS = [(False, "aot_eager"), (True, "inductor"), pytest.param(False, "inductor", marks=pytest.mark.slow)]


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


@pytest.mark.parametrize("dynamic, backend", BACKENDS)
def test_compile(ops, dynamic, backend):
    torch._dynamo.reset()
    f = torch.compile(lambda xs, ys: [o * 2 for o in ops.foreach_add(xs, ys, alpha=2)], backend=backend, fullgraph=True, dynamic=dynamic)
    xs, ys = randn(), randn()
    assert equal(f(xs, ys), [2 * (x + 2 * y) for x, y in zip(xs, ys)])
    g = torch.compile(lambda x: [p.sum() for p in ops.split_copy(x, 3)], backend=backend, fullgraph=True, dynamic=dynamic)
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


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_without_a_tensor(lib, ops, backend):
    """No argument says that the results are torch's."""
    for call in (lambda: ops.ranges(None, 3), lambda: lib.ranges(None, 3)):
        for fullgraph in (True, False):
            torch._dynamo.reset()
            f = torch.compile(lambda x: [x.sum() + y for y in call()], backend=backend, fullgraph=fullgraph)
            assert [y.tolist() for y in f(torch.ones(3))] == [[], [3], [3, 4]]


@pytest.mark.parametrize("array", [numpy.arange, torch.arange, lambda n: torch.arange(2 * n)[:n], lambda n: torch.empty(n, device="meta")])
def test_views_stay_inside(lib, ops, array):
    """Also where the argument is itself a part of more memory, and without memory."""
    for f in (lib.windows, ops.windows) if isinstance(array(1), torch.Tensor) else (lib.windows,):
        assert [len(v) for v in f(array(5), 3)] == [2, 2]
        for n, step, wrong in ((5, 4, r"out\[1\]': expected a view inside 'x', which has elements 0 to 4, found elements 4 to 5"), (1, 0, r"out\[0\]"),
                               (0, 0, "elements 0 to -1"), (5, -1, "found elements -1 to 0"), (5, 2**63 - 1, "out")):
            with pytest.raises((ValueError, RuntimeError), match=wrong):
                f(array(n), step)


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


MIXED = [torch.arange(6.0).reshape(2, 3), torch.arange(4, dtype=torch.int8), torch.tensor(True), torch.ones(2, 0, 3, dtype=torch.float64)]


def same(a, b):
    """Also in dtypes and strides."""
    return len(a) == len(b) and all(torch.equal(x, y) and (x.dtype, x.stride()) == (y.dtype, y.stride()) for x, y in zip(a, b))


def arrays(xs):
    return [x.numpy() for x in xs]


def test_each_tensor_has_its_own_dtype_strides_and_sizes(lib, ops):
    turned = [x.t() if x.dim() == 2 else x for x in MIXED]
    twice = [torch.cat([x, x]) for x in (torch.randn(2, 3), torch.randn(4))]
    for f in (lib, ops):
        assert same(f.clone_all(turned), [x.contiguous() for x in turned])
        assert same(f.like_all(turned), [x.clone() for x in turned])
        assert same(f.twice([x[:len(x) // 2] for x in twice]), twice)
    assert same([torch.from_numpy(a) for a in lib.clone_all(arrays(turned))], [x.contiguous() for x in turned])
    assert [a.strides for a in lib.like_all(arrays(turned[:3]))] == [a.strides for a in arrays(turned[:3])]
    for f, expected in (ops.clone_all, [x.contiguous() for x in turned]), (ops.like_all, turned), (ops.twice, [torch.cat([turned[0]] * 2)]):
        expected = [(x.shape, x.dtype, x.stride()) for x in expected]
        with torch._subclasses.FakeTensorMode() as mode:
            assert [(x.shape, x.dtype, x.stride()) for x in f([mode.from_tensor(x) for x in turned[:len(expected)]])] == expected


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_views(lib, ops, dim):
    x = torch.arange(24.0).reshape(2, 3, 4)
    for f in (lib.unbind, ops.unbind):
        y = x.clone()
        parts = f(y, dim)
        assert same(parts, torch.unbind(y, dim)) and all(p._base is y for p in parts)
        parts[1].zero_()
        assert y._version == 1 and torch.equal(y, x.index_fill(dim, torch.tensor([1]), 0))
    a = x.numpy().copy()
    parts = lib.unbind(a, dim)
    assert same([torch.from_numpy(p) for p in parts], torch.unbind(x, dim)) and all(p.base is a for p in parts)
    with pytest.raises((RuntimeError, ValueError), match="dim"):
        ops.unbind(x, 3)
    expected = [(p.shape, p.stride()) for p in torch.unbind(x, dim)]
    with torch._subclasses.FakeTensorMode() as mode:
        assert [(p.shape, p.stride()) for p in ops.unbind(mode.from_tensor(x), dim)] == expected


def test_views_keep_what_they_are_views_of(lib):
    """The list's tensors are freed before the views are read."""
    parts = [lib.transpose_all([numpy.full((50, 70), k, "f"), numpy.full((7, 30), k, "int8")]) for k in range(30)]
    assert all((a == k).all() and (b == k).all() and a.shape == (70, 50) for k, (a, b) in enumerate(parts))
    parts = [lib.transpose_all([torch.full((50, 70), float(k))]) for k in range(30)]
    assert all((a == k).all() and a.shape == (70, 50) for k, (a,) in enumerate(parts))


@pytest.mark.parametrize("dynamic, backend", BACKENDS)
def test_compiled_views(ops, dynamic, backend):
    def f(x):
        y = x * 1
        parts = ops.unbind(y)
        parts[0].add_(1)
        return y, [p * 2 for p in ops.transpose_all([y, x])], [p * 2 for p in ops.like_all([x.t(), x[0]])]

    for n in (2, 5) if dynamic else (2, 5, 7):
        x = torch.randn(n, 3)
        torch._dynamo.reset()
        (a, b, c), (d, e, g) = f(x), torch.compile(f, backend=backend, fullgraph=True, dynamic=dynamic)(x)
        assert torch.equal(a, d) and equal(b, e) and equal(c, g)


def test_gradient_of_views(ops):
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    ours = sum((k + 1) * (p * p).sum() for k, p in enumerate(ops.unbind(x, 1)))
    assert torch.allclose(torch.autograd.grad(ours, x)[0], 2 * x * torch.arange(1.0, 5.0))
    assert torch.allclose(torch.autograd.grad((ops.transpose_all([x, y])[1] ** 2).sum(), y)[0], 2 * y)


@pytest.mark.parametrize("name, arguments", [
    ("unbind", lambda x: (x,)), ("like_all", lambda x: ([x.t(), x[0]],)), ("clone_all", lambda x: ([x, x[0]],)), ("twice", lambda x: ([x, x[0]],)),
    ("transpose_all", lambda x: ([x, x * 2],)), ("scale_all_", lambda x: ([x.clone(), x[0].clone()], 2.0))])
def test_opcheck(ops, name, arguments):
    torch.library.opcheck(getattr(ops, name).default, arguments(torch.randn(2, 3)))


def test_functional_form(lib):
    form = dovetail.find("list_ops::scale_all_").functional()
    xs = [numpy.arange(6, dtype="f").reshape(2, 3).T, numpy.ones(4, "f")]
    out = form(xs, 3.0)
    assert len(out) == 2 and all((o == 3 * x).all() and o.strides == x.strides for o, x in zip(out, xs)) and xs[0][2, 1] == 5
    assert form([], 2.0) == []


def test_given_lists(lib):
    """out= is a list or a tuple; what is given comes back, and holds the results."""
    x, y = torch.arange(6.0).reshape(2, 3), torch.ones(2)
    expected = [torch.cat([x, x]), torch.ones(4)]
    for kind in (list, tuple):
        out = kind([torch.zeros(4, 3), torch.zeros(4)])
        assert lib.twice([x, y], out=out) is out and equal(out, expected) and out[0]._version == 1
        out = kind([numpy.zeros((4, 3), "f"), numpy.zeros(4, "f")])
        assert lib.twice(arrays([x, y]), out=out) is out and (out[0] == expected[0].numpy()).all()
    assert lib.twice(arrays([x, y]), out) is out and len(lib.twice(arrays([x, y]), out=None)) == 2
    new = [numpy.zeros(2, "f")]
    assert dovetail.find("list_ops::scale_all_").functional()([numpy.ones(2, "f")], 3.0, out=new) is new and new[0].tolist() == [3, 3]


@pytest.mark.parametrize("out, error, words", [
    (["4,3"], ValueError, "result 'out': expected 2 tensors, found 1"),
    (["4,3", "5"], ValueError, r"result 'out\[1\]': expected shape \[4\], found \[5\]"),
    (["4,3", 3], TypeError, r"result 'out\[1\]': expected Tensor, found int 3"),
    ("4,3", TypeError, r"result 'out': expected Tensor\[\] \(a list or tuple\), found an array")])
def test_given_lists_that_do_not_fit(lib, out, error, words):
    def array(text):
        return numpy.zeros([int(n) for n in text.split(",")], "f") if isinstance(text, str) else text

    xs = [numpy.ones((2, 3), "f"), numpy.ones(2, "f")]
    with pytest.raises(error, match=words):
        lib.twice(xs, out=array(out) if isinstance(out, str) else [array(o) for o in out])
    with pytest.raises(ValueError, match=r"result 'out\[0\]': would be written, but overlaps argument 'xs\[0\]'"):
        lib.like_all(xs, out=[xs[0], numpy.ones(2, "f")])
    with pytest.raises(TypeError, match="cannot write result 'out': it has the memory of argument 'x'"):
        lib.unbind(xs[0], 0, out=[xs[1]])


def test_given_lists_of_torch(lib, ops):
    """torch.ops has the overload that ATen's operators with lists have, which returns nothing; tensors of other shapes are resized."""
    assert str(ops.twice.out._schema) == "list_ops::twice.out(Tensor[] xs, *, Tensor(a!)[] out) -> ()"
    xs = [torch.arange(6.0).reshape(2, 3), torch.ones(2)]
    expected = ops.twice(xs)
    for shapes in (((4, 3), (4,)), ((0,), (0,))):
        out = [torch.zeros(s) for s in shapes]
        assert ops.twice.out(xs, out=out) is None and equal(out, expected) and out[0]._version > 0
        out = [torch.zeros(s) for s in shapes]
        assert lib.twice(xs, out=out) is out and equal(out, expected)
    for call in (ops.twice.out, lib.twice):
        with pytest.raises((RuntimeError, ValueError), match="'out': expected 2 tensors, found 1"):
            call(xs, out=[torch.zeros(4, 3)])
        with pytest.raises(RuntimeError, match="functions with out=... arguments don't support automatic differentiation"):
            call([torch.ones(2, requires_grad=True)], out=[torch.zeros(4)])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_given_lists_in_graphs(lib, backend):
    def given(x, y, a, b):
        return lib.twice([x + 1, y], out=[a, b])[0] * 2

    def made(x, y):
        a, b = torch.zeros(4, 3), torch.zeros(4)  # Dynamo takes no out= of another shape, for no operator
        lib.twice([x, y], out=[a, b])
        return a + 1, b

    x, y = torch.arange(6.0).reshape(2, 3), torch.ones(2)
    a, b = torch.zeros(4, 3), torch.zeros(4)
    assert torch.equal(torch.compile(given, backend=backend, fullgraph=True)(x, y, a, b), a * 2)
    assert equal([a, b], lib.twice([x + 1, y]))
    for transform in (lambda f: torch.compile(f, backend=backend, fullgraph=True, dynamic=True), torch.func.functionalize):
        assert equal(transform(made)(x, y), made(x, y))


def test_given_lists_of_a_kernel_of_the_program(lib):
    xs, out = [torch.ones(2, 3), torch.ones(2)], [torch.zeros(0), torch.zeros(0)]
    mine = torch.library.Library("list_ops", "FRAGMENT")  # noqa: TOR901
    mine.impl("twice", lambda xs: [torch.cat([x, x]) * 5 for x in xs], "CPU")
    assert lib.twice(xs, out=out) is out and equal(out, [torch.full((4, 3), 5.0), torch.full((4,), 5.0)])
    mine._destroy()
