"""Document 004's operators as real PyPTO kernels, on the CPU by PyPTO's own calculator, beside Dovetail's. Needs PyPTO: make test-pypto."""
import importlib.metadata
import json
import pathlib
import subprocess
import sys

import pytest

if "pypto" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("PyPTO is not installed here: make test-pypto", allow_module_level=True)


def test_the_operators_of_document_004(tmp_path):
    program = [sys.executable, pathlib.Path(__file__).with_name("kernels.py"), "5", tmp_path / "found.json"]
    done = subprocess.run(program, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (tmp_path / "found.json").exists(), done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["indices"] == found["ours"] and len(set(found["ours"])) == 8
    assert found["shape"] == [1, 1, 16, 64] and found["attention"] < 1e-6 * max(1, found["largest"]) and found["largest"] > 0.1
