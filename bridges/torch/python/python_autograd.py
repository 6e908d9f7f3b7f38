"""Gradients of dovetail.custom_op under torch.func's transforms.

torch.library.custom_op runs an operator's backward by an autograd.Function without a static setup_context, which torch.func refuses. As for
declared operators (autograd.py), a Function of one level is needed there, since the dispatcher already visits each level of a transform. So
torch's own maker of the Autograd kernel runs here with such a Function as the base class.
"""
import contextlib
import threading
import types

import torch
from torch.autograd import forward_ad

from .private import operators, python_autograd as _torch

# More specific than the alias key Autograd, on which torch has registered its own kernel.
_KEYS = ("AutogradCPU", "AutogradCUDA", "AutogradPrivateUse1", "AutogradMeta")

_now = threading.local()  # .modes: of the call whose Function runs forward


class _OneLevel(torch.autograd.Function):
    """Function that runs at the current level of torch.func's transforms; the operator itself runs at the levels below."""

    @classmethod
    def apply(cls, *args):
        if not _torch._are_functorch_transforms_active():
            return super().apply(*args)
        _now.modes = torch.is_grad_enabled(), operators._is_fwd_grad_enabled()
        with operators.enable_single_level_autograd_function():
            return super(torch.autograd.Function, cls).apply(*args)


class _Below:
    """Wrapper of an overload for torch's Autograd kernel. redispatch() restores the modes that a Function turns off for its own level."""

    def __init__(self, overload):
        self.overload = overload

    def __getattr__(self, name):
        return getattr(self.overload, name)

    def __str__(self):
        return str(self.overload)

    def redispatch(self, keys, *args, **kwargs):
        modes, _now.modes = getattr(_now, "modes", None), None
        with contextlib.ExitStack() as stack:
            if modes:
                stack.enter_context(torch.set_grad_enabled(modes[0]))
                stack.enter_context(forward_ad._set_fwd_grad_enabled(modes[1]))
            return self.overload.redispatch(keys, *args, **kwargs)


def refuse_tangents(op, values, result):
    """Raises NotImplementedError if a tangent would be lost: torch's operators in Python have no forward mode."""
    schema = op._opoverload._schema
    made = (result, *(v for a, v in zip(schema.arguments, values) if a.alias_info is not None and a.alias_info.is_write))
    if any(x.is_floating_point() or x.is_complex() for x in _tensors(made)):
        for x in _tensors(values):
            if operators._unpack_dual(x, level=forward_ad._current_level)[1] is not None:
                raise NotImplementedError(f"{op._qualname}: an argument has a forward-mode tangent (jvp, jacfwd, hessian), which an operator written in Python "
                                          "does not have: use reverse mode (grad, vjp, jacrev)")


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for x in value:
            yield from _tensors(x)


def install(op):
    """Registers an Autograd kernel for a torch.library.CustomOpDef, also before register_autograd is called."""
    if not _torch:
        return
    theirs = _torch.make_autograd_impl
    base = types.SimpleNamespace(Function=_OneLevel)
    make = types.FunctionType(theirs.__code__, {**theirs.__globals__, "autograd": base}, theirs.__name__, theirs.__defaults__, theirs.__closure__)
    run = make(_Below(op._opoverload), op)

    def kernel(keys, *args, **kwargs):
        result = run(keys, *args, **kwargs)
        if forward_ad._current_level >= 0 and operators._is_fwd_grad_enabled():
            refuse_tangents(op, (*args, *kwargs.values()), result)
        return result

    for key in _KEYS:
        op._lib.impl(op._name, kernel, key, with_keyset=True)
