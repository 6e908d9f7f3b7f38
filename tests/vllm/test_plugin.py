"""What the plugin replaces and what it leaves, and what vLLM's compile key depends on. Needs vLLM (make test-vllm)."""
import importlib.metadata
import subprocess
import types

import pytest

if "vllm" not in importlib.metadata.packages_distributions():  # this folder is a package of that name to find_spec()
    pytest.skip("vLLM is not installed here: make test-vllm", allow_module_level=True)
import torch
import vllm.ir
from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
from vllm.config.kernel import IrOpPriorityConfig
from vllm.model_executor import custom_op
from vllm.model_executor.layers.fused_moe import config, unquantized_fused_moe_method
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.experts import cpu_moe
from vllm.model_executor.layers.quantization.online.int8 import Int8OnlineMoEMethod

import dovetail
from dovetail.vllm import plugin

OPS = plugin._ops()


def test_quantised_experts_are_left_alone(monkeypatch):
    """vLLM's kernels for quantised experts want AMX, so here they are only chosen, not run."""
    monkeypatch.setattr(custom_op, "op_registry_oot", {})
    monkeypatch.setattr(cpu_moe.CPUExpertsInt8, "_supports_current_device", staticmethod(lambda: True))
    with set_current_vllm_config(VllmConfig(compilation_config=CompilationConfig(custom_ops=["all"]))):
        moe = config.FusedMoEConfig(4, 2, 64, 96, 4, 4, MoEActivation.SILU, "cpu", config.RoutingMethodType.Renormalize,
                                    config.FusedMoEParallelConfig.make_no_parallel(), torch.bfloat16)
        plugin._replace("fused_experts", plugin._layers(OPS)["fused_experts"])
        plain, quantised = unquantized_fused_moe_method.UnquantizedFusedMoEMethod(moe), Int8OnlineMoEMethod(moe=moe)
    assert type(plain).__name__ == "DovetailUnquantizedFusedMoEMethod" and plain.experts_cls.__name__ == "DovetailExperts"
    assert type(quantised) is Int8OnlineMoEMethod and quantised.experts_cls is cpu_moe.CPUExpertsInt8


LIBRARY = """
#include <dovetail_op.h>
struct norm { const dv_tensor *x, *weight; double eps; dv_tensor *out; };
static int norm(dv_context *ctx, const struct norm *a)
{
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->out); i++)
        ((float *)a->out->data)[i] = VALUE;
    return DV_OK;
}
"""
WHOLE = LIBRARY + """
DV_OPERATOR(rms_norm, struct norm, (x, weight, eps, out), .schema = "rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor out",
    .contract = "x[*s]:T, weight[n]:T -> out[*s]:T", .kernels = DV_KERNELS(DV_KERNEL(struct norm, "cpu", "f32", norm)));
DV_LIBRARY(cache_key, &dv_op_rms_norm);
"""
ROWS = LIBRARY + """
DV_OPERATOR(rms_norm, struct norm, (x, weight, eps, out), .kernels = DV_KERNELS(DV_KERNEL(struct norm, "cpu", "f32", norm)));
DV_LIBRARY_IMPL(cache_key, cache_key_rows, &dv_op_rms_norm);
"""


def test_a_library_that_changes_gives_another_compile_key(monkeypatch, tmp_path):
    """The operator's own library, and one that adds rows to it, in two versions each."""
    def build(name, source, value):
        (tmp_path / f"{name}.c").write_text(f"#define VALUE {value}\n{source}")
        subprocess.run(["dovetail", "build", tmp_path / f"{name}.c", "-o", tmp_path / f"{name}.so"], check=True, stdout=subprocess.DEVNULL)
        return dovetail.load(tmp_path / f"{name}.so")

    def key(whole, rows=None):
        """vLLM's key with these versions of both libraries."""
        library = build(f"whole_{whole}", WHOLE, whole)
        added = build(f"rows_{rows}", ROWS, rows) if rows else None
        monkeypatch.setattr(vllm.ir.ops.rms_norm, "impls", {k: v for k, v in vllm.ir.ops.rms_norm.impls.items() if k != "dovetail"})
        monkeypatch.setattr(plugin, "dovetail", types.SimpleNamespace(ops=library, libraries=dovetail.libraries))
        plugin._provide({"rms_norm"}, OPS)
        names = {name: ["native"] for name in vllm.ir.op.IrOp.registry}
        try:
            return IrOpPriorityConfig(**names | {"rms_norm": ["dovetail", "native"]}).compute_hash()
        finally:
            if added:
                added.close()
            library.close()

    keys = [key(1), key(1), key(2), key(1, rows=3), key(1, rows=4), key(1, rows=4)]
    assert keys[0] == keys[1] and keys[4] == keys[5] and len(set(keys)) == 4
