"""docs/check.md: every report that it shows is what the command prints, but for the numbers, which change with every change of the generator."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "check.md"
BLOCK = re.compile(r"^```report ([\w:]+)\n(.*?)^```$", re.S | re.M)
BUILD = pathlib.Path(os.environ["DOVETAIL_BUILD"])


def report(name):
    """Of a folder of tests/faulty, or of torch_faulty::NAME in torch_faulty.py."""
    what = ["--torch", "tests/check/torch_faulty.py", "--op", name] if "::" in name else [f"tests/faulty/{name}/fault.c"]
    done = subprocess.run([BUILD / "bin" / "dovetail", "check", *what], cwd=ROOT, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "DOVETAIL_PYTHON": sys.executable if "::" in name else ""})
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAIL ")]
    return re.sub(r"/\S*/\.dovetail-build-\w+/", "", lines[0]) + "\n"


def without_numbers(text):
    return re.sub(r"-?\d[\d.]*(e[-+]\d+)?", "#", text)


@pytest.mark.parametrize("name, text", BLOCK.findall(PAGE.read_text()), ids=lambda x: x if "\n" not in x else "")
def test_report_is_what_it_prints(name, text):
    assert without_numbers(report(name)) == without_numbers(text)


if __name__ == "__main__":  # writes the page anew
    PAGE.write_text(BLOCK.sub(lambda m: f"```report {m[1]}\n{report(m[1])}```", PAGE.read_text()))
    sys.exit()
