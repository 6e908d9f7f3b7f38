"""docs/check.md and docs/check-reference.md: every report that they show is what the command prints, but for the numbers, which change with every change of the generator."""
import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / name for name in ("check.md", "check-reference.md")]
BLOCK = re.compile(r"^```report ([\w:]+)\n(.*?)^```$", re.S | re.M)


def line_of(report, operator):
    """What the table says about the first failure of an operator."""
    line = next(line for line in report["table"].splitlines() if line.startswith("FAIL ") and f": {operator}" in line)
    return re.sub(r"/\S*/\.dovetail-build-\w+/", "", line) + "\n"


def without_numbers(text):
    return re.sub(r"-?\d[\d.]*(e[-+]\d+)?", "#", text)


@pytest.mark.parametrize("page, name, text", [(page, *block) for page in PAGES for block in BLOCK.findall(page.read_text())], ids=lambda x: "" if "\n" in str(x) else getattr(x, "stem", x))
def test_report_is_what_it_prints(request, page, name, text):
    report = request.getfixturevalue("torch_faulty") if "::" in name else request.getfixturevalue("faulty")(name)
    printed = line_of(report, name if "::" in name else "")
    if os.environ.get("WRITE_PAGE"):  # brings the page up to date: WRITE_PAGE=1 pytest -n 0 tests/check/test_page.py
        page.write_text(page.read_text().replace(f"```report {name}\n{text}", f"```report {name}\n{printed}"))
        text = printed
    assert without_numbers(printed) == without_numbers(text)
