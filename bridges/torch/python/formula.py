"""Translates formulas, the gradient and the native form of an operator, from their trees (docs/json.md) to Python source on torch
tensors, once each. The source calls operators of the operator's own library through torch.ops, and base operators through torch.ops.aten,
which has them under the same names.
"""
import collections
import functools
import keyword

import torch
from torch.autograd import forward_ad

from .. import _debug
from .private import operators as _torch
from .types import DTYPES

_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "eq": "==", "ne": "!=", "lt": "<",
           "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or"}


class Like:
    """Stands for a tensor of which backward needs only the shape, dtype or device."""

    def __init__(self, x):
        self.shape, self.ndim, self.dtype, self.device = x.shape, x.dim(), x.dtype, x.device

    def numel(self):
        n = 1
        for d in self.shape:
            n = n * d
        return n


class Source:
    """Python source of expressions. names() gives the source of an argument, a result or a gradient."""

    def __init__(self, names):
        self.names = names
        self.scope = {"torch": torch, "dtype": DTYPES.__getitem__}
        self.counts, self.twice = collections.Counter(), {}

    def count(self, e):
        """A call that occurs several times is made once."""
        if isinstance(e, list) and e and e[0] == "call":
            self.counts[repr(e)] += 1
            if self.counts[repr(e)] > 1:
                return
        for x in e if isinstance(e, list) else ():
            self.count(x)

    def operator(self, name):
        key = "op_" + identifier(name)
        self.scope.setdefault(key, _Lookup(name, key, self.scope))
        return key

    def call(self, e):
        call = f"{self.operator(e[1])}({', '.join(map(self.expr, e[2:]))})"
        if self.counts[repr(e)] < 2:
            return call
        once = self.twice.setdefault(repr(e), f"once_{len(self.twice)}")
        return f"({once} if {once} is not None else ({once} := {call}))"

    def expr(self, e):
        kind = e[0]
        if kind in ("int", "float", "str", "bool"):
            return repr(e[1])
        if kind == "none":
            return "None"
        if kind in ("arg", "result", "grad", "grad_of", "tangent"):
            return self.names(kind, e[1])
        if kind == "dtype":
            return f"dtype({e[1]!r})"
        if kind == "call":
            return self.call(e)
        if kind == "keyword":
            return f"**{{{e[1]!r}: {self.expr(e[2])}}}" if keyword.iskeyword(e[1]) else f"{e[1]}={self.expr(e[2])}"
        if kind == "if":
            return f"({self.expr(e[2])} if {self.expr(e[1])} else {self.expr(e[3])})"
        if kind == "present":
            return f"({self.expr(e[1])} is not None)"
        if kind == "needs":
            return self.names(kind, e[1][1])
        if kind == "len":
            return f"len({self.expr(e[1])})"
        if kind == "list":
            return f"[{', '.join(map(self.expr, e[1:]))}]"
        if kind == "index":
            return f"{self.expr(e[1])}[{self.expr(e[2])}]"
        if kind == "attr":
            return f"{self.expr(e[1])}.{e[2]}" + ("()" if e[2] == "numel" else "")
        if kind in ("neg", "not"):
            return f"({'-' if kind == 'neg' else 'not '}{self.expr(e[1])})"
        if kind == "in":
            return f"({self.expr(e[1])} in ({', '.join(map(self.expr, e[2:]))},))"
        if kind in _BINARY:
            return f"({self.expr(e[1])} {_BINARY[kind]} {self.expr(e[2])})"
        raise NotImplementedError(f"formula: '{kind}' is not known to this version of dovetail.torch")

    def function(self, name, parameters, lines):
        """lines are written last, when repeated calls are known."""
        first, self.twice = [" = ".join([*self.twice.values(), "None"])] if self.twice else [], {}
        source = "\n    ".join([f"def {name}({parameters}):", *first, *lines]) + "\n"
        _debug.say(3, *source.splitlines())
        exec(compile(source, f"<{name}>", "exec"), self.scope)  # our own source, made above
        return self.scope[name]


def _silu_backward(grad_output, self):
    """torch's own has no derivative."""
    if forward_ad._current_level >= 0 or torch.is_grad_enabled() and (grad_output.requires_grad or self.requires_grad):
        s = torch.sigmoid(self)
        return grad_output * s * (1 + self * (1 - s))
    return torch.ops.aten.silu_backward(grad_output, self)


_IN_PLACE_OF_ATEN = {"silu_backward": _silu_backward}


class _Lookup:
    """An operator by its full name, looked up at the first call, since it may be registered after the formula was read. Later calls use
    the operator found then."""

    def __init__(self, name, key, scope):
        self.name, self.key, self.scope = name, key, scope

    def find(self):
        space, _, local = self.name.rpartition("::")
        local, _, overload = local.partition(".")
        if space not in ("base", ""):
            packet = getattr(getattr(torch.ops, space), local)
            return getattr(packet, overload) if overload else packet
        if local in _IN_PLACE_OF_ATEN:
            return _IN_PLACE_OF_ATEN[local]
        # the base set has ATen's names; torch selects the overload; torch's functions are preferred to its operators
        return getattr(_torch._VariableFunctions, local, None) or getattr(torch.ops.aten, local)

    def __call__(self, *args, **kwargs):
        self.scope[self.key] = found = self.find()
        return found(*args, **kwargs)


class Native:
    """The operator in terms of torch's own operators, which a compiler may fuse."""

    def __init__(self, name, tree):
        source = Source(lambda kind, what: f"a[{what!r}]" if kind == "arg" else f"r[{what}]")
        for e in [*tree["results"], *tree["writes"].values()]:
            source.count(e)
        source.scope["put"] = functools.partial(_put, name)
        lines = [f"w_{i} = None if a[{n!r}] is None else {source.expr(e)}" for i, (n, e) in enumerate(tree["writes"].items())]
        lines.append(f"out = [{', '.join(map(source.expr, tree['results']))}]")
        lines += [f"put({n!r}, a[{n!r}], w_{i})" for i, n in enumerate(tree["writes"])]
        lines.append("return out")
        self._function = source.function("native_" + identifier(name), "a", lines)

    def __call__(self, arguments):
        """arguments: a dict by name. A list of results."""
        return self._function(arguments)


def _put(operator, name, to, value):
    """Write an argument's new value into it; None: the argument was not given."""
    if to is None:
        return
    if to.dtype != value.dtype or to.dim() != value.dim():
        raise RuntimeError(f"{operator}: argument '{name}': the native form gives it a value of another shape or dtype")
    for n, m in zip(to.shape, value.shape):
        torch._check(n == m, lambda: f"{operator}: argument '{name}': the native form gives it a value of another shape or dtype")
    to.copy_(value)


def identifier(name):
    return "".join(c if c.isalnum() else "_" for c in name)
