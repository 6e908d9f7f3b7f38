"""Results that are larger than the last cache are stored past it: the same numbers, at every alignment, with every number of threads."""
import pathlib

import ml_dtypes
import numpy
import pytest

import dovetail

SIZE = pathlib.Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
CACHE = min(int(SIZE.read_text().rstrip("K\n")) << 10 if SIZE.exists() else 1 << 25, 1 << 25)  # of one that many cores share, 32 MB count

FLAGS = """
#include <dovetail_op.h>
struct flags { const dv_tensor *x; dv_tensor *out; };
static int flags(dv_context *ctx, const struct flags *a)
{
    ((uint8_t *)a->out->data)[0] = (uint8_t)(ctx->flags & DV_CTX_EXCEEDS_CACHE);
    return DV_OK;
}
#define FLAGS(name, more) DV_OPERATOR(name, struct flags, (x, out), .schema = #name "(Tensor x) -> Tensor out", \\
    .contract = "x[*s]:u8 -> out[*s]:u8; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct flags, "cpu", NULL, flags more)))
#define SPLIT , .split = 65536
FLAGS(whole, );
FLAGS(pieces, SPLIT);
DV_LIBRARY(large_flags, &dv_op_whole, &dv_op_pieces);
"""


def test_kernels_are_told(tmp_path):
    (tmp_path / "flags.c").write_text(FLAGS)
    with dovetail.load(tmp_path / "flags.c") as library:
        for n, large in ((1 << 17, 0), (CACHE - 1, 0), (CACHE, 4)):
            x = numpy.zeros(n, numpy.uint8)
            for f in (library.whole, library.whole, library.pieces):  # the second call is a remembered one
                assert f(x)[0] == large, (n, f)
            assert f(x)[-(n % 65536 or 65536)] == large


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float64, numpy.float16, ml_dtypes.bfloat16])
def test_the_same_numbers(dtype):
    n = CACHE // numpy.dtype(dtype).itemsize + 1000
    some = numpy.random.default_rng(0).standard_normal(1000003).astype(dtype)
    memory = [numpy.resize(some, n + 64) for _ in range(2)] + [numpy.zeros(n + 64, dtype)]
    for gate, up, to in ((0, 0, 0), (1, 2, 3)):  # elements: only the first is aligned to lines of the cache
        x, y, out = memory[0][gate:gate + n], memory[1][up:up + n], memory[2][to:to + n]
        for threads in (1, 2):
            dovetail.set_threads(threads)
            out[:] = 0
            dovetail.ops.swiglu(x, y, out=out)
            for at in range(0, n, 1 << 19):
                part = slice(at, at + (1 << 19))
                assert numpy.array_equal(out[part].view(numpy.uint8), dovetail.ops.swiglu(x[part], y[part]).view(numpy.uint8)), (gate, threads, at)
    dovetail.set_threads(0)


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "softmax"])
def test_the_same_lines(isa, dtype, name):
    """Of whole vectors or not, longer or shorter than what is prefetched."""
    for n in (1024, 1000, 80, 5008):
        rows = CACHE // numpy.dtype(dtype).itemsize // n + 5
        x = numpy.resize(numpy.random.default_rng(0).standard_normal(100003).astype(dtype), (rows, n))
        more = () if name == "softmax" else (numpy.linspace(-2, 2, n).astype(dtype),)
        f = getattr(dovetail.ops, name)
        out, step = f(x, *more), rows // 3
        for at in range(0, rows, step):
            assert numpy.array_equal(out[at:at + step].view(numpy.uint8), f(x[at:at + step], *more).view(numpy.uint8)), (n, at)
