"""What CustomOps and operators ask while vLLM runs a model: vLLM's own objects. Needs vLLM (make test-vllm)."""
import importlib.metadata

import pytest

if "vllm" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("vLLM is not installed here: make test-vllm", allow_module_level=True)
import torch
import vllm.forward_context
from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.fused_moe.runner import moe_runner
from vllm.platforms import current_platform as theirs
from vllm.utils.torch_utils import LayerName

import dovetail
import dovetail.vllm as ours


def test_the_forward_context():
    mine, layer = ours.ForwardContext({"a": 1}), object()
    context = vllm.forward_context.ForwardContext(no_compile_layers={"a": layer}, attn_metadata={}, slot_mapping={})
    with mine:
        assert ours.get_forward_context() is mine
        with vllm.forward_context.override_forward_context(context):
            assert ours.get_forward_context().no_compile_layers["a"] is layer
        assert ours.get_forward_context() is mine


def test_the_platform():
    with set_current_vllm_config(VllmConfig()):
        assert ours.current_platform.dispatch_key == theirs.dispatch_key == "CPU"


def test_the_configuration(monkeypatch):
    monkeypatch.setattr(ours.CustomOp, "op_registry", {})

    @ours.CustomOp.register("dovetail_context")
    class Layer(ours.CustomOp):
        def forward_native(self):
            return "native"

        def forward_cpu(self):
            return "cpu"

    for words, form in ((["none"], "native"), (["none", "+dovetail_context"], "cpu"), (["all", "-dovetail_context"], "native"), (["all"], "cpu")):
        config = VllmConfig(compilation_config=CompilationConfig(custom_ops=words))
        with ours.CompilationConfig("none" if form == "cpu" else "all"), set_current_vllm_config(config):  # vLLM's decides
            assert Layer()() == form
        counted = config.compilation_config.enabled_custom_ops if form == "cpu" else config.compilation_config.disabled_custom_ops
        assert counted["dovetail_context"] == 1


class Experts(moe_runner.MoERunnerInterface):
    """A layer that vLLM's functions find by name: it writes the hidden states, if there are no shared experts."""
    def _forward_impl(self, hidden_states, router_logits, shared_experts_input, input_ids):
        fused = hidden_states * router_logits.sum()
        if shared_experts_input is not None:
            return shared_experts_input + 1, fused
        hidden_states.add_(10)
        return fused


Experts.__abstractmethods__ = frozenset()  # nothing else of it is called


@pytest.mark.parametrize("compiled", [False, True])
def test_the_experts_of_vllm(compiled):
    """vLLM's own functions, registered by our direct_register_custom_op, have the schemas that vLLM gives them, with its opaque LayerName."""
    namespace = f"dovetail_moe_{compiled}"
    library = torch.library.Library(namespace, "FRAGMENT")
    register = lambda name, **more: dovetail.direct_register_custom_op(
        name, getattr(moe_runner, f"_{name}"), fake_impl=getattr(moe_runner, f"_{name}_fake"), target_lib=library, dispatch_key="CPU", **more)
    register("moe_forward", mutates_args=["hidden_states"], tags=(torch.Tag.needs_fixed_stride_order,))
    register("moe_forward_shared", tags=(torch.Tag.needs_fixed_stride_order,))
    ops = getattr(torch.ops, namespace)
    for name in ("moe_forward", "moe_forward_shared"):
        ours, theirs = getattr(ops, name).default, getattr(torch.ops.vllm, name).default
        assert str(ours._schema) == str(theirs._schema).replace("vllm::", f"{namespace}::") and ours.tags == theirs.tags
        assert "PyObject layer_name" in dovetail._core.schema_normalize(str(ours._schema))

    def run(x, logits, name):
        shared, fused = ops.moe_forward_shared(x, logits, x * 2, None, name, 0)
        return shared, fused, ops.moe_forward(x, logits, None, None, name, 0)

    run = torch.compile(run, fullgraph=True, backend="aot_eager") if compiled else run
    x, logits = torch.arange(6.0).reshape(2, 3), torch.ones(2, 4)
    before = x.clone()
    context = vllm.forward_context.ForwardContext(no_compile_layers={"layers.0": Experts()}, attn_metadata={}, slot_mapping={})
    with vllm.forward_context.override_forward_context(context):
        shared, fused, alone = run(x, logits, LayerName("layers.0"))
        with pytest.raises(KeyError, match="layers.1"):
            ops.moe_forward(x, logits, None, None, LayerName("layers.1"), 0)
    assert torch.equal(shared, before * 2 + 1) and torch.equal(fused, before * 8) and torch.equal(alone, fused) and torch.equal(x, before + 10)
