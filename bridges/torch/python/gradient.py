"""Writes the gradient of an operator as an autograd.Function in Python source, once, with only the code that this operator needs. A
Function takes the arguments in the schema's order. torch's autograd does not see tensors in lists, so a list is passed as its length, and
its tensors follow at the end; results that are lists are returned in the same way. Backward has the form of the formulas.
"""
import re

import torch
from torch.autograd import forward_ad

from .._formula import Source, identifier, is_list
from .formula import TORCH, Like
from .private import operators as _torch

NOT_KEPT, VALUE, LIKE = 0, 1, 2  # "saves" in docs/json.md


def is_tensor(type_text):
    return type_text in ("Tensor", "Tensor?")


class NativeForm:
    """Without a declared gradient: that of the decomposition, which backward runs again."""

    def __init__(self, operator):
        self.operator, self.saves = operator, [VALUE] * len(operator.slots) + [NOT_KEPT] * len(operator.results)
        self.targets = [a["name"] for a in operator.slots if is_tensor(a["type"]) or is_list(a["type"])]
        self.grads = set(range(len(operator.results)))

    def source(self):
        source = Source(TORCH)
        source.scope["again"] = self.again
        return source

    def lines(self, source):
        op = self.operator
        values = ", ".join(f"{a['name']!r}: a_{a['name']}" for a in op.slots)
        needs = ", ".join(f"{t!r}: n_{t}" for t in self.targets)
        grads = "".join(f"g_{i}, " for i in range(len(op.results)))
        return [f"{''.join(f'd_{t}, ' for t in self.targets)} = again({{{values}}}, {{{needs}}}, ({grads}))"]

    def again(self, values, needs, grads):
        """Gradients for what is needed, by running the decomposition with autograd."""
        values = {name: _alive(v) for name, v in values.items()}
        places = [(name, i) for name, need in needs.items() for i, n in enumerate(need if isinstance(need, list) else [need]) if n]

        def native(*leaves):
            given = {name: list(v) if isinstance(v, (list, tuple)) else v for name, v in values.items()}
            for (name, i), leaf in zip(places, leaves):
                if isinstance(given[name], list):
                    given[name][i] = leaf
                else:
                    given[name] = leaf
            return [r for r, g in zip(self.operator.native(given), grads) if g is not None]

        leaves = [values[name][i] if isinstance(values[name], (list, tuple)) else values[name] for name, i in places]
        found = _vjp(native, leaves, [g for g in grads if g is not None])
        by_place = dict(zip(places, found))
        return [[by_place.get((name, i)) for i in range(len(need))] if isinstance(need, list) else by_place.get((name, 0))
                for name, need in needs.items()]


def _alive(x):
    """A tensor saved at a level of torch.func that has ended, without that level's wrapper."""
    if isinstance(x, (list, tuple)):
        return [_alive(e) for e in x]
    return _torch.unwrap_if_dead(x) if isinstance(x, torch.Tensor) else x


def _vjp(f, leaves, grads):
    """Gradients of f with respect to its leaves. Inside other transforms this uses a level of torch.func, which keeps tangents, graphs
    and other levels."""
    if torch.is_grad_enabled() or forward_ad._current_level >= 0 or _torch.peek_interpreter_stack() is not None:
        return torch.func.vjp(lambda *xs: tuple(f(*xs)), *leaves)[1](tuple(grads))
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in leaves]
        pairs = [(r, g) for r, g in zip(f(*leaves), grads) if r.requires_grad]
        return torch.autograd.grad([r for r, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True) if pairs else [None] * len(leaves)


class Missing:
    """No gradient and no decomposition: backward says so."""

    grads = set()

    def __init__(self, operator):
        self.operator, self.saves = operator, [NOT_KEPT] * (len(operator.slots) + len(operator.results))
        self.targets = [a["name"] for a in operator.slots if is_tensor(a["type"]) or is_list(a["type"])]
        self.grads = set(range(len(operator.results)))

    def source(self):
        source = Source(TORCH)
        source.scope["missing"] = self.missing
        return source

    def lines(self, source):
        return [f"{''.join(f'd_{t}, ' for t in self.targets)} = missing()"]

    def missing(self):
        from .registration import gradients_that_call
        users = gradients_that_call(self.operator.name)
        if users:
            raise RuntimeError(f"{users[0]}: its gradient calls {self.operator.name}, which declares no gradient and no decomposition: second derivatives "
                               "and forward mode (jvp) are not there")
        raise RuntimeError(f"{self.operator.name}: it declares no gradient and no decomposition, so nothing flows back through it: "
                           "detach its result, or declare a gradient")


def zeros(ctx, i):
    """The gradient of output i if it is zero."""
    m = ctx._input_metadata[i]
    return torch.zeros(m.shape, dtype=m.dtype, device=m.device)


class Function:
    """Writes the source of one operator's Function. rule: _formula.Gradient, NativeForm or Missing; call: runs the operator itself; jvp: forward mode."""

    def __init__(self, operator, rule, call, jvp=None):
        self.operator, self.rule = operator, rule
        self.args = operator.slots
        # Inputs of the Function. Written tensors come first: autograd takes the first input of a Function that writes a view for that view
        # (CopySlices in torch/csrc/autograd/functions/tensor.cpp).
        self.inputs = sorted(self.args, key=lambda a: self.args.index(a) not in operator.writes or is_list(a["type"]))
        self.lists = [a["name"] for a in self.args if is_list(a["type"])]
        self.result_lists = [i for i, r in enumerate(operator.results) if is_list(r["type"])]
        self.source = rule.source()
        self.source.scope.update(call=call, Like=Like, zeros=zeros, lengths=_lengths)
        self.kept_tensors, self.kept_lists, self.kept = [], [], []  # (local), (local), (local, source of what is kept)
        for i, save in enumerate(rule.saves):
            self._keep(i, save)
        # (type, local, position of the gradient or None): returns, then written arguments that are not returned
        self.outputs = [(r["type"], f"r_{i}", i) for i, r in enumerate(operator.results)]
        self.outputs += [(self.args[i]["type"], f"a_{self.args[i]['name']}", self.args[i]["name"]) for i in operator.written_only]
        name = identifier(operator.name)
        methods = {"forward": self.forward(name), "backward": self.backward(name), "_compiled_autograd_key": _compiled_autograd_key}
        if jvp:
            methods["jvp"] = jvp
        made = type(name, (_torch._SingleLevelFunction,), {k: staticmethod(m) for k, m in methods.items()})
        made._backward_cls.apply = made.backward  # the engine's call, looked up once
        self.function, self.apply = made, made.apply
        if self.lists or self.result_lists or operator.written_only or self.inputs != self.args:
            self.apply = self.wrapped(name)

    def direct(self):
        """apply for calls that are plain except for a needed gradient: forward runs the operator directly."""
        made = Function(self.operator, self.rule, self.operator.entry.function)
        blind = [a["name"] for a in self.args if a["type"].startswith("Tensor") and a["name"] not in self.rule.targets]
        return made.guarded(blind) if blind else made.apply

    def guarded(self, blind):
        """Arguments without a gradient: a call in which they require one takes the general path, which handles it."""
        tests = [f"any(x is not None and x.requires_grad for x in a_{n} or ())" if n in self.lists else f"a_{n} is not None and a_{n}.requires_grad"
                 for n in blind]
        args = ", ".join("a_" + a["name"] for a in self.args)
        scope = self.source.scope
        scope.update(direct=self.apply, general=self.operator.autograd)
        return self.source.function("direct_" + identifier(self.operator.name), args, [f"if {' or '.join(tests)}: return general({args})",
                                                                                      f"return direct({args})"])

    def _keep(self, i, save):
        n = len(self.args)
        slot, local = (self.args[i], f"a_{self.args[i]['name']}") if i < n else (self.operator.results[i - n], f"r_{i - n}")
        if save == NOT_KEPT:
            return
        if is_list(slot["type"]):
            if save == VALUE:
                self.kept_lists.append(local)
            else:
                self.kept.append((local, f"None if {local} is None else [None if x is None else Like(x) for x in {local}]"))
        elif not is_tensor(slot["type"]):
            self.kept.append((local, local))
        elif save == VALUE:
            self.kept_tensors.append(local)
        else:
            self.kept.append((local, f"Like({local})" if slot["type"] == "Tensor" else f"None if {local} is None else Like({local})"))

    def parameters(self):
        return [f"a_{a['name']}" for a in self.inputs] + (["lengths_out"] if self.result_lists else []) + (["*more"] if self.lists else [])

    def given(self, a):
        return f"**{{{a['name']!r}: a_{a['name']}}}" if a["keyword"] else f"a_{a['name']}"  # a name may be a keyword of Python

    def forward(self, name):
        """The source sets the context's attributes, as the context's methods (save_for_backward...) do: a call less for each."""
        returns = self.operator.results
        lines, at = [], "0"
        for x in self.lists:
            lines += [f"l_{x} = a_{x} or 0", f"a_{x} = None if a_{x} is None else list(more[{at}:{at} + l_{x}])"]
            at += f" + l_{x}"
        call = f"call({', '.join(self.given(a) for a in self.args)})"
        lines.append(f"{', '.join(f'r_{i}' for i in range(len(returns)))} = {call}" if returns else call)
        # At a level of torch.func a result that is an argument comes as another object; torch wants the argument itself.
        lines += [f"r_{i} = a_{self.args[alias]['name']}" for i, alias in enumerate(self.operator.alias) if alias is not None]
        saved = self.kept_tensors + [f"*({x} or ())" for x in self.kept_lists]
        if saved:
            lines.append(f"ctx.to_save = {', '.join(saved)},")
        if self.kept_lists:
            lines.append(f"ctx.lengths = [{', '.join(f'None if {x} is None else len({x})' for x in self.kept_lists)}]")
        lines += [f"ctx.{x} = {what}" for x, what in self.kept]
        if self.lists:
            lines.append(f"ctx.counts = [{', '.join('l_' + x for x in self.lists)}]")
        if self.result_lists:
            lines += [f"lengths_out[:] = ctx.lengths_out = [{', '.join(f'len(r_{i})' for i in self.result_lists)}]"]
        written = [_present(self.args[i]) for i in self.operator.writes]
        if written:
            lines.append(f"ctx.dirty_tensors = {', '.join(written)},")
        gone = [local for type_text, local, i in self.outputs if self.rule.grads and i not in self.rule.grads and type_text == "Tensor"]
        if gone:
            lines.append(f"ctx.non_differentiable = {', '.join(gone)},")
        lines.append("ctx.materialize_grads = False")
        out = ", ".join(f"*{x}" if is_list(t) else x for t, x, _ in self.outputs)
        lines.append(f"return {out}" if len(self.outputs) == 1 and not is_list(self.outputs[0][0]) else f"return ({out},)" if out else "return None")
        return self.source.function("forward_of_" + name, ", ".join(["ctx", *self.parameters()]), lines)

    def backward(self, name):
        lines, grads = self._gradients_in()
        names = [*self.kept_tensors, *(["*more"] if self.kept_lists else [])]
        if names:
            lines.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = ctx.saved_tensors")
        for i, x in enumerate(self.kept_lists):
            lines.append(f"{x}, more = lengths(more, ctx.lengths[{i}])")
        lines += [f"{x} = ctx.{x}" for x, _ in self.kept]
        targets = set(self.rule.targets)
        needs = [f"n_{a['name']}" if a["name"] in targets else "_" for a in self.inputs]
        rule = self.rule.lines(self.source) if targets else []
        if self.result_lists:
            needs.append("_")
        if self.lists:
            needs.append("*more")
        if self.lists or any(a["type"] == "Tensor?" for a in self.args) or any(re.search(r"\bn_\w", line) for line in rule):
            lines.append(f"{', '.join(needs)}{',' if len(needs) == 1 else ''} = ctx.needs_input_grad")
        for i, x in enumerate(self.lists):
            # their flags follow those of all arguments; their number was an argument
            lines.append(f"n_{x}, more = list(more[:ctx.counts[{i}]]), more[ctx.counts[{i}]:]")
        lines += rule
        out = []
        for k, a in enumerate(self.inputs):
            n = a["name"]
            one = n in targets and is_tensor(a["type"])
            out.append("None" if not one else f"d_{n}" if a["type"] == "Tensor" else f"d_{n} if n_{n} else None")
            if len(self.outputs) == 1 and is_tensor(a["type"]) and self.args.index(a) in self.operator.writes:
                # For a written view, autograd would take None for a gradient of zeros of the view's whole base.
                lines.append(f"old = {out[k]}")
                out[k] = f"zeros(ctx, 0) if old is None and ctx.needs_input_grad[{k}] else old"
        if self.result_lists:
            out.append("None")
        for x in self.lists:
            out.append(f"*(d_{x} or [None] * len(n_{x}))" if x in targets else f"*[None] * len(n_{x})")
        lines.append(f"return {', '.join(out)}")
        return self.source.function("backward_of_" + name, ", ".join(["ctx", *grads]), lines)

    def _gradients_in(self):
        """Parameters for the gradients of the outputs, and the lines that name them."""
        local = [f"g_{i}" if isinstance(i, int) else f"w_{i}" for _, _, i in self.outputs]
        nothing = "return (None,) * len(ctx.needs_input_grad)"
        if not any(is_list(t) for t, _, _ in self.outputs):
            lines = [f"if {' is None and '.join(local)} is None: {nothing}"] if local else []
            lines += [f"if {g} is None: {g} = zeros(ctx, {k})" for k, (g, (_, _, i)) in enumerate(zip(local, self.outputs))
                      if len(local) > 1 and i in self.rule.grads]
            return lines, local
        lines = [f"if not any(g is not None for g in grads): {nothing}", "at = 0",
                 "grads = [zeros(ctx, i) if g is None else g for i, g in enumerate(grads)]"]
        k = 0
        for g, (type_text, x, i) in zip(local, self.outputs):
            if is_list(type_text):
                if isinstance(i, int):
                    size, k = f"ctx.lengths_out[{k}]", k + 1
                else:
                    size = f"ctx.counts[{self.lists.index(i)}]"
                lines += [f"{g} = list(grads[at:at + {size}])", f"at += {size}"]
            else:
                lines += [f"{g} = grads[at]", "at += 1"]
        return lines, ["*grads"]

    def wrapped(self, name):
        """apply with lists as arguments and results, and without outputs that are the caller's own tensors."""
        args, returns = [a["name"] for a in self.args], self.operator.results
        lines = ["lengths_out = []"] if self.result_lists else []
        inputs = [a["name"] for a in self.inputs]
        given = ", ".join((f"None if a_{n} is None else len(a_{n})" if n in self.lists else f"a_{n}") for n in inputs)
        more = "".join(f", *(a_{n} or ())" for n in self.lists)
        lines.append(f"out = apply({given}{', lengths_out' if self.result_lists else ''}{more})")
        one = len(self.outputs) == 1 and not is_list(self.outputs[0][0])
        at, k = ["0"], 0
        for i, r in enumerate(returns):
            start = " + ".join(at)
            if is_list(r["type"]):
                lines.append(f"r_{i} = list(out[{start}:{start} + lengths_out[{k}]])")
                at, k = [*at, f"lengths_out[{k}]"], k + 1
            else:
                lines.append(f"r_{i} = out" if one else f"r_{i} = out[{start}]")
                at.append("1")
        lines.append(f"return {', '.join(f'r_{i}' for i in range(len(returns))) or 'None'}")
        self.source.scope["apply"] = self.function.apply
        return self.source.function("apply_" + name, ", ".join("a_" + n for n in args), lines)


def _present(a):
    """Source of an argument's tensors, as arguments of a call."""
    local = f"a_{a['name']}"
    return f"*({local} or ())" if is_list(a["type"]) else local if a["type"] == "Tensor" else f"*(() if {local} is None else ({local},))"


def _compiled_autograd_key(ctx):
    """As torch.autograd.Function has it."""
    return (ctx._autograd_function_id,)


def _lengths(tensors, n):
    return (None, tensors) if n is None else (list(tensors[:n]), tensors[n:])
