"""DV_ELEMENTWISE beside NumPy: inputs that repeat, several results, comparisons, results that are written in place, in all float types, with
every instruction set, in sizes around a block, and larger than the last cache."""
import ml_dtypes
import numpy
import pytest

import dovetail
from test_large import CACHE

SOURCE = """
#include <dovetail_elementwise.h>
struct two { const dv_tensor *x, *y, *z; dv_tensor *sum, *most; };
DV_ELEMENTWISE(two, struct two, (x, y, z), (sum, most), sum = x + y + z; most = y * 2 - x)
DV_ELEMENTWISE(chosen, struct two, (x, y, z), (sum, most), sum = x + y + z; most = dv_select(x > y, x, y))
struct own { dv_tensor *x; const dv_tensor *y; };
DV_ELEMENTWISE(own, struct own, (x, y), (x), x = x - y)
DV_ELEMENTWISE(angle, struct own, (x, y), (x), x = dv_sin(y) + x)
#define TYPES ":T; T in f32 f64 bf16 f16"
#define TWO(NAME) DV_OPERATOR(NAME, struct two, (x, y, z, sum, most), .schema = #NAME "(Tensor x, Tensor y, Tensor z) -> (Tensor sum, Tensor most)", \\
    .contract = "x[*s n]:T, y[n]:T, z[]:T -> sum[*s n]:T, most[*s n]" TYPES, .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct two, NAME, .flags = 0)))
#define OWN(NAME) DV_OPERATOR(NAME, struct own, (x, y), .schema = #NAME "(Tensor(a!) x, Tensor y) -> ()", \\
    .contract = "x[*s]:T, y[*s]" TYPES, .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct own, NAME, .flags = 0)))
#define ANY(T) T " in f32 f64 bf16 f16 i8 i16 i32 i64 u8 bool"
struct sum { const dv_tensor *x, *y; dv_dtype dtype; dv_tensor *out; };
DV_ELEMENTWISE(sum, struct sum, (x, y), (out), out = x + y)
DV_OPERATOR(sum, struct sum, (x, y, dtype, out), .schema = "sum(Tensor x, Tensor y, ScalarType dtype) -> Tensor out",
    .contract = "x[*s n]:T, y[n]:U -> out[*s n]:dtype; " ANY("T") "; " ANY("U"),
    .kernels = DV_KERNELS(DV_ELEMENTWISE_KERNELS(struct sum, sum, NULL, .flags = 0)));
struct mix { const dv_tensor *x, *y, *z; dv_tensor *sum, *less; };
DV_ELEMENTWISE(mix, struct mix, (x, y, z), (sum, less), sum = x + y * z; less = x - z)
DV_OPERATOR(mix, struct mix, (x, y, z, sum, less), .schema = "mix(Tensor x, Tensor y, Tensor z) -> (Tensor sum, Tensor less)",
    .contract = "x[*a]:T, y[*b]:U, z[*c]:T -> sum[broadcast(*a, *b, *c)]:T, less[broadcast(*a, *b, *c)]:T; " ANY("T") "; " ANY("U"),
    .kernels = DV_KERNELS(DV_ELEMENTWISE_KERNELS(struct mix, mix, NULL, .flags = 0)));
struct wide { const dv_tensor *x, *y; bool shifted, fails; dv_tensor *out; };
static int wide_slice(dv_context *ctx, const struct wide *a)
{
    const int64_t n = dv_numel(a->out), x_step = dv_numel(a->x) != 1, y_step = dv_numel(a->y) != 1;
    if (a->fails)
        return dv_error(ctx, DV_EINVAL, "this slice of %lld elements fails", (long long)n);
    for (int64_t i = 0; i < 2 * n; i++)
        ((double *)a->out->data)[i] = ((const double *)a->x->data)[i % 2 + i / 2 * 2 * x_step] + ((const double *)a->y->data)[i % 2 + i / 2 * 2 * y_step];
    return DV_OK;
}
static int wide(dv_context *ctx, const struct wide *a)
{
    if (a->shifted)
        return DV_FOR_EACH_SLICE(ctx, struct wide, a, (out, y), (x), wide_slice);
    return DV_FOR_EACH_SLICE(ctx, struct wide, a, (x, y), (out), wide_slice);
}
DV_OPERATOR(wide, struct wide, (x, y, shifted, fails, out), .schema = "wide(Tensor x, Tensor y, bool shifted=False, bool fails=False) -> Tensor out",
    .contract = "x[*a]:c128, y[*b]:c128 -> out[broadcast(*a, *b)]:c128", .kernels = DV_KERNELS(DV_KERNEL(struct wide, "cpu", "c128", wide)));
struct free { const dv_tensor *x, *y; dv_tensor *out; };
DV_ELEMENTWISE(free_line, struct free, (x, y), (out), out = x + y)
DV_OPERATOR(free, struct free, (x, y, out), .schema = "free(Tensor x, Tensor y) -> Tensor out", .contract = "x[*s]:f32, y[*t]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_ELEMENTWISE_KERNELS(struct free, free_line, "f32", .flags = 0)));
struct loose { const dv_tensor *x; dv_tensor *out; };
DV_ELEMENTWISE(loose_line, struct loose, (x), (out), out = x + 1)
DV_OPERATOR(loose, struct loose, (x, out), .schema = "loose(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32; strided(x)",
    .kernels = DV_KERNELS(DV_ELEMENTWISE_KERNELS(struct loose, loose_line, "f32", .flags = 0)));
struct dims { const dv_tensor *x, *y; bool draws, fails; dv_tensor *out; };
static int dims_slice(dv_context *ctx, const struct dims *a)
{
    uint64_t seed, offset;
    if (a->draws && dv_random(ctx, NULL, 4, &seed, &offset))
        return DV_EINVAL;
    if (a->fails)
        return dv_error(ctx, 0, "a status of 0");
    for (int64_t i = 0; i < a->out->shape[0]; i++)
        ((float *)a->out->data)[i] = a->x->ndim == 1 && a->y->ndim == 1 && a->out->ndim == 1;
    return DV_OK;
}
static int dims(dv_context *ctx, const struct dims *a) { return DV_FOR_EACH_SLICE(ctx, struct dims, a, (x, y), (out), dims_slice); }
DV_OPERATOR(dims, struct dims, (x, y, draws, fails, out), .schema = "dims(Tensor x, Tensor y, bool draws=False, bool fails=False) -> Tensor out",
    .contract = "x[*s]:f32, y[*s]:f32 -> out[*s]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct dims, "cpu", "f32", dims)));
struct cut { const dv_tensor *x, *y; dv_tensor *out; };
DV_ELEMENTWISE(cut, struct cut, (x, y), (out), out = x - y)
DV_OPERATOR(cut, struct cut, (x, y, out), .schema = "cut(Tensor x, Tensor y) -> Tensor out", .contract = "x[*s]:T, y[*s]:T -> out[*s]:T; parallel(*s)",
    .kernels = DV_KERNELS(DV_ISA_KERNELS(struct cut, cut, "f32 bf16", .split = 64)));
static int rows(dv_context *ctx, const struct cut *a)
{
    (void)ctx;
    const int64_t n = a->x->shape[a->x->ndim - 1], lines = dv_numel(a->out) / (n ? n : 1);
    for (int64_t i = 0; i < lines * n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] - ((const float *)a->y->data)[i % n];
    return DV_OK;
}
DV_OPERATOR(rows, struct cut, (x, y, out), .schema = "rows(Tensor x, Tensor y) -> Tensor out", .contract = "x[a b n]:f32, y[n]:f32 -> out[a b n]:f32; parallel(a, b)",
    .kernels = DV_KERNELS(DV_KERNEL(struct cut, "cpu", "f32", rows, .split = 4)));
TWO(two);
TWO(chosen);
OWN(own);
OWN(angle);
DV_LIBRARY(lines, &dv_op_free, &dv_op_loose, &dv_op_dims, &dv_op_cut, &dv_op_rows, &dv_op_mix, &dv_op_wide, &dv_op_sum, &dv_op_two, &dv_op_chosen, &dv_op_own, &dv_op_angle);
"""
TYPES = [numpy.float32, numpy.float64, ml_dtypes.bfloat16, numpy.float16]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    file = tmp_path_factory.mktemp("lines") / "lines.c"
    file.write_text(SOURCE)
    with dovetail.load(file) as library:
        yield library


def draw(dtype, *shape, seed=0):
    """Numbers with few digits, so that sums of three are exact in float: some are 0, denormal, infinite, or no number."""
    numbers = numpy.random.default_rng(seed)
    x = numbers.integers(-40, 40, shape) / 8
    special = numbers.random(shape) < 0.02
    small = float(ml_dtypes.finfo(dtype).smallest_subnormal) * 3
    return numpy.where(special, numbers.choice([0.0, -0.0, small, -small, numpy.inf, numpy.nan], shape), x).astype(dtype)


def same(found, exact):
    with numpy.errstate(all="ignore"):
        numpy.testing.assert_array_equal(found.astype(numpy.float64), exact.astype(found.dtype).astype(numpy.float64))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: numpy.dtype(t).name)
@pytest.mark.parametrize("name", ["two", "chosen"])
def test_an_input_that_repeats(lines, isa, dtype, name):
    for rows, n in [(1, 1), (5, 3), (3, 63), (4, 64), (7, 65), (3, 100), (2, 127), (5, 128), (3, 200), (2, 1000), (70, 1), (0, 4), (1, 4096), (9, 129)]:
        x, y, z = draw(dtype, rows, n), draw(dtype, n, seed=1), numpy.array(1.5, dtype)
        total, most = getattr(lines, name)(x, y, z)
        with numpy.errstate(all="ignore"):
            wide, other = (t.astype(numpy.float64 if dtype == numpy.float64 else numpy.float32) for t in (x, y))
            same(total, (wide + other) + wide.dtype.type(1.5))
            same(most, 2 * other - wide if name == "two" else numpy.where(wide > other, wide, other))


def shapes_that_broadcast(numbers, count):
    """Shapes of `count` tensors of 0 to 5 dims. Rows are short, or longer than those that are copied, or than a repeated bias."""
    size = numbers.choice([[1, 2, 3, 5], [1, 7, 64, 70], [1, 2, 45, 2500], [1, 1, 300, 1100], [0, 1, 2, 9]])
    shape = [int(numbers.choice(size)) if numbers.random() < 0.6 or d < 3 else 1 for d in range(5)]
    while numpy.prod(shape) > 200_000:
        shape[shape.index(max(shape))] = 1
    for _ in range(count):
        begin = int(numbers.integers(0, 6))
        yield tuple(n if numbers.random() < 0.6 else 1 for n in shape[begin:])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype, other", [(numpy.float32, numpy.float32), (ml_dtypes.bfloat16, numpy.float32), (numpy.float64, numpy.int64), (numpy.float16, numpy.uint8), (numpy.float32, numpy.bool_)],
                         ids=lambda t: numpy.dtype(t).name)
def test_inputs_that_broadcast(lines, isa, dtype, other, threads):
    """Each of three inputs to the shape of all. The bits are those of inputs that NumPy has broadcast."""
    numbers = numpy.random.default_rng(11)
    before = dovetail.get_threads()
    dovetail.set_threads(threads)
    try:
        for _ in range(120):
            shapes = list(shapes_that_broadcast(numbers, 3))
            x, z = (draw(dtype, *shape, seed=k) for k, shape in enumerate((shapes[0], shapes[2])))
            y = draw(numpy.float32, *shapes[1]) if other is numpy.float32 else numbers.integers(0, 9 if other is not numpy.bool_ else 2, shapes[1]).astype(other)
            whole = [t.copy() for t in numpy.broadcast_arrays(x, y, z)]
            with numpy.errstate(all="ignore"):
                for found, exact in zip(lines.mix(x, y, z), lines.mix(*whole)):
                    assert found.shape == whole[0].shape and found.tobytes() == exact.tobytes(), (shapes, dtype)
                real = [t.astype(numpy.float64 if {dtype, other} & {numpy.float64, numpy.int64} else numpy.float32) for t in (x, z)]
                same(lines.mix(x, y, z)[1], numpy.broadcast_to(real[0] - real[1], whole[0].shape))
    finally:
        dovetail.set_threads(before)


def test_broadcast_of_a_kernel_of_ones_own(lines):
    """Elements of 16 bytes; a slice that fails; tensors that do not broadcast."""
    numbers = numpy.random.default_rng(12)
    for _ in range(200):
        x, y = (numbers.standard_normal((*shape, 2)).view(numpy.complex128)[..., 0] for shape in shapes_that_broadcast(numbers, 2))
        x, y = numpy.ascontiguousarray(x), numpy.ascontiguousarray(y)
        numpy.testing.assert_array_equal(lines.wide(x, y), x + y)
    x = numpy.ones((300, 400), numpy.complex128)
    with pytest.raises(ValueError, match="lines::wide: this slice of [0-9]+ elements fails"):
        lines.wide(x, x[:, :1], False, True)
    with pytest.raises(ValueError, match=r"lines::wide: DV_FOR_EACH_SLICE: expected 'out' of a shape that broadcasts to that of 'x', \[1, 400\], found \[300, 400\]"):
        lines.wide(x[:1], x, True)


def test_misfits(lines):
    """Shapes that only have the same number of elements, and tensors that are not contiguous, are errors; slices always have one dim."""
    x = numpy.arange(42, dtype=numpy.float32).reshape(6, 7)
    with pytest.raises(ValueError, match=r"'y' has the shape \[7, 6\], which does not broadcast to \[6, 7\]"):
        lines.free(x, x.reshape(7, 6))
    with pytest.raises(ValueError, match="lines::loose: an elementwise kernel needs a contiguous 'x'"):
        lines.loose(x.T)
    assert (lines.loose(x) == x + 1).all()
    for shape in [(), (1,), (1, 40), (3, 1, 5), (70, 600)]:
        y = numpy.ones(shape, numpy.float32)
        assert lines.dims(y, y).tolist() == numpy.ones(shape).tolist()
    with pytest.raises(ValueError, match="lines::dims: dv_random: called in a chunk of dv_parallel_for"):
        lines.dims(y, y, draws=True)
    with pytest.raises(dovetail.DovetailError, match="lines::dims: a status of 0"):
        lines.dims(y, y, fails=True)


def view_of(x, numbers):
    """An array equal to x that lies in some other way: dims in another order, with steps, backwards, repeated."""
    order = numbers.permutation(x.ndim)
    steps = numbers.choice([1, 1, 2, 3, -1, -2], x.ndim)
    memory = numpy.zeros([n * abs(step) for n, step in zip(numpy.array(x.shape, int)[order], steps)], x.dtype)
    view = memory[(*(slice(None, None, int(step)) for step in steps), ...)].transpose(numpy.argsort(order))
    view[...] = x
    assert view.shape == x.shape
    return view


@pytest.mark.parametrize("threads", [1, 3])
def test_slices_of_inputs_that_lie_in_some_other_way(lines, threads):
    """Each slice copies its own part of them. Slices begin and end within rows, planes and blocks of them."""
    numbers = numpy.random.default_rng(13)
    before = dovetail.get_threads()
    dovetail.set_threads(threads)
    try:
        for i in range(100):
            dtype = [numpy.float32, ml_dtypes.bfloat16][i % 2]
            shape = numbers.choice([[1, 2, 3, 7], [5, 9, 13, 2], [1, 40, 3, 70]][i % 3], numbers.integers(0, 5))
            x, y = draw(dtype, *shape), draw(dtype, *shape, seed=1)
            a, b = view_of(x, numbers), view_of(y, numbers) if i % 4 else y
            assert numpy.asarray(lines.cut(a, b)).tobytes() == numpy.asarray(lines.cut(x, y)).tobytes(), (shape, a.strides, b.strides)
            with numpy.errstate(all="ignore"):
                same(lines.cut(a, b), x.astype(numpy.float32) - y.astype(numpy.float32))
            x, y = numbers.standard_normal((*numbers.integers(0, 9, 2), 6)).astype(numpy.float32), numbers.standard_normal(6).astype(numpy.float32)
            numpy.testing.assert_array_equal(lines.rows(view_of(x, numbers), view_of(y, numbers)), x - y)
    finally:
        dovetail.set_threads(before)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: numpy.dtype(t).name)
def test_in_place(lines, isa, dtype):
    for n in (1, 63, 64, 65, 96, 129, 1000, 5001):
        for at in (0, 1):  # of another alignment
            x, y = draw(dtype, n + at)[at:], draw(dtype, n + at, seed=1)[at:]
            with numpy.errstate(all="ignore"):
                exact = x.astype(numpy.float64) - y.astype(numpy.float64)
            lines.own(x, y)
            same(x, exact)
            angles, x = (numpy.arange(n) * numpy.where(numpy.arange(n) % 50 == 7, 1e4, 0.1)).astype(dtype), numpy.zeros(n, dtype)
            lines.angle(x, angles)
            with numpy.errstate(all="ignore"):
                numpy.testing.assert_allclose(x.astype(numpy.float64), numpy.sin(angles.astype(numpy.float64)), atol=float(ml_dtypes.finfo(dtype).eps))


@pytest.mark.parametrize("name", ["two", "chosen"])
@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float16, ml_dtypes.bfloat16], ids=lambda t: numpy.dtype(t).name)
def test_large(lines, dtype, name):
    """The same bits as of a part that is not large."""
    n, f = 1000, getattr(lines, name)
    x, y, z = numpy.resize(draw(dtype, 1003, n), (CACHE // numpy.dtype(dtype).itemsize // n // 2 + 9, n)), draw(dtype, n, seed=1), numpy.array(0.5, dtype)
    total, most = f(x, y, z)
    for at in range(0, len(x), 100):
        part = slice(at, at + 100)
        for found, exact in zip((total, most), f(x[part], y, z)):
            assert numpy.array_equal(found[part].view(numpy.uint8), exact.view(numpy.uint8)), (dtype, name, at)


INTEGERS = [numpy.int8, numpy.int16, numpy.int32, numpy.int64, numpy.uint8, numpy.bool_]


def cut(x, dtype):
    """Doubles as a result of this dtype."""
    if dtype is numpy.bool_:
        return (x != 0) | numpy.isnan(x)
    if dtype not in INTEGERS:
        return x.astype(numpy.float32).astype(dtype) if numpy.dtype(dtype).itemsize == 2 else x.astype(dtype)
    least, most = numpy.iinfo(dtype).min, numpy.iinfo(dtype).max
    inside = numpy.trunc(numpy.where(numpy.isnan(x), 0, x))
    return numpy.array([least if v <= least else most if v >= most else int(v) for v in inside.ravel().tolist()], dtype).reshape(x.shape)


@pytest.mark.parametrize("out", [*TYPES, *INTEGERS], ids=lambda t: numpy.dtype(t).name)
@pytest.mark.parametrize("of", [*TYPES, *INTEGERS], ids=lambda t: numpy.dtype(t).name)
def test_mixed_dtypes(lines, isa, of, out):
    """Tails are as whole blocks: a bool is 0 or 1, whatever its byte."""
    numbers = numpy.random.default_rng(7)
    for rows, n, other in [(1, 1, numpy.int8), (1, 63, numpy.float32), (1, 64, of), (1, 65, numpy.float32), (1, 200, numpy.int32), (3, 43, of), (5, 100, numpy.float16), (4, 1, of)]:
        def take(dtype, *shape):
            if dtype is numpy.bool_:
                return numbers.integers(0, 4, shape).astype(numpy.uint8).view(numpy.bool_)
            x = draw(dtype, *shape, seed=n) if dtype in TYPES else numbers.integers(numpy.iinfo(dtype).min // 2, numpy.iinfo(dtype).max // 2, shape).astype(dtype)
            return x
        x, y = take(of, rows, n), take(other, n)
        wide = bool({numpy.float64, numpy.int32, numpy.int64} & {of, other, out})
        double = lambda t: (t.view(numpy.uint8) != 0).astype(numpy.float64) if t.dtype == bool else t.astype(numpy.float64)
        with numpy.errstate(all="ignore"):
            exact = double(x) + double(y)
            exact = cut(exact if wide else exact.astype(numpy.float32).astype(numpy.float64), out)
        found = lines.sum(x, y, "bool" if out is numpy.bool_ else numpy.dtype(out))
        assert found.dtype == out
        numpy.testing.assert_array_equal(found.astype(numpy.float64), exact.astype(numpy.float64))
