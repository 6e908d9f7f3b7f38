"""The command built with the flags that Ubuntu's gcc has by itself, and that distributions build packages with."""
import shutil
import subprocess

import pytest

from cli_helpers import ROOT, Dovetail

HARDENED = "-D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection -fcf-protection"


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_hardened(tmp_path, compiler):
    """Headers of libc put other functions in the place of memcpy() and its like; `dovetail check` defines some of these itself."""
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    build = tmp_path / "build"
    make = ["cmake", "-G", "Ninja", "-B", build, "-S", ROOT, "-DDOVETAIL_TESTS=OFF", f"-DCMAKE_C_COMPILER={compiler}", f"-DCMAKE_C_FLAGS={HARDENED}"]
    for command in (make, ["ninja", "-C", build, "dovetail", "ops/base.so"]):
        r = subprocess.run(command, capture_output=True, text=True)
        assert r.returncode == 0, r.stdout + r.stderr
    dovetail = Dovetail(tmp_path)
    dovetail.command = build / "bin/dovetail"
    dovetail("new", "my_ops")
    dovetail("build", cwd=tmp_path / "my_ops")
    assert " 0 failed" in dovetail("check", "my_ops.so", "--only", "memory,values", cwd=tmp_path / "my_ops").out
