"""The calls of tests/parity in vLLM, compared with those of a C program. Needs vLLM (make test-vllm)."""
import importlib.metadata

import pytest

if "vllm" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("vLLM is not installed here: make test-vllm", allow_module_level=True)


@pytest.mark.parametrize("host", ["vllm"])
def test_every_call_gives_what_c_gives(parity_in, host):
    parity_in(host)
