"""The experts and routers of the plugin beside vLLM's own kernels, on random arguments. Needs vLLM (make test-vllm)."""
import importlib.metadata

import pytest

if "vllm" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("vLLM is not installed here: make test-vllm", allow_module_level=True)
import torch
from vllm import _custom_ops
from vllm.model_executor.layers.fused_moe.router import cpu_router

from dovetail.vllm import plugin

OPS = plugin._ops()


def of(seed, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype, close", [(torch.float32, 1e-6), (torch.bfloat16, 2**-6)])
@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "swigluoai"])
@pytest.mark.parametrize("biased", [False, True])
def test_experts(activation, dtype, close, biased):
    experts, k, n, tokens, chosen = 6, 64, 96, 17, 3
    x, w1, w2 = of(1, tokens, k, dtype=dtype), of(2, experts, 2 * n, k, dtype=dtype) / 8, of(3, experts, k, n, dtype=dtype) / 10
    b1, b2 = (of(4, experts, 2 * n, dtype=dtype), of(5, experts, k, dtype=dtype)) if biased else (None, None)
    weights, ids = of(6, tokens, experts).softmax(1).topk(chosen)
    ids, theirs = ids.int(), torch.empty_like(x)
    packed = [_custom_ops.cpu_prepack_moe_weight(w, "vec") for w in (w1, w2)]
    _custom_ops.cpu_fused_moe(theirs, x, *packed, b1, b2, weights, ids, activation, "vec", False)
    ours = OPS.fused_experts(x, w1, w2, weights, ids, activation, w1_bias=b1, w2_bias=b2)
    assert (ours - theirs).abs().max() <= close * theirs.abs().max()


def sorted_by_id(weights, ids):
    order = ids.argsort(1)
    return weights.gather(1, order), ids.gather(1, order)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name, arguments", [
    ("topk_softmax", [(2, True), (2, False), (8, True)]),
    ("grouped_topk", [(3, True, 4, 2, "softmax", 1.0, None), (3, False, 4, 2, "sigmoid", 2.5, None), (3, True, 4, 2, "sigmoid", 2.5, of(8, 8))])])
def test_routers(name, arguments, dtype, monkeypatch):
    theirs = getattr(cpu_router, plugin.ROUTING[name])
    monkeypatch.setattr(cpu_router, plugin.ROUTING[name], theirs)  # undone afterwards
    assert plugin._route(name, OPS)
    ours = getattr(cpu_router, plugin.ROUTING[name])
    assert ours is not theirs
    for more in arguments:
        logits = of(7, 33, 8).to(dtype)
        (w, i), (v, j) = sorted_by_id(*ours(logits, *more)), sorted_by_id(*theirs(logits, *more))
        assert (w.dtype, i.dtype) == (torch.float32, torch.int32) and torch.equal(i, j)
        torch.testing.assert_close(w, v.float(), rtol=1e-6 if dtype == torch.float32 else 1e-2, atol=1e-6 if dtype == torch.float32 else 1e-2)


def test_a_router_with_other_arguments_stays(monkeypatch):
    other = lambda router_logits, top_k: None
    monkeypatch.setattr(cpu_router, "_softmax_topk", other)
    assert not plugin._route("topk_softmax", OPS) and cpu_router._softmax_topk is other
    monkeypatch.delattr(cpu_router, "_softmax_topk")
    assert not plugin._route("topk_softmax", OPS)
