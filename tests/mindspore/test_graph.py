"""Operators as primitives in MindSpore's graphs. The oracle is the eager call, which test_eager.py compares with arrays."""
import json
import os
import re
import subprocess
import sys

import pytest
from test_eager import CASES, flat, make, ms, np, tensors  # skips where MindSpore is not installed

import dovetail
from dovetail.mindspore import primitive
from mindspore import Tensor, mint


def parts(op, args):
    """The tensors by position, and what primitive() needs besides."""
    given, fixed = [], {}
    for (name, type, *_), value in zip(op._slots()[0], args.values()):
        if not type.startswith("Tensor"):
            fixed[name] = value
        elif isinstance(value, (list, tuple)):
            given += value
            fixed[name] = len(value)
        elif value is not None:
            given.append(value)
            fixed |= {name: True} if type.endswith("?") else {}
    return given, fixed


def as_node(op, args):
    given, fixed = parts(op, args)
    try:
        node = primitive(op, **fixed)
    except NotImplementedError as error:
        pytest.skip(str(error))
    return given, node


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_as_eager(case):
    op, args = make(case)
    args = tensors(args)
    given, node = as_node(op, args)
    expect = op(**args)
    if not isinstance(expect, Tensor) and any(x is None for x in expect):
        pytest.skip("an absent result")

    @ms.jit
    def run(*xs):
        return node(*xs)

    found = flat(run(*given), {})
    assert [f.dtype for f in found] == [e.dtype for e in flat(expect, {})]
    assert all(np.array_equal(f, e, equal_nan=f.dtype.kind == "f") for f, e in zip(found, flat(expect, {})))


@pytest.mark.parametrize("case", [c for c in CASES if re.match(r"dovetail::(rms_norm|add_rms_norm|linear|softmax|swiglu|layer_norm|sigmoid)\(f64", c)])
def test_gradients(case):
    op, args = make(case)
    args = tensors(args)
    given, node = as_node(op, args)
    if not json.loads(op.json())["gradient"]:
        pytest.skip("declares no gradient")

    def loss(out):
        return sum((mint.sin(o) * (i + 1)).sum() for i, o in enumerate(out if isinstance(out, tuple) else (out,)))

    @ms.jit
    def graph(*xs):
        return loss(node(*xs))

    names = [n for n, a in args.items() if isinstance(a, Tensor)]
    found = ms.grad(graph, tuple(range(len(given))))(*given)
    expect = ms.grad(lambda *xs: loss(op(**{**args, **dict(zip(names, xs))})), tuple(range(len(given))))(*given)
    for f, e in zip(found if isinstance(found, tuple) else (found,), expect if isinstance(expect, tuple) else (expect,)):
        np.testing.assert_allclose(f.asnumpy(), e.asnumpy(), rtol=1e-12, atol=1e-12)


def test_sizes_that_are_known_later():
    node = primitive(dovetail.ops.rms_norm, eps=1e-5)

    class Net(ms.nn.Cell):
        def construct(self, x, w):
            return node(x, w) * 2

    net = Net()
    net.set_inputs(Tensor(shape=[None, None], dtype=ms.float32), Tensor(shape=[None], dtype=ms.float32))
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        for n, d in ((4, 6), (3, 5), (0, 2)):
            x, w = Tensor(np.random.default_rng(n).random((n, d), np.float32)), Tensor(np.ones(d, np.float32))
            out = net(x, w).asnumpy()
            assert np.array_equal(out, 2 * dovetail.ops.rms_norm(x, w, 1e-5).asnumpy())
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


def test_another_process_runs_a_saved_graph(tmp_path):
    """The node carries its call site as text: MindIR is loaded where nobody has imported Dovetail."""
    node = primitive(dovetail.ops.rms_norm, eps=1e-5)

    class Net(ms.nn.Cell):
        def construct(self, x, w):
            return node(x, w)

    x, w = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)), Tensor(np.ones(4, np.float32))
    ms.export(Net(), x, w, file_name=str(tmp_path / "net"), file_format="MINDIR")
    np.save(tmp_path / "expect.npy", dovetail.ops.rms_norm(x, w, 1e-5).asnumpy())
    code = """
import sys, numpy as np, mindspore as ms
net = ms.nn.GraphCell(ms.load(sys.argv[1] + "/net.mindir"))
out = net(ms.Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)), ms.Tensor(np.ones(4, np.float32)))
assert np.array_equal(out.asnumpy(), np.load(sys.argv[1] + "/expect.npy")) and "dovetail" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    assert done.returncode == 0, done.stderr[-2000:]


def test_operators_that_write_by_their_functional_form(own):
    node = primitive(own.scale_.functional(), by=3.0)

    @ms.jit
    def run(x):
        return node(x * 2)

    assert np.array_equal(run(Tensor(np.ones(3))).asnumpy(), np.full(3, 6.0))


def test_errors(capfd, own):
    with pytest.raises(TypeError, match="dovetail::rms_norm: no argument is called epsilon"):
        primitive(dovetail.ops.rms_norm, epsilon=1)
    with pytest.raises(NotImplementedError, match="msops::scale_: it writes an argument"):
        primitive(own.scale_, by=2.0)
    with pytest.raises(ValueError, match="argument 'eps'"):
        primitive(dovetail.ops.rms_norm, eps="x")
    node = primitive(dovetail.ops.rms_norm, eps=1e-5)

    @ms.jit
    def run(x, w):
        return node(x, w)

    with pytest.raises(RuntimeError):
        run(Tensor(np.ones((4, 6), np.float32)), Tensor(np.ones(5, np.float32))).asnumpy()
    assert "dovetail: dovetail::rms_norm: argument 'weight': expected shape [6] ('d' is bound by 'x'), found [5]" in capfd.readouterr().err
