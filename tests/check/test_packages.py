"""Operators of a published package, as it is: real defects are found, each shown here with PyTorch alone as well, and nothing else fails."""
import os
import subprocess
import sys

import pytest
from conftest import COMMAND

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow
PACKAGE = "fbgemm-gpu-cpu==1.8.0"  # built for torch 2.13

# Each by itself, without Dovetail: status 1 while the defect is there.
DEFECTS = {
    "FloatOrHalfToFused8BitRowwiseQuantized": ("layouts", """
x = torch.arange(8.0).reshape(2, 4)
sys.exit(not torch.equal(f(x), f(x.t().contiguous().t())))"""),
    "HalfToFused8BitRowwiseQuantized": ("fake", """
x = torch.ones(4, 1)
sys.exit(f(x).shape != f(x.to("meta")).shape)"""),
    "all_to_one_device": ("aliases", """
x = torch.ones(2)
sys.exit(f([x], torch.device("cpu"))[0].data_ptr() == x.data_ptr())"""),
    "lengths_range_out": ("aliases", """
x = torch.zeros(3, dtype=torch.int64)
sys.exit(f(x, torch.tensor([3])).data_ptr() == x.data_ptr())"""),
}
CLEAN = {
    "asynchronous_complete_cumsum": "t_in[n]:T -> out[n + 1]:T; T in i32 i64",
    "segment_sum_csr": None,
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    if not torch.__version__.startswith("2.13"):
        pytest.skip(f"{PACKAGE} is for torch 2.13")
    folder = tmp_path_factory.mktemp("package")
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:", "--target", folder, PACKAGE],
                          capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot install {PACKAGE}: {done.stderr.strip().splitlines()[-1]}")
    return folder


@pytest.fixture
def ask(check, package, monkeypatch):
    monkeypatch.setenv("DOVETAIL_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", f"{package}{os.pathsep}{os.environ['PYTHONPATH']}")
    return lambda name, *words: check("--torch", "fbgemm_gpu", "--op", f"fbgemm::{name}", *words)["results"]


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect(ask, tmp_path, name):
    question, alone = DEFECTS[name]
    failure, = (r for r in ask(name) if r["result"] == "fail" and r["test"] == question)
    shown = subprocess.run([sys.executable, "-c", f"import sys, torch, fbgemm_gpu\nf = torch.ops.fbgemm.{name}{alone}"], capture_output=True)
    assert shown.returncode == 1, shown.stderr
    subprocess.run(f"{failure['reproduce']} --emit-python {tmp_path}/call.py", shell=True, check=True, env=os.environ | {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}"})
    assert subprocess.run([sys.executable, tmp_path / "call.py"], capture_output=True).returncode == 1


@pytest.mark.parametrize("name", CLEAN)
def test_no_false_alarm(ask, name):
    results = ask(name, *(("--contract", CLEAN[name]) if CLEAN[name] else ()))
    assert [r for r in results if r["result"] == "fail"] == []
    assert {"runs", "bounds"} <= {r["test"] for r in results if r["result"] == "pass"}
