"""No false alarms where differences are hard to take, and no silence where they are not."""
import pathlib

import pytest
from conftest import seeds

RIGHT = pathlib.Path(__file__).with_name("right_gradients.c")
JUDGED = {"clamp", "clamp_f32", "whole", "offset", "offset_f32", "inverse", "inverse_f32", "root", "logarithm", "wave", "softmax", "norm", "cut_off", "product"}


@pytest.mark.parametrize("seed", seeds(1, 6))
def test_right_gradients(check, seed):
    report = check(RIGHT, "--only", "gradient", "--seed", seed)
    assert [r for r in report["results"] if r["result"] == "fail"] == []
    assert JUDGED <= {r["operator"].removeprefix("right::") for r in report["results"] if r["result"] == "pass"}
    straight = next(r for r in report["results"] if r["operator"] == "right::straight_through")
    assert straight["result"] == "not checked" and "do not agree among themselves" in straight["reason"]


@pytest.mark.parametrize("seed", seeds(1, 5))
def test_shipped(check, seed):
    report = check("dovetail", "base", "--only", "gradient", "--quick", "--seed", seed)
    assert [r for r in report["results"] if r["result"] == "fail"] == []
    assert report["passed"] > 60
