import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build")) / "python"))


AMX = "amx_tile" in pathlib.Path("/proc/cpuinfo").read_text()


@pytest.fixture(params=["base", "avx2", "avx512", *["avx512bf16+avx512vnni"] * AMX, None])
def isa(request):
    """The rows of this instruction set (or of the best that this processor has), whatever is faster; None: all that it has."""
    import dovetail
    dovetail.set_isa(request.param)
    yield
    dovetail.set_isa(None)
