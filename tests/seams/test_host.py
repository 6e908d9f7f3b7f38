"""A new framework is one folder in bridges/, and no line anywhere else: the toy here is added to a copy of the sources, built and used."""
import filecmp
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPERATOR = r"""
#include <dovetail_op.h>
struct twice { const dv_tensor *x; dv_tensor *out; };
static int twice(dv_context *ctx, const struct twice *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        ((float *)a->out->data)[i] = 2 * ((const float *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(twice, struct twice, (x, out), .schema = "twice(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct twice, "cpu", "f32", twice)));
struct join { dv_tensors xs; dv_tensor *out; };
static int join(dv_context *ctx, const struct join *a)
{
    (void)ctx;
    ((float *)a->out->data)[0] = (float)a->xs.size;
    return DV_OK;
}
DV_OPERATOR(join, struct join, (xs, out), .schema = "join(Tensor[] xs, Tensor(a!) out) -> ()", .contract = "xs{i}[k{i}]:f32, out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct join, "cpu", "f32", join)));
DV_LIBRARY(toys, &dv_op_twice, &dv_op_join);
"""
PROGRAM = r"""
import sys
import dovetail
from dovetail._core import toy
toys = dovetail.load(sys.argv[1], attach=False)
x, out = toy.Array([1.0, 2.0]), toy.Array([0.0, 0.0])
y = toys.twice(x)
assert type(y) is toy.Array and y.tolist() == [2.0, 4.0]
assert toys.twice(x, out) is out and out.tolist() == [2.0, 4.0] and out.written == 1
toys.join([x, y, x], out)
assert out.tolist()[0] == 3 and (out.written, x.written) == (2, 0)
try:
    toys.twice("x")
except TypeError as error:
    assert "argument 'x': expected Tensor" in str(error), error
import numpy
assert toys.twice(numpy.ones(2, "float32")).tolist() == [2.0, 2.0]
for call, first, other in ((lambda: toys.join([x, numpy.ones(2, "float32")], out), "toy", "numpy"), (lambda: toys.twice(x, numpy.ones(2, "float32")), "toy", "numpy"),
                           (lambda: toys.join([numpy.ones(2, "float32"), x], out), "numpy", "toy")):
    try:
        call()
    except TypeError as error:
        assert f"expected a tensor of {first}" in str(error) and f"which belongs to {other}" in str(error), error
    else:
        raise AssertionError("no error")
class Exports:
    def __dlpack__(self, **kwargs): raise BufferError
try:
    toys.twice(x, Exports())
except TypeError as error:
    assert "result 'out': expected Tensor" in str(error), error
refs = sys.getrefcount(x), sys.getrefcount(toy.Array)
for _ in range(1000):
    toys.twice(x)
    toys.join([x, x], out)
assert (sys.getrefcount(x), sys.getrefcount(toy.Array)) == refs
print("toys work")
"""


def differing(a, b):
    """Files that are not the same in two trees, or in one of them only."""
    compared = filecmp.dircmp(a, b)
    yield from (pathlib.Path(b, name) for name in compared.left_only + compared.right_only + compared.diff_files)
    for name in compared.common_dirs:
        yield from differing(os.path.join(a, name), os.path.join(b, name))


@pytest.mark.slow
def test_a_host_is_one_folder(tmp_path):
    before, tree, build = tmp_path / "before", tmp_path / "tree", tmp_path / "build"
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file():
            (before / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, before / name)
    shutil.copytree(before, tree)
    shutil.copytree(pathlib.Path(__file__).parent / "toy", tree / "bridges" / "toy")
    assert list(differing(before, tree)) == [tree / "bridges" / "toy"]  # 1 folder, 0 shared lines

    subprocess.run(["cmake", "-G", "Ninja", "-B", build, "-S", tree, "-DDOVETAIL_PYTHON=ON", "-DDOVETAIL_TESTS=OFF", "-DCMAKE_BUILD_TYPE=Debug",
                    f"-DPython_EXECUTABLE={sys.executable}"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", build, "--quiet", "python_core"], check=True)
    (tmp_path / "toys.c").write_text(OPERATOR)
    subprocess.run(["cc", "-std=c11", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{tree / 'include'}", tmp_path / "toys.c", "-o", tmp_path / "toys.so"],
                   check=True)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, tmp_path / "program.py", tmp_path / "toys.so"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(build / "python")})
    assert (done.returncode, done.stdout) == (0, "toys work\n"), done.stderr
