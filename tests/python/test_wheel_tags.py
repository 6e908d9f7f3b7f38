"""The platform tag of an operator project's wheel: what its binaries need, by auditwheel's policies."""
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import dovetail

LINUX = f"linux_{platform.machine()}"
pytest.importorskip("auditwheel")


@pytest.fixture
def project(tmp_path):
    subprocess.run([dovetail.command(), "new", tmp_path / "tag_ops"], check=True, capture_output=True)
    return tmp_path / "tag_ops"


def library(folder, name, source="int outside(int x) { return x + 1; }"):
    (folder / "outside.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, f"-Wl,-soname,{name}", folder / "outside.c"], check=True)
    (folder / "outside.c").unlink()


def configure(project, *flags, **more):
    with open(project / "pyproject.toml", "a") as file:
        file.write(f"\n[tool.dovetail]\nsources = ['tag_ops.c']\nflags = {list(map(str, flags))}\n")


def prepend(project, text):
    source = project / "tag_ops.c"
    source.write_text(text + source.read_text())


def build(project, hook="wheel", **env):
    """Builds the project's wheel. Returns (tag, messages); auditwheel must find the same tag."""
    out = project / "dist"
    out.mkdir(exist_ok=True)
    done = subprocess.run([sys.executable, "-m", "dovetail.backend", hook, out], cwd=project, env={**os.environ, **env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel, = out.glob("*.whl")
    name, version, *tags = wheel.stem.split("-")
    assert tags[:2] == ["py3", "none"]
    with zipfile.ZipFile(wheel) as archive:
        assert f"Tag: {'-'.join(tags)}\n" in archive.read(f"{name}-{version}.dist-info/WHEEL").decode()
    return tags[2], done.stderr, wheel


def shown(wheel):
    text = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], check=True, capture_output=True, text=True).stdout
    return re.search(r'platform\s+tag:\s+"(\w+)"', text)[1]


def test_a_wheel_that_needs_libc_only(project):
    tag, messages, wheel = build(project)
    assert tag.startswith("manylinux_2_") and tag == shown(wheel) and "auditwheel" not in messages


def test_a_library_outside_the_policies(project):
    library(project, "libtag_outside.so.3")
    prepend(project, "int outside(int); int (*const volatile used)(int) = outside;\n")
    configure(project, "-X", f"-Wl,-rpath,{project}", "-X", project / "libtag_outside.so.3")
    tag, messages, wheel = build(project)
    assert tag == LINUX == shown(wheel)
    assert "needs libtag_outside.so.3" in messages and "auditwheel repair" in messages and wheel.name in messages


def test_a_symbol_version_outside_the_policies(project):
    """libc.so.6 is in each policy, its newest symbols are not in old ones: the version decides."""
    library(project, "libtag_versions.so.1")
    prepend(project, "#include <math.h>\n#include <pthread.h>\nint (*const volatile used)(pthread_t, void **) = pthread_join;\n")
    tag, _, wheel = build(project)
    assert tag == shown(wheel)
    needs = subprocess.run(["readelf", "-V", zipfile.ZipFile(wheel).extract("tag_ops/tag_ops.so", project)], capture_output=True, text=True).stdout
    newest = max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", needs))
    assert int(tag.split("_")[2]) >= newest


def test_another_binary_in_the_package(project):
    """The whole wheel is audited, not only the operators' binary."""
    library(project, "libtag_far.so.7")
    (project / "other.c").write_text("int outside(int); int inside(int x) { return outside(x); }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", project / "tag_ops" / "other.so", project / "other.c", project / "libtag_far.so.7"], check=True)
    configure(project)
    tag, messages, wheel = build(project)
    assert tag == LINUX == shown(wheel) and "needs libtag_far.so.7" in messages


def test_a_library_that_the_wheel_has_itself(project):
    library(project / "tag_ops", "libtag_inside.so.1")
    prepend(project, "int outside(int); int (*const volatile used)(int) = outside;\n")
    configure(project, "-X", "-Wl,-rpath,$ORIGIN", "-X", f"-Wl,-rpath,{project}/tag_ops", "-X", project / "tag_ops" / "libtag_inside.so.1")
    tag, messages, wheel = build(project)
    assert tag.startswith("manylinux_2_") and tag == shown(wheel) and "auditwheel" not in messages


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
def test_an_instruction_set_outside_the_policies(project):
    configure(project, "-X", "-march=x86-64-v3", "-X", "-Wl,-z,x86-64-v3")
    tag, messages, wheel = build(project)
    assert tag == shown(wheel)
    assert tag != LINUX or "instruction set" in messages


def test_without_auditwheel(project, tmp_path):
    (tmp_path / "hidden" / "auditwheel").mkdir(parents=True)
    (tmp_path / "hidden" / "auditwheel" / "__init__.py").write_text("raise ImportError('hidden')")
    tag, messages, wheel = build(project, PYTHONPATH=f"{tmp_path / 'hidden'}:{os.environ['PYTHONPATH']}")
    assert tag == LINUX and "auditwheel cannot be imported" in messages and "auditwheel repair" in messages


def test_an_editable_wheel_is_for_this_machine(project):
    tag, messages, _ = build(project, "editable")
    assert tag == LINUX and "auditwheel" not in messages


@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc"), reason="no cross-compiler")
def test_a_binary_for_another_machine(tmp_path):
    import dovetail.backend as backend
    (tmp_path / "x.c").write_text("int dovetail_library_1;")
    subprocess.run(["aarch64-linux-gnu-gcc", "-shared", "-fPIC", "-o", tmp_path / "x.so", tmp_path / "x.c"], check=True)
    assert backend.linux_tag((tmp_path / "x.so").read_bytes()) == "linux_aarch64"
    with zipfile.ZipFile(tmp_path / "x-0-py3-none-linux_aarch64.whl", "w") as archive:
        archive.write(tmp_path / "x.so", "x/x.so")
        archive.writestr("x-0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-linux_aarch64\n")
        archive.writestr("x-0.dist-info/METADATA", "Metadata-Version: 2.1\nName: x\nVersion: 0\n")
        archive.writestr("x-0.dist-info/RECORD", "")
    tag, reason = backend.audit(tmp_path / "x-0-py3-none-linux_aarch64.whl")
    if tag is None:  # auditwheel 6.8 finds no libc for another machine's binary: the tag stays linux_aarch64, and the reason is printed
        assert "auditwheel cannot audit it" in reason
    else:
        assert tag.startswith("manylinux_2_") and tag.endswith("_aarch64")
