"""aclnn rows and launchers in torch_npu itself, the published wheel, with the stand-in in the place of CANN: torch's device npu, torch_npu's streams,
allocator and task queue, and document 003's own C++ beside it. Runs in an environment with torch_npu: tools/test_host.sh ascend."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest

if importlib.util.find_spec("torch_npu") is None:
    pytest.skip("no torch_npu here: make test-ascend", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
HERE = pathlib.Path(__file__).parent
SITE = pathlib.Path(importlib.util.find_spec("torch").origin).parents[1]
CC = ["-shared", "-fPIC", "-w", "-D_GNU_SOURCE", f"-I{HERE}"]

OPERATORS = r"""
#include <dovetail_ascend.h>
struct my_op { const dv_tensor *self, *other; dv_tensor *result; };
DV_OPERATOR(my_op, struct my_op, (self, other, result), .schema = "my_op(Tensor self, Tensor other) -> Tensor",
    .contract = "self[*s]:f32, other[*s]:f32 -> [*s]:f32", .gradient = "self: my_op_backward(grad); other: my_op_backward(grad)",
    .kernels = DV_KERNELS(DV_ACLNN("f32", "AddCustom", "self, other, result")));
struct my_op_backward { const dv_tensor *self; dv_tensor *result; };
DV_OPERATOR(my_op_backward, struct my_op_backward, (self, result), .schema = "my_op_backward(Tensor self) -> Tensor",
    .contract = "self[*s]:f32 -> [*s]:f32", .kernels = DV_KERNELS(DV_ACLNN("f32", "Add", "self, self, scalar(4), result")));
struct scale_ { dv_tensor *x; double by; };
DV_OPERATOR(scale_, struct scale_, (x, by), .schema = "scale_(Tensor(a!) x, float by) -> Tensor(a!)", .contract = "x[*s]:f32",
    .kernels = DV_KERNELS(DV_ACLNN("f32", "InplaceScale", "")));
struct turned { const dv_tensor *self, *other; dv_tensor *z; };
DV_OPERATOR(turned, struct turned, (self, other, z), .schema = "turned(Tensor self, Tensor other) -> Tensor z",
    .contract = "self[*s]:f32, other[*s]:f32 -> z[*s]:f32; strided(self); strided(other)",
    .kernels = DV_KERNELS(DV_ACLNN("f32", "AddCustom", "self, other, z")));
struct like { const dv_tensor *self, *other; dv_tensor *z; };
DV_OPERATOR(like, struct like, (self, other, z), .schema = "like(Tensor self, Tensor other) -> Tensor z",
    .contract = "self[*s]:f32, other[*s]:f32 -> z[*s]:f32 like(self)", .kernels = DV_KERNELS(DV_ACLNN("f32", "AddCustom", "self, other, z")));
DV_LIBRARY(myops, &dv_op_my_op, &dv_op_my_op_backward, &dv_op_scale_, &dv_op_turned, &dv_op_like);
"""

LAUNCHERS = r"""
#include <dovetail_ascend.h>
#include "stand_in.h"
struct line_args { float *x, *y; int32_t by, plus; };
static void line_block(uint32_t block, const void *p)
{
    const struct line_args *a = (const struct line_args *)p;
    const float *x = (const float *)stand_in_touch("line", a->x + block * 6, 24);
    float *y = (float *)stand_in_touch("line", a->y + block * 6, 24);
    for (int i = 0; x && y && i < 6; i++)
        y[i] = (float)a->by * x[i] + (float)a->plus;
}
static void launch_line(uint32_t blocks, void *l2ctrl, void *stream, uint8_t *x, uint8_t *y, int32_t by, int32_t plus)
{
    const struct line_args a = { (float *)x, (float *)y, by, plus };
    stand_in_kernel("line", blocks, l2ctrl, stream, line_block, &a, sizeof a);
}
struct line { const dv_tensor *x; int64_t blocks, by, plus; dv_tensor *y; };
DV_ASCENDC_LAUNCHER(launch_line)
DV_OPERATOR(line, struct line, (x, blocks, by, plus, y), .schema = "line(Tensor x, int blocks, int by, int plus) -> Tensor y",
    .contract = "x[*s]:f32 -> y[*s]:f32", .kernels = DV_KERNELS(DV_ASCENDC("f32", launch_line, blocks, "x, y, by, plus")));
DV_LIBRARY(launchers, &dv_op_line);
"""

CLIENT = r"""
// Document 003's kernel. Two lines differ: its result is self itself, and torch_npu calls the macro for extensions EXEC_NPU_CMD_EXT.
#include <torch/library.h>
#include "op_plugin/include/npu_cpp_extension.h"
#define EXEC_NPU_CMD EXEC_NPU_CMD_EXT
at::Tensor my_op_impl_npu(const at::Tensor& self, const at::Tensor& other) {
    at::Tensor result = at::empty_like(self);
    EXEC_NPU_CMD(aclnnAddCustom, self, other, result);
    return result;
}
TORCH_LIBRARY(cxx_ops, m) { m.def("my_op(Tensor self, Tensor other) -> Tensor"); }
TORCH_LIBRARY_IMPL(cxx_ops, PrivateUse1, m) { m.impl("my_op", &my_op_impl_npu); }
"""

BEGIN = r"""
import ctypes, sys
acl = ctypes.CDLL("libascendcl.so")
acl.stand_in_faults.restype = acl.stand_in_trace.restype = ctypes.c_char_p
import torch, torch_npu, dovetail
dovetail.load("my_ops.so")
def npu(*shape, start=0.0):
    n = torch.Size(shape).numel()
    return torch.empty(shape, device="npu").copy_(start + torch.arange(float(n)).view(shape))
def trace():
    torch.npu.synchronize()
    assert not acl.stand_in_faults(), acl.stand_in_faults().decode()
    return acl.stand_in_trace().decode()
torch.npu.synchronize()
acl.stand_in_clear()
"""


VENDOR = r"""
#include <dovetail_ascend.h>
struct rms_norm { dv_tensor *out; const dv_tensor *x, *weight; double eps; };
DV_OPERATOR(rms_norm, struct rms_norm, (out, x, weight, eps), .kernels = DV_KERNELS(DV_ACLNN("f32", "Add", "x, weight, scalar(eps), out")));
DV_LIBRARY_IMPL(dovetail, acme, &dv_op_rms_norm);
"""


def shared(out, *arguments):
    subprocess.run(["cc", *CC, *map(str, arguments), "-o", str(out), f"-Wl,-soname,{out.name}"], check=True)


def cann(folder):
    """CANN's layout with the stand-in, and what torch_npu links to beside it."""
    for name in ("lib64", "runtime", "compiler", "opp/vendors/v1/op_api/lib"):
        (folder / name).mkdir(parents=True)
    lib = folder / "lib64"
    (folder / "opp/vendors/config.ini").write_text("load_priority=v1\n")
    (folder / "empty.c").write_text("")
    shared(lib / "libascendcl.so", HERE / "stand_in.c", HERE / "device.c", "-lpthread")
    link = ["-Wl,--no-as-needed", f"-L{lib}", "-lascendcl"]
    for name in ("hccl", "acl_op_compiler", "ge_runner", "graph", "acl_tdt_channel"):
        shared(lib / f"lib{name}.so", folder / "empty.c", *link)
    shared(lib / "libopapi.so", HERE / "operators.c", *link)
    shared(folder / "opp/vendors/v1/op_api/lib/libcust_opapi.so", "-DVENDOR=1", HERE / "operators.c", *link)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = cann(tmp_path_factory.mktemp("cann"))
    (folder / "my_ops.c").write_text(OPERATORS)
    (folder / "launchers.c").write_text(LAUNCHERS)
    subprocess.run([BUILD / "bin/dovetail", "build", "my_ops.c", "-o", "my_ops.so"], cwd=folder, check=True)
    subprocess.run([BUILD / "bin/dovetail", "build", "launchers.c", "-o", "launchers.so", "-I", HERE, "-L", "lib64", "-l", "ascendcl"], cwd=folder, check=True,
                   env={**os.environ, "LD_LIBRARY_PATH": f"{folder}/lib64"})
    return folder


def run(folder, code, begin=BEGIN, **env):
    env = {**os.environ, "PYTHONPATH": f"{BUILD}/python", "LD_LIBRARY_PATH": f"{folder}/lib64", "ASCEND_HOME_PATH": str(folder), "ASCEND_OPP_PATH": f"{folder}/opp",
           "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **env}
    r = subprocess.run([sys.executable, "-W", "ignore", "-c", begin + code], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout


@pytest.mark.parametrize("queue", "012")
def test_calls(folder, queue):
    """Values, gradients on AutogradPrivateUse1, views, writes, another stream, with each of torch_npu's settings of its task queue."""
    out = run(folder, r"""
x, y = npu(4, 6), npu(4, 6, start=100)
z = torch.ops.myops.my_op(x, y)
assert z.device.type == "npu" and torch.equal(z.cpu(), torch.arange(24.).view(4, 6) * 2 + 100), z.cpu()
assert "aclnnAddCustom\n" in trace()
x.requires_grad_()
z = torch.ops.myops.my_op(x, y)
assert z.requires_grad
g, = torch.autograd.grad(z, x, npu(4, 6))
assert torch.equal(g.cpu(), torch.arange(24.).view(4, 6) * 5), g.cpu()
acl.stand_in_clear()
t = npu(6, 4)
u = torch.ops.myops.turned(t.t(), y)
assert torch.equal(u.cpu(), torch.arange(24.).view(6, 4).t() + torch.arange(100., 124.).view(4, 6)), u.cpu()
assert "f32[4, 6] strides [1, 4] format 2" in trace()
v = torch.ops.myops.my_op(y[1], y[3])
assert torch.equal(v.cpu(), torch.arange(6.) * 2 + 224), v.cpu()
w = npu(5, start=1)
assert torch.ops.myops.scale_(w, 0.5) is w
assert torch.equal(w.cpu(), torch.arange(1., 6.) / 2)
s = torch.npu.Stream()
acl.stand_in_expect(ctypes.c_void_p(s.npu_stream))
with torch.npu.stream(s):
    a = torch.ops.myops.my_op(y, y)
s.synchronize()
assert torch.equal(a.cpu(), 2 * torch.arange(100., 124.).view(4, 6))
acl.stand_in_expect(None)
trace()
print("ok")
""", TASK_QUEUE_ENABLE=queue)
    assert out.endswith("ok\n"), out


@pytest.mark.parametrize("queue", "012")
def test_the_short_way(folder, queue):
    """Calls with plain tensors on npu go straight to the kernel, as on the CPU: no Python, no dispatcher; writes are counted."""
    out = run(folder, r"""
from dovetail import _core
f, scale_, x, y, w = dovetail.ops.myops.my_op, dovetail.ops.myops.scale_, npu(4, 6), npu(4, 6, start=100), npu(5, start=1)
assert f(x, y)[0].cpu().tolist() == [100, 102, 104, 106, 108, 110] and _core.torch.taken(f) == (1, 0, 0)
before = w._version
assert scale_(w, 0.5) is w and w._version == before + 1 and _core.torch.taken(scale_) == (1, 0, 0)
assert f(x.requires_grad_(), y).requires_grad and _core.torch.taken(f)[1:] == (1, 0)
with torch.inference_mode():
    a = npu(4, 6)
    assert f(a, a).is_inference() and _core.torch.taken(f)[2] == 0
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as p:
    torch.ops.myops.my_op(x.detach(), y)
assert not any("autograd.py" in e.name for e in p.events())
trace()
print("ok")
""", TASK_QUEUE_ENABLE=queue)
    assert out.endswith("ok\n"), out


def test_the_stream_runs_late(folder):
    """Three operators wait on the stream while their arguments and results are dropped and allocated again."""
    out = run(folder, r"""
x, y = npu(4, 6), npu(4, 6, start=100)
torch.npu.synchronize()
acl.stand_in_hold(True)
last = x
for i in range(20):
    last = torch.ops.myops.my_op(torch.ops.myops.my_op(last, y), y)
del x
torch.ops.myops.scale_(last, 2.0)
acl.stand_in_hold(False)
assert torch.equal(last.cpu(), 2 * (torch.arange(24.).view(4, 6) + 40 * torch.arange(100., 124.).view(4, 6))), last.cpu()
assert trace().count("run aclnnAddCustom") == 40
print("ok")
""")
    assert out.endswith("ok\n"), out


@pytest.mark.parametrize("queue", "012")
def test_launchers(folder, queue):
    """A library of launchers only: in the order of torch_npu's queue, with an operator of its own between them, on its streams; a view arrives
    contiguous."""
    out = run(folder, r"""
x = npu(4, 6)
torch.npu.synchronize()
acl.stand_in_hold(True)
y = torch.ops.launchers.line(x, 4, 2, 1)
z = torch.ops.launchers.line(y * 2, 4, -3, 5)
acl.stand_in_hold(False)
right = 2 * torch.arange(24.).view(4, 6) + 1
assert torch.equal(y.cpu(), right) and torch.equal(z.cpu(), -6 * right + 5), (y.cpu(), z.cpu())
said = trace()
assert said.count("line<<<4>>>\n") == 2 and said.index("line<<<4>>>") < said.index("aclnnMuls\n") < said.rindex("line<<<4>>>"), said
t = torch.ops.launchers.line(npu(6, 4).t(), 4, 1, 0)
assert torch.equal(t.cpu(), torch.arange(24.).view(6, 4).t()), t.cpu()
s = torch.npu.Stream()
s.wait_stream(torch.npu.current_stream())
acl.stand_in_expect(ctypes.c_void_p(s.npu_stream))
with torch.npu.stream(s):
    a = torch.ops.launchers.line(x, 4, 1, 7)
s.synchronize()
assert torch.equal(a.cpu(), torch.arange(24.).view(4, 6) + 7), a.cpu()
acl.stand_in_expect(None)
try:
    torch.ops.launchers.line(x, 0, 1, 7)
except RuntimeError as error:
    assert "launchers::line: argument 'blocks': blockDim: expected an integer from 1 to 4294967295, found 0" in str(error), error
else:
    raise AssertionError
trace()
print("ok")
""", begin=BEGIN.replace("my_ops.so", "launchers.so"), TASK_QUEUE_ENABLE=queue)
    assert out.endswith("ok\n"), out


@pytest.mark.parametrize("queue", "012")
def test_a_contiguous_copy_stands_in_for_a_result(folder, queue):
    """The runtime's copies are no tensors of torch."""
    out = run(folder, r"""
x, y = npu(3, 2).t(), npu(3, 2, start=100).t()
z = torch.ops.myops.like(x, y)
assert z.stride() == (1, 2) and torch.equal(z.cpu(), x.cpu() + y.cpu())
z = torch.empty_strided((2, 3), (1, 2), device="npu")
assert dovetail.ops.myops.my_op(x, y, out=z) is z and torch.equal(z.cpu(), x.cpu() + y.cpu())
trace()
print("ok")
""", TASK_QUEUE_ENABLE=queue)
    assert out.endswith("ok\n"), out


def test_a_library_that_adds_rows_opens_cann(folder):
    (folder / "acme.c").write_text(VENDOR)
    out = run(folder, r"""
import torch, torch_npu, dovetail
x = torch.arange(6.).to("npu")
norm = dovetail.ops.rms_norm
dovetail.load("acme.c")
assert torch.equal(norm(x, x, 0.5).cpu(), 1.5 * x.cpu())
print("ok")
""", "")
    assert out.endswith("ok\n"), out


@pytest.mark.parametrize("queue", "12")
def test_a_queue_that_stopped(folder, queue):
    """After a task has failed, torch_npu takes no other."""
    out = run(folder, r"""
x, y = npu(4, 6), npu(4, 6)
torch.ops.myops.my_op(x, y)
torch.npu.synchronize()
acl.stand_in_fail(CALLS)
torch.ops.myops.my_op(x, y)
try:
    torch.npu.synchronize()
except RuntimeError:
    pass
acl.stand_in_fail(0)
said = []
for _ in range(3):
    try:
        torch.ops.myops.my_op(x, y)
    except RuntimeError as error:
        said.append(str(error).splitlines()[0])
first = "myops::my_op: aclnnAddCustom failed with 507899 after its call had returned: EZ9999: the stand-in was told to fail in aclnnAddCustom"
stopped = "myops::my_op: torch_npu's task queue stopped after an earlier failure, and takes nothing more: " + first
assert said == ["myops::my_op: an earlier call failed: " + first, stopped, stopped], said
print("ok")
""".replace("CALLS", "5"), TASK_QUEUE_ENABLE=queue)
    assert out.endswith("ok\n"), out


def test_explain(folder):
    out = run(folder, r"""
x = npu(4, 6).requires_grad_()
said = str(dovetail.ops.myops.my_op.explain(x, x))
assert "aclnnAddCustom(self, other, result)" in said and "selected" in said, said
said = str(dovetail.ops.rms_norm.explain(x, x[0]))
assert "npu" in said and "rms_norm" in said, said
try:
    dovetail.ops.myops.my_op.explain(x, 3)
    raise AssertionError
except (TypeError, RuntimeError) as error:
    assert "myops::my_op: argument 'other': expected" in str(error), error
print("ok")
""")
    assert out.endswith("ok\n"), out


CHECKED = r"""
#include <dovetail_ascend.h>
struct sum { const dv_tensor *self, *other; dv_tensor *out; };
#define SUM(name, aclnn)                                                                                                                          \
    DV_OPERATOR(name, struct sum, (self, other, out), .schema = #name "(Tensor self, Tensor other) -> Tensor out",                                \
        .contract = "self[*s]:f32, other[*s]:f32 -> out[*s]:f32; parallel(*s)", .native = "add(self, other)", .kernels = DV_KERNELS(aclnn))
SUM(right, DV_ACLNN("f32", "Add", "self, other, scalar(1), out"));
SUM(wrong, DV_ACLNN("f32", "Add", "self, other, scalar(4), out"));
DV_LIBRARY(checked, &dv_op_right, &dv_op_wrong);
"""


def test_the_checker_runs_rows_on_the_device(folder):
    (folder / "checked.c").write_text(CHECKED)
    env = {**os.environ, "PYTHONPATH": f"{BUILD}/python", "LD_LIBRARY_PATH": f"{folder}/lib64", "ASCEND_HOME_PATH": str(folder), "ASCEND_OPP_PATH": f"{folder}/opp",
           "DOVETAIL_PYTHON": sys.executable}
    r = subprocess.run([BUILD / "bin/dovetail", "check", "checked.c", "--only", "torch"], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert r.returncode == 1, r.stdout + r.stderr
    assert "FAIL torch: checked::wrong, test on_device: on npu result 0 is not that of the CPU" in r.stdout
    assert re.findall(r"on_device +(\w+)", r.stdout) == ["pass", "FAIL"] and "1 failed" in r.stdout, r.stdout


def test_torch_without_cann():
    """docs/ascend.md: `import torch` fails where CANN is not, unless torch is kept from loading torch-npu."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ASCEND", "LD_", "TORCH_"))}
    run = lambda **more: subprocess.run([sys.executable, "-c", "import torch"], env={**env, **more}, capture_output=True).returncode
    assert run() != 0 and run(TORCH_DEVICE_BACKEND_AUTOLOAD="0") == 0


def test_refusals(folder):
    out = run(folder, r"""
x = npu(4, 6)
def said(f):
    try:
        f()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("no error")
torch.npu.synchronize()
acl.stand_in_capture(True)
assert "myops::my_op: a graph is being captured on this stream" in said(lambda: torch.ops.myops.my_op(x, x))
acl.stand_in_capture(False)
acl.stand_in_fail(4)
text = said(lambda: torch.ops.myops.my_op(x, x))
assert "myops::my_op: aclnnAddCustomGetWorkspaceSize failed with 507899: EZ9999: the stand-in was told to fail" in text and "self: f32[4, 6]" in text, text
acl.stand_in_fail(0)
text = said(lambda: torch.ops.myops.my_op(x, torch.ones(4, 6)))
assert "myops::my_op" in text and "other" in text, text
nz = torch_npu.empty_with_format((32, 32), dtype=torch.float32, device="npu", acl_format=29)
assert torch_npu.get_npu_format(nz) == 29
text = said(lambda: torch.ops.myops.my_op(nz, nz))
assert "myops::my_op: argument 'self'" in text and "private format 29" in text, text
trace()
print("ok")
""")
    assert out.endswith("ok\n"), out


@pytest.fixture(scope="module")
def client(folder):
    """Document 003's C++."""
    (folder / "client.cpp").write_text(CLIENT)
    npu = SITE / "torch_npu/include"
    include = [f"-I{p}" for p in (SITE / "torch/include", SITE / "torch/include/torch/csrc/api/include", npu, npu / "third_party/acl/inc", npu / "third_party/op-plugin",
                                      sysconfig.get_path("include"))]
    libraries = [f"-L{SITE}/torch/lib", "-ltorch_cpu", "-ltorch", "-lc10", f"-L{SITE}/torch_npu/lib", "-ltorch_npu"]
    subprocess.run(["g++", "-std=c++20", "-O0", "-shared", "-fPIC", "-w", "-DCURRENT_VERSION=V2R13", *include, folder / "client.cpp", "-o", folder / "client.so", *libraries], check=True)
    return folder


@pytest.mark.parametrize("queue", "01")
def test_the_documents_own_code_makes_the_same_calls(client, queue):
    """Equal traces: every descriptor, the parameters, the workspace, the launch, the destruction, for shapes of 0 to 5 dims. C++ leaves open in which
    order the arguments of a call are evaluated, so descriptors are named by their parameters, and the lines that create them are sorted. The stream's
    thread writes when it runs the call: that line is moved to the end."""
    out = run(client, r"""
import re
torch.ops.load_library("./client.so")
def by_parameter(text):
    for name, kind in re.findall(r"^  (\w+): (aclTensor \d+)$", text, re.M):
        text = re.sub(rf"\b{kind}\b", f"<{name}>", text)
    lines = text.splitlines()
    place = lambda line: (0, line) if line.startswith("create") else (2, "") if line.startswith("run ") else (1, "")
    return "\n".join(sorted(lines, key=place))
for shape in [(), (5,), (4, 6), (2, 3, 4), (1, 2, 3, 4), (2, 1, 2, 1, 2), (0, 3)]:
    traces, values = [], []
    x, y = npu(*shape), npu(*shape, start=7)
    for op in (torch.ops.myops.my_op, torch.ops.cxx_ops.my_op):
        torch.npu.synchronize()
        acl.stand_in_clear()
        values.append(op(x, y).cpu())
        traces.append(by_parameter(trace()))
    assert torch.equal(*values), values
    assert traces[0] == traces[1], f"ours:\n{traces[0]}\ntheirs:\n{traces[1]}"
    assert traces[0].count("create <") == 3 and "\naclnnAddCustom\ndestroy <" in traces[0], traces[0]
print("ok")
""", TASK_QUEUE_ENABLE=queue)
    assert out.endswith("ok\n"), out
