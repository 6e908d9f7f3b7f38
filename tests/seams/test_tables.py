"""A new dtype, schema type, builtin of the contract and operation of its program is a row in its table and little else: the toys here are added to a copy of the
sources, built once and used from C, the command, Python and NumPy. README.md tells how to make the patches anew."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GOALS = {"dtype": 1, "type": 5, "builtin": 2, "operation": 4}  # product files that each may touch
SOURCE = r"""
#include <dovetail_op.h>
struct widen { const dv_tensor *x; dv_tensor *out; };
static int widen(dv_context *ctx, const struct widen *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++) /* sign, 2 bits of exponent, 3 of mantissa */
    {
        const unsigned u = ((const uint8_t *)a->x->data)[i], m = u & 7, e = u >> 3 & 3;
        const float v = e ? (float)(8 + m) * (float)(1 << e) / 16 : (float)m / 8;
        ((float *)a->out->data)[i] = u & 32 ? -v : v;
    }
    return DV_OK;
}
DV_OPERATOR(widen, struct widen, (x, out), .schema = "widen(Tensor x) -> Tensor out", .contract = "x[*s]:x8_e2m3 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct widen, "cpu", NULL, widen)));

struct parts { dv_interval one; dv_opt_interval maybe; dv_intervals many; dv_tensor *out; };
static int parts(dv_context *ctx, const struct parts *a)
{
    int64_t *out = a->out->data;
    (void)ctx;
    out[0] = a->one.begin, out[1] = a->one.end, out[2] = a->maybe.has ? a->maybe.value.end : -1, out[3] = (int64_t)a->many.size;
    for (size_t i = 0; i < a->many.size; i++)
        out[3] += 10 * a->many.data[i].end;
    return DV_OK;
}
DV_OPERATOR(parts, struct parts, (one, maybe, many, out), .contract = "-> out[4]:i64",
    .kernels = DV_KERNELS(DV_KERNEL(struct parts, "cpu", NULL, parts)));

struct pad { const dv_tensor *x; dv_tensor *out; };
static int pad(dv_context *ctx, const struct pad *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < 2 * n; i++)
        ((float *)a->out->data)[i] = i < n ? ((const float *)a->x->data)[i] : 0;
    return DV_OK;
}
DV_OPERATOR(pad, struct pad, (x, out), .schema = "pad(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[twice(n)]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct pad, "cpu", NULL, pad)));

struct grid { const dv_tensor *x; dv_tensor *out; };
static int grid(dv_context *ctx, const struct grid *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n * n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i / n];
    return DV_OK;
}
DV_OPERATOR(grid, struct grid, (x, out), .schema = "grid(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[square(n)]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct grid, "cpu", NULL, grid)));
DV_LIBRARY(toys, &dv_op_widen, &dv_op_parts, &dv_op_pad, &dv_op_grid);
"""
MAIN = r"""
#include <dovetail.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    uint8_t memory[3];
    int64_t shape[] = { 3 }, strides[1];
    dv_library *lib;
    dv_operator *widen, *parts, *pad, *grid;
    dv_dtype x8, f32;
    dv_tensor x, y;
    float numbers[3] = { 1, 2, 3 };
    if (argc < 2 || dv_load(argv[1], &lib) || dv_find("toys::widen", &widen) || dv_find("toys::parts", &parts) || dv_find("toys::pad", &pad) || dv_find("toys::grid", &grid) ||
        dv_dtype_parse("x8_e2m3", &x8) || dv_dtype_parse("f32", &f32) || dv_tensor_init(&x, memory, x8, (dv_device){ DV_CPU, 0 }, 1, shape, NULL, strides) ||
        dv_tensor_init(&y, numbers, f32, (dv_device){ DV_CPU, 0 }, 1, shape, NULL, strides))
        return fprintf(stderr, "%s\n", dv_last_error()), 1;
    for (int i = 0; i < 3; i++)
        dv_element_put(memory, i, x8, (double)(i - 1) * 7.5);
    dv_value arg = dv_from_tensor(&x), result = dv_default();
    if (dv_call(widen, &arg, 1, &result, 1, NULL))
        return fprintf(stderr, "%s\n", dv_last_error()), 1;
    const float *w = result.as.tensor->data;
    printf("%g %g %g\n", (double)w[0], (double)w[1], (double)w[2]);
    const dv_interval many[] = { { 1, 2 }, { 3, 4 } };
    dv_value args[3] = { { .type = DV_VALUE_INTERVAL, .as.interval = { 5, 6 } }, dv_none(),
        { .type = DV_VALUE_INTERVALS, .as.intervals = { many, 2 } } };
    result = dv_default();
    if (dv_call(parts, args, 3, &result, 1, NULL))
        return fprintf(stderr, "%s\n", dv_last_error()), 1;
    const int64_t *n = result.as.tensor->data;
    printf("%d %d %d %d\n", (int)n[0], (int)n[1], (int)n[2], (int)n[3]);
    arg = dv_from_tensor(&y), result = dv_default();
    if (dv_call(pad, &arg, 1, &result, 1, NULL))
        return fprintf(stderr, "%s\n", dv_last_error()), 1;
    printf("%d\n", (int)result.as.tensor->shape[0]);
    result = dv_default();
    if (dv_call(grid, &arg, 1, &result, 1, NULL))
        return fprintf(stderr, "%s\n", dv_last_error()), 1;
    printf("%d\n", (int)result.as.tensor->shape[0]);
    return 0;
}
"""
PYTHON = r"""
import sys
import numpy
import dovetail
toys = dovetail.load(sys.argv[1])
try:
    import ml_dtypes
except ImportError:
    pass
else:
    x = numpy.array([-7.5, 0, 1.25], ml_dtypes.float6_e2m3fn)
    assert toys.widen(x).tolist() == [-7.5, 0, 1.25]
assert toys.parts((5, 6), None, [(1, 2), (3, 4)]).tolist() == [5, 6, -1, 62]
assert toys.parts((5, 6), (7, 8), []).tolist() == [5, 6, 8, 0]
try:
    toys.parts(5, None, [])
except TypeError as error:
    assert "argument 'one': expected" in str(error) and "Interval" in str(error) or "(begin, end)" in str(error), error
assert toys.pad(numpy.ones(3, "float32")).tolist() == [1, 1, 1, 0, 0, 0]
assert toys.grid(numpy.ones(3, "float32")).tolist() == [1] * 9
"""
TORCH = r"""
import sys
import torch
import dovetail
toys = dovetail.load(sys.argv[1])
f = torch.compile(lambda x: toys.pad(x), fullgraph=True, dynamic=True, backend="aot_eager")
assert f(torch.ones(3)).tolist() == [1, 1, 1, 0, 0, 0] and f(torch.ones(5)).shape == (10,)
f = torch.compile(lambda x: toys.grid(x), fullgraph=True, dynamic=True, backend="aot_eager")
assert f(torch.ones(3)).tolist() == [1] * 9 and f(torch.ones(5)).shape == (25,)
"""


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def patched(tree):
    """A copy of the sources in this folder, with all patches."""
    for name in run("git", "-C", ROOT, "ls-files", "-z").split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    for kind in GOALS:
        run("patch", "-p1", "--fuzz=3", "--no-backup-if-mismatch", "-d", tree, "-i", HERE / f"{kind}.patch")
    return tree


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """The sources with all toys, built: the folder."""
    tree = patched(tmp_path_factory.mktemp("seams") / "tree")
    run("cmake", "-G", "Ninja", "-B", tree / "build", "-S", tree, "-DDOVETAIL_PYTHON=ON", "-DDOVETAIL_TESTS=OFF", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        f"-DPython_EXECUTABLE={sys.executable}")
    run("ninja", "-C", tree / "build", "--quiet")
    (tree / "toys.c").write_text(SOURCE)
    (tree / "main.c").write_text(MAIN)
    run(tree / "build/bin/dovetail", "build", tree / "toys.c", "-o", tree / "toys.so")
    return tree


def python(tree, program):
    return run(sys.executable, "-c", program, tree / "toys.so", env={**os.environ, "PYTHONPATH": str(tree / "build/python"), "DOVETAIL_BUILD": str(tree / "build")})


def test_the_patches_apply(tmp_path):
    patched(tmp_path)


@pytest.mark.parametrize("kind", GOALS)
def test_files_that_a_patch_touches(kind):
    touched = re.findall(r"^\+\+\+ b/(\S+)", (HERE / f"{kind}.patch").read_text(), re.M)
    assert touched and len(set(touched)) <= GOALS[kind], touched


@pytest.mark.slow
def test_from_c(toys):
    lib = toys / "build/lib"
    run("cc", "-std=c11", f"-I{toys / 'include'}", toys / "main.c", f"-L{lib}", "-ldovetail", f"-Wl,-rpath,{lib}", "-o", toys / "main")
    assert run(toys / "main", toys / "toys.so").split("\n")[:4] == ["-7.5 0 7.5", "5 6 -1 62", "6", "9"]


@pytest.mark.slow
def test_from_the_command(toys):
    command = toys / "build/bin/dovetail"
    assert "x8_e2m3" in run(command, "info", toys / "toys.so")
    assert "Interval" in run(command, "explain", toys / "toys.so", "toys::parts", "[1,2]", "None", "[[3,4]]")
    for name in ("pad", "grid"):
        run(command, "check", toys / "toys.so", "--op", name, "--only", "shapes", "--time", "20")


@pytest.mark.slow
def test_from_python_and_numpy(toys):
    python(toys, PYTHON)


@pytest.mark.slow
def test_from_torch(toys):
    """torch has neither the dtype nor the type; the builtin is evaluated with symbolic sizes."""
    pytest.importorskip("torch")
    python(toys, TORCH)
