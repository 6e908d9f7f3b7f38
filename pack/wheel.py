#!/usr/bin/env python3
"""Builds Dovetail's one wheel into a folder, gives it the manylinux tag that its binaries allow, and checks it. `wheel.py OUT [pip options]`"""
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check

ROOT = pathlib.Path(__file__).resolve().parent.parent


def build(out, *options):
    """The wheel's path."""
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", *options, "-w", folder, ROOT], check=True)
        wheel, = pathlib.Path(folder).glob("dovetail-*.whl")
        policy, text = check.audit(wheel)
        tagged = subprocess.run([sys.executable, "-m", "wheel", "tags", "--remove", f"--platform-tag={policy or sys.exit(text)}", wheel],
                                check=True, capture_output=True, text=True).stdout.strip().split("\n")[-1]
        target = out / tagged
        target.write_bytes((pathlib.Path(folder) / tagged).read_bytes())
    return target


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    path = build(*sys.argv[1:])
    print(path)
    sys.exit(subprocess.run([sys.executable, pathlib.Path(__file__).with_name("check.py"), path]).returncode)
