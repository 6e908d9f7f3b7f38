"""The training example: the four loss curves lie on each other. A few steps; the whole is examples/torch_train/train.py."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_curves_lie_on_each_other(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "examples/torch_train/train.py", "--steps", "20", "--out", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "loss.png").stat().st_size > 10_000
