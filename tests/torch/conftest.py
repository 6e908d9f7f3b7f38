"""The operators of torch_ops.c, compiled once for the session, loaded and registered in torch."""
import pathlib
import shutil
import subprocess
import warnings

import pytest

torch = pytest.importorskip("torch")
warnings.filterwarnings("ignore", category=UserWarning)

import dovetail  # noqa: E402
from dovetail import _core  # noqa: E402
from dovetail.torch import private, register, unregister  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def needs(feature):
    """Skip the test where this torch lacks what a feature of the bridge stands on, with the reason that dovetail.torch.explain() gives."""
    if not private.features[feature]:
        pytest.skip(str(private.features[feature]))


def compile_ops(source, out, *flags):
    subprocess.run(["cc", "-std=c11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", *flags,
                    f"-I{ROOT / 'include'}", str(source), "-o", str(out), "-lm"], check=True)
    return out


@pytest.fixture(scope="session")
def binary(tmp_path_factory):
    return compile_ops(ROOT / "tests/torch/torch_ops.c", tmp_path_factory.mktemp("torch_ops") / "torch_ops.so")


@pytest.fixture(scope="session")
def library(binary):
    return _core.load(binary)


@pytest.fixture(scope="session")
def ops(library):
    register(library)
    return torch.ops.torch_ops


@pytest.fixture(scope="session")
def db(tmp_path_factory):
    """The operators of torch's custom_op_db, as a dovetail.Library."""
    return dovetail.load(compile_ops(ROOT / "tests/torch/custom_op_db.c", tmp_path_factory.mktemp("custom_op_db") / "custom_op_db.so"))


@pytest.fixture(scope="session")
def grad(tmp_path_factory):
    """The operators of grad_ops.c, which have gradients of every kind."""
    register(_core.load(compile_ops(ROOT / "tests/torch/grad_ops.c", tmp_path_factory.mktemp("grad_ops") / "grad_ops.so")))
    return torch.ops.grad_ops


@pytest.fixture(scope="session")
def more(tmp_path_factory):
    """The operators of more_ops.c, as a dovetail.Library."""
    return dovetail.load(compile_ops(ROOT / "tests/torch/more_ops.c", tmp_path_factory.mktemp("more_ops") / "more_ops.so"))


@pytest.fixture
def fresh(tmp_path):
    """fresh(C source) -> (dv_library *, Registration) of a library of its own, gone after the test."""
    made = []

    def make(text, name="fresh", register_it=True):
        source = tmp_path / f"{name}.c"
        source.write_text(text)
        handle = _core.load(compile_ops(source, tmp_path / f"{name}.so"))
        made.append(handle)
        return (handle, register(handle)) if register_it else handle

    make.forget = made.remove
    yield make
    for handle in made:
        unregister(handle)
        _core.library_free(handle)
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def load(tmp_path):
    """load(C source, file's name) -> a Library, closed after the test."""
    made = []

    def compile_and_load(text, name="fresh"):
        source = tmp_path / f"{name}.c"
        source.write_text(text)
        made.append(dovetail.load(compile_ops(source, tmp_path / f"{name}.so")))
        return made[-1]

    yield compile_and_load
    for library in made:
        library.close()


ONE = """
#include <dovetail_op.h>
struct f { const dv_tensor *x; dv_tensor *out; };
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + %(add)s;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "%(schema)s", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(%(name)s, &dv_op_f);
"""


def one(name, add=1, schema="f(Tensor x) -> Tensor out"):
    """Source of a library with one operator: f(x) = x + add."""
    return ONE % {"name": name, "add": add, "schema": schema}


SQUARE = """
#include <dovetail_op.h>
struct square { const dv_tensor *x; dv_tensor *out; };
static int square(dv_context *ctx, const struct square *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * ((const float *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(square, struct square, (x, out), .schema = "square(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .gradient = "x: %(gradient)s", .kernels = DV_KERNELS(DV_KERNEL(struct square, "cpu", "f32", square)));
DV_LIBRARY(%(name)s, &dv_op_square);
"""


def square_source(name, gradient):
    """Source of a library with one operator: square(x), with this formula for x."""
    return SQUARE % {"name": name, "gradient": gradient}
