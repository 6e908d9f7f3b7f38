"""What README and docs/ quote is what runs: every C block compiles under all warnings, whole files build and run."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))
COMMAND = BUILD / "bin" / "dovetail"
WARNINGS = "-std=c11 -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Werror".split()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return [code for name, code in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.S | re.M) if name == language]


OPERATOR_FILES = [(page.name, i, code) for page in PAGES for i, code in enumerate(blocks(page, "c")) if "DV_LIBRARY(" in code and "#include" in code]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("page, i, code", OPERATOR_FILES, ids=lambda x: str(x) if len(str(x)) < 40 else "")
def test_operator_files_compile_word_for_word(page, i, code, compiler, tmp_path):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    source = tmp_path / "op.c"
    source.write_text(code)
    subprocess.run([compiler, *WARNINGS, "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{ROOT}/include", source, "-o", tmp_path / "op.so", "-lm"], check=True)
    symbols = subprocess.run(["nm", "-D", "--defined-only", tmp_path / "op.so"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["dovetail_library_1"]


@pytest.mark.parametrize("page, i, code", OPERATOR_FILES, ids=lambda x: str(x) if len(str(x)) < 40 else "")
def test_operator_files_build_and_load(page, i, code, tmp_path):
    source = tmp_path / "op.c"
    source.write_text(code)
    subprocess.run([COMMAND, "build", source, "-o", tmp_path / "op.so"], check=True)
    assert "solved in this order" in subprocess.run([COMMAND, "info", tmp_path / "op.so"], check=True, capture_output=True, text=True).stdout


def test_readme_commands_and_python(tmp_path):
    readme = ROOT / "README.md"
    (tmp_path / "swiglu.c").write_text(blocks(readme, "c")[0])
    shell = next(b for b in blocks(readme, "") if "dovetail build" in b)
    env = {**os.environ, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "PYTHONPATH": str(BUILD / "python")}
    for line in shell.strip().splitlines():
        subprocess.run(line, shell=True, check=True, cwd=tmp_path, env=env)
    for code in blocks(readme, "python"):
        check = "\nr = my_ops.swiglu(numpy.ones((2, 3), 'float32'), numpy.ones((2, 3), 'float32'))\nassert abs(r - 0.7310586).max() < 1e-6, r\n"
        subprocess.run([sys.executable, "-c", code + check], check=True, cwd=tmp_path, env=env)


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_torch_page(tmp_path):
    """The Python of docs/torch.md runs in order, in one process, on the page's own C file."""
    page = ROOT / "docs/torch.md"
    (tmp_path / "ops.c").write_text(blocks(page, "c")[0])
    env = {**os.environ, "PYTHONPATH": str(BUILD / "python"), "DOVETAIL_CACHE": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", "\n".join(blocks(page, "python"))], check=True, cwd=tmp_path, env=env)
