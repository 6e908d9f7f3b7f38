"""docs/documents.md: every line of the documents has a row, and every row a test or a reason."""
import itertools
import re
import sys

import pytest

import rows

PAGE = rows.PAGE.read_text()
FOUND = rows.sections(PAGE)
DOCUMENTS = next((f for p in rows.ROOT.parents if (f := p / "shared" / "seeds").exists()), None)

WORD_FOR_WORD = {"003": ["setup.py", "graph/custom_reg_op.h", "graph/converter.py"],  # of the others, document.py
                 "004": ["custom_pypto/converter/npu_lightning_indexer_pto.py"]}


@pytest.mark.skipif(not DOCUMENTS, reason="the documents are not here")
def test_every_line_has_a_row(capsys):
    assert rows.main(DOCUMENTS) == 0, capsys.readouterr().out
    for name, found in FOUND.items():
        path, = DOCUMENTS.glob(f"{name}_*.txt")
        assert rows.head(found, path.read_text()) in PAGE, "python3 tests/documents/rows.py FOLDER --write"


def test_a_line_without_a_row_is_found(tmp_path, monkeypatch, capsys):
    (tmp_path / "000_x.txt").write_text("a\n```c\nint f(void);\n\n```\nCall `f()`.\n[g](a_b.py) https://a.b/c_d.py\n")
    (tmp_path / "page.md").write_text("## 000: x\n\n| 3 | f | `test_f` | CPU |\n")
    monkeypatch.setattr(rows, "PAGE", tmp_path / "page.md")
    assert rows.main(tmp_path) == 1 and capsys.readouterr().out == "000_x.txt:6: no row: Call `f()`.\n"


@pytest.mark.parametrize("document", FOUND)
def test_rows(document):
    found, there = FOUND[document], rows.tests(document)
    assert all(a.last < b.first for a, b in itertools.pairwise(found))
    assert f"Lines: {sum(len(r.lines) for r in found)} in rows" in rows.SECTION.search(PAGE, PAGE.index(f"\n## {document}"))[0]
    for row in found:
        assert (set(row.tests) <= set(there) if row.tests else row.reason in rows.reasons(PAGE)), f"{document}: {row.first}: {row.answer}"
    assert not [name for name, asserts in there.items() if not asserts], "a row asserts a value"
    assert set(there) <= {t for r in found for t in r.tests}


@pytest.mark.parametrize("document", FOUND)
def test_where_each_row_runs(document):
    """The places of a row fit the folders of its tests. Only a row that runs nowhere has a reason."""
    folder = rows.folders(document)
    for row in FOUND[document]:
        there = {folder[t] for t in row.tests}
        assert set(row.places) <= set(rows.PLACES) and (len(row.places) == 1 or "none" not in row.places), row.answer
        assert "stand-in" not in row.places or there & {"ascend", "torchair"}, row.answer
        assert not {"CPU", "device"} & set(row.places) or there & {"documents", "mindspore"}, row.answer
        assert row.places == ["none"] or not row.reason, row.answer


@pytest.mark.parametrize("project", sorted((rows.ROOT / "examples").glob("document_*")), ids=lambda p: p.name)
def test_each_change_of_a_document_has_a_reason(project):
    patch = project / "document.patch"
    hunks = re.findall(r"^@@ -(\d+)", patch.read_text(), re.M) if patch.exists() else []
    cells = re.findall(r"^\| (\d+(?:, \d+)*) \|", (project / "README.md").read_text(), re.M)
    assert sorted(int(n) for cell in cells for n in cell.split(",")) == sorted(int(n) for n in hunks)
    if DOCUMENTS:
        document, = DOCUMENTS.glob(f"{project.name[-3:]}_*.txt")
        blocks = re.findall(r"^( *)```(\S*) *\n(.*?)^ *```", document.read_text(), re.S | re.M)
        blocks = [(language, re.sub(f"(?m)^{indent}", "", block)) for indent, language, block in blocks]
        python = [block for language, block in blocks if language == "python"]
        for name in WORD_FOR_WORD.get(project.name[-3:], ["document.py"]):
            assert (project / name).read_text() in ("\n".join(python), *dict(map(reversed, blocks))), name


def test_the_counts():
    assert rows.TABLE.search(PAGE)[0] == rows.summary(FOUND), f"{sys.executable} tests/documents/rows.py FOLDER --write"
