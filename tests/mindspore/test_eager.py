"""The shipped operators on MindSpore's tensors in eager mode (PyNative). Needs MindSpore (make test-mindspore). The oracles: the same call on NumPy
arrays, differences of f64 kernels, and MindSpore's own operators."""
import importlib.metadata
import json
import pathlib
import re
import runpy
import subprocess
import threading

import pytest

if "mindspore" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("MindSpore is not installed here: make test-mindspore", allow_module_level=True)
import mindspore as ms
import numpy as np
from mindspore import Tensor, mint

import dovetail

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = [line for file in sorted((ROOT / "ops").glob("*/cases.txt")) for line in file.read_text().splitlines() if "bf16" not in line]


def make(case):
    getattr(dovetail.ops, re.match(r"dovetail::(\w+)", case)[1])  # loads its binary
    op, args = dovetail.site(case)
    return op, args


def tensors(args):
    def one(a):
        return Tensor(a.copy()) if isinstance(a, np.ndarray) else [one(x) for x in a] if isinstance(a, list) else a
    return {name: one(a) for name, a in args.items()}


def flat(value, args):
    """What a call returned, and what its arguments hold after it, as arrays."""
    def walk(v):
        for x in v if isinstance(v, (list, tuple)) else [v]:
            if isinstance(x, (list, tuple)):
                yield from walk(x)
            elif isinstance(x, Tensor):
                yield x.asnumpy()
            elif x is not None:
                yield np.asarray(x)
    return [*walk(value), *walk([a for a in args.values() if isinstance(a, (np.ndarray, Tensor, list))])]


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_as_with_arrays(case):
    op, args = make(case)
    on_tensors = tensors(args)
    found = flat(op(**on_tensors), on_tensors)
    expect = flat(op(**args), args)
    assert [f.dtype for f in found] == [e.dtype for e in expect]
    assert all(np.array_equal(f, e, equal_nan=f.dtype.kind == "f") for f, e in zip(found, expect)) and len(found) == len(expect)


@pytest.mark.parametrize("case", [c for c in CASES if "f64" in c and not re.search(r"numpy_sin|backward|_\(", c)])
def test_gradients(case):
    op, args = make(case)
    if not json.loads(op.json())["gradient"]:
        pytest.skip("declares no gradient")
    names = [n for n, a in args.items() if isinstance(a, np.ndarray) and a.dtype == np.float64 and not ("rotary" in case and n == "cos_sin_cache")]
    given = tensors(args)

    def whole(*xs):
        out = op(**{**given, **dict(zip(names, xs))})
        outs = [o for o in (out if isinstance(out, tuple) else [out]) if o is not None and o.dtype == ms.float64]
        return sum((mint.sin(o) * (i + 1)).sum() for i, o in enumerate(outs))

    found = ms.grad(whole, tuple(range(len(names))))(*(given[n] for n in names))

    def number(name, x):
        out = op(**{**args, name: x})
        outs = [o for o in (out if isinstance(out, tuple) else [out]) if o is not None and o.dtype == np.float64]
        return sum((np.sin(o) * (i + 1)).sum() for i, o in enumerate(outs))

    for name, g in zip(names, found if isinstance(found, tuple) else (found,)):
        at, eps = args[name], 1e-6
        expect = np.zeros_like(at)
        for i in np.ndindex(at.shape):
            up, down = at.copy(), at.copy()
            up[i] += eps
            down[i] -= eps
            expect[i] = (number(name, up) - number(name, down)) / (2 * eps)
        np.testing.assert_allclose(g.asnumpy(), expect, rtol=1e-5, atol=1e-7, err_msg=name)


def test_gradients_of_gradients():
    x, w = Tensor(np.random.default_rng(1).random((4, 6))), Tensor(np.random.default_rng(2).random(6))

    def theirs(x, w):
        return x * mint.rsqrt(mint.mean(x * x, -1, keepdim=True) + 1e-5) * w

    def second(f):
        return ms.grad(lambda x, w: (ms.grad(lambda x, w: (f(x, w) ** 3).sum(), 0)(x, w) ** 2).sum(), (0, 1))(x, w)

    for found, expect in zip(second(lambda x, w: dovetail.ops.rms_norm(x, w, 1e-5)), second(theirs)):
        np.testing.assert_allclose(found.asnumpy(), expect.asnumpy(), rtol=1e-9)


def test_a_gradient_where_a_written_argument_is_none():
    positions, cache = Tensor(np.array([3, 0])), Tensor(np.random.default_rng(0).random((4, 4), np.float32))

    def turned(query):
        query = query * 2
        dovetail.ops.rotary_embedding(positions, query, None, 4, cache, False)
        return query.sum()

    def both(query):
        query, key = query * 2, query * 1
        dovetail.ops.rotary_embedding(positions, query, key, 4, cache, False)
        return query.sum()

    query = Tensor(np.random.default_rng(1).random((2, 4), np.float32))
    assert np.array_equal(ms.grad(turned)(query).asnumpy(), ms.grad(both)(query).asnumpy())


def test_layouts_and_types():
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = Tensor(a)
    for strided, array in ((x.T, a.T), (x[1:, ::2], a[1:, ::2]), (mint.transpose(x, 0, 1)[2:], a.T[2:]), (x[:, 3], a[:, 3])):
        out = dovetail.ops.add_custom(strided, strided)
        assert out.shape == array.shape and np.array_equal(out.asnumpy(), array + array)
    half = dovetail.ops.swiglu(x.astype(ms.bfloat16), x.astype(ms.bfloat16))
    assert half.dtype == ms.bfloat16
    np.testing.assert_allclose(half.astype(ms.float32).asnumpy(), a * a / (1 + np.exp(-a)), rtol=0.01)
    assert dovetail.ops.add_custom(Tensor(np.zeros((0, 3), np.float32)), Tensor(np.zeros((0, 3), np.float32))).shape == (0, 3)
    assert dovetail.ops.add_custom(Tensor(np.float32(2)), Tensor(np.float32(3))).asnumpy() == 5


def test_given_results_and_identity():
    x, out = Tensor(np.ones((2, 3), np.float32)), Tensor(np.zeros((2, 3), np.float32))
    assert dovetail.ops.add_custom(x, x, out=out) is out and (out.asnumpy() == 2).all()
    assert (mint.add(out, 1).asnumpy() == 3).all()


def test_operators_that_wait_are_waited_for():
    """MindSpore runs operators later: what the kernel reads must be there, and what it overwrites must have been read."""
    one, total = Tensor(np.ones(1_000_000, np.float32)), ms.Parameter(Tensor(np.zeros(1_000_000, np.float32)))
    for i in range(10):
        for _ in range(3):
            ms.ops.assign_add(total, one)
        assert (dovetail.ops.add_custom(total, total).asnumpy() == 6 * (i + 1)).all()
        z = mint.mul(mint.add(one, 1), 2)
        keep = mint.add(z, 0)
        dovetail.ops.add_custom(one, one, z)
        assert (keep.asnumpy() == 4).all() and (z.asnumpy() == 2).all()


def test_errors():
    x, w = Tensor(np.ones((4, 6), np.float32)), Tensor(np.ones(5, np.float32))
    for call in (lambda: dovetail.ops.rms_norm(x, w), lambda: ms.grad(lambda x: dovetail.ops.rms_norm(x, w).sum())(x)):
        with pytest.raises(ValueError, match=r"dovetail::rms_norm: argument 'weight': expected shape \[6\]"):
            call()
    with pytest.raises(TypeError, match="expected a tensor of mindspore, like the call's first one, found numpy.ndarray"):
        dovetail.ops.rms_norm(x, np.ones(6, np.float32))
    with pytest.raises(TypeError, match=r"argument 'x': expected Tensor \(a mindspore.Tensor\), found str"):
        dovetail.ops.rms_norm("x", w)
    with pytest.raises(ValueError, match="expected dtype f32, f64, bf16 or f16"):
        dovetail.ops.rms_norm(Tensor(np.ones((4, 6), np.int32)), Tensor(np.ones(6, np.int32)))
    with pytest.raises(RuntimeError, match="a result that is given .* takes no part in gradients"):
        ms.grad(lambda x: dovetail.ops.add_custom(x, x, out=Tensor(np.zeros((4, 6), np.float32))).sum())(x)


def test_operators_that_write(own):
    x = Tensor(np.ones(3))
    y = own.scale_(x, 4.0)
    assert y is x and (x.asnumpy() == 4).all()

    def f(x):
        z = mint.mul(x, 2.0)
        assert own.scale_(z, 3.0) is z
        return (z * z).sum()

    value, gradient = ms.value_and_grad(f)(Tensor(np.ones(3)))
    assert value.asnumpy() == 108 and np.array_equal(gradient.asnumpy(), np.full(3, 72.0))
    with pytest.raises(RuntimeError, match=r"msops::scale_only_: argument 'x' requires a gradient, .* give it mindspore.ops.stop_gradient\(x\)"):
        ms.grad(lambda x: (own.scale_only_(mint.mul(x, 2.0), 3.0), x.sum())[1])(Tensor(np.ones(3)))
    assert ms.grad(lambda x: (own.scale_only_(ms.ops.stop_gradient(x) * 2.0, 3.0), x.sum())[1])(Tensor(np.ones(3))).asnumpy().tolist() == [1] * 3


def test_views(own):
    x = mint.add(Tensor(np.arange(12.0).reshape(3, 4)), 0)
    d = own.diagonal(x)
    assert d.asnumpy().tolist() == [0.0, 5.0, 10.0] and d.data_ptr() == x.data_ptr()
    own.scale_(d, 10.0)
    assert x.asnumpy()[2].tolist() == [8.0, 9.0, 100.0, 11.0] and mint.add(x, 0).asnumpy()[1, 1] == 50


def test_a_missing_gradient_is_an_error(own):
    with pytest.raises(RuntimeError, match="msops::twice: it declares no gradient and no decomposition"):
        ms.grad(lambda x: own.twice(x).sum())(Tensor(np.ones(3)))
    assert (ms.grad(lambda x: (ms.ops.stop_gradient(own.twice(ms.ops.stop_gradient(x))) * x).sum())(Tensor(np.ones(3))).asnumpy() == 2).all()


def test_lists(own):
    x, ys = Tensor(np.ones(3)), [Tensor(np.full(3, i + 1.0)) for i in range(2)]
    for given in (ys, tuple(ys)):
        assert [o.asnumpy().tolist() for o in own.added(x, given)] == [[2.0] * 3, [3.0] * 3]

    def f(x, y, z):
        a, b = own.added(x, [mint.mul(y, 2.0), z])
        return (a * 5.0 + b * 7.0).sum()

    assert [g.asnumpy().tolist() for g in ms.grad(f, (0, 1, 2))(x, *ys)] == [[12.0] * 3, [10.0] * 3, [7.0] * 3]
    with pytest.raises(TypeError, match=r"argument 'ys\[1\]': expected Tensor, found int 3"):
        own.added(x, [ys[0], 3])
    with pytest.raises(TypeError, match=r"argument 'ys\[1\]': expected a tensor of mindspore, like the call's first one, found numpy.ndarray"):
        own.added(x, [ys[0], np.ones(3)])
    with pytest.raises(TypeError, match=r"argument 'ys': expected Tensor\[\] \(a list of tensors\), found int 3"):
        own.added(x, 3)


def test_nothing_leaks(own):
    import resource
    x = Tensor(np.ones(100_000))

    def grown(f):
        for _ in range(20):
            f()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(300):
            f()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB; one tensor a call would be 240,000

    assert grown(lambda: own.twice(x)) < 20_000
    assert grown(lambda: ms.grad(lambda x: own.scale_(mint.mul(x, 2.0), 3.0).sum())(x)) < 20_000
    assert grown(lambda: ms.grad(lambda x: dovetail.ops.add_custom(x, x).sum())(x)) < 20_000


def test_threads(own):
    wrong = []

    def work(k):
        for _ in range(200):
            if (own.twice(Tensor(np.full(50, float(k)))).asnumpy() != 2 * k).any():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_the_page(tmp_path):
    for code in re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "mindspore.md").read_text(), re.S | re.M):
        (tmp_path / "page.py").write_text(code)  # MindSpore wants functions that have a file
        runpy.run_path(str(tmp_path / "page.py"), run_name="page")


def test_importing_dovetail_does_not_import_mindspore():
    import sys
    code = "import sys, dovetail, numpy; dovetail.ops.swiglu(numpy.ones(3), numpy.ones(3)); assert not [m for m in sys.modules if m.startswith('mindspore')]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_list_of_views(own):
    x = Tensor(np.arange(12.0).reshape(3, 4))
    rows = own.unbind(x[:, ::2])
    assert [r.asnumpy().tolist() for r in rows] == [[0, 2], [4, 6], [8, 10]]
    own.scale_(own.unbind(x)[1], 2.0)
    assert x.asnumpy()[1].tolist() == [8, 10, 12, 14]


def test_explain_and_bench_take_tensors(own):
    x = Tensor(np.arange(5.0))
    how = own.twice.explain(x)
    assert how.selected["name"] == "twice" and how.bytes == 2 * 5 * 8
    assert dovetail.bench(own.twice, x, seconds=0.01).kernel == "twice"
