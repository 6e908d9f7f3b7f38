"""The pieces of the programs that the checker writes (check/programs): each compiles by itself, with programs/sample for what is made for a case."""
import ast
import builtins
import subprocess

import pytest
from conftest import ROOT

PROGRAMS = ROOT / "check" / "programs"


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.[ch]")), ids=lambda p: p.name)
def test_c(path):
    flags = ["-std=c11", "-D_GNU_SOURCE=", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-variable"]
    subprocess.run(["cc", *flags, "-I", ROOT / "include", "-I", PROGRAMS, "-I", PROGRAMS / "sample", "-x", "c", "-include", path, "/dev/null"], check=True)


def bound(tree):
    """Every name that a piece gives a meaning."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (a.name for a in node.names)


@pytest.mark.parametrize("path", sorted(PROGRAMS.rglob("*.py")), ids=lambda p: p.name)
def test_python(path):
    tree = ast.parse(path.read_text())
    names = set(bound(tree))
    assert {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} <= names | set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            of = next(p for p in (PROGRAMS / f"{node.module}.py", PROGRAMS / "sample" / f"{node.module}.py") if p.exists())
            assert {a.name for a in node.names} <= set(bound(ast.parse(of.read_text())))
