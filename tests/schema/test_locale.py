"""Numbers mean the same in a process whose decimal point is a comma."""
import os
import shutil
import subprocess
import sys

import pytest

from .library import BUILD, ROOT

PROGRAM = """
import ctypes, locale, sys
sys.path.insert(0, "tests")
from schema.library import normalize, structure
locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
assert locale.localeconv()["decimal_point"] == ","
text = "f(float a=1.25, float b=1e+20, Scalar c=0.5, complex d=0.+2.5j) -> ()"
assert normalize(text.replace("0.+2.5j", "2.5j")) == text, normalize(text)
assert structure("f(float a=1.25) -> ()")["args"][0]["default_value"] == 1.25
"""


def test_comma(tmp_path):
    if not shutil.which("localedef"):
        pytest.skip("no localedef here")
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")], capture_output=True)
    if not (tmp_path / "de_DE.UTF-8" / "LC_NUMERIC").exists():
        pytest.skip("no German locale to be made here: " + made.stderr.decode()[:100])
    r = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env={**os.environ, "LOCPATH": str(tmp_path), "DOVETAIL_BUILD": str(BUILD)},
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
