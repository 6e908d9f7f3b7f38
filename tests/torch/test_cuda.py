"""The CUDA example in torch: a row in C, a launcher in a .cu file. It compiles wherever there is an nvcc; it runs where there is a GPU."""
import shutil
import subprocess

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import dovetail
from conftest import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device, or a torch without CUDA")


@pytest.fixture(scope="module")
def negate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda") / "cuda"
    shutil.copytree(ROOT / "examples/cuda", folder)
    subprocess.run(["dovetail", "build", "negate.c", "negate.cu"], cwd=folder, check=True)
    with dovetail.load(folder / "negate_ops.so") as library:
        yield library.negate


def test_one_declaration_two_devices(negate):
    x = torch.randn(5, 3, requires_grad=True)
    assert torch.equal(negate(x), -x)
    (grad,) = torch.autograd.grad(negate(x).sum(), x)
    assert torch.equal(grad, -torch.ones(5, 3))
    for key in ("CPU", "CUDA"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key("negate_ops::negate", key)
    assert not torch._C._dispatch_has_kernel_for_dispatch_key("negate_ops::negate", "PrivateUse1")


def test_the_fake_knows_the_device(negate):
    with FakeTensorMode():
        y = negate(torch.empty(4, device="cuda"))
        assert y.device.type == "cuda" and y.shape == (4,)


# ---- with a GPU ------------------------------------------------------------------------------------------------------------------

@gpu
def test_results_and_gradients(negate):
    for x in (torch.randn(0, device="cuda"), torch.tensor(2.0, device="cuda"), torch.randn(1000, 7, device="cuda").t(), torch.randn(1 << 20, device="cuda")):
        x = x.detach().requires_grad_()
        y = negate(x)
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert torch.equal(y, -x) and torch.equal(grad, -torch.ones_like(x)) and y.device == x.device
    torch.library.opcheck(torch.ops.negate_ops.negate.default, (torch.randn(4, device="cuda", requires_grad=True),))


@gpu
def test_it_runs_on_the_current_stream(negate):
    x, s = torch.zeros(1 << 20, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(s):
        torch.cuda._sleep(50_000_000)  # what another stream did would read the zeros
        x.fill_(3)
        y = negate(x)
    s.synchronize()
    assert torch.equal(y, torch.full_like(y, -3))
    y.record_stream(torch.cuda.current_stream())


@gpu
def test_memory_is_the_caching_allocators(negate):
    x = torch.randn(1 << 16, device="cuda")
    negate(x)
    before = torch.cuda.memory_stats()
    y = negate(x)
    after = torch.cuda.memory_stats()
    assert after["allocation.all.allocated"] - before["allocation.all.allocated"] == 1
    assert after["num_alloc_retries"] == before["num_alloc_retries"] and y.untyped_storage().nbytes() >= x.nbytes
    y.resize_(1 << 17)


@gpu
def test_graph_capture_and_replay(negate):
    x = torch.randn(1000, device="cuda")
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        negate(x)
    torch.cuda.current_stream().wait_stream(s)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = negate(negate(negate(x)))
    for _ in range(3):
        x.copy_(torch.randn(1000, device="cuda"))
        graph.replay()
        assert torch.equal(y, -x)


@gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_the_tensors_device_is_made_current(negate):
    x = torch.randn(100, device="cuda:1")
    with torch.cuda.device(0):
        y = negate(x)
        assert y.device == x.device and torch.equal(y, -x) and torch.cuda.current_device() == 0


@gpu
def test_compiled(negate):
    f = torch.compile(lambda x: negate(x.sin()).cos(), fullgraph=True, mode="reduce-overhead")
    for _ in range(3):
        x = torch.randn(33, device="cuda")
        assert torch.allclose(f(x), (-x.sin()).cos())
