"""The experts and routers of the plugin beside vLLM's own kernels, on random arguments. Needs vLLM (make test-vllm)."""
import importlib.metadata
import types

import pytest

if "vllm" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("vLLM is not installed here: make test-vllm", allow_module_level=True)
import torch
from vllm import _custom_ops
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.fused_moe.router import cpu_router
from vllm.model_executor.layers.rotary_embedding import get_rope

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


def test_the_weight_of_the_router_on_the_input():
    """vLLM has multiplied the input by it (Llama-4): the result is not multiplied again."""
    x, w1, w2, weights, ids = of(1, 17, 64), of(2, 6, 192, 64) / 8, of(3, 6, 64, 96) / 10, of(4, 17, 1).sigmoid(), (torch.arange(17) % 6).int()[:, None]
    theirs, ours, experts = torch.empty_like(x), torch.empty_like(x), plugin._expert_class(OPS)
    packed = [_custom_ops.cpu_prepack_moe_weight(w, "vec") for w in (w1, w2)]
    _custom_ops.cpu_fused_moe(theirs, x, *packed, None, None, weights, ids, "silu", "vec", True)
    experts.apply(types.SimpleNamespace(w1_bias=None, w2_bias=None), ours, x, w1, w2, weights, ids, types.SimpleNamespace(value="silu"), 6, None, None, None,
                  None, None, None, True)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("keys", [0, 1, 4])
@pytest.mark.parametrize("form", [lambda x: x, lambda x: x.flatten(1)])
def test_rotary_embedding_of_each_shape_that_vllm_gives(form, keys, sliced):
    """[tokens, heads, head size] as well, whole or a part of something larger: the result is returned, and is in place."""
    with set_current_vllm_config(VllmConfig()):
        layer = get_rope(32, max_position=64, is_neox_style=True, rope_parameters={"rope_type": "default", "rope_theta": 1e4}, dtype=torch.float32)
    wide = [of(k, 5, heads, 48) for k, heads in ((1, 4), (2, keys or 1))]
    query, key = (form(x[..., 16:] if sliced else x[..., 16:].contiguous()) for x in wide)
    key = key if keys else None
    theirs = layer.forward_native(torch.arange(5), query.clone(), key if key is None else key.clone())
    ours = plugin._layers(OPS)["rotary_embedding"](type(layer))["forward_cpu"](layer, torch.arange(5), query, key)
    torch.testing.assert_close(ours, theirs)
    assert ours[0] is query and ours[1] is key


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
