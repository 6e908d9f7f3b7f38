"""Every operator of tests/faulty has one fault, which must be found, and the right property blamed for it.

`expect` beside each has the property; a pattern that the message must match; and, where it matters, the kernel row.
"""
import pathlib
import re

import pytest

FAULTY = pathlib.Path(__file__).resolve().parent.parent / "faulty"


@pytest.mark.parametrize("name", sorted(p.parent.name for p in FAULTY.glob("*/fault.c")))
def test_is_found(check, name):
    prop, words, *row = (FAULTY / name / "expect").read_text().splitlines()
    report = check(FAULTY / name / "fault.c")
    failures = [r for r in report["results"] if r["result"] == "fail"]
    assert {f["property"] for f in failures} == {prop}, failures
    assert any(re.search(words, f["message"]) for f in failures), failures
    if row:
        assert {f["row"] for f in failures} == set(row), failures
