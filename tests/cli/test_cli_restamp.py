"""The digest in a binary after the usual tools have changed the binary: strip, objcopy, patchelf, auditwheel."""
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile

import pytest



def tool(name):
    """Returns the path of a tool that is on PATH or beside this Python."""
    path = shutil.which(name) or shutil.which(name, path=os.path.dirname(sys.executable))
    return path or pytest.skip(f"needs {name}")


@pytest.fixture(params=[[], ["-g"]], ids=["stripped", "debug"])
def built(project, request):
    project("build", *request.param)
    project.path = project.folder / "my_ops.so"
    return project


def loads(project, code=0):
    return project("info", "./my_ops.so", code=code)


# Each tool, and whether the binary loads afterwards without a new digest: not if it changed what is loaded.
TOOLS = [
    (["strip", "my_ops.so"], True),
    (["strip", "--strip-unneeded", "my_ops.so"], True),
    (["llvm-strip", "my_ops.so"], True),
    (["objcopy", "--add-section", ".more=my_ops.c", "my_ops.so"], True),
    (["objcopy", "--remove-section", ".comment", "my_ops.so"], True),
    (["objcopy", "--compress-debug-sections", "my_ops.so"], True),
    (["patchelf", "--set-rpath", "$ORIGIN/a/folder/with/a/long/name", "my_ops.so"], False),
    (["patchelf", "--set-soname", "another_name.so", "my_ops.so"], False),
    (["patchelf", "--add-needed", "libdl.so.2", "my_ops.so"], False),
]


@pytest.mark.parametrize("command, same", TOOLS, ids=[" ".join(t[0][:2]) for t in TOOLS])
def test_tools(built, command, same):
    loads(built)
    subprocess.run([tool(command[0]), *command[1:]], cwd=built.folder, check=True)
    assert built.path.read_bytes()
    if same:
        loads(built)
    else:
        err = loads(built, code=1).err
        assert "./my_ops.so: not a usable operator binary: its content does not match its digest" in err and "--restamp FILE" in err
    built("build", "--restamp", "my_ops.so")
    loads(built)
    data = bytearray(built.path.read_bytes())
    data[0x1000 if len(data) > 0x2000 else len(data) // 2] ^= 4
    built.path.write_bytes(data)
    assert "not a usable operator binary" in loads(built, code=1).err


def test_auditwheel_repair(project, tmp_path):
    """A wheel whose binary needs a library that auditwheel copies into it: it is patched there."""
    patchelf = tool("patchelf")
    (project.folder / "helper.c").write_text("int helper(void) { return 7; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "helper.c", "-Wl,-soname,libhelper_of_test.so.1", "-o", "libhelper_of_test.so.1"], cwd=project.folder, check=True)
    (project.folder / "libhelper_of_test.so").symlink_to("libhelper_of_test.so.1")
    text = (project.folder / "my_ops.c").read_text()
    (project.folder / "my_ops.c").write_text(text + "int helper(void);\n__attribute__((used)) static int (*const uses)(void) = helper;\n")
    env = {"LD_LIBRARY_PATH": str(project.folder)}
    project("build", "-L", ".", "-l", "helper_of_test", "my_ops.c", env=env)
    machine, name = os.uname().machine, "my_ops-1.0"
    wheel = project.folder / f"{name}-py3-none-linux_{machine}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(project.folder / "my_ops.so", "my_ops/my_ops.so")
        archive.writestr(f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: my_ops\nVersion: 1.0\n")
        archive.writestr(f"{name}.dist-info/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-linux_{machine}\n")
        archive.writestr(f"{name}.dist-info/RECORD", "".join(f"{n},,\n" for n in (
            "my_ops/my_ops.so", *(f"{name}.dist-info/{f}" for f in ("METADATA", "WHEEL", "RECORD")))))
    done = subprocess.run([sys.executable, "-m", "auditwheel", "repair", "-w", "repaired", wheel.name], cwd=project.folder, capture_output=True, text=True,
                          env=os.environ | env | {"PATH": f"{os.path.dirname(patchelf)}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    repaired, = (project.folder / "repaired").glob("*.whl")
    with zipfile.ZipFile(repaired) as archive:
        archive.extractall(project.folder / "installed")
    binary = "installed/my_ops/my_ops.so"
    assert "does not match its digest" in project("info", f"./{binary}", code=1).err
    project("build", "--restamp", binary)
    project("info", f"./{binary}")


def test_restamp_files(project):
    """--restamp replaces a file in one step. Its mode and a link stay; another kind of file is left unchanged."""
    project("build", "-g")
    path = project.folder / "my_ops.so"
    whole = path.read_bytes()
    path.chmod(0o640)
    (project.folder / "link.so").symlink_to("my_ops.so")
    project("build", "--restamp", "link.so", "--restamp", "my_ops.so")
    assert path.read_bytes() == whole and stat.S_IMODE(path.stat().st_mode) == 0o640 and (project.folder / "link.so").is_symlink()
    assert project("build", "--json", "--restamp", "my_ops.so").json == {"ok": True}
    (project.folder / "text").write_text("not a binary")
    err = project("build", "--restamp", "text", code=1).err
    assert "text: not a usable operator binary: truncated" in err and "/proc/" not in err
    assert (project.folder / "text").read_text() == "not a binary"
    path.write_bytes(whole[:3000])
    assert "my_ops.so: not a usable operator binary: truncated" in project("build", "--restamp", "my_ops.so", code=1).err
    assert path.read_bytes() == whole[:3000]
    assert "No such file" in project("build", "--restamp", "none.so", code=1).err
    assert "is a directory" in project("build", "--restamp", ".", code=1).err.lower()
    os.mkfifo(project.folder / "pipe")
    project("build", "--restamp", "pipe", code=1)
    assert "nothing is built" in project("build", "--restamp", "my_ops.so", "my_ops.c", code=2).err
    assert not project.leftovers()


def test_restamp_on_a_folder_that_cannot_be_written(project):
    project("build")
    path = project.folder / "my_ops.so"
    whole, read_only = path.read_bytes(), project.folder / "closed"
    read_only.mkdir()
    shutil.copy(path, read_only)
    read_only.chmod(0o555)
    for p in (project.folder, *project.folder.parents):
        if p.stat().st_uid == os.getuid() and len(p.parts) > 2:
            p.chmod(p.stat().st_mode | 0o711)
    kwargs = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    assert "cannot write 'closed/my_ops.so': Permission denied" in project("build", "--restamp", "closed/my_ops.so", code=1, **kwargs).err
    assert (read_only / "my_ops.so").read_bytes() == whole
    read_only.chmod(0o755)


def test_a_plain_compiler_s_binary(project):
    """The note of such a binary is empty: the binary loads, and --restamp gives it a digest."""
    include = re.search(r"-I (\S+)", project("build", "-v").err)[1]
    subprocess.run(["cc", "-std=c11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{include}", "my_ops.c", "-o", "my_ops.so"], cwd=project.folder, check=True)
    before = (project.folder / "my_ops.so").read_bytes()
    at = before.index(b"\x09\0\0\0\x10\0\0\0\x01\0\x56\x44Dovetail\0\0\0\0") + 24
    assert not any(before[at:at + 16])
    loads(project)
    project("build", "--restamp", "my_ops.so")
    after = (project.folder / "my_ops.so").read_bytes()
    assert before[:at] == after[:at] and before[at + 16:] == after[at + 16:]
    assert [a ^ 255 for a in after[at:at + 8]] == list(after[at + 8:at + 16])
    loads(project)
    for i in range(at - 24, at + 16):  # every byte of the note, its digest included
        (project.folder / "my_ops.so").write_bytes(after[:i] + bytes([after[i] ^ 0x10]) + after[i + 1:])
        assert "not a usable operator binary" in loads(project, code=1).err
