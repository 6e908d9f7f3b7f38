import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
if str(BUILD / "python") not in sys.path:
    sys.path.insert(0, str(BUILD / "python"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BUILD / "python"), os.environ.get("PYTHONPATH")]))

dovetail = pytest.importorskip("dovetail", reason="cmake -DDOVETAIL_PYTHON=ON")


@pytest.fixture(scope="session")
def binary(tmp_path_factory):
    """py_ops.c, built as an author builds it."""
    out = tmp_path_factory.mktemp("py_ops") / "py_ops.so"
    subprocess.run([dovetail.command(), "build", "-W", "-o", out, pathlib.Path(__file__).with_name("py_ops.c")], check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def ops(binary):
    return dovetail.load(binary)


@pytest.fixture
def python(binary):
    """Runs code in a fresh Python; gives what it printed. BINARY is py_ops.so."""
    def run(code, **env):
        done = subprocess.run([sys.executable, "-c", f"BINARY = {str(binary)!r}\n" + code], capture_output=True, text=True, timeout=100,
                              env={**os.environ, **env})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    return run
