"""The wheel, and operator projects, in fresh environments (slow); and that the checks of binaries find what they should."""
import pathlib
import subprocess
import sys
import zipfile

import pytest

import dovetail
from conftest import BUILD, ROOT

sys.path.insert(0, str(ROOT / "pack"))
check = pytest.importorskip("check", reason="pyelftools")


def clean(**more):
    import os
    return {**{k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "DOVETAIL_HOME")}, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


def run(*command, cwd=None, **env):
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=clean(**env), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_binaries_of_the_build_tree():
    done = subprocess.run([sys.executable, ROOT / "pack" / "check.py", BUILD], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("source, what", [
    ("int dovetail_library_1, another;", "exports another"),
    ("int another;", "expected exactly dovetail_library_1"),
    ("extern int nowhere(void); int dovetail_library_1; int (*p)(void) = nowhere; ", "needs symbol nowhere"),
])
def test_the_check_finds_bad_binaries(tmp_path, source, what):
    (tmp_path / "x.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "x.so", tmp_path / "x.c"], check=True)
    assert what in " ".join(check.problems_of(check.Binary(tmp_path / "x.so"), *check.RULES[2][1:]))


def test_the_check_finds_a_needed_library(tmp_path):
    (tmp_path / "x.c").write_text("int dovetail_library_1;")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o", tmp_path / "x.so", tmp_path / "x.c", "-lz"], check=False)
    if not (tmp_path / "x.so").exists():
        subprocess.run(["cc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o", tmp_path / "x.so", tmp_path / "x.c", "-lpthread", "-lrt"], check=True)
    assert "needs lib" in " ".join(check.problems_of(check.Binary(tmp_path / "x.so"), *check.RULES[2][1:]))


@pytest.fixture(scope="session")
def wheel(shared):
    """Built once: all processes of pytest-xdist would build it in the same folder."""
    def make(out):
        out.mkdir()
        done = subprocess.run([sys.executable, ROOT / "pack" / "wheel.py", out, "--no-build-isolation"], capture_output=True, text=True, env=clean())
        assert done.returncode == 0, done.stdout + done.stderr

    return next(shared("wheel", make).glob("*.whl"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """A fresh environment with the wheel in it, and NumPy: no torch."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin" / "pip", "install", "-q", "numpy", "auditwheel", wheel)
    return venv


@pytest.mark.slow
def test_the_wheel(wheel):
    assert wheel.name.startswith("dovetail-") and "-cp311-abi3-manylinux_2_" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"dovetail/bin/dovetail", "dovetail/lib/libdovetail.so.1", "dovetail/include/dovetail_op.h", "dovetail/ops/swiglu.so",
            "dovetail/_core.abi3.so", "dovetail/torch/__init__.py", "dovetail/py.typed"} <= names
    assert sum("libdovetail.so.1" in n for n in names) == 1  # two files would be two runtimes


@pytest.mark.slow
def test_installed(installed):
    assert "dovetail " in run(installed / "bin" / "dovetail", "--version")
    assert run(installed / "bin" / "python", "-c", """
import dovetail, numpy as np, subprocess, sys
x = np.ones((2, 3), np.float32)
print(dovetail.ops.swiglu(x, x)[0, 0], dovetail.__file__.startswith(sys.prefix), "torch" in sys.modules)
with dovetail.policy("none"):
    print(dovetail.ops.swiglu(x, x)[0, 0])
print(subprocess.run([dovetail.command(), "--version"], capture_output=True).returncode)
""").split() == ["0.7310586", "True", "False", "0.7310586", "0"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--no-build-isolation"], ["-e"]])
def test_an_operator_project(installed, options, tmp_path):
    name = "speed_ops"
    run(installed / "bin" / "dovetail", "new", tmp_path / name)
    project = tmp_path / name
    pip = [installed / "bin" / "pip", "install", "-q"]
    run(*pip, *([*options, project] if options == ["-e"] else [*options, project]))
    assert run(installed / "bin" / "python", "-c", """
import sys
import speed_ops
assert "numpy" not in sys.modules and "torch" not in sys.modules
import inspect, numpy as np
x = np.ones(3, np.float32)
print(speed_ops.swiglu(x, x)[0], speed_ops.__version__, inspect.signature(speed_ops.swiglu), speed_ops.__all__)
""", cwd=tmp_path) == "0.7310586 0.1.0 (gate: Array, up: Array, *, out: Array | None = None) -> Array ['swiglu', 'swiglu_grad']\n"
    run(*pip[:1], "uninstall", "-q", "-y", name)


@pytest.mark.slow
def test_an_operator_wheel_is_reproducible_and_typed(installed, tmp_path):
    run(installed / "bin" / "dovetail", "new", tmp_path / "same_ops")
    wheels = []
    for i in range(2):
        run(installed / "bin" / "pip", "wheel", "-q", "--no-deps", "-w", tmp_path / str(i), tmp_path / "same_ops")
        wheel, = (tmp_path / str(i)).glob("*.whl")
        wheels.append(wheel.read_bytes())
    assert wheels[0] == wheels[1]
    assert "-py3-none-manylinux_2_" in wheel.name
    archive = zipfile.ZipFile(wheel)
    assert {"same_ops/__init__.py", "same_ops/__init__.pyi", "same_ops/py.typed", "same_ops/same_ops.so"} <= set(archive.namelist())
    assert "Requires-Dist: dovetail" in archive.read("same_ops-0.1.0.dist-info/METADATA").decode()
    stub = archive.read("same_ops/__init__.pyi").decode()
    assert "def swiglu(gate: Array, up: Array, *, out: Array | None = None) -> Array:" in stub
    compile(stub, "stub", "exec")
    binary = tmp_path / "same_ops.so"
    binary.write_bytes(archive.read("same_ops/same_ops.so"))
    assert not list(check.problems_of(check.Binary(binary), *check.RULES[2][1:]))


@pytest.mark.slow
def test_where_dovetail_is_not_installed_it_says_so(installed, tmp_path):
    run(installed / "bin" / "dovetail", "new", tmp_path / "lonely_ops")
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    done = subprocess.run([venv / "bin" / "pip", "install", tmp_path / "lonely_ops"], capture_output=True, text=True,
                          env=clean(PATH="/usr/bin:/bin", VIRTUAL_ENV=""))
    assert done.returncode and "dovetail is not installed in" in done.stdout + done.stderr
