"""What tools/gpu_run.sh runs beside the tests: decompositions on CUDA tensors, streams and graphs, what a launch costs.

    python tools/gpu_figures.py native | streams | figures [FILE.json]

Without a GPU the same runs on the CPU, as a rehearsal.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import torch

import dovetail

ROOT = pathlib.Path(__file__).resolve().parents[1]
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


def native():
    """The shipped operators have no CUDA rows: there they run their decompositions, with gradients, vmap, out= and compiled."""
    for dtype in (torch.float32, torch.bfloat16):
        gate, up = (torch.randn(64, 128, device=DEVICE, dtype=dtype) for _ in range(2))
        for f in (dovetail.ops.swiglu, torch.ops.dovetail.swiglu):
            torch.testing.assert_close(f(gate, up), torch.nn.functional.silu(gate) * up)
    gate.requires_grad_()
    expected = torch.autograd.grad((torch.nn.functional.silu(gate) * up).sum(), gate)
    torch.testing.assert_close(torch.autograd.grad(dovetail.ops.swiglu(gate, up).sum(), gate), expected)
    gate = gate.detach()
    out = torch.empty_like(up)
    assert dovetail.ops.swiglu(gate, up, out=out) is out
    torch.testing.assert_close(out, dovetail.ops.swiglu(gate, up))
    torch.testing.assert_close(torch.vmap(dovetail.ops.swiglu)(gate, up), out)
    with dovetail.policy("none"):
        torch.testing.assert_close(dovetail.ops.swiglu(gate, up), out)
    compiled = torch.compile(lambda a, b: torch.ops.dovetail.swiglu(a, b) + 1, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(gate, up), out + 1)
    try:
        dovetail.ops.swiglu(gate, up[:3])
    except RuntimeError as e:
        assert "dovetail::swiglu: argument 'up'" in str(e), e
    else:
        raise AssertionError("a wrong shape was accepted")
    print(f"decompositions on {DEVICE}")


def example():
    """examples/cuda, which has a CUDA row; None where there is no nvcc."""
    if not shutil.which("nvcc"):
        return None
    folder = pathlib.Path(tempfile.mkdtemp()) / "cuda"
    shutil.copytree(ROOT / "examples/cuda", folder)
    subprocess.run([dovetail.command(), "build", "negate.c", "negate.cu"], cwd=folder, check=True)
    return dovetail.load(folder / "negate_ops.so").negate


def streams():
    negate = example()
    if not (GPU and negate):
        print(f"left out: {'no nvcc' if not negate else 'no GPU'}")
        return
    x, side = torch.zeros(1 << 20, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # another stream would read the zeros
        x.fill_(3)
        y = negate(x)
    side.synchronize()
    assert torch.equal(y, torch.full_like(y, -3))
    x = torch.randn(1000, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        dovetail.ops.swiglu(negate(x)[None], x[None])
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = dovetail.ops.swiglu(negate(negate(x))[None], x[None])  # rows and a decomposition in one graph
    for _ in range(3):
        x.copy_(torch.randn(1000, device="cuda"))
        graph.replay()
        torch.testing.assert_close(y, (torch.nn.functional.silu(x) * x)[None])
    print("streams and graphs")


def cost(f, *args):
    """Microseconds of the calling thread for one call: the least of several rounds."""
    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(200):
            f(*args)
        best = min(best, (time.perf_counter() - begin) / 200)
        if GPU:
            torch.cuda.synchronize()
    return round(best * 1e6, 3)


def figures(file=None):
    x = torch.randn(1024, device=DEVICE)
    rows = {"torch.neg": cost(torch.neg, x), "swiglu, decomposition": cost(dovetail.ops.swiglu, x[None], x[None])}
    negate = example()
    if negate:
        rows |= {"negate": cost(negate, x), "torch.ops negate": cost(torch.ops.negate_ops.negate.default, x)}
    said = {"device": torch.cuda.get_device_name() if GPU else "cpu", "torch": torch.__version__, "microseconds a call": rows}
    if file:
        pathlib.Path(file).write_text(json.dumps(said, indent=1))
    print(json.dumps(said))


if __name__ == "__main__":
    {"native": native, "streams": streams, "figures": figures}[sys.argv[1]](*sys.argv[2:])
