"""Formulas over torch: the gradient and the native form of an operator, from their trees (docs/json.md).

A formula becomes Python source once. It calls operators of the operator's own library by their torch.ops names, and the base operators
as torch.ops.aten, which has them under the same names.
"""
import collections
import os
import sys

import torch

from .types import DTYPES

_DEBUG = int(os.environ.get("DOVETAIL_DEBUG") or 0)
_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "eq": "==", "ne": "!=", "lt": "<",
           "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or"}


class Like:
    """What is left of a tensor of which backward needs only the shape, dtype or device."""

    def __init__(self, x):
        self.shape, self.ndim, self.dtype, self.device = tuple(x.shape), x.dim(), x.dtype, x.device

    def numel(self):
        n = 1
        for d in self.shape:
            n = n * d
        return n


class _Source:
    """Python source of expressions. Arguments are a["name"], results r[i], gradients g[i]; needs is a set of argument names."""

    def __init__(self):
        self.scope = {"torch": torch, "dtype": DTYPES.__getitem__}
        self.counts = collections.Counter()

    def count(self, e):
        """A node that stands in several places is evaluated once."""
        if isinstance(e, list) and e and e[0] == "call":
            self.counts[repr(e)] += 1
            if self.counts[repr(e)] > 1:
                return
        for x in e if isinstance(e, list) else ():
            self.count(x)

    def operator(self, name):
        key = "op_" + "".join(c if c.isalnum() else "_" for c in name)
        if key not in self.scope:
            self.scope[key] = _Lookup(name)
        return key

    def expr(self, e):
        kind = e[0]
        if kind in ("int", "float", "str", "bool"):
            return repr(e[1])
        if kind == "none":
            return "None"
        if kind == "arg":
            return f"a[{e[1]!r}]"
        if kind in ("result", "grad"):
            return f"{kind[0]}[{e[1]}]"
        if kind == "grad_of":
            return f"g[{e[1]!r}]"
        if kind == "dtype":
            return f"dtype({e[1]!r})"
        if kind == "call":
            call = f"{self.operator(e[1])}({', '.join(map(self.expr, e[2:]))})"
            return f"once({list(self.counts).index(repr(e))}, lambda: {call})" if self.counts[repr(e)] > 1 else call
        if kind == "keyword":
            return f"{e[1]}={self.expr(e[2])}"
        if kind == "if":
            return f"({self.expr(e[2])} if {self.expr(e[1])} else {self.expr(e[3])})"
        if kind == "present":
            return f"({self.expr(e[1])} is not None)"
        if kind == "needs":
            return f"({e[1][1]!r} in needs)"
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
        source = "\n    ".join([f"def {name}({parameters}):", "once = Once()", *lines]) + "\n"
        if _DEBUG >= 3:
            print(source, file=sys.stderr)
        self.scope["Once"] = _Once
        exec(compile(source, f"<{name}>", "exec"), self.scope)  # our own source, made above
        return self.scope[name]


class _Once(dict):
    def __call__(self, key, f):
        if key not in self:
            self[key] = f()
        return self[key]


def _silu_backward(grad_output, self):
    """torch's own has no derivative."""
    if torch.is_grad_enabled() and (grad_output.requires_grad or self.requires_grad):
        s = torch.sigmoid(self)
        return grad_output * s * (1 + self * (1 - s))
    return torch.ops.aten.silu_backward(grad_output, self)


_IN_PLACE_OF_ATEN = {"silu_backward": _silu_backward}


class _Lookup:
    """An operator by its full name, looked up at the first call: it may be registered after the formula was read."""

    def __init__(self, name):
        self.name, self.f = name, None

    def __call__(self, *args, **kwargs):
        if self.f is None:
            space, _, local = self.name.rpartition("::")
            local, _, overload = local.partition(".")
            if space in ("base", ""):  # the base set has ATen's names; torch picks the overload
                self.f = _IN_PLACE_OF_ATEN.get(local) or getattr(torch.ops.aten, local)
            else:
                packet = getattr(getattr(torch.ops, space), local)
                self.f = getattr(packet, overload) if overload else packet
        return self.f(*args, **kwargs)


class Native:
    """The operator said with torch's own: what a compiler may fuse."""

    def __init__(self, name, tree):
        source = _Source()
        for e in [*tree["results"], *tree["writes"].values()]:
            source.count(e)
        lines = [f"w_{i} = {source.expr(e)}" for i, e in enumerate(tree["writes"].values())]
        lines.append(f"out = [{', '.join(map(source.expr, tree['results']))}]")
        lines += [f"a[{n!r}].copy_(w_{i})" for i, n in enumerate(tree["writes"])]
        lines.append("return out")
        self._function = source.function("native_" + _identifier(name), "a", lines)

    def __call__(self, arguments):
        """arguments: a dict by name. A list of results."""
        return self._function(arguments)


class Gradient:
    """Backward from the declared formulas: saves only what they name, computes only what is needed."""

    def __init__(self, operator, tree):
        self.names = [a.name for a in operator.arguments]
        self.saves = tree["saves"]
        n = len(self.names)
        source = _Source()
        lines = ["out = {}"]
        for clause in tree["clauses"]:
            if clause["value"] is not None:
                source.count(clause["value"])
        for clause in tree["clauses"]:
            targets = [self.names[t] for t in clause["targets"] if t < n]
            if clause["value"] is None:
                continue
            lines.append(f"if not needs.isdisjoint({tuple(targets)!r}):")
            lines.append(f"    {', '.join(f'out[{t!r}]' for t in targets)} = {source.expr(clause['value'])}")
        lines.append("return out")
        self._function = source.function("backward_of_" + _identifier(operator.name), "needs, g, a, r", lines)

    def setup(self, ctx, inputs, output, keyword_only_inputs=None):
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        values = [*inputs, *(keyword_only_inputs or {}).values()]
        tensors, kept = [], []
        for value, save in zip([*values, *outputs], self.saves):
            kept.append(_keep(value, save, tensors))
        ctx.save_for_backward(*tensors)
        ctx.kept = kept

    def backward(self, ctx, *grads):
        values = [k(ctx.saved_tensors) if isinstance(k, _Saved) else k for k in ctx.kept]
        n = len(self.names)
        needs = {name for name, need in zip(self.names, ctx.needs_input_grad) if (any(need) if isinstance(need, (list, tuple)) else need)}
        out = self._function(needs, grads, dict(zip(self.names, values)), values[n:])
        result = tuple(out.get(name) if name in needs else None for name in self.names[:len(ctx.needs_input_grad)])
        return result if len(result) != 1 else result[0]


class _Saved:
    """Where a saved tensor, or a list of them, is among ctx.saved_tensors."""

    def __init__(self, at):
        self.at = at

    def __call__(self, tensors):
        return [None if i is None else tensors[i] for i in self.at] if isinstance(self.at, list) else tensors[self.at]


def _keep(value, save, tensors):
    if isinstance(value, torch.Tensor):
        if save == 1:
            tensors.append(value)
            return _Saved(len(tensors) - 1)
        return Like(value) if save == 2 else None
    if isinstance(value, (list, tuple)) and any(isinstance(x, torch.Tensor) for x in value):
        if save != 1:
            return [None if x is None else Like(x) for x in value] if save else None
        at = []
        for x in value:
            at.append(None if x is None else len(tensors))
            if x is not None:
                tensors.append(x)
        return _Saved(at)
    return value


class NativeGradient:
    """Where no gradient is declared: that of the native form, which is run again in backward."""

    def __init__(self, operator, native):
        self.names, self.native = [a.name for a in operator.arguments], native

    def setup(self, ctx, inputs, output, keyword_only_inputs=None):
        tensors = []
        ctx.kept = [_keep(v, 1, tensors) for v in [*inputs, *(keyword_only_inputs or {}).values()]]
        ctx.save_for_backward(*tensors)

    def backward(self, ctx, *grads):
        saved = [k(ctx.saved_tensors) if isinstance(k, _Saved) else k for k in ctx.kept]
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            leaves = {}
            for i, need in enumerate(ctx.needs_input_grad):
                if need and isinstance(saved[i], torch.Tensor):
                    saved[i] = leaves[i] = saved[i].view_as(saved[i]) if again else saved[i].detach().requires_grad_()
            results = self.native(dict(zip(self.names, saved)))
            pairs = [(r, g) for r, g in zip(results, grads) if isinstance(r, torch.Tensor) and r.requires_grad and g is not None]
            found = torch.autograd.grad([r for r, _ in pairs], list(leaves.values()), [g for _, g in pairs], allow_unused=True,
                                        create_graph=again) if pairs else [None] * len(leaves)
        by_index = dict(zip(leaves, found))
        result = tuple(by_index.get(i) for i in range(len(ctx.needs_input_grad)))
        return result if len(result) != 1 else result[0]


def _identifier(name):
    return "".join(c if c.isalnum() else "_" for c in name)
