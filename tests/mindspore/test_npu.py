"""MindSpore's tensors on an NPU, in eager mode. MindSpore's wheel for the CPU has none: here its tensors lie in the memory of the stand-in for CANN
(tests/ascend), which a CPU cannot access, and report the device Ascend:0. Kernels run late, on the stand-in's streams."""
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

if "mindspore" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("MindSpore is not installed here: make test-mindspore", allow_module_level=True)

BUILD = pathlib.Path(os.environ["DOVETAIL_BUILD"])
CANN = BUILD / "tests/ascend/cann"
ASCEND = pathlib.Path(__file__).resolve().parents[1] / "ascend"

SOURCE = r"""
#include <dovetail_ascend.h>
struct my_op { const dv_tensor *self, *other; dv_tensor *result; };
DV_OPERATOR(my_op, struct my_op, (self, other, result), .schema = "my_op(Tensor self, Tensor other) -> Tensor",
    .contract = "self[*s]:f32, other[*s]:f32 -> [*s]:f32", .gradient = "self: my_op_backward(grad); other: my_op_backward(grad)",
    .kernels = DV_KERNELS(DV_ACLNN("f32", "AddCustom", "self, other, result")));
struct my_op_backward { const dv_tensor *self; dv_tensor *result; };
DV_OPERATOR(my_op_backward, struct my_op_backward, (self, result), .schema = "my_op_backward(Tensor self) -> Tensor",
    .contract = "self[*s]:f32 -> [*s]:f32", .kernels = DV_KERNELS(DV_ACLNN("f32", "Add", "self, self, scalar(4), result")));
struct turned { const dv_tensor *self, *other; dv_tensor *z; };
DV_OPERATOR(turned, struct turned, (self, other, z), .schema = "turned(Tensor self, Tensor other) -> Tensor z",
    .contract = "self[*s]:f32, other[*s]:f32 -> z[*s]:f32; strided(self); strided(other)",
    .kernels = DV_KERNELS(DV_ACLNN("f32", "AddCustom", "self, other, z")));
struct scale_ { dv_tensor *x; double by; };
DV_OPERATOR(scale_, struct scale_, (x, by), .schema = "scale_(Tensor(a!) x, float by) -> Tensor(a!)", .contract = "x[*s]:f32",
    .kernels = DV_KERNELS(DV_ACLNN("f32", "InplaceScale", "")));

#include "stand_in.h"
struct line_args { float *x, *y; int32_t by; };
static void line_block(uint32_t block, const void *p)
{
    const struct line_args *a = (const struct line_args *)p;
    const float *x = (const float *)stand_in_touch("line", a->x + block, 4);
    float *y = (float *)stand_in_touch("line", a->y + block, 4);
    if (x && y)
        *y = (float)a->by * *x;
}
static void launch_line(uint32_t blocks, void *l2ctrl, void *stream, uint8_t *x, uint8_t *y, int32_t by)
{
    const struct line_args a = { (float *)x, (float *)y, by };
    stand_in_kernel("line", blocks, l2ctrl, stream, line_block, &a, sizeof a);
}
DV_ASCENDC_LAUNCHER(launch_line)
struct line { const dv_tensor *x; int64_t by; dv_tensor *y; };
DV_OPERATOR(line, struct line, (x, by, y), .schema = "line(Tensor x, int by) -> Tensor y", .contract = "x[n]:f32 -> y[n]:f32",
    .kernels = DV_KERNELS(DV_ASCENDC("f32", launch_line, 6, "x, y, by")));
DV_LIBRARY(npuops, &dv_op_my_op, &dv_op_my_op_backward, &dv_op_turned, &dv_op_scale_, &dv_op_line);
"""

HEAD = r"""
import ctypes
import sys

import mindspore as ms
import mindspore._c_expression as c
import numpy as np
from mindspore import mint


class Both:
    def is_pkg_support_device(self, name):
        return True


class MSContext:
    get_instance = staticmethod(Both)


real, c.MSContext = c.MSContext, MSContext
cann = ctypes.CDLL(sys.argv[1] + "/libascendcl.so", ctypes.RTLD_GLOBAL)
cann.stand_in_memory.restype, cann.stand_in_faults.restype = ctypes.c_void_p, ctypes.c_char_p
cann.stand_in_memory.argtypes = [ctypes.c_void_p]
npu, waits = [], []
where = ms.Tensor.device


def array_at(place, shape):
    size = int(np.prod(shape))
    return np.frombuffer((ctypes.c_float * size).from_address(place), np.float32, size).reshape(shape)


def empty(size, dtype=None, device=None):
    assert device == "Ascend" and dtype == ms.float32, (device, dtype)
    p = ctypes.c_void_p()
    cann.aclrtMalloc(ctypes.byref(p), max(4, 4 * int(np.prod(size))), 0)
    npu.append((p.value, p.value + max(4, 4 * int(np.prod(size)))))
    return ms.Tensor.from_numpy(array_at(p.value, size))


def on_npu(array):
    x = empty(array.shape, ms.float32, "Ascend")
    seen(x)[...] = array
    return x


def seen(x):
    cann.aclrtSynchronizeDevice() if hasattr(cann, "aclrtSynchronizeDevice") else None
    return array_at(cann.stand_in_memory(x._data_ptr()), x.shape)


ms.Tensor.device = property(lambda x: "Ascend:0" if any(a <= x._data_ptr() < b for a, b in npu) else "CPU")
mint.empty = empty
ms.runtime.synchronize = lambda: waits.append(1)
import dovetail

npuops = dovetail.load(sys.argv[2])
a, b = np.arange(6, dtype=np.float32), np.full(6, 10, np.float32)
x, y = on_npu(a), on_npu(b)


def fails(kind, text, f, *args):
    try:
        f(*args)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"expected {text}")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("npu")
    (folder / "npuops.c").write_text(SOURCE)
    subprocess.run(["dovetail", "build", folder / "npuops.c", "-o", folder / "npuops.so", "-X", f"-I{ASCEND}", "-L", CANN / "lib64", "-l", "ascendcl", "-X", f"-Wl,-rpath,{CANN}/lib64"], check=True)
    return folder / "npuops.so"


def run(library, program, **environment):
    script = library.parent / "program.py"
    script.write_text(HEAD + textwrap.dedent(program) + "\nassert not cann.stand_in_faults(), cann.stand_in_faults()\nprint('done')\n")
    env = {**os.environ, "ASCEND_HOME_PATH": str(CANN), "ASCEND_OPP_PATH": str(CANN / "opp"), **environment}
    done = subprocess.run([sys.executable, script, CANN / "lib64", library], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr[-3000:]


def test_an_aclnn_kernel(library):
    run(library, """
        z = npuops.my_op(x, y)
        assert waits and z.device == "Ascend:0" and isinstance(z, ms.Tensor)
        assert (seen(z) == a + b).all()  # at once: the call has waited for its kernel
        w = on_npu(np.zeros(6, np.float32))
        assert npuops.my_op(z, z, out=w) is w and (seen(w) == 2 * (a + b)).all()
        e = on_npu(np.zeros((0,), np.float32))
        assert npuops.my_op(e, e).shape == (0,)
        m = on_npu(np.arange(6, dtype=np.float32).reshape(2, 3))
        assert (seen(npuops.my_op(m, m)) == 2 * np.arange(6).reshape(2, 3)).all()
    """)


def test_a_launcher_and_a_written_argument(library):
    run(library, """
        assert (seen(npuops.line(x, -3)) == -3 * a).all()
        w = on_npu(a)
        assert npuops.scale_(w, 0.5) is w and (seen(w) == a / 2).all()
    """)


def test_late_streams(library):
    run(library, """
        cann.stand_in_hold(True)  # streams run only while somebody waits
        z = x
        for _ in range(5):
            z = npuops.my_op(z, y)
        assert (seen(z) == a + 50).all()
    """)


def test_a_gradient(library):
    """The declared gradient's operator has a kernel for the NPU. The gradient of the result is given: MindSpore on a CPU cannot make it there."""
    run(library, """
        grad = ms.ops.GradOperation(sens_param=True)(lambda x: npuops.my_op(x, y))
        assert (seen(grad(x, y)) == 50).all()
    """)


def test_layouts(library):
    """A view is not contiguous: a kernel with strided(...) gets its strides, another would need a copy."""
    run(library, """
        from mindspore.ops.auto_generate import as_strided
        m = np.arange(6, dtype=np.float32).reshape(2, 3)
        t = as_strided(on_npu(m), (3, 2), (1, 3), 0)
        assert t.device == "Ascend:0" and not t.is_contiguous()
        assert (seen(npuops.turned(t, t)) == 2 * m.T).all()
        fails(dovetail.DovetailError, "npuops::my_op: its kernel needs a contiguous copy of a tensor on Ascend, and Dovetail makes none in MindSpore: give it x.contiguous()",
              npuops.my_op, t, t)
    """)


def test_what_is_refused(library):
    run(library, """
        fails(dovetail.DovetailError, "no kernel for PrivateUse1", dovetail.ops.rms_norm, on_npu(np.ones((2, 6), np.float32)), y)
        fails(dovetail.DovetailError, "no kernel for CPU", npuops.my_op, ms.Tensor(a), ms.Tensor(b))
        fails(dovetail.DovetailError, "argument 'other': expected a tensor on npu:0 as 'self' is, found one on cpu", npuops.my_op, x, ms.Tensor(b))
        ms.Tensor.device = property(lambda t: "GPU:1")
        fails(TypeError, "a tensor on GPU:1 (Dovetail takes MindSpore's tensors on the CPU and on Ascend)", npuops.my_op, x, y)
    """)


def test_a_kernel_that_fails(library):
    run(library, """
        cann.stand_in_fail(2)
        fails(dovetail.DovetailError, "the stand-in was told to fail", npuops.my_op, x, y)
        assert (seen(npuops.my_op(x, y)) == a + b).all()
    """)


def test_graphs_are_refused(library):
    run(library, """
        import dovetail.mindspore
        ms.get_context = lambda what: "Ascend"
        fails(NotImplementedError, "npuops::my_op: MindSpore's graphs here run on Ascend", dovetail.mindspore.primitive, npuops.my_op)
    """)
