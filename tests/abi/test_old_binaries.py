"""The shipped binaries of an earlier version (404f248) load in this runtime, unchanged, and compute what this version's compute."""
import json
import pathlib
import platform
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCHIVE = pathlib.Path(__file__).with_name("shipped-404f248-x86_64.tar.xz")


def shipped_calls(*words):
    r = subprocess.run([sys.executable, ROOT / "tools/shipped_calls.py", *words], capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout


@pytest.mark.skipif(platform.machine() != "x86_64", reason="binaries for x86_64")
def test_binaries_of_404f248(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "old")
    assert len(list((tmp_path / "old").glob("*.so"))) == 20
    shipped_calls(tmp_path / "old.json", tmp_path / "old")
    shipped_calls(tmp_path / "new.json")
    old, new = (json.loads((tmp_path / file).read_text()) for file in ("old.json", "new.json"))
    refused = {call.partition("(")[0] for call in new.keys() - old.keys()}  # their contracts took fewer shapes then
    assert refused <= {"dovetail::advance_step", "dovetail::adv_step_flash", "dovetail::advance_step.tensors", "dovetail::advance_step.v2"}
    assert "89 calls of 47 operators: the same" in shipped_calls("--compare", tmp_path / "old.json", tmp_path / "new.json")
