"""The calls of tests/parity in MindSpore, compared with those of a C program. Needs MindSpore (make test-mindspore)."""
import importlib.metadata

import pytest

if "mindspore" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("MindSpore is not installed here: make test-mindspore", allow_module_level=True)


@pytest.mark.parametrize("host", ["mindspore", "jit"])
def test_every_call_gives_what_c_gives(parity_in, host):
    parity_in(host)
