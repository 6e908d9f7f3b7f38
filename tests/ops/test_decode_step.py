"""examples/decode_step: a layer's step in C and in PyTorch chooses the keys of plain PyTorch, and gives its results."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_small():
    done = subprocess.run([sys.executable, ROOT / "examples/decode_step/decode_step.py", "--small", "--rounds", "2", "--sequences", "3"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == ["plain PyTorch", "Dovetail in PyTorch", "Dovetail in C"]


@pytest.mark.slow
def test_published_sizes():
    done = subprocess.run([sys.executable, ROOT / "examples/decode_step/decode_step.py", "--rounds", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
