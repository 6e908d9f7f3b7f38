"""Document 003's operators on torch's device npu: torch_npu's own dispatch, streams and queue, on the stand-in for CANN. The operators are those of
examples/document_003."""
import subprocess

import pytest

from test_torch_npu import BUILD, ROOT, cann, run  # skips where torch_npu is not installed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = cann(tmp_path_factory.mktemp("document"))
    csrc = ROOT / "examples/document_003/csrc"
    subprocess.run([BUILD / "bin/dovetail", "build", *sorted(csrc.glob("*.c")), "-o", "my_ops.so"], cwd=folder, check=True)
    return folder


def test_the_npu_kernel(folder):
    """The result is new memory, which aclnnAddCustom(self, other, result) fills."""
    assert run(folder, r"""
x, y = npu(3, 5), npu(3, 5, start=7)
torch.npu.synchronize()
acl.stand_in_clear()
z = torch.ops.myops.my_op(x, y)
assert torch.equal(z.cpu(), x.cpu() + y.cpu()) and z.data_ptr() not in (x.data_ptr(), y.data_ptr())
lines = trace().splitlines()
at = lines.index("aclnnAddCustomGetWorkspaceSize")
assert [l.split(":")[0].strip() for l in lines[at + 1:at + 4]] == ["x", "y", "z"] and lines[at + 5] == "aclnnAddCustom", lines
print("ok")
""").endswith("ok\n")


def test_the_backward_kernel(folder):
    """Two results with the argument's values, which are one tensor as in the document; here it is not the argument itself."""
    assert run(folder, r"""
g = npu(3, 5)
a, b = torch.ops.myops.my_op_backward(g)
assert a.device == b.device == g.device and torch.equal(a.cpu(), g.cpu()) and torch.equal(b.cpu(), g.cpu())
assert g.data_ptr() not in (a.data_ptr(), b.data_ptr())
trace()
print("ok")
""").endswith("ok\n")


def test_the_device_decides(folder):
    """One operator: CPU tensors go to the CPU's kernel, an NPU's to aclnn, and there are kernels on PrivateUse1."""
    assert run(folder, r"""
x, y = npu(3, 5), npu(3, 5, start=7)
torch.npu.synchronize()
acl.stand_in_clear()
assert torch.equal(torch.ops.myops.my_op(x.cpu(), y.cpu()), x.cpu() + y.cpu())
assert "aclnn" not in trace()
assert torch.ops.myops.my_op(x, y).device.type == "npu"
assert "aclnnAddCustom\n" in trace()
assert torch._C._dispatch_has_kernel_for_dispatch_key("myops::my_op", "PrivateUse1")
assert torch.ops.myops.my_op_backward(x)[0].device.type == "npu" and torch.ops.myops.my_op_backward(x.cpu())[0].device.type == "cpu"
print("ok")
""").endswith("ok\n")


def test_gradients_on_the_npu(folder):
    assert run(folder, r"""
x, y, g = npu(3, 5).requires_grad_(), npu(3, 5, start=7).requires_grad_(), npu(3, 5, start=-4)
z = torch.ops.myops.my_op(x, y)
z.backward(g)
assert z.grad_fn is not None and torch.equal(x.grad.cpu(), g.cpu()) and torch.equal(y.grad.cpu(), g.cpu())
trace()
print("ok")
""").endswith("ok\n")
