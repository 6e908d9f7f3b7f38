"""What the command prints and writes, besides the table."""
import pathlib
import xml.etree.ElementTree

FAULTY = pathlib.Path(__file__).resolve().parent.parent / "faulty"


def test_junit(check, tmp_path):
    report = check(FAULTY / "divides_by_zero" / "fault.c", "--junit", tmp_path / "out.xml")
    suites = xml.etree.ElementTree.parse(tmp_path / "out.xml").getroot()
    assert [s.get("name") for s in suites] == report["operators"]
    cases = suites[0].findall("testcase")
    assert len(cases) == len(report["results"])
    for case, result in zip(cases, report["results"]):
        assert case.get("name") == result["property"] + (f"[{result['row']}]" if result["row"] else "")
        assert (case.find("failure") is not None) == (result["result"] == "fail")
        assert (case.find("skipped") is not None) == (result["result"] == "not checked")
    assert "SIGFPE" in suites[0].find("testcase/failure").get("message")


def test_only_and_seed(check):
    source = FAULTY / "tail_past_end" / "fault.c"
    assert {r["property"] for r in check(source, "--only", "memory,fake")["results"]} == {"memory", "fake"}
    assert check(source, "--only", "binding")["ok"]
    one, again = (check(source, "--only", "memory", "--seed", 7)["results"][0] for _ in range(2))
    assert (one["case"], one["message"]) == (again["case"], again["message"])


def test_without_a_folder_for_temporary_files(check, monkeypatch):
    """What a build and a load do then: /tmp."""
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    assert check(FAULTY / "tail_past_end" / "fault.c", "--only", "binding")["ok"]


def test_the_time_is_up(check):
    report = check("base", "--time", 1)
    assert any(r["result"] == "not checked" and r["because"] == "the time was up" for r in report["results"])


def test_one_operator_of_a_folder(check, tmp_path):
    import os
    import subprocess
    command = pathlib.Path(os.environ["DOVETAIL_BUILD"]) / "bin" / "dovetail"
    for name in ("tail_unwritten", "index_not_checked"):
        text = (FAULTY / name / "fault.c").read_text().replace("DV_LIBRARY(faulty", f"DV_LIBRARY({name}")
        (tmp_path / "fault.c").write_text(text)
        subprocess.run([command, "build", tmp_path / "fault.c", "-o", tmp_path / f"{name}.so"], check=True, capture_output=True)
    assert set(check(tmp_path, "--only", "binding")["operators"]) == {"tail_unwritten::scale", "index_not_checked::pick"}
    assert check(tmp_path, "--only", "binding", "--op", "pick")["operators"] == ["index_not_checked::pick"]
