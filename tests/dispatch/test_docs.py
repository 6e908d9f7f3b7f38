"""docs/dispatch.md: the vendor's file compiles, loads beside README's operator, and gives the table that the page shows."""
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


def block(page, language=""):
    return next(code for kind, code in re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M) if kind == language)


def build(folder, name, code):
    source = folder / f"{name}.c"
    source.write_text(code)
    subprocess.run(["gcc", *WARNINGS, "-O1", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{ROOT}/include", source, "-o", folder / f"{name}.so", "-lm"],
                   check=True)
    return os.fspath(folder / f"{name}.so").encode()


@pytest.mark.parametrize("vendor_first", [False, True])
def test_vendor(tmp_path, vendor_first):
    core = ctypes.CDLL(os.fspath(LIBRARY))
    core.dv_last_error.restype = ctypes.c_char_p
    core.dv_operator_dump_table.argtypes = [P, ctypes.POINTER(P)]
    core.dv_library_free.argtypes = core.dv_operator_unref.argtypes = core.dv_free.argtypes = [P]
    core.dv_library_free.restype = core.dv_operator_unref.restype = core.dv_free.restype = None
    files = [build(tmp_path, "swiglu", block("README.md", "c")), build(tmp_path, "acme", block("docs/dispatch.md", "c"))]
    libraries, op, text = [], P(), P()
    for path in reversed(files) if vendor_first else files:
        library = P()
        assert core.dv_load(path, ctypes.byref(library)) == 0, core.dv_last_error().decode()
        libraries.append(library)
    assert core.dv_find(b"my_ops::swiglu", ctypes.byref(op)) == 0, core.dv_last_error().decode()
    assert core.dv_operator_dump_table(op, ctypes.byref(text)) == 0
    table = ctypes.string_at(text).decode()
    core.dv_free(text)
    core.dv_operator_unref(op)
    for library in libraries:
        core.dv_library_free(library)
    assert table == block("docs/dispatch.md")
