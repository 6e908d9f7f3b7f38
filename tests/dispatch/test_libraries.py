"""Libraries from files: what docs/dispatch.md says about vendors, versions and reloading, with README's operator."""
import ctypes
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ.get("DOVETAIL_LIBRARY", pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build")) / "lib" / "libdovetail.so")
WARNINGS = "-std=c11 -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Werror".split()
P = ctypes.c_void_p
ENOENT, EEXIST = -11, -12


def block(page, language=""):
    return next(code for kind, code in re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M) if kind == language)


def build(folder, name, code, *flags):
    source = folder / f"{name}.c"
    source.write_text(code)
    subprocess.run(["gcc", *WARNINGS, "-O1", "-fPIC", "-shared", "-fvisibility=hidden", *flags, f"-I{ROOT}/include", source, "-o", folder / f"{name}.so", "-lm"],
                   check=True)
    return os.fspath(folder / f"{name}.so").encode()


@pytest.fixture(scope="module")
def core():
    lib = ctypes.CDLL(os.fspath(LIBRARY))
    lib.dv_last_error.restype = lib.dv_operator_doc.restype = ctypes.c_char_p
    lib.dv_operator_doc.argtypes = [P]
    lib.dv_operator_dump_table.argtypes = [P, ctypes.POINTER(P)]
    lib.dv_library_find.argtypes = [P, ctypes.c_char_p, ctypes.POINTER(P)]
    lib.dv_library_free.argtypes = lib.dv_operator_unref.argtypes = lib.dv_free.argtypes = [P]
    lib.dv_library_free.restype = lib.dv_operator_unref.restype = lib.dv_free.restype = None
    return lib


def load(core, path):
    library = P()
    assert core.dv_load(path, ctypes.byref(library)) == 0, core.dv_last_error().decode()
    return library


def refused(core, path):
    library = P()
    assert core.dv_load(path, ctypes.byref(library)) == EEXIST and not library
    return core.dv_last_error().decode()


def doc(core, find, *args):
    """The doc of the operator that is found: it tells the versions apart."""
    op = P()
    assert find(*args, b"my_ops::swiglu", ctypes.byref(op)) == 0, core.dv_last_error().decode()
    text = core.dv_operator_doc(op).decode()
    core.dv_operator_unref(op)
    return text


def swiglu(doc):
    return block("README.md", "c").replace(".native ", f'.doc = "{doc}",\n    .native ')


@pytest.mark.parametrize("vendor_first", [False, True])
def test_vendor(core, tmp_path, vendor_first):
    files = [build(tmp_path, "swiglu", block("README.md", "c")), build(tmp_path, "acme", block("docs/dispatch.md", "c"))]
    op, text = P(), P()
    libraries = [load(core, path) for path in (reversed(files) if vendor_first else files)]
    assert core.dv_find(b"my_ops::swiglu", ctypes.byref(op)) == 0, core.dv_last_error().decode()
    assert core.dv_operator_dump_table(op, ctypes.byref(text)) == 0
    table = ctypes.string_at(text).decode()
    core.dv_free(text)
    core.dv_operator_unref(op)
    for library in libraries:
        core.dv_library_free(library)
    assert table == block("docs/dispatch.md")


def test_versions_side_by_side(core, tmp_path):
    files = [build(tmp_path, f"v{i}", swiglu(f"version {i}"), f'-DDV_LIBRARY_VERSION="{i}.0"') for i in (1, 2)]
    one, two = (load(core, path) for path in files)
    assert doc(core, core.dv_find) == doc(core, core.dv_library_find, two) == "version 2"
    assert doc(core, core.dv_library_find, one) == "version 1"
    op, path, content = P(), P(), ctypes.create_string_buffer(33)
    assert core.dv_library_find(one, b"swiglu", ctypes.byref(op)) == 0
    assert core.dv_operator_binary(op, ctypes.byref(path), content) == 0
    assert ctypes.string_at(path) == files[0] and len(content.value) == 32
    core.dv_free(path)
    again = build(tmp_path, "again", swiglu("version 2, too"), '-DDV_LIBRARY_VERSION="2.0"')
    assert "namespace my_ops is already defined by library my_ops 2.0 from " in refused(core, again)
    core.dv_library_free(two)
    assert doc(core, core.dv_find) == "version 1"
    core.dv_library_free(one)
    assert core.dv_operator_binary(op, ctypes.byref(path), content) < 0 and not path
    assert core.dv_last_error().decode() == "my_ops::swiglu: it is of no file that is loaded"
    core.dv_operator_unref(op)


def test_reload(core, tmp_path):
    """As authors work: build, load, change, build to the same name, load."""
    path = build(tmp_path, "swiglu", swiglu("first"))
    library = load(core, path)
    assert "the same binary is already loaded" in refused(core, path)
    build(tmp_path, "swiglu", swiglu("second"))
    assert "namespace my_ops is already defined" in refused(core, path)
    assert doc(core, core.dv_find) == "first"
    core.dv_library_free(library)
    library = load(core, path)
    assert doc(core, core.dv_find) == "second"
    core.dv_library_free(library)
    op = P()
    assert core.dv_find(b"my_ops::swiglu", ctypes.byref(op)) == ENOENT
