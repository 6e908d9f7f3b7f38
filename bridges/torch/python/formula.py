"""Formulas on torch tensors (dovetail/_formula.py): base operators are torch's own, which have the same names in torch.ops.aten; other
operators are found in torch.ops."""
import contextlib
import threading

import torch
from torch.autograd import forward_ad

from .. import _formula
from .private import operators as _torch
from .types import DTYPES


class Like:
    """Stands for a tensor of which backward needs only the shape, dtype or device."""

    def __init__(self, x):
        self.shape, self.ndim, self.dtype, self.device = x.shape, x.dim(), x.dtype, x.device

    def numel(self):
        n = 1
        for d in self.shape:
            n = n * d
        return n


def _silu_backward(grad_output, self):
    """torch's own has no derivative."""
    if forward_ad._current_level >= 0 or torch.is_grad_enabled() and (grad_output.requires_grad or self.requires_grad):
        s = torch.sigmoid(self)
        return grad_output * s * (1 + self * (1 - s))
    return torch.ops.aten.silu_backward(grad_output, self)


def _cat_backward(grad, tensors, dim):
    return torch.split(grad, [t.shape[dim] for t in tensors], dim)


_IN_PLACE_OF_ATEN = {"silu_backward": _silu_backward, "cat_backward": _cat_backward}


_here = threading.local()


@contextlib.contextmanager
def expanding(operator):
    """While the decomposition of an operator that is off is put into a graph: operators that it calls and that are off are expanded as well."""
    before, _here.rule = getattr(_here, "rule", None), rule_of(operator)
    try:
        yield
    finally:
        _here.rule = before


def rule_of(operator):
    """Why it is off: everywhere, or because the graph is fused."""
    return "_enabled_where_fused" if operator.entry.function._enabled else "_enabled"


def called(tree):
    """The names of the operators that a formula calls."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        if len(tree) > 1 and tree[0] == "call" and isinstance(tree[1], str):
            yield tree[1]
        for x in tree:
            yield from called(x)


def _form(name, rule, target):
    """What a graph gets of an operator that a decomposition calls."""
    from . import registration
    operators = registration.operators_of(name) or ()
    off = len(operators) == 1 and operators[0].native is not None and not getattr(operators[0].entry.function, rule)
    return operators[0].native_overload() if off else target


def _lookup(name):
    space, _, local = name.rpartition("::")
    local, _, overload = local.partition(".")
    if space not in ("base", ""):
        packet = getattr(getattr(torch.ops, space), local)
        target = getattr(packet, overload) if overload else packet

        def call(*args, **kwargs):
            rule = getattr(_here, "rule", None)
            return (_form(name, rule, target) if rule else target)(*args, **kwargs)
        return call
    if local in _IN_PLACE_OF_ATEN:
        return _IN_PLACE_OF_ATEN[local]
    # torch selects the overload; torch's functions are preferred to its operators
    return getattr(_torch._VariableFunctions, local, None) or getattr(torch.ops.aten, local)


TORCH = _formula.Host(_lookup, DTYPES.__getitem__, {"numel": "{}.numel()"})


def _old_value(t):
    """A copy. Inductor removes clones and products by one, also of an argument that is written before the copy is read."""
    return torch.where(t != t, t, t)


class Native:
    """The operator in terms of torch's own operators, which a compiler may fuse."""

    def __init__(self, name, tree):
        self.name, self._function = name, _formula.native(TORCH, name, tree, _old_value)

    def __call__(self, arguments):
        """arguments: a dict by name. A list of results."""
        results, writes = self._function(arguments)
        for name, value in writes.items():
            self._put(name, arguments[name], value)
        return results

    def _put(self, name, to, value):
        """Write an argument's new value into it; None: the argument was not given."""
        if to is None:
            return
        if isinstance(to, (list, tuple)):
            if len(to) != len(value):
                raise RuntimeError(f"{self.name}: argument '{name}': expected {len(to)} tensors from the decomposition, found {len(value)}")
            for one, its in zip(to, value):
                self._put(name, one, its)
            return
        wrong = f"{self.name}: argument '{name}': the decomposition gives it a value of another shape or dtype"
        if to.dtype != value.dtype or to.dim() != value.dim():
            raise RuntimeError(f"{wrong}: expected {to.dtype} of rank {to.dim()}, found {value.dtype} of rank {value.dim()}")
        for n, m in zip(to.shape, value.shape):
            torch._check(n == m, lambda: wrong)
        to.copy_(value)
