"""`dovetail check --json` as a function."""
import json
import os
import pathlib
import subprocess

import pytest

BUILD = pathlib.Path(os.environ["DOVETAIL_BUILD"])
os.environ.setdefault("DOVETAIL_PYTHON", "")  # the property torch has tests of its own


def run_check(*words, expect=None):
    done = subprocess.run([BUILD / "bin" / "dovetail", "check", "--json", *map(str, words)], capture_output=True, text=True, timeout=600)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1), done.stderr
    return report


@pytest.fixture(scope="session")
def check():
    return run_check
