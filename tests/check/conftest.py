"""`dovetail check --json` as a function; what tests of faulty operators share."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

BUILD = pathlib.Path(os.environ["DOVETAIL_BUILD"])
COMMAND = BUILD / "bin" / "dovetail"
ROOT = pathlib.Path(__file__).resolve().parents[2]
FAULTY = ROOT / "tests" / "faulty"
ENDLESS = {"endless_loop", "gradient_loops", "lock_kept", "lock_kept_without_memory", "tries_for_ever", "waits_forever"}  # these use all the time that a case may take, several times
LOADS_NOT = "gradient_names_nothing"  # building its binary shows the fault
UNDEFINED = {p.parent.name for p in FAULTY.glob("*/expect") if p.read_text().startswith("undefined")}
FROM_SOURCE = {LOADS_NOT} | UNDEFINED  # the others are built once for all tests
os.environ.setdefault("DOVETAIL_PYTHON", "")  # the property torch has tests of its own


def seeds(first, last):
    """The first seed in every run, the others in the slow suite."""
    return [first, *(pytest.param(s, marks=pytest.mark.slow) for s in range(first + 1, last + 1))]


def run_check(*words, python=None):
    env = os.environ | ({"DOVETAIL_PYTHON": python} if python else {})
    done = subprocess.run([COMMAND, "check", "--json", *map(str, words)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1), done.stderr
    return report


def once(shared, name, *words, **options):
    return json.loads(shared(f"reports/{name}.json", lambda path: path.write_text(json.dumps(run_check(*words, **options)))).read_text())


@pytest.fixture(scope="session")
def check():
    return run_check


def build(source, out):
    subprocess.run([COMMAND, "build", source, "-o", out], cwd=ROOT, check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def binary(shared):
    """binary(name) -> an operator of tests/faulty, built once for all tests."""
    return lambda name: shared(f"{name}/fault.so", lambda path: build(f"tests/faulty/{name}/fault.c", path))


@pytest.fixture(scope="session")
def faulty(shared, binary):
    """faulty(name) -> the report of the properties that an operator of tests/faulty fails; with whole=True, of all. It is made once for all tests."""
    def report(name, whole=False):
        target = f"tests/faulty/{name}/fault.c" if name in FROM_SOURCE else binary(name)
        limits = ["--case-ms", 200] if name in ENDLESS else []
        return once(shared, f"{name}-whole" if whole else name, target, *limits, *([] if whole else ["--only", ",".join(expected(name)[0])]))
    return report


def expected(name):
    """What the file `expect` says: the properties that fail, a pattern of the message, and the kernels that fail, if that matters."""
    properties, pattern, *kernels = (FAULTY / name / "expect").read_text().splitlines()
    return set(properties.split()), pattern, set(kernels)


def failure(report):
    return next(r for r in report["results"] if r["result"] == "fail")


@pytest.fixture(scope="session")
def torch_faulty(shared):
    """The report on all of torch_faulty.py, made once for all tests."""
    return once(shared, "torch_faulty", "--torch", pathlib.Path(__file__).with_name("torch_faulty.py"), python=sys.executable)
