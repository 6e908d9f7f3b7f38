"""Dovetail's operators in vLLM's layers.

DOVETAIL_VLLM=1 replaces everything listed here; a list of names ("rms_norm,silu_and_mul") replaces these. vLLM's own switches keep their
meaning: compilation_config.custom_ops for layers, kernel_config.ir_op_priority for the norms, which are operators of vLLM's IR.
"""
import hashlib
import importlib
import inspect
import json
import os
import pathlib

import dovetail

NORMS = {"rms_norm": "rms_norm", "fused_add_rms_norm": "add_rms_norm"}  # vLLM's name -> ours
LAYERS = {"silu_and_mul": ("activation", "SiluAndMul"), "rotary_embedding": ("rotary_embedding.base", "RotaryEmbedding"),
          "fused_experts": ("fused_moe.unquantized_fused_moe_method", "UnquantizedFusedMoEMethod")}
ROUTING = {"topk_softmax": "_softmax_topk", "grouped_topk": "_grouped_topk"}  # functions of vLLM's router for CPUs
_done = False


def register():
    global _done
    asked = os.environ.get("DOVETAIL_VLLM", "").strip()
    if _done or asked in ("", "0"):
        return
    _done = True
    known = {*NORMS, *LAYERS, *ROUTING}
    names = known if asked == "1" else set(filter(None, map(str.strip, asked.split(","))))
    if not names <= known:
        raise ValueError(f"DOVETAIL_VLLM: expected 0, 1 or some of {', '.join(sorted(known))}, found {', '.join(sorted(names - known))}")
    from vllm.logger import init_logger
    from vllm.platforms import current_platform
    logger = init_logger("vllm.dovetail")
    device, ops = current_platform.device_type, _ops()
    for name in sorted(names):
        operator = getattr(dovetail.ops, NORMS.get(name, name))
        if not any(device in rows for rows in map(_devices, operator.overloads)):
            logger.info("Dovetail: no kernel of %s for %s, vLLM's stays", name, device)
            names = names - {name}
    for name in sorted(names & ROUTING.keys()):
        if device != "cpu" or not _route(name, ops):
            logger.info("Dovetail: this vLLM has no %s that can be replaced on %s", name, device)
            names = names - {name}
    layers = _layers(ops)
    for name in names & LAYERS.keys():
        _replace(name, layers[name])
    _provide(names & NORMS.keys(), ops)
    _put_first(names & NORMS.keys(), current_platform, logger, f"Dovetail {dovetail.__version__} in vLLM: {', '.join(sorted(names)) or 'nothing'}")


def _ops():
    import torch

    import dovetail.torch  # noqa: F401  torch.ops.dovetail
    return torch.ops.dovetail


def _devices(overload):
    return {row["device"] for row in json.loads(overload.json())["kernels"]}


def _replace(name, made):
    """A class derived from vLLM's own with these functions, made in its place."""
    from vllm.model_executor.custom_op import CustomOp
    module, layer = LAYERS[name]
    theirs = getattr(importlib.import_module(f"vllm.model_executor.layers.{module}"), layer)
    ours = type(f"Dovetail{theirs.__name__}", (theirs,), made(theirs))
    CustomOp.register_oot(ours, name=theirs.__name__)
    ours.name = theirs.name  # register_oot renames it, and the policy's +name would not find it


def _layers(ops):
    def silu_and_mul(self, x):
        return ops.silu_and_mul(x)

    def rotary_embedding(self, positions, query, key=None):
        deep = [x is not None and x.dim() > 2 for x in (query, key)]  # vLLM also gives [tokens, heads, head size]
        flat = [x.reshape(positions.numel(), -1) if d else x for x, d in zip((query, key), deep)]
        ops.rotary_embedding(positions.flatten(), *flat, self.head_size, self._match_cos_sin_cache_dtype(query), self.is_neox_style)
        for x, d, new in zip((query, key), deep, flat):
            if d and not x.is_contiguous():  # it was copied
                x.copy_(new.view(x.shape))
        return query, key

    def forms(form):
        return lambda theirs: dict.fromkeys(["forward_cpu", "forward_cuda", "forward_oot"], form)

    return {"silu_and_mul": forms(silu_and_mul), "rotary_embedding": forms(rotary_embedding), "fused_experts": lambda theirs: _experts(theirs, ops)}


def _expert_class(ops):
    """The experts of layers that are not quantised. vLLM prepares and finishes each call."""
    from vllm.model_executor.layers.fused_moe import modular_kernel
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

    class DovetailExperts(CPUUnquantizedExperts):
        @staticmethod
        def is_supported_config(cls, *args):
            return modular_kernel.FusedMoEExperts.is_supported_config(cls, *args)  # of any sizes

        @staticmethod
        def _supports_activation(activation):
            return activation.value in ("silu", "gelu", "gelu_tanh", "swigluoai")

        def process_weights_after_loading(self, layer):
            pass  # they stay as they were loaded

        def apply(self, output, hidden_states, w1, w2, topk_weights, topk_ids, activation, global_num_experts, expert_map, a1q_scale, a2_scale,
                  workspace13, workspace2, expert_tokens_meta, apply_router_weight_on_input):
            if apply_router_weight_on_input:  # vLLM did it before
                topk_weights = topk_weights.new_ones(topk_weights.shape)
            output.copy_(ops.fused_experts(hidden_states, w1, w2, topk_weights, topk_ids, activation.value, expert_map=expert_map,
                                           w1_bias=self.w1_bias, w2_bias=self.w2_bias))

    return DovetailExperts


def _experts(theirs, ops):
    """vLLM counts the layer as its own."""
    ours = _expert_class(ops)

    def __init__(self, moe):
        theirs.__init__(self, moe)
        if self.enabled() and self.experts_cls and issubclass(self.experts_cls, ours.__base__) and \
                ours.is_supported_config(ours, moe, None, None, ours.activation_format())[0]:
            self.experts_cls = ours

    return {"__init__": __init__}


def _route(name, ops):
    """Put our function in the place of the router's; False: this vLLM has none of that name."""
    from torch import empty, float32, int32
    try:
        from vllm.model_executor.layers.fused_moe.router import cpu_router
    except ImportError:
        return False

    def topk_softmax(router_logits, top_k, renormalize):
        shape = router_logits.shape[0], top_k
        weights, ids, rows = (empty(shape, dtype=dtype, device=router_logits.device) for dtype in (float32, int32, int32))
        ops.topk_softmax(weights, ids, rows, router_logits, renormalize)
        return weights, ids

    def grouped_topk(gating_output, topk, renormalize, num_expert_group, topk_group, scoring_func, routed_scaling_factor, e_score_correction_bias):
        return ops.grouped_topk(gating_output.float(), topk, renormalize, num_expert_group, topk_group, scoring_func, routed_scaling_factor, e_score_correction_bias)

    ours = {"topk_softmax": topk_softmax, "grouped_topk": grouped_topk}[name]
    theirs = getattr(cpu_router, ROUTING[name], None)
    if theirs is None or list(inspect.signature(theirs).parameters) != list(inspect.signature(ours).parameters):
        return False
    setattr(cpu_router, ROUTING[name], ours)
    return True


def _provide(names, ops):
    """The norms: a provider "dovetail" of vLLM's IR."""
    from torch import Tensor
    from vllm import ir

    def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
        return ops.rms_norm(x, weight, epsilon)

    def fused_add_rms_norm(x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float,
                           variance_size: int | None = None) -> tuple[Tensor, Tensor]:
        return ops.add_rms_norm(x, x_residual, weight, epsilon), x_residual

    def takes(x, weight, epsilon, variance_size=None):
        return variance_size is None and weight is not None and weight.dtype == x.dtype

    def takes_residual(x, x_residual, weight, epsilon, variance_size=None):
        return takes(x, weight, epsilon, variance_size) and x_residual.dtype == x.dtype

    forms = {"rms_norm": (rms_norm, takes, {}), "fused_add_rms_norm": (fused_add_rms_norm, takes_residual, {"inplace": True})}
    for name in names:
        form, condition, options = forms[name]
        made = getattr(ir.ops, name).register_impl("dovetail", supports_args=condition, **options)(form)
        operator, theirs = getattr(dovetail.ops, NORMS[name]), made.uuid
        made.uuid = lambda theirs=theirs, operator=operator: f"{theirs()}-{_hash(operator)}"  # vLLM's compile cache depends on it


def _put_first(names, platform, logger, line):
    """The provider comes first where the user does not name another. vLLM asks for this after it has set its log up, so the log's line is
    written here."""
    before = platform.get_default_ir_op_priority

    def get_default_ir_op_priority(vllm_config):
        found, config = before(vllm_config), vllm_config.compilation_config
        rule = "_enabled_where_fused" if config.mode and config.backend == "inductor" else "_enabled"
        for name in names:
            if getattr(getattr(dovetail.ops, NORMS[name]), rule):
                setattr(found, name, ["dovetail", *getattr(found, name)])
        logger.info_once(line)
        return found

    type(platform).get_default_ir_op_priority = staticmethod(get_default_ir_op_priority)


def _hash(operator):
    """Of the files with the operator's kernels: its own, and those that may have more kernels for it, which declare nothing."""
    files = [library.path for library in dovetail.libraries() if operator in library.operators().values() or not library.operators()]
    return hashlib.sha256(b"".join(pathlib.Path(f).read_bytes() for f in sorted(files))).hexdigest()[:16]
