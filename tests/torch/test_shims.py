"""The table of libtorch's symbols (shims.def, tags.def), against the torch that is installed and against older ones."""
import ctypes
import pathlib
import re
import subprocess
import sys

import pytest
import torch

from conftest import ROOT
from dovetail.torch import types

TABLE = (ROOT / "bridges/torch/shims.def").read_text()
SHIMS = re.findall(r'^SHIM\("([\d.]+)", (\w+), (.+?), (\w+), \(', TABLE, re.M)
LIB = pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so"


def version(text):
    return tuple(map(int, text.split(".")[:2]))


def test_the_table_is_read_whole():
    assert len(SHIMS) == len(re.findall(r"^SHIM\(", TABLE, re.M)) == len({name for *_, name in SHIMS}) > 30


@pytest.mark.parametrize("since, need, _, name", SHIMS, ids=[s[3] for s in SHIMS])
def test_symbol(since, need, _, name):
    """What is required is there; what is optional is there from the release on that the table says."""
    there = hasattr(ctypes.CDLL(str(LIB)), name)
    assert there or (need == "OPTIONAL" and version(torch.__version__) < version(since)), f"{need} since torch {since}"


def test_what_is_required_came_with_2_10_at_the_latest():
    assert {since for since, need, *_ in SHIMS if need == "REQUIRED" and version(since) > (2, 10)} == set()


def test_numbers_of_dtypes_and_tags():
    lib = ctypes.CDLL(str(LIB))
    known = {theirs for theirs in types.DTYPES.values() if any(hasattr(lib, p + str(theirs)[6:]) for p in ("aoti_torch_dtype_", "torch_dtype_"))}
    since = {torch.float8_e8m0fnu} if version(torch.__version__) < (2, 11) else set()  # older versions do not tell its number
    assert known == set(types.DTYPES.values()) - since and len(types.DTYPES) == 21
    tags = re.findall(r"TAG\((\w+)\)", (ROOT / "bridges/torch/tags.def").read_text())
    assert set(tags) - set(torch.Tag.__members__) <= (set() if version(torch.__version__) >= (2, 12) else {"out_variant"})
    if version(torch.__version__) >= (2, 12):
        assert {t for t in torch.Tag.__members__ if hasattr(lib, f"torch_tag_{t}")} == set(tags)
        assert all(getattr(lib, f"torch_tag_{t}")() == int(getattr(torch.Tag, t)) for t in tags)


OLD = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
from dovetail import _core
from dovetail.torch import native
out = ctypes.c_void_p()
assert native.bridge.dv_torch_available() == -15  # DV_EABI
assert native.bridge.dv_torch_register(_core.library_info(_core.load(sys.argv[2]))[2], 0, ctypes.byref(out)) == -15 and not out.value
print(native.bridge.dv_last_error().decode())
"""


@pytest.mark.parametrize("newest, missing", [((2, 9), "torch_library_impl, which came with torch 2.10"), ((0, 0), "which came with torch 2.8")])
def test_an_older_torch_says_so(tmp_path, binary, newest, missing):
    """A libtorch_cpu.so that has only the symbols of older releases, in a process of its own."""
    functions = "".join(f"void {name}(void) {{}}\n" for since, _, _, name in SHIMS if version(since) <= newest)
    (tmp_path / "old.c").write_text(functions + "int old;\n")
    old = tmp_path / "libtorch_cpu.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-Wl,-soname,libtorch_cpu.so", str(tmp_path / "old.c"), "-o", str(old)], check=True)
    done = subprocess.run([sys.executable, "-c", OLD, str(old), str(binary)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "this torch is too old: Dovetail needs 2.10 or later (libtorch has no " in done.stdout and missing in done.stdout
