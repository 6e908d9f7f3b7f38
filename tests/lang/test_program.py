"""Contracts as programs (docs/json.md): the page's examples, and the calls of tests/core/contract_operators.h by tests/lang/program.py."""
import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build")) / "bin" / "test_contract"


def describe(pairs):
    """The JSON of schema and contract of each (schema, contract), or {"error": ...}."""
    text = "".join(f"{s}|{' '.join(c.split())}\n" for s, c in pairs)
    out = subprocess.run([PROGRAM, "--describe"], input=text, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    rows = [json.loads(line) for line in out.stdout.splitlines()]
    assert len(rows) == len(pairs)
    return rows


def examples():
    page = (ROOT / "docs" / "json.md").read_text()
    return re.findall(r"```program\n(.*)\n    (.*)\n([^`]*)```", page)


@pytest.mark.parametrize("schema, contract, program", examples())
def test_example_of_the_page(schema, contract, program):
    row, = describe([(schema, contract)])
    assert row["contract"]["program"] == json.loads(program)


def test_the_page_has_every_operation():
    page = (ROOT / "docs" / "json.md").read_text()
    page = page[page.index("### Operations"):page.index("### Two programs")]
    header = (ROOT / "core" / "lang" / "contract_program.h").read_text()
    rows = header[header.index("#define DV__OPS"):header.index("/* clang-format on */")]
    names = re.findall(r'X\(\w+, "(\w+)"\)', rows)
    assert len(names) > 50 and len(examples()) == 2
    assert [n for n in names if f"`{n}`" not in page] == []
