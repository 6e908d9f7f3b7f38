"""The program in docs/call.md, with the operator of the README."""
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))


def block(page):
    return re.findall(r"^```c\n(.*?)^```$", (ROOT / page).read_text(), re.S | re.M)[0]


def test_program_of_the_page(tmp_path):
    (tmp_path / "swiglu.c").write_text(block("README.md"))
    (tmp_path / "main.c").write_text(block("docs/call.md"))
    subprocess.run([BUILD / "bin/dovetail", "build", tmp_path / "swiglu.c", "-o", tmp_path / "my_ops.so"], check=True)
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", tmp_path / "main.c", "-o", tmp_path / "main",
        f"-I{ROOT}/include", f"-L{BUILD}/lib", "-ldovetail", f"-Wl,-rpath,{BUILD}/lib"], check=True)
    out = subprocess.run([tmp_path / "main", tmp_path / "my_ops.so"], check=True, capture_output=True, text=True).stdout
    assert out.split() == ["0.0000", "0.7311", "1.7616", "2.8577"]
    missing = subprocess.run([tmp_path / "main", tmp_path / "none.so"], capture_output=True, text=True)
    assert missing.returncode == 1 and "none.so" in missing.stderr
