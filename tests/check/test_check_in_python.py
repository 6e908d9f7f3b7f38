"""dovetail.check() and the pytest plugin: what the command finds, as Python objects and as tests."""
import os
import pathlib
import subprocess
import sys

import pytest

import dovetail

FAULTY = pathlib.Path(__file__).resolve().parents[1] / "faulty"
FAULT = FAULTY / "tail_unwritten" / "fault.c"


@pytest.fixture(autouse=True)
def without_torch(monkeypatch):
    monkeypatch.setenv("DOVETAIL_PYTHON", "")


def test_a_failure():
    report = dovetail.check(FAULT)
    assert not report and len(report) == len(list(report)) > 3
    failure, = report.failures
    assert (failure.property, failure.kernel, failure.result) == ("memory", "scale_f32", "fail")
    assert failure.message in repr(report) and failure.case in repr(report) and "fail memory" in repr(failure)
    assert failure.key.startswith("memory; kernel=scale_f32; faulty::scale(x=f32") and failure.reproduce.endswith(f"fault.c --case '{failure.key}'")


def test_targets(tmp_path):
    binary = tmp_path / "fault.so"
    subprocess.run([dovetail.command(), "build", FAULT, "-o", binary], check=True, capture_output=True)
    with dovetail.load(binary) as library:
        for target in (library, library.scale, binary, str(binary)):
            report = dovetail.check(target, only="binding")
            assert report and report.operators == ["faulty::scale"]
    assert dovetail.check(dovetail.ops.swiglu, only=["binding", "fake"]).operators == ["dovetail::swiglu"]
    assert dovetail.check("base", op="add", only="binding").operators[0].startswith("base::add")


def test_options():
    assert {r.property for r in dovetail.check(FAULT, only=["memory", "fake"], seed=3)} == {"memory", "fake"}
    assert dovetail.check(FAULT, only="binding", seed=3).seed == 3


def test_a_report_of_nothing_is_not_true(tmp_path):
    assert not dovetail.check(FAULT, only="gradient").failures and not dovetail.check(FAULT, only="gradient")
    (tmp_path / "f.c").write_text(FAULT.read_text().replace("const struct scale *a)\n{", "const struct scale *a)\n{\n    if (a)\n        return dv_error(ctx, DV_EINVAL, \"never\");"))
    assert "never" in (tmp_path / "f.c").read_text() and not dovetail.check(tmp_path / "f.c", only="runs")


def test_a_crash_is_a_result():
    report = dovetail.check(FAULTY / "aborts" / "fault.c")
    assert [r.property for r in report.failures] == ["runs"]


@pytest.mark.parametrize("target, words", [("not_there.so", "cannot read 'not_there.so'"), ("not_there", "not_there not found")])
def test_errors(target, words):
    with pytest.raises(dovetail.DovetailError, match=words):
        dovetail.check(target)
    with pytest.raises(dovetail.DovetailError, match="there is no property 'luck'"):
        dovetail.check(FAULT, only="luck")


def run_pytest(folder, *words):
    env = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}
    return subprocess.run([sys.executable, "-m", "pytest", "-p", "dovetail.pytest", "-p", "no:cacheprovider", "-rA", *map(str, words)], cwd=folder,
                          env=env, capture_output=True, text=True, timeout=300)


def test_plugin(tmp_path):
    done = run_pytest(tmp_path, "--dovetail", FAULT)
    assert done.returncode == 1 and "1 failed" in done.stdout, done.stdout
    assert "fault.c::faulty::scale::memory[scale_f32]" in done.stdout and "smallest case found: x: f32" in done.stdout and "reproduce: dovetail check " in done.stdout
    assert "Traceback" not in done.stdout


def test_plugin_skips_what_is_not_checked(tmp_path):
    done = run_pytest(tmp_path, "--dovetail", pathlib.Path(__file__).with_name("declared.c"), "--dovetail-only", "shapes,binding")
    assert done.returncode == 0 and "not checked, because" in done.stdout and "passed" in done.stdout and "skipped" in done.stdout, done.stdout


def test_plugin_by_the_ini_file_and_with_other_tests(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\ndovetail_check = base\n")
    (tmp_path / "test_more.py").write_text("def test_it(): pass\n")
    done = run_pytest(tmp_path, "--dovetail-only", "binding", "-k", "relu or test_it")
    assert done.returncode == 0 and "base::relu::binding" in done.stdout and "test_it" in done.stdout, done.stdout


def test_plugin_with_a_target_that_is_not_there(tmp_path):
    done = run_pytest(tmp_path, "--dovetail", "not_there.so")
    assert done.returncode == 4 and "cannot read 'not_there.so'" in done.stderr + done.stdout
