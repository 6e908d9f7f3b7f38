"""Contracts as programs (docs/json.md): the page's examples, and the calls of tests/core/contract_operators.h by tests/lang/program.py."""
import json
import os
import pathlib
import re
import subprocess

import pytest

from contracts import Generator
from program import Refused, Run

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
    names = re.findall(r'^(?:OP|ARITHMETIC|COMPARISON)\(\w+, "(\w+)"', (ROOT / "core" / "lang" / "ops.def").read_text(), re.M)
    assert len(names) > 50 and len(examples()) == 2
    assert [n for n in names if f"`{n}`" not in page] == []


# ---- core's interpreter against tests/lang/program.py

def text_of(result, values):
    if result["kind"] == "absent":
        return "-"
    if result["kind"] == "list":
        return "{" + " ".join(text_of(r, values) for r in result["of"]) + "}"
    if result["kind"] == "argument":
        raise NotImplementedError
    shape, text = result["shape"], f"{result['dtype']}[{','.join(map(str, result['shape']))}]"
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= max(n, 1)
    if result["kind"] == "view" and result["strides"] != strides:
        text += f"/({','.join(map(str, result['strides']))})"
    if result["device"] != "cpu":
        text += "@" + result["device"]
    if result["kind"] == "view":
        text += f"&{result['of']}" + (f"+{result['offset']}" if result["offset"] else "")
    return "~" * result["unbacked"] + text


def answer(program, names, values):
    """In the form of test_contract --answer."""
    try:
        run = Run(program, names, values, True)
        return text_of(run.result(len(names)), values)
    except Refused as e:
        return f"error: my::f: {e}"


def without_status(line):
    return "error: " + line.split(": ", 2)[2] if line.startswith("error: ") else line


def compare(contracts, calls, seed):
    """How many contracts were accepted and how many calls of them, of each kind, agreed."""
    generator = Generator(seed)
    pairs = [generator.contract() for _ in range(contracts)]
    rows = describe(pairs)
    text, expected = "", []
    for (schema, contract), row in zip(pairs, rows):
        if "error" in row:
            continue
        text += f"{schema}|{contract}\n"
        arguments = [(a["name"], type_of(schema, a["name"])) for a in row["schema"]["args"]]
        for call, values in generator.calls(contract, arguments, calls):
            text += f"  {call}\n"
            expected.append((schema, contract, call, answer(row["contract"]["program"], [n for n, _ in arguments], values)))
    out = subprocess.run([PROGRAM, "--answer"], input=text, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    got = [without_status(line) for line in out.stdout.splitlines()]
    assert len(got) == len(expected)
    wrong = [f"{s}\n  {c}\n  {call}\n    core   {g}\n    oracle {e}" for g, (s, c, call, e) in zip(got, expected) if g != e]
    assert not wrong, "\n".join(wrong[:10])
    return sum("error" not in r for r in rows), len(got), sum(not g.startswith("error") for g in got)


def type_of(schema, name):
    return next(t for t, n in (a.split(" ") for a in schema[schema.index("(") + 1:schema.rindex(") ->")].split(", ")) if n == name)


def test_random_contracts():
    accepted, calls, right = compare(600, 8, 1)
    assert accepted > 250 and calls > 2000 and right > 300


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_random_contracts(seed):
    accepted, calls, right = compare(2500, 10, seed)
    assert calls > 10000
