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
TWO(two);
TWO(chosen);
OWN(own);
OWN(angle);
DV_LIBRARY(lines, &dv_op_sum, &dv_op_two, &dv_op_chosen, &dv_op_own, &dv_op_angle);
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
