"""Tests of my_ops: `pip install .` first, then `pytest`."""
import numpy as np
import pytest

import my_ops


def silu(x):
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (2, 3, 4097)])
def test_swiglu_is_its_formula(shape):
    random = np.random.default_rng(0)
    gate, up = (random.standard_normal(shape).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(my_ops.swiglu(gate, up), silu(gate) * up, rtol=1e-5, atol=1e-6)


def test_shapes_must_agree():
    with pytest.raises(Exception, match="up"):
        my_ops.swiglu(np.ones(3, np.float32), np.ones(4, np.float32))


def test_gradient():
    torch = pytest.importorskip("torch")
    gate, up = (torch.randn(6, 8, requires_grad=True) for _ in range(2))
    out = my_ops.swiglu(gate, up)
    expected = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    for found, right in zip(torch.autograd.grad(out, (gate, up), grad), torch.autograd.grad(expected, (gate, up), grad)):
        torch.testing.assert_close(found, right)
