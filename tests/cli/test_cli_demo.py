"""The demo's hosts accept a right operator and find a wrong one: the demo can fail."""
import hashlib
import json
import os
import subprocess
import sys

import pytest
from cli_helpers import BUILD, ROOT

DEMO = ROOT / "tools" / "demo"
HOSTS = [pytest.param("numpy_host.py", id="numpy"), pytest.param("torch_host.py", marks=pytest.mark.slow, id="torch")]


def host(script, binary, out, digest=None):
    digest = digest or hashlib.sha256(binary.read_bytes()).hexdigest()
    env = os.environ | {"PYTHONPATH": str(BUILD / "python"), "DOVETAIL_BUILD": str(BUILD)}
    return subprocess.run([sys.executable, DEMO / script, binary, out, digest], capture_output=True, text=True, env=env)


@pytest.mark.parametrize("script", HOSTS)
def test_right(project, script):
    project("build")
    r = host(script, project.folder / "my_ops.so", project.folder)
    assert r.returncode == 0, r.stderr
    rows = [json.loads(line) for line in r.stdout.splitlines()]
    assert len(rows) >= 3 and all(row["result"] for row in rows) and any(row["us"] for row in rows)


@pytest.mark.parametrize("script", HOSTS)
def test_wrong(project, source, script):
    project.write("my_ops.c", source.replace("* up[i];", "* up[i] * 1.001f;", 1))
    project("build")
    r = host(script, project.folder / "my_ops.so", project.folder)
    assert r.returncode != 0 and "wrong: " in r.stderr and "error" in r.stderr


def test_a_wrong_gradient_is_found(project, source):
    pytest.importorskip("torch")
    project.write("my_ops.c", source.replace("dup[i] = grad[i] * silu;", "dup[i] = grad[i];", 1))
    project("build")
    r = host("torch_host.py", project.folder / "my_ops.so", project.folder)
    assert r.returncode != 0 and "wrong: gradient" in r.stderr


def test_another_binary_is_found(project):
    project("build")
    r = host("numpy_host.py", project.folder / "my_ops.so", project.folder, "0" * 64)
    assert r.returncode != 0 and "is not the binary that was built" in r.stderr


def test_pictures(project, tmp_path):
    project("build")
    r = host("pictures.py", project.folder / "my_ops.so", tmp_path)
    assert r.returncode == 0, r.stderr
    assert {p.name for p in tmp_path.glob("*.png")} == {"photo.png", "crop.png", "crop_beyond_the_edge.png", "paste.png"}
