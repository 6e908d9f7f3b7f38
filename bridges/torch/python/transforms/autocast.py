"""The behaviour of an operator under torch.autocast, from its contract.

Tensors that share a floating dtype variable and differ are cast to the widest of them, as torch's own "promote" operators do: activations
in bf16 work with weights in f32. The tag `autocast_lower` casts all floating tensors to autocast's dtype instead, `autocast_f32` to f32.
As in torch, f64 tensors are not cast, nor are written tensors: if a written tensor does not have the widest dtype, nothing is cast, and
the contract reports the mismatch.
"""
import torch

from ..private import operators as _torch

_KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA", _torch._get_privateuse1_backend_name(): "AutocastPrivateUse1"}
_TAGS = {"autocast_lower", "autocast_f32"}


def install(operator, library, local):
    """Without tensors to cast nothing is registered, and torch falls through."""
    tags = _TAGS.intersection(operator.declaration["tags"])
    if len(tags) == 2:
        raise RuntimeError(f"{operator.name}: tags: autocast_lower and autocast_f32 exclude each other")
    groups = [range(len(operator.arguments))] if tags else _shared(operator)
    if not groups:
        return
    for device, key in _KEYS.items():
        library.impl(local, _kernel(operator, groups, _policy(tags, device), device, key), key)


def _policy(tags, device):
    """Map the dtypes of some tensors to the one that they are cast to; None: no cast."""
    if "autocast_lower" in tags:
        return lambda dtypes: torch.get_autocast_dtype(device)
    return (lambda dtypes: torch.float32) if tags else _widest


def _shared(operator):
    """For each dtype variable that several tensors have, these arguments."""
    dtypes = operator.contract.tree["dtypes"] if operator.contract else ()
    return [d["carriers"] for d in dtypes if len(d["carriers"]) > 1 or any("[" in operator.slots[i]["type"] for i in d["carriers"])]


def _kernel(operator, groups, choose, device, key):
    key = _torch.DispatchKeySet(getattr(_torch.DispatchKey, key))

    def kernel(*args, **kwargs):
        values = operator.bind(args, kwargs)
        with _torch._ExcludeDispatchKeyGuard(key):
            for slots in groups:
                found = {i: {x.dtype for x in _tensors(values[i]) if _eligible(x, device)} for i in slots}
                dtype = choose(set().union(*found.values()))
                if dtype is None or (choose is _widest and any(found[i] - {dtype} for i in slots if i in operator.writes)):
                    continue
                for i in slots:
                    if i not in operator.writes and found[i] - {dtype}:
                        values[i] = _cast(values[i], dtype, device)
            return operator.call(values)

    return kernel


def _tensors(value):
    return [x for x in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(x, torch.Tensor)]


def _eligible(x, device):
    return x.is_floating_point() and x.device.type == device and x.dtype != torch.float64


def _widest(dtypes):
    """None where they agree."""
    if len(dtypes) < 2:
        return None
    first, *rest = dtypes
    for dtype in rest:
        first = torch.promote_types(first, dtype)
    return first


def _cast(value, dtype, device):
    if isinstance(value, (list, tuple)):
        return [_cast(x, dtype, device) for x in value]
    return value.to(dtype) if isinstance(value, torch.Tensor) and _eligible(value, device) else value
