"""What CustomOps and operators ask while vLLM runs a model: vLLM's own objects. Needs vLLM (make test-vllm)."""
import importlib.metadata

import pytest

if "vllm" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("vLLM is not installed here: make test-vllm", allow_module_level=True)
import vllm.forward_context
from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
from vllm.platforms import current_platform as theirs

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
