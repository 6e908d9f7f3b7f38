"""No false alarms: every shipped operator passes, whatever cases are drawn."""
import pathlib

import pytest
from conftest import BUILD, ROOT, seeds

HERE = pathlib.Path(__file__).resolve().parent
SAMPLE = {"add_custom", "advance_step", "gelu", "softmax"}  # in every run: promotion, writes, gradients, a reduction. The others in the slow suite
OPERATORS = sorted(p.stem for p in ROOT.glob("ops/*/*.c") if p.stem == p.parent.name != "base")


def of_operators(test):
    return pytest.mark.parametrize("name", [n if n in SAMPLE else pytest.param(n, marks=pytest.mark.slow) for n in OPERATORS])(test)


@of_operators
def test_no_false_alarms(check, name):
    report = check(BUILD / f"ops/{name}.so", "--quick")
    assert [r for r in report["results"] if r["result"] == "fail"] == []
    assert report["passed"] >= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_another_seed_gives_no_false_alarm(check, name):
    report = check(BUILD / f"ops/{name}.so", "--quick", "--seed", 2)
    assert [r for r in report["results"] if r["result"] == "fail"] == []


@pytest.mark.slow
def test_base_gives_no_false_alarm(check):
    """Without the properties parallel, which takes half of the time, and gradient, which test_gradient.py asks for."""
    report = check("base", "--only", "binding,runs,memory,shapes,fake,values,leaks,tags")
    assert [r for r in report["results"] if r["result"] == "fail"] == []
    assert report["passed"] > 100


@pytest.mark.parametrize("name", ["healthy.c", "contracts.c", "unusual.c", "random.c"])
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_healthy_operators_pass(check, seed, name):
    """In every run with few cases, in the slow suite with all."""
    report = check(HERE / name, "--seed", seed, *(["--quick"] if seed == 1 else []))
    of_all = ("binding", "runs", "memory", "shapes", "fake", "leaks")  # the others need a reference, a gradient, or torch
    assert [r for r in report["results"] if r["result"] == "fail" or (r["property"] in of_all and r["result"] != "pass")] == []


@pytest.mark.parametrize("seed", seeds(1, 8))
def test_cases_are_found_for_every_contract(check, seed):
    report = check(HERE / "contracts.c", "--seed", seed, "--only", "runs")
    assert len(report["results"]) == len(report["operators"]) == 12
    assert [r for r in report["results"] if r["cases"] < 64] == []


def test_declared_operators_are_not_checked(check):
    report = check(HERE / "declared.c", "--only", "memory,runs,shapes")
    assert all(r["result"] == "not checked" and "no kernel" in r["reason"] for r in report["results"])


def test_index_add_rounds_once(check):
    """A sum kept in bf16 would be rounded at each addition: seed 2 shows it."""
    report = check("base", "--op", "index_add", "--only", "runs,values", "--seed", 2)
    assert report["ok"], report["table"]
