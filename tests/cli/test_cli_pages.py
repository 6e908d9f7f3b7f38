"""docs/first-operator.md and docs/command.md, followed word for word."""
import os
import re
import subprocess
import sys

import pytest
from cli_helpers import BUILD, ROOT

PAGE = (ROOT / "docs" / "first-operator.md").read_text()


def blocks(language, page=PAGE):
    return [code for name, code in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.S | re.M) if name == language]


@pytest.fixture
def files(dovetail):
    for code in blocks("c"):
        dovetail.write(re.match(r"/\* (\w+\.c):", code)[1], code)
    return dovetail


def shell(line, d):
    r = subprocess.run(line, shell=True, cwd=d.folder, env=d.env, capture_output=True, text=True)
    assert r.returncode == 0, f"{line}\n{r.stdout}{r.stderr}"
    return r.stdout


def test_commands(files):
    lines = [line for block in blocks("") for line in block.splitlines() if line.startswith("dovetail ") and "new" not in line and line != "dovetail build"]
    assert len(lines) >= 3
    out = {line: shell(line, files) for line in lines}
    assert "* clamp_f32" in next(v for k, v in out.items() if "explain" in k)


def test_the_start_of_both_pages(dovetail):
    command = (ROOT / "docs" / "command.md").read_text()
    for i, block in enumerate((blocks("")[0], blocks("", command)[0])):
        folder = dovetail.folder / str(i)
        folder.mkdir()
        r = subprocess.run(["sh", "-e", "-c", block], cwd=folder, env=dovetail.env, capture_output=True, text=True)
        assert r.returncode == 0 and (folder / "my_ops" / "my_ops.so").exists(), r.stderr


def test_the_message_that_is_quoted(files):
    files.write("clamp.c", (files.folder / "clamp.c").read_text().replace("double limit;", "float limit;"))
    quoted = next(b for b in blocks("") if b.startswith("What is wrong"))
    assert quoted in files("build", "clamp.c", code=1).err


def test_the_report_that_is_quoted(files):
    quoted = next(b for b in blocks("") if b.startswith("scale.so")).splitlines()
    assert files("build", "scale.c").out.splitlines()[1] == quoted[1]


def test_clamp_and_its_own_error(files):
    files("build", "clamp.c")
    r = files("bench", "clamp.so", "clamp", "f32[4]", "limit=-1", code=1)
    assert "limit is -1: expected a number that is not negative" in r.err and "clamp_ops::clamp" in r.err


def test_python(files):
    files("build", "scale.c")
    check = """
assert (ops.scale(numpy.ones(3, "float32"), 2.0) == 2).all() and (x.grad == 2).all()
"""
    env = files.env | {"PYTHONPATH": str(BUILD / "python"), "DOVETAIL_BUILD": str(BUILD)}
    r = subprocess.run([sys.executable, "-c", blocks("python")[0] + check], cwd=files.folder, env=env, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr


def test_c_program(project):
    project("build")
    line = next(line for block in blocks("") for line in block.splitlines() if line.startswith("cc main.c"))
    assert "swiglu(1, 4) = 2.92423" in shell(line, project)
