"""The calls of tests/parity in vLLM, compared with those of a C program. Needs vLLM (make test-vllm)."""
import importlib.metadata
import json
import pathlib
import subprocess
import sys

import pytest

if "vllm" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("vLLM is not installed here: make test-vllm", allow_module_level=True)
PARITY = pathlib.Path(__file__).parents[1] / "parity/parity.py"


@pytest.mark.parametrize("host", ["vllm"])
def test_every_call_gives_what_c_gives(host, tmp_path):
    done = subprocess.run([sys.executable, PARITY, "run", tmp_path / "found", host], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    outcomes = json.loads((tmp_path / "found").read_text())[host]["outcomes"]
    assert not {call: o["fault"] for call, o in outcomes.items() if "fault" in o}
    results, gradients, messages = ([o[check] for o in outcomes.values() if check in o] for check in ("results", "gradient", "message"))
    assert len(results) > 90 and not any(results)  # to the bit
    assert len(gradients) > 40 and len(messages) > 70
