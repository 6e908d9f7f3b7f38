#!/usr/bin/env python3
"""The rows of docs/documents.md, and the lines of the documents that need one.

    python3 tests/documents/rows.py FOLDER           each line of the documents in FOLDER that has no row; status 1 if there is one
    python3 tests/documents/rows.py FOLDER --write   also brings the numbers on the page up to date
"""
import ast
import hashlib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "documents.md"
SECTION = re.compile(r"^## (\d{3}): .*?(?=^## |\Z)", re.S | re.M)
ROW = re.compile(r"^\| (\d+)(?:-(\d+))? \| (.+?) \| (.+) \| (.+) \|$", re.M)
PLACES = ("device", "stand-in", "CPU", "none")
LINES = re.compile(r"^Lines: .*$", re.M)
TABLE = re.compile(r"(?<=<!-- made by tests/documents/rows.py -->\n).*?(?=<!-- end)", re.S)
LINK = re.compile(r"\]\([^)]*\)|https?://[^\s)）]*")
NAMED = re.compile(r"`|\w_\w|::|\.(?:py|cpp|hpp|h|c|sh|so)\b")  # prose with code in it


class Row:
    def __init__(self, first, last, promise, answer, places):
        self.first, self.last, self.promise, self.answer, self.places = int(first), int(last or first), promise, answer, places.split(", ")
        self.lines = range(self.first, self.last + 1)
        self.tests = re.findall(r"`(test_\w+)`", answer)
        self.reason = (re.match(r"not yet: `(\w+)`", answer) or [None, None])[1]


def sections(page):
    """Document -> its rows."""
    return {m[1]: [Row(*row) for row in ROW.findall(m[0])] for m in SECTION.finditer(page)}


def reasons(page):
    return set(re.findall(r"^\| `(\w+)` \|", page.partition("<!-- made")[0], re.M))


def code(text):
    """The numbers of the lines with code, a command or a signature: all that is fenced, and prose that names something in code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*```", line):
            fenced = not fenced
        elif line.strip() and (fenced or NAMED.search(LINK.sub("]", line))):
            yield number


def summary(found):
    """The table of counts, and each section's line."""
    count = [(name, sum(bool(r.tests) for r in rows), len(rows)) for name, rows in found.items()]
    count.append(("all", *map(sum, list(zip(*count))[1:])))
    return "| document | rows | with a test | not yet |\n|---|---|---|---|\n" + "".join(f"| {n} | {a} | {t} | {a - t} |\n" for n, t, a in count)


def head(rows, text):
    return f"Lines: {sum(len(r.lines) for r in rows)} in rows, of a text with the SHA-256 `{hashlib.sha256(text.encode()).hexdigest()[:16]}`."


def tests(document):
    """Name -> does it assert anything, of the tests for a document."""
    return {name: asserts for name, (asserts, _) in _tests(document).items()}


def folders(document):
    """Returns a dict: name of a test -> its folder."""
    return {name: folder for name, (_, folder) in _tests(document).items()}


def _tests(document):
    found = {}
    for file in (ROOT / "tests").glob(f"*/test_document_{document}.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                called = [getattr(n.func, "attr", getattr(n.func, "id", "")) for n in ast.walk(node) if isinstance(n, ast.Call)]
                asserts = any(isinstance(n, ast.Assert) for n in ast.walk(node)) or any(c.startswith(("assert", "raises")) for c in called)
                found[node.name] = asserts, file.parent.name
    return found


def main(folder, write=None):
    page = PAGE.read_text()
    found, missing = sections(page), 0
    for name, rows in found.items():
        path, = pathlib.Path(folder).glob(f"{name}_*.txt")
        text = path.read_text()
        covered = {n for r in rows for n in r.lines}
        for n in code(text):
            if n not in covered:
                print(f"{path.name}:{n}: no row: {text.splitlines()[n - 1]}")
                missing += 1
        if write:
            section = re.search(rf"^## {name}: .*?(?=^## |\Z)", page, re.S | re.M)[0]
            page = page.replace(section, LINES.sub(head(rows, text), section, count=1))
    if write:
        PAGE.write_text(TABLE.sub(summary(found), page))
    return missing


if __name__ == "__main__":
    sys.exit(bool(main(*sys.argv[1:3])))
