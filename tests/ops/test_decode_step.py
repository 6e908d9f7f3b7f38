"""examples/decode_step: a layer's step in C and in PyTorch chooses the keys of plain PyTorch, and gives its results."""
import collections
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, str(ROOT / "examples/decode_step/decode_step.py")]


def test_small():
    done = subprocess.run([sys.executable, ROOT / "examples/decode_step/decode_step.py", "--small", "--rounds", "2", "--sequences", "3"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == ["plain PyTorch", "Dovetail in PyTorch", "Dovetail in C"]


@pytest.mark.parametrize("options, message", [
    (["--threads", "0"], "argument --threads: expected 1 to 256, found 0"), (["--threads", "257"], "expected 1 to 256, found 257"), (["--threads", "x"], "invalid number value: 'x'"),
    (["--rounds", "0"], "argument --rounds: expected 1"), (["--sequences", "0"], "argument --sequences: expected 1")])
def test_wrong_options(options, message):
    done = subprocess.run([*PROGRAM, *options], capture_output=True, text=True)
    assert done.returncode and message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("change, message", [(dict(CC="/nowhere/cc"), "/nowhere/cc cannot run: No such file"), (dict(PATH="/nowhere"), "dovetail cannot run: No such file"),
                                             (dict(CC="false"), "false failed")])
def test_what_is_missing(change, message):
    done = subprocess.run([*PROGRAM, "--small"], capture_output=True, text=True, env={**os.environ, **change})
    assert done.returncode == 1 and message in done.stderr and len(done.stderr.splitlines()) == 1


def test_room_for_the_tensors(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "examples/decode_step")
    import decode_step
    monkeypatch.setattr(decode_step.shutil, "disk_usage", lambda path: collections.namedtuple("usage", "free")(1000))
    with pytest.raises(SystemExit, match="the tensors need 1.9 GB, and .* has 0.0 GB free: ask for fewer --sequences"):
        decode_step.mapped(tmp_path / "folder", decode_step.layout(decode_step.PUBLISHED, 1))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_signals(number, tmp_path):
    process = subprocess.Popen([*PROGRAM, "--small", "--rounds", "1000000"], stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    until = time.monotonic() + 60
    while not list(tmp_path.glob("*/tensors.txt")) and time.monotonic() < until:
        time.sleep(0.05)
    assert list(tmp_path.glob("*/tensors.txt"))
    process.send_signal(number)
    assert process.communicate(timeout=60)[1] == f"decode_step.py: ended by {number.name}\n" and process.returncode == 1
    assert not list(tmp_path.glob("*/tensors.txt"))


@pytest.mark.slow
def test_published_sizes():
    done = subprocess.run([sys.executable, ROOT / "examples/decode_step/decode_step.py", "--rounds", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
