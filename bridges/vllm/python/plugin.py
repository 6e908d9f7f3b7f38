"""Dovetail's operators in vLLM's layers.

DOVETAIL_VLLM=1 replaces everything listed here; a list of names ("rms_norm,silu_and_mul") replaces these. vLLM's own switches keep their
meaning: compilation_config.custom_ops for layers, kernel_config.ir_op_priority for the norms, which are operators of vLLM's IR.
"""
import hashlib
import importlib
import json
import os
import pathlib

import dovetail

NORMS = {"rms_norm": "rms_norm", "fused_add_rms_norm": "add_rms_norm"}  # vLLM's name -> ours
LAYERS = {"silu_and_mul": ("activation", "SiluAndMul"), "rotary_embedding": ("rotary_embedding.base", "RotaryEmbedding")}
_done = False


def register():
    global _done
    asked = os.environ.get("DOVETAIL_VLLM", "").strip()
    if _done or asked in ("", "0"):
        return
    _done = True
    known = {*NORMS, *LAYERS}
    names = known if asked in ("1", "all") else {n.strip() for n in asked.split(",")}
    if not names <= known:
        raise ValueError(f"DOVETAIL_VLLM: unknown {', '.join(sorted(names - known))}; expected 1 or some of {', '.join(sorted(known))}")
    import torch

    import dovetail.torch  # noqa: F401  torch.ops.dovetail
    from vllm.logger import init_logger
    from vllm.platforms import current_platform
    logger = init_logger("vllm.dovetail")
    device = current_platform.device_type
    for name in sorted(names):
        operator = getattr(dovetail.ops, {**NORMS, "silu_and_mul": "swiglu"}.get(name, name))
        if not any(device in rows for rows in map(_devices, operator.overloads)):
            logger.info("Dovetail: no kernel of %s for %s, vLLM's stays", name, device)
            names = names - {name}
    layers = _layers(torch.ops.dovetail)
    for name in names & LAYERS.keys():
        _replace(name, layers[name])
    _provide(names & NORMS.keys(), torch.ops.dovetail)
    _put_first(names & NORMS.keys(), current_platform, logger, f"Dovetail {dovetail.__version__} in vLLM: {', '.join(sorted(names)) or 'nothing'}")


def _devices(overload):
    return {row["device"] for row in json.loads(overload.json())["kernels"]}


def _replace(name, form):
    """A class derived from vLLM's own, made in its place."""
    from vllm.model_executor.custom_op import CustomOp
    module, layer = LAYERS[name]
    theirs = getattr(importlib.import_module(f"vllm.model_executor.layers.{module}"), layer)
    ours = type(f"Dovetail{theirs.__name__}", (theirs,), {"forward_cpu": form, "forward_cuda": form, "forward_oot": form})
    CustomOp.register_oot(ours, name=theirs.__name__)
    ours.name = name  # register_oot renames it, and the policy's +name would not find it


def _layers(ops):
    def silu_and_mul(self, x):
        half = x.shape[-1] // 2
        return ops.swiglu(x[..., :half], x[..., half:])

    def rotary_embedding(self, positions, query, key=None):
        cache = self._match_cos_sin_cache_dtype(query)
        ops.rotary_embedding(positions, query, key, self.head_size, cache, self.is_neox_style)
        return query, key

    return {"silu_and_mul": silu_and_mul, "rotary_embedding": rotary_embedding}


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
        key = _hash(getattr(dovetail.ops, NORMS[name]))
        theirs = made.uuid
        made.uuid = lambda theirs=theirs, key=key: f"{theirs()}-{key}"  # vLLM's compile cache depends on it


def _put_first(names, platform, logger, line):
    """The provider comes first where the user does not name another. vLLM asks for this after it has set its log up, so the log's line is
    written here."""
    before = platform.get_default_ir_op_priority

    def get_default_ir_op_priority(vllm_config):
        found = before(vllm_config)
        for name in names:
            setattr(found, name, ["dovetail", *getattr(found, name)])
        logger.info_once(line)
        return found

    type(platform).get_default_ir_op_priority = staticmethod(get_default_ir_op_priority)


def _hash(operator):
    """Of the files with the operator's kernels."""
    files = [library.path for library in dovetail.libraries() if operator in library.operators().values()]
    return hashlib.sha256(b"".join(pathlib.Path(f).read_bytes() for f in sorted(files))).hexdigest()[:16]
