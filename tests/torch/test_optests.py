"""opcheck and generate_opcheck_tests on names: the out= overload is not in their way, an author's own overload is."""
import unittest

import pytest
import torch
from torch.testing._internal import common_utils, optests

from conftest import ONE

OVERLOADED = ONE.replace("DV_LIBRARY", """DV_OPERATOR(g, struct f, (x, out), .schema = "f.other(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY""").replace("&dv_op_f", "&dv_op_f, &dv_op_g") % {"name": "overloaded", "schema": "f(Tensor x) -> Tensor out", "add": 1}


def test_opcheck_takes_a_name(ops):
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert set(torch.library.opcheck(ops.cube, (x,)).values()) == {"SUCCESS"}


def test_opcheck_refuses_a_name_with_overloads(load):
    load(OVERLOADED, "overloaded")
    with pytest.raises(RuntimeError, match=r"opcheck can only test operators without overloads.*overloaded::f"):
        torch.library.opcheck(torch.ops.overloaded.f, (torch.randn(3),))
    assert set(torch.library.opcheck(torch.ops.overloaded.f.other, (torch.randn(3),)).values()) == {"SUCCESS"}


def results_of(case):
    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(found)
    return found


def test_generated_tests(ops, tmp_path):
    class Operators(common_utils.TestCase):
        def test_cube(self):
            x = torch.randn(3, dtype=torch.float64, requires_grad=True)
            torch.testing.assert_close(ops.cube(x), x ** 3)

        def test_inc(self):
            x = torch.zeros(3)
            ops.inc(x)
            assert x.sum() == 3

    failures = tmp_path / "failures.json"
    optests.generate_tests.FailuresDict(str(failures), {}).save()
    optests.generate_opcheck_tests(Operators, ["torch_ops"], str(failures), {}, ["test_schema", "test_faketensor", "test_aot_dispatch_dynamic"])
    found = results_of(Operators)
    assert found.testsRun == 2 * (1 + 3) and not found.errors and not found.failures, found


LATER = """
import torch, dovetail, sys
assert not any("optests" in m for m in sys.modules if m.startswith("torch."))
library = dovetail.load(sys.argv[1])
print(sorted(set(torch.library.opcheck(torch.ops.torch_ops.cube, (torch.ones(2, dtype=torch.float64),)).values())))
"""


def test_imported_after_the_library(forked, binary):
    done = forked(LATER, binary)
    assert done.stdout == "['SUCCESS']\n", done.stderr
