"""tools/run_tests.py as CONTRIBUTING.md names it: from a shell in which nothing is set."""
import os
import subprocess
import sys

from conftest import BUILD, ROOT

NAMES = ("DOVETAIL_BUILD", "PYTHONPATH", "PYTEST_ADDOPTS")


def test_it_finds_the_build(tmp_path):
    """Files of tests import the package, the command is on PATH, whatever the current folder is. No test is selected: the files are imported only."""
    env = {k: v for k, v in os.environ.items() if k not in NAMES and not k.startswith("PYTEST_")} | {"PATH": "/usr/bin:/bin"}
    env |= {} if BUILD == ROOT / "build" else {"DOVETAIL_BUILD": str(BUILD)}
    done = subprocess.run([sys.executable, ROOT / "tools" / "run_tests.py", "not slow and slow", "cli"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "== tests/cli" in done.stdout, done.stdout + done.stderr
