"""dovetail check with a Python that has torch: the property torch of operators, and operators that were not written with Dovetail."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import COMMAND

pytest.importorskip("torch")
HERE = pathlib.Path(__file__).parent

# For each operator of torch_faulty.py: the questions that may fail; the first of them must.
FAULTS = {
    "right": (),
    "right_fill": (),
    "right_in_f32": (),
    "right_rounding": (),
    "wrong_fake": ("fake",),
    "wrong_fake_dtype": ("fake",),
    "undeclared_write": ("writes",),
    "unseen_write": ("writes",),
    "stride_ignored": ("layouts",),
    "alias": ("aliases",),
    "size_hard_coded": ("bounds",),
    "tail_unwritten": ("unwritten",),
    "random": ("same_answer",),
    "crash": (),  # arguments that were found by trial may be to blame
    "wrong_gradient": ("gradcheck",),
    "silent_gradient": ("gradcheck",),
    "wrong_sharding": ("sharded",),
    "lost_write": ("functional",),
}


@pytest.fixture(autouse=True)
def with_torch(monkeypatch):
    monkeypatch.setenv("DOVETAIL_PYTHON", sys.executable)


def failures(report, operator):
    return [r for r in report["results"] if r["result"] == "fail" and r["operator"] == f"torch_faulty::{operator}"]


@pytest.mark.parametrize("operator", sorted(FAULTS))
def test_planted_faults(torch_faulty, operator):
    assert f"torch_faulty::{operator}" in torch_faulty["operators"]
    assert tuple(r["test"] for r in failures(torch_faulty, operator)) == FAULTS[operator]
    for r in failures(torch_faulty, operator):
        assert r["elements"] <= 16 and r["case"].startswith("x: float") and "--case" in r["reproduce"]


@pytest.mark.parametrize("operator", ["wrong_fake", "undeclared_write", "size_hard_coded", "wrong_gradient", "wrong_sharding"])
def test_scripts_fail_alone(torch_faulty, forked, tmp_path, operator):
    line, script = failures(torch_faulty, operator)[0]["reproduce"], tmp_path / "call.py"
    subprocess.run(f"{line} --emit-python {script}", shell=True, check=True, cwd=HERE.parents[1],
                   env=os.environ | {"DOVETAIL_PYTHON": sys.executable, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"})
    done = forked(script.read_text(), folder=HERE)
    assert done.returncode not in (0, 2) and "Traceback" not in done.stderr, done


def test_a_shipped_operator(check):
    report = check("swiglu", "--only", "torch")
    assert {r["test"]: r["result"] for r in report["results"]}["fake"] == "pass"
    assert report["failed"] == 0 and report["passed"] >= 6, report["table"]


def test_numbers_as_results_and_as_many_as_sizes_say(check):
    """What PyTorch cannot do is not the operator's fault."""
    results = {name: check(HERE / "unusual.c", "--only", "torch", "--op", name, "--seed", 7)["results"] for name in ("summary", "pieces")}
    assert [r for rs in results.values() for r in rs if r["result"] == "fail"] == []
    assert {"writes", "aliases", "vmapped"} <= {r["test"] for r in results["summary"] if r["result"] == "pass"}
    assert {"fake", "opcheck", "gradcheck", "compiled"} <= {r["test"] for r in results["pieces"] if r["result"] == "pass"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unusual.c", "healthy.c"])
def test_no_false_alarms_on_right_operators(check, name):
    results = check(HERE / name, "--only", "torch", "--seed", 7)["results"]
    assert [r for r in results if r["result"] == "fail"] == []


def test_names_of_files_do_not_matter(tmp_path):
    """In the folder where the checker runs, a file is not taken for a module of Python's; a module of the user's is found there."""
    for name in ("pathlib", "types", "my_module"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('taken from the folder')")
    command = pathlib.Path(os.environ["DOVETAIL_BUILD"]) / "bin" / "dovetail"
    assert "No module" not in (out := subprocess.run([command, "check", "--torch", "my_module"], cwd=tmp_path, capture_output=True, text=True).stderr), out
    assert "taken from the folder" in out
    out = subprocess.run([command, "check", "--torch", "pathlib"], cwd=tmp_path, capture_output=True, text=True)
    assert "taken from the folder" not in out.stdout + out.stderr


@pytest.mark.slow
def test_a_contract_makes_the_inputs(check):
    report = check("--torch", HERE / "torch_faulty.py", "--op", "torch_faulty::stride_ignored", "--contract", "x[m n]:f32 -> out[m n]:f32")
    failed, = (r["test"] for r in report["results"] if r["result"] == "fail")
    assert failed in ("bounds", "layouts"), report["table"]  # it fails both; the first failure stops the other question
    assert report["operators"] == ["torch_faulty::stride_ignored"]


def test_a_crash_with_a_contract_is_a_failure(check, tmp_path):
    report = check("--torch", HERE / "torch_faulty.py", "--op", "torch_faulty::crash", "--contract", "x[m n]:f32 -> out[m n]:f32")
    failure, = (r for r in report["results"] if r["result"] == "fail")
    assert failure["test"] == "runs" and failure["case"].startswith("x: float32[1, ")
    line, python = failure["reproduce"], {"DOVETAIL_PYTHON": sys.executable, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"}
    assert "--torch" in line and "--contract" in line and "--case 'torch; kernel=runs; torch_faulty::crash" in line
    done = subprocess.run(f"{line} --json", shell=True, capture_output=True, text=True, env=os.environ | python)
    assert done.returncode == 1 and [r["kind"] for r in json.loads(done.stdout)["results"]] == [failure["kind"]], done
    subprocess.run(f"{line} --emit-python {tmp_path}/call.py", shell=True, check=True, env=os.environ | python)
    assert subprocess.run([sys.executable, tmp_path / "call.py"], capture_output=True, timeout=300).returncode < 0


OPERATORS = ["relu", "mm", "_softmax", "cumsum", "index_select", "gelu", "cat", "add_.Tensor", "sort", "view"]


@pytest.mark.slow
def test_no_false_alarms_on_shipped_operators(check):
    results = check("dovetail", "--only", "torch")["results"]
    assert [r for r in results if r["result"] == "fail"] == []
    assert {"sharded", "functional", "vmapped", "gradgradcheck", "compiled"} <= {r["test"] for r in results if r["result"] == "pass"}


@pytest.mark.slow
def test_no_false_alarms_on_torch_itself(tmp_path):
    """As a package that others wrote: operators whose arguments are found by trial."""
    operators = [{"name": f"aten::{o}", "file": "", "foreign": True, "contract": False, "devices": [], "cases": [], "rtol": 0, "atol": 0} for o in OPERATORS]
    (tmp_path / "question").write_text(json.dumps({"seed": 1, "seconds": 0, "operators": operators}))
    subprocess.run([sys.executable, "-m", "dovetail.torch.check", tmp_path / "question", tmp_path / "answer", "-1", "torch"], check=True, timeout=600,
                   env={**os.environ, "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}, stderr=subprocess.DEVNULL)
    answers = json.loads((tmp_path / "answer").read_text())
    assert [a for a in answers if a["result"] == "fail"] == []
    assert {a["operator"] for a in answers if a["check"] == "runs" and a["result"] == "pass"} == {o["name"] for o in operators}


@pytest.mark.parametrize("where", ["active", "on PATH"])
def test_which_python(check, monkeypatch, tmp_path, where):
    """A Python without torch, which prints which one it is."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho this one $PYTHONPATH\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.delenv("DOVETAIL_PYTHON")
    if where == "active":
        monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    else:
        monkeypatch.delenv("VIRTUAL_ENV", raising=False)
        monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    result, = check("swiglu", "--only", "torch")["results"]
    assert result["result"] == "not checked" and re.search("python3: this one .*python", result["reason"])


@pytest.mark.slow
def test_time(check):
    results = check("swiglu", "--only", "torch", "--time", 1)["results"]
    assert results and {r.get("reason") for r in results if r["result"] == "not checked"} <= {"the time was up", "it writes nothing"}


def test_without_torch(check, monkeypatch):
    monkeypatch.setenv("DOVETAIL_PYTHON", "")
    report = check("swiglu", "--only", "torch")
    assert [r["result"] for r in report["results"]] == ["not checked"] and "there is no torch" in report["results"][0]["reason"]


@pytest.mark.parametrize("words, message", [
    (["--torch", "no_such_module_here"], "No module named 'no_such_module_here'"),
    (["--torch", "torch", "--op", "aten::no_such_operator"], "torch knows no operator aten::no_such_operator"),
])
def test_errors(check, words, message):
    assert message in check(*words)["error"]
