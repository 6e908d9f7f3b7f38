"""Every operator of tests/faulty has one fault. The checker must find it, by the right property.

In every run the properties that `expect` beside each names are checked; in the slow suite all of them: no other one fails.
"""
import re

import pytest
from conftest import FAULTY, expected, seeds


NAMES = sorted(p.parent.name for p in FAULTY.glob("*/fault.c"))
LUCK = {"row_on_stack": {"memory"},  # with 2^31 elements its row begins 24 GB below the stack, where there may be other memory
        "writes_later": {"runs"}}  # once in hundreds of checks the late thread ends the process in another way


def require_is_found(name, report):
    properties, pattern, kernels = expected(name)
    failures = [r for r in report["results"] if r["result"] == "fail"]
    assert {f["property"] for f in failures} - LUCK.get(name, set()) == properties, failures
    assert any(re.search(pattern, f["message"]) for f in failures), failures
    assert not kernels or {f["kernel"] for f in failures} == kernels, failures


@pytest.mark.parametrize("name", NAMES)
def test_is_found(faulty, name):
    require_is_found(name, faulty(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_other_property_fails(faulty, name):
    require_is_found(name, faulty(name, whole=True))


@pytest.mark.parametrize("seed", seeds(2, 4))
@pytest.mark.parametrize("name", ["half_written", "slot_negative", "diagonal_narrow", "index_wrapped_once", "offset_in_int", "squares_in_half",
                                  "far_row_offset", "expanded_in_all_dims", "reversed_in_all_dims", "inner_dims_swapped", "slice_of_fused"])
def test_no_seed_leaves_it_out(check, name, seed):
    """What few cases show: wrong indices, numbers past 32 bits, far elements and scales come in turn."""
    report = check(FAULTY / name / "fault.c", "--seed", seed, "--only", "runs,memory,shapes,values")
    assert {r["property"] for r in report["results"] if r["result"] == "fail"} == expected(name)[0]


@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize("name", ["expanded_in_all_dims", "reversed_in_all_dims", "large_and_transposed", "maximum_of_odd_sizes", "group_index_of_8_bits",
                                  "slot_of_16_bits", "unused_decides"])
def test_the_most_different_cases_show_it(check, name, seed):
    """24 cases are enough for layouts, sizes and values of which few cases have each."""
    report = check(FAULTY / name / "fault.c", "--quick", "--seed", seed)
    assert {r["property"] for r in report["results"] if r["result"] == "fail"} == expected(name)[0]
