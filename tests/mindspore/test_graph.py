"""Operators as primitives in MindSpore's graphs. The oracle is the eager call, which test_eager.py compares with arrays."""
import inspect
import json
import os
import pickle
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


def test_a_result_that_is_absent():
    """Of the functional form: the new value of an argument that is None."""
    node = primitive(dovetail.ops.add_rms_norm.functional(), eps=1e-6)
    x, w = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)), Tensor(np.ones(3, np.float32))
    found = ms.jit(node)(x, w)
    assert found[1] is None and np.array_equal(found[0].asnumpy(), dovetail.ops.add_rms_norm(x, None, w).asnumpy())
    backward = primitive(dovetail.ops.causal_conv1d_backward, bias=True)
    x, w, b = (Tensor(np.random.default_rng(i).random(s)) for i, s in enumerate(((2, 3, 7), (3, 4), 3)))
    found, expect = ms.jit(backward)(x, x, w, b), dovetail.ops.causal_conv1d_backward(x, x, w, b)
    assert found[3] is None and expect[3] is None and all(np.array_equal(f.asnumpy(), e.asnumpy()) for f, e in zip(found[:3], expect))


def test_a_gradient_has_the_dtype_of_its_argument():
    node = primitive(dovetail.ops.add_custom)
    run = ms.jit(node)
    half, single = Tensor(np.ones((4, 5), np.float16)), Tensor(np.ones(5, np.float32))
    found = ms.grad(lambda x, y: (run(x, y) * 1.5).sum(), (0, 1))(half, single)
    assert [(g.dtype, g.shape, g.asnumpy().ravel()[0]) for g in found] == [(ms.float16, (4, 5), 1.5), (ms.float32, (5,), 6)]
    flags = Tensor(np.ones(5, bool))
    assert np.array_equal(ms.grad(lambda x: run(flags, x).sum())(single).asnumpy(), np.ones(5))


def test_a_generator_is_refused(own):
    with pytest.raises(NotImplementedError, match="msops::drawn: argument 'generator': a graph cannot hold a Generator"):
        primitive(own.drawn, generator=dovetail.Generator(1))
    x = Tensor(np.ones(1))
    assert own.drawn(x, generator=dovetail.Generator(5)) == 6 and ms.jit(primitive(own.drawn))(x).shape == (1,)


def test_operators_that_write_by_their_functional_form(own):
    node = primitive(own.scale_.functional(), by=3.0)

    @ms.jit
    def run(x):
        return node(x * 2)

    assert np.array_equal(run(Tensor(np.ones(3))).asnumpy(), np.full(3, 6.0))


def test_a_result_without_dims(own):
    """MindSpore would make a number of it, with the gradient 0."""
    total, sigmoid = primitive(own.total), primitive(dovetail.ops.sigmoid)

    @ms.jit
    def loss(x):
        return total(x * x)

    x = Tensor(np.arange(3.0))
    assert isinstance(loss(x), Tensor) and loss(x).shape == () and loss(x) == 5
    assert np.array_equal(ms.grad(loss)(x).asnumpy(), 2 * np.arange(3.0))
    value, gradient = ms.value_and_grad(lambda x: total(sigmoid(x)))(x)
    s = 1 / (1 + np.exp(-np.arange(3.0)))
    np.testing.assert_allclose([value.asnumpy(), *gradient.asnumpy()], [s.sum(), *(s * (1 - s))], rtol=1e-12)

    @ms.jit
    def one(x):
        return sigmoid(x)

    for dtype in (ms.bfloat16, ms.float16, ms.float64):
        assert one(Tensor(0.0, dtype)).shape == () and one(Tensor(0.0, dtype)).float() == 0.5
        assert one(Tensor(np.zeros((2, 3)), dtype)).shape == (2, 3)
        assert ms.grad(one)(Tensor(0.0, dtype)).float() == 0.25


def test_integers_have_no_gradient(own):
    mask = primitive(own.mask)

    @ms.jit
    def graph(x):
        return (mask(x).astype(ms.float64) * x).sum()

    x = Tensor(np.array([-1.0, 2, 3]))
    assert ms.grad(graph)(x).asnumpy().tolist() == [0, 1, 1]
    assert ms.grad(lambda x: (own.mask(x).astype(ms.float64) * x).sum())(x).asnumpy().tolist() == [0, 1, 1]


def test_equal_calls_of_a_random_operator_are_two(own):
    counted = primitive(own.counted)

    @ms.jit
    def run(x):
        return counted(x), counted(x)

    first, second = run(Tensor(np.array(0.0)))
    assert first != second


def test_calls_that_mindspore_cannot_survive():
    """MindSpore hands a node what it is given, and reads memory that is not there."""
    norm = primitive(dovetail.ops.rms_norm)
    x, w = Tensor(np.ones((2, 3), np.float32)), Tensor(np.ones(3, np.float32))

    @ms.jit
    def graph(x, *more):
        return norm(x, *more)

    for call in (norm, graph):
        for given in ((x,), (x, w, x), (x, None), (x, 2.0), (np.ones((2, 3), np.float32), w), (x, "weight")):
            with pytest.raises(TypeError, match=r"argument|missing|positional"):
                call(*given)


def test_a_call_without_a_primitive_is_refused_in_graphs(own):
    """MindSpore would run it as Python text: its gradient would be 0, and its writes lost."""
    x = Tensor(np.arange(3.0))

    def loss(x):
        return own.total(x)

    assert np.array_equal(ms.grad(loss)(x).asnumpy(), np.ones(3))
    with pytest.raises(RuntimeError, match=r"msops::total: a graph of MindSpore .* dovetail.mindspore.primitive\(operator\)"):
        ms.jit(loss)(x).asnumpy()


def plain(x, w):
    return dovetail.ops.rms_norm(x, w, 1e-5)


@pytest.mark.parametrize("axes", [(0, None), (1, None), (2, 0), (None, 0), (-2, 1)])
def test_vmap(axes):
    """A primitive is right. A call without one is refused, with our text."""
    node = primitive(dovetail.ops.rms_norm, eps=1e-5)
    random = np.random.default_rng(0)

    def given(axis, *shape):
        a = random.random(shape if axis is None else (5, *shape))
        return Tensor(a if axis is None else np.moveaxis(a, 0, axis)), [a] * 5 if axis is None else a

    (x, xs), (w, ws) = given(axes[0], 3, 4), given(axes[1], 4)
    expect = [dovetail.ops.rms_norm(a, b, 1e-5) for a, b in zip(xs, ws)]  # of arrays
    for function in (node, ms.jit(node)):
        assert np.array_equal(ms.vmap(function, in_axes=axes)(x, w).asnumpy(), expect)
    with pytest.raises(RuntimeError, match=r"dovetail::rms_norm: a graph of MindSpore \(ms.jit, ms.vmap, GRAPH_MODE\) would lose this call's gradient"):
        ms.vmap(plain, in_axes=axes)(x, w)


def test_a_gradient_through_vmap():
    node = primitive(dovetail.ops.rms_norm, eps=1e-5)
    x, w = Tensor(np.random.default_rng(0).random((5, 3, 4))), Tensor(np.arange(1.0, 5))
    found = ms.grad(lambda x, w: (ms.vmap(node, in_axes=(0, None))(x, w) ** 2).sum(), (0, 1))(x, w)
    expect = ms.grad(lambda x, w: (plain(x, w) ** 2).sum(), (0, 1))(x, w)
    for f, e in zip(found, expect):
        np.testing.assert_allclose(f.asnumpy(), e.asnumpy(), rtol=1e-12, atol=1e-14)


def test_only_mindspores_parser_is_refused():
    assert not hasattr(dovetail.ops.rms_norm, "__ms_class__")
    assert dict(inspect.getmembers(dovetail.ops.rms_norm))["name"] == "dovetail::rms_norm"


def test_element_types_as_arguments(own):
    for to in (ms.float32, np.float32, np.dtype("float32"), "f32"):
        assert ms.jit(primitive(own.cast, to=to))(Tensor(np.ones(3))).dtype == ms.float32
        assert own.cast(Tensor(np.ones(3)), to).dtype == ms.float32


def test_values_of_any_form(own):
    """What an eager call takes, a primitive takes: arrays and ranges for lists, words of any alphabet; and it refuses the same."""
    x, words = Tensor(np.arange(6.0).reshape(2, 3)), "日本 Zürich"
    assert primitive(own.described, dims=np.array([0, 1]), word=words)(x).asnumpy().tolist() == own.described(x, dims=range(2), word=words).asnumpy().tolist()
    assert primitive(own.described, dims=range(2), word=words)(x).asnumpy().tolist() == [3, len(words.encode())]
    with pytest.raises(TypeError, match="argument 'dims' of type int.*: found 'a'"):
        primitive(own.described, dims="a", word="")


def test_defaults_of_types_in_recorded_calls(own):
    """A default ScalarType, Layout or MemoryFormat, where gradients are recorded and where the operator declares none."""
    x = Tensor(np.arange(3.0))
    assert own.typed(x).dtype == ms.float32
    assert ms.grad(lambda a: own.typed(a).sum())(x).asnumpy().tolist() == [2, 2, 2]


def test_errors(own):
    for wrong in ("dovetail::rms_norm", 3):
        with pytest.raises(TypeError, match="expected an operator, such as dovetail.ops.rms_norm, found"):
            primitive(wrong)
    for op, reason in ((own.diagonal, "its result is a view of an argument"), (own.added, "a primitive's results are tensors")):
        with pytest.raises(NotImplementedError, match=reason):
            primitive(op, **({"ys": 2} if op is own.added else {}))
    for wrong, found in ((Tensor([1.0]), "a mindspore.Tensor"), (3, "3")):
        with pytest.raises(TypeError, match=f"argument 'bias' of type Tensor.: expected True if calls give a tensor, else False, found {found}$"):
            primitive(dovetail.ops.linear, bias=wrong)
    for wrong in (Tensor([1.0]), True):
        with pytest.raises(TypeError, match="argument 'x' of type Tensor: each call of the primitive gives the tensor; leave it out here$"):
            primitive(dovetail.ops.rms_norm, x=wrong)
    with pytest.raises(TypeError, match=r"argument 'ys' of type Tensor\[\]: expected how many tensors it has, found \[a mindspore.Tensor\]; each call"):
        primitive(own.sum_of, ys=[Tensor([1.0])])
    with pytest.raises(TypeError, match="dovetail::rms_norm: no argument is called epsilon"):
        primitive(dovetail.ops.rms_norm, epsilon=1)
    with pytest.raises(NotImplementedError, match="msops::scale_: it writes an argument"):
        primitive(own.scale_, by=2.0)
    with pytest.raises(TypeError, match="argument 'eps' of type float: found 'x'"):
        primitive(dovetail.ops.rms_norm, eps="x")


def test_a_primitive_says_what_it_is():
    node = primitive(dovetail.ops.rms_norm, eps=1e-5)
    assert repr(node).startswith("<function dovetail::rms_norm at") and "calls dovetail::rms_norm(x=f32[1], weight=f32[1], eps=1e-05)" in node.__doc__
    assert inspect.getsource(node).lstrip().startswith("def rms_norm(x, weight):\n")
    assert inspect.getsource(primitive(dovetail.ops.sigmoid)).lstrip().startswith("def sigmoid(x):\n")
    with pytest.raises(TypeError, match=r"^dovetail::rms_norm\(\) missing 1 required positional argument: 'weight'"):
        node(Tensor(np.ones(3, np.float32)))
    assert pickle.loads(pickle.dumps(primitive)) is primitive


@pytest.mark.parametrize("shape, dtype, message", [
    ((5,), np.float32, r"argument 'weight': expected shape \[6\] \('d' is bound by 'x'\), found \[5\]"),
    ((6,), np.int32, r"argument 'weight': expected dtype f32 \('T' is bound by 'x'\), found i32"),
])
def test_an_error_has_our_text(shape, dtype, message, capfd):
    """MindSpore shows what a kernel throws, not what it returns."""
    node = primitive(dovetail.ops.rms_norm, eps=1e-5)

    class Later(ms.nn.Cell):
        def construct(self, x, w):
            return node(x, w) * 2

    @ms.jit
    def graph(x, w):
        return node(x, w) * 2

    later = Later()
    later.set_inputs(Tensor(shape=None, dtype=ms.float32), Tensor(shape=None, dtype=getattr(ms, np.dtype(dtype).name)))
    x, w = Tensor(np.ones((4, 6), np.float32)), Tensor(np.ones(shape, dtype))
    for call in (node, graph, graph, lambda x, w: ms.grad(graph)(x, w), lambda x, w: ms.vmap(node, (0, None))(x[None], w), ms.jit(later)):
        with pytest.raises(RuntimeError, match="dovetail::rms_norm: " + message):
            flat(call(x, w), {})
    assert "dovetail: " not in capfd.readouterr().err


def test_an_error_of_a_kernel_has_our_text(own):
    node = primitive(own.fails)
    for call in (node, ms.jit(node)):
        with pytest.raises(RuntimeError, match="msops::fails: the sum is -3, which is less than 0"):
            call(Tensor(np.full(3, -1.0))).asnumpy()
    assert ms.jit(node)(Tensor(np.ones(3))).asnumpy() == 3


QUIET = """
import dovetail, mindspore as ms, numpy as np
from dovetail.mindspore import primitive
p = primitive(dovetail.ops.rms_norm)
x, w = ms.Tensor(np.ones((2, 4, 6), np.float32)), ms.Tensor(np.ones(6, np.float32))
@ms.jit
def f(x, w): return p(x, w).sum()
@ms.jit
def g(x, w): return ms.grad(f, (0, 1))(x, w)
f(x, w), g(x, w), ms.grad(f, (0, 1))(x, w), ms.vmap(p, (0, None))(x, w).asnumpy()
class Net(ms.nn.Cell):
    def construct(self, x, w): return p(x, w)
ms.export(Net(), x, w, file_name="net", file_format="MINDIR")
"""


def test_mindspore_says_nothing_where_nothing_is_wrong(tmp_path):
    """It looks for the file of each function's source."""
    (tmp_path / "quiet.py").write_text(QUIET)
    done = subprocess.run([sys.executable, "quiet.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "[ERROR]" not in done.stderr and "may not exist" not in done.stderr, done.stderr


REFUSED = """
import dovetail, {imports}, mindspore as ms, numpy as np
x, w = ms.Tensor(np.ones((2, 6), np.float32)), ms.Tensor(np.ones(6, np.float32))
@ms.jit
def graph(x, w): return {call}(x, w)
try:
    graph(x, w)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("imports, call, message", [
    ("json", "dovetail.ops.rms_norm", "dovetail::rms_norm: a graph of MindSpore (ms.jit, ms.vmap, GRAPH_MODE) would lose this call's gradient"),
    ("dovetail.mindspore as dm", "dm.primitive(dovetail.ops.rms_norm)", "dovetail.mindspore.primitive: a graph of MindSpore cannot call it: make"),
    ("dovetail.mindspore.graph as dm", "dm.primitive(dovetail.ops.rms_norm)", "dovetail.mindspore.primitive: a graph of MindSpore cannot call it: make"),
])
def test_what_a_graph_cannot_call_before_anything_is_loaded(imports, call, message, tmp_path):
    (tmp_path / "refused.py").write_text(REFUSED.format(imports=imports, call=call))
    done = subprocess.run([sys.executable, "refused.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith(message), done.stdout + done.stderr


VERSION = """
#define DV_LIBRARY_VERSION "{0}"
#include <dovetail_op.h>
struct times {{ const dv_tensor *x; dv_tensor *out; }};
static int times(dv_context *ctx, const struct times *a)
{{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((double *)a->out->data)[i] = {0} * ((const double *)a->x->data)[i];
    return DV_OK;
}}
DV_OPERATOR(times, struct times, (x, out), .schema = "times(Tensor x) -> Tensor out", .contract = "x[*s]:f64 -> out[*s]:f64",
    .gradient = "x: times(grad)", .kernels = DV_KERNELS(DV_KERNEL(struct times, "cpu", "f64", times)));
DV_LIBRARY(msversions, &dv_op_times);
"""


def test_versions_side_by_side_and_loaded_again(tmp_path):
    def library(factor):
        (tmp_path / f"v{factor}.c").write_text(VERSION.format(factor))
        return dovetail.load(tmp_path / f"v{factor}.c")

    x = Tensor(np.ones(3))
    two = library(2)
    by_two = primitive(two.times)
    five = library(5)
    by_five = primitive(five.times)
    assert [f(x)[0] for f in (by_two, by_five, two.times, five.times)] == [2, 5, 2, 5]
    assert [ms.grad(lambda x: f(x).sum())(x)[0] for f in (by_two, by_five, two.times, five.times)] == [2, 5, 2, 5]
    with pytest.raises(ValueError, match="msversions::times: another version of its library was loaded after it"):
        primitive(two.times)
    five.close()
    five = library(5)
    again = primitive(five.times)
    assert ms.jit(again)(x)[0] == 5
    five.close()
    two.close()
    (tmp_path / "v.c").write_text(VERSION.replace('#define DV_LIBRARY_VERSION "{0}"', "").replace("{0} *", "BY *").format())
    libraries = [dovetail.load(tmp_path / "v.c", flags=[f"-DBY={by}", f'-DDV_LIBRARY_VERSION="{by}"']) for by in (2, 5)]
    with pytest.raises(ValueError, match="another version of its library was loaded after it"):
        primitive(libraries[0].times)
    for library in reversed(libraries):
        by = primitive(library.times)
        assert ms.jit(by)(x)[0] == [2, 5][libraries.index(library)]
        library.close()


OF_A_FILE = """
import sys, numpy as np, mindspore as ms
if sys.argv[2:]:
    import dovetail
    dovetail.load(sys.argv[2])
try:
    print(ms.nn.GraphCell(ms.load(sys.argv[1]))(ms.Tensor(np.ones(3))).asnumpy())
except RuntimeError as error:
    print(error)
"""


def test_a_saved_graph_runs_the_binary_that_it_names(tmp_path):
    """And no other library with the same namespace."""
    version = VERSION.replace('#define DV_LIBRARY_VERSION "{0}"', "")

    def build(factor, to, text=version):
        (tmp_path / f"{to}.c").write_text(text.format(factor))
        subprocess.run(["dovetail", "build", tmp_path / f"{to}.c", "-o", tmp_path / f"{to}.so"], check=True, capture_output=True)
        return tmp_path / f"{to}.so"

    def run(*loaded):
        done = subprocess.run([sys.executable, "-c", OF_A_FILE, tmp_path / "net.mindir", *loaded], capture_output=True, text=True, cwd="/")
        return done.stdout or done.stderr

    one, other, versioned = build(3, "one"), build(7, "other"), build(9, "versioned", VERSION)
    with dovetail.load(one) as library:
        node = primitive(library.times)

        class Net(ms.nn.Cell):
            def construct(self, x):
                return node(x)

        ms.export(Net(), Tensor(np.ones(3)), file_name=str(tmp_path / "net"), file_format="MINDIR")
    copy = tmp_path / "the_same.so"
    copy.write_bytes(one.read_bytes())
    for loaded in ((), (copy,), (versioned,)):
        assert run(*loaded) == "[3. 3. 3.]\n"
    said = run(other)
    assert f"msversions::times: the graph needs it from {one}: " in said and f"namespace msversions is already defined by library msversions from {other}" in said
    build(5, "one")
    assert run(one) == "[5. 5. 5.]\n"  # rebuilt: that of today
    one.unlink()
    assert f"msversions::times: the graph needs it from {one}: " in run(other)
