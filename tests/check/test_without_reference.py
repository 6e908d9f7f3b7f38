"""Right operators without a reference or a decomposition: nothing is held against them."""
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).with_name("unreferenced")


@pytest.mark.parametrize("words", [["--only", "runs,values,parallel"], pytest.param([], marks=pytest.mark.slow)], ids=["by relations", "by all"])
@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("*.c")))
def test_nothing_is_held_against(check, name, words):
    """In every run the properties that judge values without a reference, in the slow suite all."""
    report = check(FOLDER / f"{name}.c", "--seed", len(name), *words)
    assert report["ok"], report["table"]
    assert not [r for r in report["results"] if r["result"] == "fail"]


def test_hints_are_listed(check):
    report = check(FOLDER / "hints.c", "--only", "values", "--op", "repeat_like")
    assert "unused(like, block, deterministic, name), if no result depends on it" in report["table"], report["table"]


def test_a_saturating_sum_passes_parallel(check):
    """The check compares its slices on elements whose sums fit the dtype. DTensor's partial sums may not fit."""
    report = check(FOLDER.parent / "saturated.c", "--only", "parallel")
    assert [r["result"] for r in report["results"]] == ["pass"], report["table"]
