"""`dovetail check --json` as a function."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

BUILD = pathlib.Path(os.environ["DOVETAIL_BUILD"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
FAULTY = ROOT / "tests" / "faulty"
ENDLESS = {"endless_loop", "lock_kept", "waits_forever"}  # these use all the time that a case may take, several times
os.environ.setdefault("DOVETAIL_PYTHON", "")  # the property torch has tests of its own


def seeds(first, last):
    """The first seed in every run, the others in the slow suite."""
    return [first, *(pytest.param(s, marks=pytest.mark.slow) for s in range(first + 1, last + 1))]


def run_check(*words, python=None):
    env = os.environ | ({"DOVETAIL_PYTHON": python} if python else {})
    done = subprocess.run([BUILD / "bin" / "dovetail", "check", "--json", *map(str, words)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1), done.stderr
    return report


def once(shared, name, *words, **options):
    return json.loads(shared(f"reports/{name}.json", lambda path: path.write_text(json.dumps(run_check(*words, **options)))).read_text())


@pytest.fixture(scope="session")
def check():
    return run_check


@pytest.fixture(scope="session")
def faulty(shared):
    """faulty(name) -> the report on an operator of tests/faulty. It is made once for all tests."""
    def report(name):
        return once(shared, name, f"tests/faulty/{name}/fault.c", *(["--case-ms", 200] if name in ENDLESS else []))
    return report


@pytest.fixture(scope="session")
def torch_faulty(shared):
    """The report on all of torch_faulty.py, made once for all tests."""
    return once(shared, "torch_faulty", "--torch", pathlib.Path(__file__).with_name("torch_faulty.py"), python=sys.executable)
