"""Calls of a library's functions with tensors: straight to the kernel exactly where nothing else would run, by torch.ops otherwise."""
import contextlib
import gc
import pickle
import sys
import threading
import weakref

import numpy
import pytest
import torch
from conftest import compile_ops, needs, one
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import dovetail
from dovetail import _core
from dovetail.torch import register, unregister

SOURCE = """
#include <dovetail_op.h>
#include <string.h>
struct copy { const dv_tensor *x; dv_tensor *out; };
static int copy(dv_context *ctx, const struct copy *a)
{
    (void)ctx;
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * a->x->dtype.bits / 8);
    return DV_OK;
}
DV_OPERATOR(copy, struct copy, (x, out), .schema = "copy(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct copy, "cpu", NULL, copy)));
DV_OPERATOR(copy_to, struct copy, (x, out), .schema = "copy_to(Tensor x, Tensor(a!) out) -> ()", .contract = "x[*s]:T, out[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct copy, "cpu", NULL, copy)));
struct scale { const dv_tensor *x; double by; dv_tensor *out; };
static int scale(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = ((const double *)a->x->data)[i] * a->by;
    return DV_OK;
}
struct scale_int { const dv_tensor *x; int64_t by; dv_string how; dv_tensor *out; };
static int scale_int(dv_context *ctx, const struct scale_int *a)
{
    const struct scale other = { a->x, (double)a->by, a->out };
    return scale(ctx, &other);
}
DV_OPERATOR(scale, struct scale, (x, by, out), .schema = "scale(Tensor x, float by=2.0) -> Tensor out", .contract = "x[*s]:f64 -> out[*s]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f64", scale)));
DV_OPERATOR(scale_int, struct scale_int, (x, by, how, out), .schema = "scale.int(Tensor x, int by, *, str how='up') -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64", .kernels = DV_KERNELS(DV_KERNEL(struct scale_int, "cpu", "f64", scale_int)));
struct flags { const dv_tensor *x; int64_t *deterministic; };
static int flags(dv_context *ctx, const struct flags *a)
{
    *a->deterministic = (ctx->flags & DV_CTX_DETERMINISTIC) != 0;
    return DV_OK;
}
DV_OPERATOR(flags, struct flags, (x, deterministic), .schema = "flags(Tensor x) -> int deterministic", .contract = "x[*s]:T",
    .kernels = DV_KERNELS(DV_KERNEL(struct flags, "cpu", NULL, flags)));
DV_LIBRARY(fastpath, &dv_op_copy, &dv_op_copy_to, &dv_op_scale, &dv_op_scale_int, &dv_op_flags);
"""

PLAIN, GRADIENT, OTHER = range(3)


@pytest.fixture(scope="module")
def fast(tmp_path_factory, ops):
    folder = tmp_path_factory.mktemp("fastpath")
    (folder / "fastpath.c").write_text(SOURCE)
    library = dovetail.load(compile_ops(folder / "fastpath.c", folder / "fastpath.so"))
    assert _core.torch.why() == ""
    yield library
    library.close()


@pytest.fixture
def cube(ops):
    return _core.find("torch_ops::cube")


@contextlib.contextmanager
def goes(op, way, calls=1, runs=0):
    """The calls of op inside go this way, and no other. runs: plain calls that a gradient's Function makes."""
    before = _core.torch.taken(op)
    yield
    taken = [b - a for a, b in zip(before, _core.torch.taken(op))]
    assert taken == [(calls if way == w else 0) + (runs if w == PLAIN else 0) for w in range(3)]


def f64(*shape, **options):
    return torch.randn(*shape, dtype=torch.float64, **options)


# ---- what is plain

def test_plain(fast):
    for x in (f64(3), f64(2, 0), f64(()), f64(4, 6).t(), torch.ones(3, dtype=torch.int8), torch.ones(2, dtype=torch.bfloat16),
              torch.ones(2, dtype=torch.complex64), f64(5)[1:3], f64(1, 2, 3, 4, 5, 6)):
        with goes(fast.copy, PLAIN):
            y = fast.copy(x)
        assert type(y) is torch.Tensor and y.dtype == x.dtype and torch.equal(y, x) and y.is_contiguous()
        assert torch.equal(y, torch.ops.fastpath.copy(x))


def test_every_layout(fast):
    """Sizes inside a TensorImpl and outside of it, offsets, dtypes, memory of others: what is read in place is what torch says."""
    dtypes = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
              torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16, torch.uint32, torch.uint64)
    for dtype in dtypes:
        x = torch.arange(400).to(dtype)
        for rank in range(9):
            y = x[rank:rank + 2 ** rank].view((2,) * rank)
            for z in (y, y.transpose(0, -1) if rank else y, y[..., 1:] if rank else y, y[..., 2:] if rank else y):
                with goes(fast.copy, PLAIN):
                    found = fast.copy(z)
                assert found.shape == z.shape and found.dtype == dtype
                assert bytes(found.untyped_storage()) == bytes(z.clone(memory_format=torch.contiguous_format).untyped_storage())
    for x in (torch.frombuffer(bytearray(b"12345678"), dtype=torch.int16, offset=2), torch.from_numpy(numpy.arange(6.0)[::2])):
        with goes(fast.copy, PLAIN):
            assert torch.equal(fast.copy(x), x)


def test_resized_and_exchanged(fast):
    """The same object with other memory, sizes and rank."""
    x = f64(3)
    for change in (lambda: x.resize_(2, 3).fill_(7), lambda: x.set_(f64(4, 1, 2, 1, 2, 2)), lambda: setattr(x, "data", torch.ones(2, dtype=torch.int32)),
                   lambda: x.resize_(0), lambda: x.resize_(1, 1, 1, 1, 1, 1, 5).zero_()):
        change()
        with goes(fast.copy, PLAIN):
            y = fast.copy(x)
        assert y.dtype == x.dtype and torch.equal(y, x)


def test_a_lazy_copy(fast):
    """Reading leaves it a lazy copy; writing makes a real copy first, and the other tensor keeps its values."""
    x = f64(3)
    before, y = x.clone(), torch._lazy_clone(x)
    with goes(fast.copy, PLAIN, 2):
        assert torch.equal(fast.copy(y), before) and torch.equal(fast.copy(x), before)
    assert torch._C._is_cow_tensor(x) and torch._C._is_cow_tensor(y)
    with goes(fast.copy_to, PLAIN):
        fast.copy_to(torch.zeros(3, dtype=torch.float64), y)
    assert not torch._C._is_cow_tensor(y) and torch.equal(x, before) and not y.any()


def test_forbidden_memory(fast):
    needs("reasons")
    x, y = f64(3), f64(3)
    before = y.clone()
    torch._C._set_throw_on_mutable_data_ptr(y)
    assert torch.equal(fast.copy(y), before)
    with pytest.raises(Exception, match="data pointer"):
        fast.copy_to(x, y)
    assert torch.equal(fast.copy(y), before)


def test_no_grad(cube):
    x, parameter = f64(3, requires_grad=True), torch.nn.Parameter(f64(3))
    with torch.no_grad(), goes(cube, PLAIN, 3):
        for t in (x, parameter, x[1:]):
            y = cube(t)
            assert not y.requires_grad and torch.allclose(y, t ** 3)
    with goes(cube, PLAIN):
        cube(x.detach())


def test_inference_mode(fast, cube):
    x, out = f64(3), f64(3)
    with torch.inference_mode(), goes(cube, PLAIN, 2):
        y = cube(x)
        z = cube(y)
    assert y.is_inference() and z.is_inference() and torch.allclose(y, x ** 3)
    with goes(cube, PLAIN):
        assert not cube(y).is_inference()
    with goes(fast.copy_to, OTHER), pytest.raises(RuntimeError, match="[Ii]nference"):
        fast.copy_to(z, y)
    with torch.inference_mode(), goes(fast.copy_to, PLAIN, 2):
        fast.copy_to(x, y)
        version = out._version
        fast.copy_to(x, out)
    assert out._version == version + 1 and torch.equal(y, x) and torch.equal(out, x)


def test_an_inference_tensor_beside_others_is_not_written_outside_inference_mode(fast, ops):
    """As torch, with any other arguments and for every form of call."""
    with torch.inference_mode():
        inference, other = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    copy, message = torch.ops.fastpath.copy_to, "Inplace update to inference tensor outside InferenceMode is not allowed"
    ordinary, wanted = f64(3), f64(3).requires_grad_()
    with pytest.raises(RuntimeError, match=message):
        other.copy_(ordinary)  # torch writes, and then refuses
    for x in (other, ordinary, wanted, wanted * 2):
        for f in (fast.copy_to, copy, copy.default):
            with pytest.raises(RuntimeError, match=message):
                f(x, inference)
            with torch.no_grad(), pytest.raises(RuntimeError, match=message):
                f(x, inference)
    with pytest.raises(RuntimeError, match=message):
        ops.cube(ordinary, out=inference)
    assert not inference.any()
    with torch.inference_mode():
        copy(ordinary, inference)
        assert torch.equal(inference, ordinary)


def test_below_autograd(cube):
    """In the kernel of another operator, autograd is behind us."""
    @torch.library.custom_op("fastpath_peer::outer", mutates_args=())
    def outer(x: torch.Tensor) -> torch.Tensor:
        return cube(x)

    x = f64(3)
    with goes(cube, PLAIN):
        assert torch.allclose(outer(x), x ** 3)


# ---- what wants a gradient

def test_requires_grad(cube):
    for x in (f64(3, requires_grad=True), torch.nn.Parameter(f64(3)), f64(3, requires_grad=True) * 2):
        with goes(cube, GRADIENT, runs=1):
            y = cube(x)
        (g,) = torch.autograd.grad(y.sum(), x)
        assert torch.allclose(g, 3 * x ** 2)


def test_gradient_callable(fast):
    """What is set as gradient gets all arguments by position, completed."""
    scale = _core.find("fastpath::scale")
    x, calls = f64(3, requires_grad=True), []

    def gradient(*args):
        calls.append(args)
        return "it"

    operator = dovetail.torch.registered(fast).operators["fastpath::scale"]
    operator.shorten(gradient)
    try:
        with goes(scale, GRADIENT, 2):
            assert scale(x) == "it" and scale(by=3.0, x=x) == "it"
        with goes(scale, PLAIN):
            scale(x.detach())
        operator.shorten(None)
        with goes(scale, OTHER, runs=1):
            scale(x)
    finally:
        operator.shorten(operator.autograd.direct)
    assert [(a[0] is x, a[1]) for a in calls] == [(True, 2.0), (True, 3.0)]


def test_leaf_that_is_written(fast):
    leaf = f64(3, requires_grad=True)
    with goes(fast.copy_to, OTHER), pytest.raises(RuntimeError, match="leaf"):
        fast.copy_to(f64(3), leaf)
    x = f64(3)
    with torch.no_grad(), goes(fast.copy_to, PLAIN):
        fast.copy_to(x, leaf)
    assert torch.equal(leaf, x)


# ---- what torch decides

class Marked(torch.Tensor):
    pass


def conj():
    x = torch.randn(3, dtype=torch.complex128)
    return x.conj()


@pytest.mark.parametrize("make", [
    pytest.param(lambda: f64(3).as_subclass(Marked), id="subclass"),
    pytest.param(conj, id="conj"),
    pytest.param(lambda: conj().imag, id="neg"),
    pytest.param(lambda: torch._efficientzerotensor(3, dtype=torch.float64), id="zero"),
])
def test_other_tensors(fast, make):
    x = make()
    with goes(fast.copy, OTHER):
        y = fast.copy(x)
    assert torch.equal(y, x.clone().resolve_conj().resolve_neg()) and not y.is_conj() and not y.is_neg()
    assert isinstance(y, Marked) == isinstance(x, Marked)


def test_meta(fast):
    with goes(fast.copy, OTHER):
        y = fast.copy(f64(3, 2, device="meta"))
    assert y.device.type == "meta" and y.shape == (3, 2)


def test_sparse(fast):
    with goes(fast.copy, OTHER), pytest.raises((RuntimeError, NotImplementedError), match="[Ss]parse"):
        fast.copy(f64(3, 3).to_sparse())


def test_fake_tensor(fast):
    with FakeTensorMode() as mode:
        x = f64(3)
        with goes(fast.copy, OTHER):
            y = fast.copy(x)
    assert y.fake_mode is mode and y.shape == (3,)
    with goes(fast.copy, OTHER):  # outside of the mode, too
        assert fast.copy(x).fake_mode is mode


def test_dispatch_mode(fast):
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen, x = [], f64(3)
    with Seen(), goes(fast.copy, OTHER):
        y = fast.copy(x)
    assert seen == [torch.ops.fastpath.copy.default] and torch.equal(y, x)
    with goes(fast.copy, PLAIN):
        fast.copy(x)


def test_function_mode(fast):
    class Seen(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen, x = [], f64(3)
    with Seen(), goes(fast.copy, OTHER):
        y = fast.copy(x)
    assert seen == [torch.ops.fastpath.copy.default] and torch.equal(y, x)
    with torch.device("meta"), goes(fast.copy, OTHER):
        assert torch.equal(fast.copy(x), x)


def test_vmap(cube):
    x = f64(4, 3)
    with goes(cube, OTHER):
        assert torch.allclose(torch.vmap(cube)(x), x ** 3)
    with goes(cube, OTHER):  # what is not batched, inside
        assert torch.allclose(torch.vmap(lambda t: t + cube(x[0]))(x), x + x[0] ** 3)


def outcome(f, *args):
    """What a function gives, or the exception that it raises."""
    try:
        return f(*args)
    except Exception as error:
        return type(error)


def test_functorch_grad(cube):
    x, before = f64(3), _core.torch.taken(cube)[PLAIN]
    for transform in (torch.func.grad, lambda f: torch.func.grad(lambda t: torch.func.grad(f)(t).sum()), torch.func.hessian):
        got = outcome(transform(lambda t: cube(t).sum()), x)
        expected = outcome(transform(lambda t: torch.ops.torch_ops.cube(t).sum()), x)
        assert torch.equal(got, expected) if isinstance(expected, torch.Tensor) else got is expected
    assert _core.torch.taken(cube)[PLAIN] == before


def test_functorch_jvp(cube):
    x, t, before = f64(3), f64(3), _core.torch.taken(cube)[PLAIN]
    got = outcome(torch.func.jvp, cube, (x,), (t,))
    expected = outcome(torch.func.jvp, torch.ops.torch_ops.cube.default, (x,), (t,))
    assert got is expected if isinstance(expected, type) else torch.equal(got[1], expected[1]) and torch.allclose(got[0], x ** 3)
    assert _core.torch.taken(cube)[PLAIN] == before


def test_functionalize(fast):
    x = f64(3)
    with goes(fast.copy, OTHER):
        y = torch.func.functionalize(lambda t: fast.copy(t.add_(1)))(x.clone())
    assert torch.equal(y, x + 1)


def test_forward_ad(cube):
    x, t = f64(3), f64(3)
    with forward_ad.dual_level():
        with goes(cube, PLAIN):
            cube(x)  # no tangent
        dual = forward_ad.make_dual(x, t)
        for d in (dual, dual[1:]):
            before = _core.torch.taken(cube)[PLAIN]
            got, expected = outcome(lambda: forward_ad.unpack_dual(cube(d))), outcome(lambda: forward_ad.unpack_dual(torch.ops.torch_ops.cube(d)))
            assert got is expected or (torch.equal(got.primal, expected.primal) and str(got.tangent) == str(expected.tangent))
            assert _core.torch.taken(cube)[PLAIN] == before
    with goes(cube, PLAIN):
        cube(x)


def test_autocast(fast):
    x = f64(3)
    with torch.autocast("cpu", dtype=torch.bfloat16), goes(fast.copy, OTHER):
        y = fast.copy(x)
    assert torch.allclose(y.double(), x, atol=0.1)


def test_profiler(fast):
    x = f64(3)
    with torch.profiler.profile() as profile, goes(fast.copy, OTHER):
        fast.copy(x)
    assert any(e.key == "fastpath::copy" for e in profile.key_averages())
    with goes(fast.copy, PLAIN):
        fast.copy(x)


def test_jit_trace(fast):
    x = f64(3)
    with goes(fast.copy, OTHER):
        traced = torch.jit.trace(lambda t: fast.copy(t) + 1, x, check_trace=False)
    assert "fastpath::copy" in str(traced.graph) and torch.equal(traced(x * 2), x * 2 + 1)


def test_compile(fast):
    x = f64(3)
    compiled = torch.compile(lambda t: fast.copy(t * 2), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), x * 2)


@pytest.mark.parametrize("call", [
    pytest.param(lambda f, x: f(x, torch.tensor(2.0)), id="tensor for a float"),
    pytest.param(lambda f, x: f(x, True), id="bool for a float"),
])
def test_other_arguments(fast, call):
    """torch decides what it takes for a number."""
    scale, x = _core.find("fastpath::scale"), f64(3)

    before = _core.torch.taken(scale)
    assert str(outcome(call, scale, x)) == str(outcome(call, torch.ops.fastpath.scale.default, x))
    assert sum(_core.torch.taken(scale)) == sum(before) + 1


def test_errors_of_arguments(fast):
    scale, x = _core.find("fastpath::scale"), f64(3)
    with goes(scale, OTHER), pytest.raises(RuntimeError, match="by"):
        scale(x, "much")
    with pytest.raises(TypeError, match="x"):
        scale()
    with goes(fast.copy_to, OTHER), pytest.raises((RuntimeError, TypeError)):
        fast.copy_to(x, x.tolist())


# ---- packets, names

def test_packet(fast):
    x, (scale, scale_int) = f64(3), fast.scale.overloads
    with goes(scale, PLAIN), goes(scale_int, PLAIN, 0):
        assert torch.equal(fast.scale(x, 1.5), x * 1.5)
    with goes(scale_int, PLAIN):
        assert torch.equal(fast.scale(x, 3, how="up"), x * 3)
    assert torch.equal(fast.scale(x, 3), x * 3)  # both fit: torch picks
    with goes(scale, PLAIN):
        assert torch.equal(fast.scale(x), x * 2)


def test_a_packet_remembers_which_overload_fits_and_never_wrongly(fast):
    """What is remembered are the types of the arguments; whatever depends on a value or on another type is found anew."""
    scale, scale_int = fast.scale.overloads
    x = f64(3)
    for _ in range(3):  # the second and third call remember
        with goes(scale, PLAIN):
            assert torch.equal(fast.scale(x, 3.0), x * 3)
        with goes(scale_int, OTHER, 0), goes(scale, PLAIN, 0):
            assert torch.equal(fast.scale(x, 3), x * 3)  # fits both: torch picks
        with goes(scale, PLAIN):
            assert torch.equal(fast.scale(x=x, by=3.0), x * 3)
        with goes(scale, GRADIENT, runs=1):
            assert fast.scale(f64(3, requires_grad=True), 3.0).requires_grad
        with goes(scale, PLAIN, 0):
            assert type(fast.scale(x.as_subclass(Marked), 3.0)) is Marked
        with goes(scale, PLAIN, 0), pytest.raises(RuntimeError):
            fast.scale(x, "three")
    fresh = [type(f"T{i}", (torch.Tensor,), {}) for i in range(20)]  # more types than are remembered, and they go away
    for t in fresh:
        assert isinstance(fast.scale(x.as_subclass(t), 3.0), t)
    del fresh, t
    with goes(scale, PLAIN):
        assert torch.equal(fast.scale(x, 3.0), x * 3)


def test_arrays_and_tensors_in_one_call_are_an_error_that_names_both(ops):
    numpy = pytest.importorskip("numpy")
    cat = _core.find("torch_ops::cat")
    t, a = torch.ones(2, 3), numpy.ones((2, 3), "float32")
    for args, names in (((cat, [t, a]), "torch.*found numpy.ndarray"), ((cat, [a, t]), "numpy.*found torch.Tensor")):
        with pytest.raises(TypeError, match=f"torch_ops::cat: argument 'xs\\[1\\]': expected a tensor of {names}, which belongs to"):
            args[0](*args[1:])


def test_names(fast):
    scale, x = _core.find("fastpath::scale"), f64(3)
    with goes(scale, PLAIN, 2):
        assert torch.equal(scale(by=3.0, x=x), x * 3) and torch.equal(scale(x, by=1), x)
    with goes(scale, GRADIENT, runs=1):
        y = scale(x=x.requires_grad_(), by=3.0)
    assert torch.equal(y, x * 3)


def test_lists_and_options(ops):
    cat, pick = _core.find("torch_ops::cat"), _core.find("torch_ops::pick")
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    with goes(cat, PLAIN, 2):
        assert torch.equal(cat([x, y], 1), torch.cat([x, y], 1)) and torch.equal(cat((x, y)), torch.cat([x, y]))
    with goes(cat, OTHER):
        assert torch.equal(cat([x, y.as_subclass(Marked)]), torch.cat([x, y]))
    with goes(pick, PLAIN, 3):
        assert torch.equal(pick(x), x) and torch.equal(pick(x, None), x) and torch.equal(pick(x, y[0], layout="NT"), x + y[0])


def test_several_results(ops):
    halves, stats = _core.find("torch_ops::halves"), _core.find("torch_ops::stats")
    x = torch.arange(6.0)
    with goes(halves, PLAIN), goes(stats, PLAIN):
        low, high = halves(x)
        assert stats(x) == (6, 15.0, True)
    assert torch.equal(low, torch.ops.torch_ops.halves(x)[0]) and torch.equal(high, torch.ops.torch_ops.halves(x)[1])


def test_views_are_torchs(ops):
    swapped, x = _core.find("torch_ops::swapped"), torch.randn(2, 3)
    with goes(swapped, OTHER):
        y = swapped(x, 0, 1)
    assert y.data_ptr() == x.data_ptr() and torch.equal(y, x.t())


# ---- writes

def test_writes(fast):
    x, out = f64(3), f64(3)
    version, read = out._version, x._version
    with goes(fast.copy_to, PLAIN):
        assert fast.copy_to(x, out) is None
    assert torch.equal(out, x) and out._version == version + 1 and x._version == read
    inc_ = _core.find("torch_ops::inc_")
    y = torch.zeros(3)
    with goes(inc_, PLAIN):
        assert inc_(y) is y
    assert y._version == 1 and torch.equal(y, torch.ones(3))
    inc_all, ys = _core.find("torch_ops::inc_all"), [torch.zeros(2), torch.zeros(3)]
    with goes(inc_all, PLAIN):
        inc_all(ys)
    assert [t._version for t in ys] == [1, 1]


def test_saved_tensor_that_is_written(fast):
    x = f64(3, requires_grad=True)
    saved = x * 2
    y = saved ** 2
    with torch.no_grad(), goes(fast.copy_to, PLAIN):
        fast.copy_to(f64(3), saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_failing_check_writes_nothing(fast):
    out = f64(3)
    before, version = out.clone(), out._version
    with goes(fast.copy_to, PLAIN), pytest.raises(RuntimeError, match="copy_to: argument 'out': expected shape"):
        fast.copy_to(f64(4), out)
    assert torch.equal(out, before) and out._version == version


def test_overlap_is_refused(fast):
    x = f64(6)
    for args in ((x[:4], x[1:5]), (f64(3, 3), x[:3].expand(3, 3))):
        with goes(fast.copy_to, PLAIN), pytest.raises(RuntimeError, match="overlap"):
            fast.copy_to(*args)


def test_written_view(fast):
    x, out = f64(3, 2), f64(3, 4)
    with goes(fast.copy_to, PLAIN):
        fast.copy_to(x, out[:, ::2])
    assert torch.equal(out[:, ::2], x) and out._version == 1


def test_out(fast):
    x, out = f64(3), f64(3)
    version = out._version
    with goes(fast.copy, PLAIN, 2):
        assert fast.copy(x, out=out) is out and fast.copy(x, out) is out
    assert torch.equal(out, x) and out._version == version + 2
    leaf = f64(3, requires_grad=True)
    with goes(fast.copy, OTHER), pytest.raises(RuntimeError, match="automatic differentiation"):
        fast.copy(x, out=leaf)
    before = _core.torch.taken(fast.copy)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        fast.copy(leaf, out=out)
    assert _core.torch.taken(fast.copy)[PLAIN] == before[PLAIN]


def test_out_of_another_shape(fast):
    x, out = f64(3), torch.empty(0, dtype=torch.float64)
    with goes(fast.copy, OTHER):
        assert fast.copy(x, out=out) is out
    assert torch.equal(out, x)


# ---- results are ordinary tensors

def test_results_are_ordinary(fast):
    y = fast.copy(f64(3))
    assert y._version == 0 and y.is_leaf and not y.requires_grad and not y.is_inference()
    assert torch._C._dispatch_keys(y) == torch._C._dispatch_keys(torch.empty(3))
    y.resize_(10).fill_(1)
    assert torch.equal(pickle.loads(pickle.dumps(y)), y)
    y.requires_grad_()
    (y * 2).sum().backward()
    assert torch.equal(y.grad, torch.full((10,), 2.0, dtype=torch.float64))
    y.mark = "kept"
    reference = weakref.ref(y)
    assert reference().mark == "kept"
    del y
    assert reference() is None
    z = fast.copy(f64(3)).share_memory_()
    assert z.is_shared() and z.storage_offset() == 0


# ---- errors, life, threads

def test_a_kernel_that_fails(ops):
    fail_if, x = _core.find("torch_ops::fail_if"), torch.ones(2, 2)
    with goes(fail_if, PLAIN, 3):
        with pytest.raises(dovetail.DovetailError, match="torch_ops::fail_if: the kernel says: no"):
            fail_if(x, 1)
        with pytest.raises(RuntimeError, match="m % 2 == 0"):
            fail_if(torch.ones(2, 3), 0)
        assert torch.equal(fail_if(x, 0), x)


def test_mixed_devices(ops):
    badd = _core.find("torch_ops::badd")
    with goes(badd, OTHER), pytest.raises(RuntimeError, match="on cpu"):
        badd(torch.ones(2), torch.ones(2, device="meta"))


def test_policy(ops):
    gated, x, y = _core.find("torch_ops::gated"), f64(3), f64(3)
    try:
        for text in ("all", "all,-torch_ops::gated"):
            _core.policy_set(text)
            before = _core.policy_counts().get("torch_ops::gated", (0, 0))
            with goes(gated, PLAIN):
                assert torch.allclose(gated(x, y), x * torch.sigmoid(y))
            after = _core.policy_counts()["torch_ops::gated"]
            assert [b - a for a, b in zip(before, after)] == [int(text == "all"), int(text != "all")]
    finally:
        _core.policy_set(None)


def test_deterministic(fast):
    x = f64(1)
    assert fast.flags(x) == torch.ops.fastpath.flags(x) == 0
    torch.use_deterministic_algorithms(True)
    try:
        with goes(fast.flags, PLAIN):
            assert fast.flags(x) == 1
        assert torch.ops.fastpath.flags(x) == 1
    finally:
        torch.use_deterministic_algorithms(False)


def test_no_leaks(fast):
    x, out = f64(3), f64(3)

    def calls(n):
        for _ in range(n):
            fast.copy(x)
            fast.copy_to(x, out)
            fast.copy(x, out=out)
            with contextlib.suppress(RuntimeError):
                fast.copy_to(f64(2), out)

    def held():
        gc.collect()
        held = dict(zip(("x", "out", "operator", "Tensor", "None"), map(sys.getrefcount, (x, out, fast.copy, torch.Tensor, None))))
        held["tensors"] = sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())
        return held

    calls(10)
    before = held()
    calls(10_000)
    grown = {k: n - before[k] for k, n in held().items()}  # what other tests left behind may go away meanwhile: only growth counts
    assert max(grown.values()) < 1_000, grown


def test_threads(fast):
    wrong, x = [], f64(4, 5)

    def work(seed):
        try:
            for i in range(300):
                with torch.inference_mode() if i % 3 == seed % 3 else contextlib.nullcontext():
                    if not torch.equal(fast.copy(x), x):
                        wrong.append(seed)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_torchs_threads(ops):
    total, x = _core.find("torch_ops::total"), torch.ones(100_000)
    with goes(total, PLAIN):
        assert total(x).item() == 100_000
    before, torch_threads = total(x), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert torch.equal(total(x), before)
    finally:
        torch.set_num_threads(torch_threads)


def test_unload(tmp_path):
    (tmp_path / "gone.c").write_text(one("fastpath_gone"))
    library = dovetail.load(compile_ops(tmp_path / "gone.c", tmp_path / "gone.so"))
    f, x = library.f, torch.zeros(2)
    with goes(f, PLAIN):
        assert torch.equal(f(x), torch.ones(2))
    library.close()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="fastpath_gone::f: the operator's library was unloaded: load it again"):
            f(x)
    library = dovetail.load(tmp_path / "gone.so")
    with goes(library.f, PLAIN):
        assert torch.equal(library.f(x), torch.ones(2))
    library.close()


def test_unregistered(tmp_path):
    """Without torch's registration nothing is short: the message says what to do."""
    (tmp_path / "alone.c").write_text(one("fastpath_alone"))
    handle = _core.load(compile_ops(tmp_path / "alone.c", tmp_path / "alone.so"))
    f, x = _core.find("fastpath_alone::f"), torch.zeros(2)
    try:
        with goes(f, OTHER), pytest.raises(RuntimeError, match="not registered in torch"):
            f(x)
        register(handle)
        with goes(f, PLAIN):
            f(x)
        unregister(handle)
        with goes(f, OTHER), pytest.raises(RuntimeError, match="fastpath_alone::f"):
            f(x)
    finally:
        _core.library_free(handle)


def test_arrays_are_as_before(fast):
    numpy = pytest.importorskip("numpy")
    x = numpy.arange(3.0)
    with goes(fast.copy, PLAIN, 0):
        assert (fast.copy(x) == x).all()
    scale = _core.find("fastpath::scale")
    with pytest.raises((TypeError, RuntimeError)):
        fast.copy_to(x, f64(3))
    assert (scale(x, 3.0) == 3 * x).all()
