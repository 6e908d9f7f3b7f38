"""Eager calls while MindSpore records gradients.

An operator with a declared gradient becomes a node of MindSpore's graph by `_Function`; its backward evaluates the declared formulas, with
Dovetail's base operators, so that gradients of gradients work too. One without runs its decomposition in the same way, whose operators have
gradients. One with neither is a node whose backward is an error: MindSpore would take its result for a constant, with the gradient 0.
"""
import functools
import json

import mindspore
from mindspore import Tensor
from mindspore.common._grad_function import _Function

try:
    from mindspore.graph.api import _pynative_executor
except ImportError:  # before MindSpore 2.10
    from mindspore.common.api import _pynative_executor

from .. import _core, _describe, _formula, _library, ops

_DTYPES = {ours: getattr(mindspore, theirs) for ours, (theirs, _, _) in _core.dtypes().items() if hasattr(mindspore, theirs)}
ops.swiglu  # loads the base operators, which formulas call


def _host(function):
    """Of the formulas of this operator, whose names are those of its own library: another version of it may be loaded too."""
    own = _library.library_of(function)
    names = {o.name: o for f in own.operators().values() for o in f.overloads} if own else {}
    return _formula.Host(lambda name: names.get(name) or _core.find(name), _DTYPES.__getitem__, {"numel": "{}.numel()"})



class Frame:
    """One recorded call. Tensors stand in ctx; here are the other values, and where the tensors belong: (slot, None or the place in a list)."""

    def __init__(self, values):
        self.values, self.places, self.results = values, [], None

    def take(self):
        """The tensors of the arguments, in order."""
        tensors = []
        for i, v in enumerate(self.values):
            for k, x in enumerate(v) if isinstance(v, (list, tuple)) else [(None, v)]:
                if isinstance(x, Tensor):
                    tensors.append(x)
                    self.places.append((i, k))
        self.values = [None if isinstance(v, Tensor) else list(v) if isinstance(v, (list, tuple)) else v for v in self.values]
        return tensors


def _put(values, places, tensors):
    """The values with these tensors in their places."""
    values = [list(v) if isinstance(v, list) else v for v in values]
    for (i, k), x in zip(places, tensors):
        if k is None:
            values[i] = x
        else:
            values[i][k] = x
    return values


class Operator:
    def __init__(self, function):
        self.function, self.name, tree = function, function.name, json.loads(function.json())
        arguments, results = function._slots()
        self.slots, self.results = [[{"name": s[0], "type": s[1]} for s in part] for part in (arguments, results)]
        self.signature = _describe.signature(function)
        self.names = [_describe.python_name(a["name"]) for a in tree["schema"]["args"]]
        self.keywords = [_describe.python_name(a["name"]) for a in tree["schema"]["args"] if a["kwarg_only"]]
        self.written = [i for i, a in enumerate(tree["schema"]["args"]) if a["alias"] and a["alias"]["write"]]
        self.alias = [slot[4] for slot in results]  # for each result, the argument that it is, or -1
        self.gradient = _formula.Gradient(_host(function), self.name, self.slots, self.results, tree["gradient"]) if tree["gradient"] else None
        self.native = _formula.native(_host(function), self.name, tree["native"]) if tree["native"] and not self.written else None
        self.saves = tree["gradient"]["saves"] if tree["gradient"] else []
        self.node = type("DovetailFunction", (_Function,), {"forward": staticmethod(self.forward), "backward": staticmethod(self.backward)})

    @functools.cached_property
    def vjp(self):
        return self.gradient.vjp(needs=True)

    def __call__(self, args, kwargs):
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError:  # the call's own error is better; or results were given by position
            return self.unrecorded(args, kwargs)
        bound.apply_defaults()
        frame = Frame([bound.arguments[n] for n in self.names])
        tensors = frame.take()
        needed = any(x._requires_grad for x in tensors)
        if needed and "out" not in self.names and bound.arguments.get("out") is not None:
            raise RuntimeError(f"{self.name}: a result that is given (out=) takes no part in gradients: call it without, or outside of them")
        if not needed or not (self.written or any(t["type"].startswith("Tensor") for t in self.results)):
            return self.unrecorded(args, kwargs)
        if not self.gradient and self.written:
            i, k = next(place for place, x in zip(frame.places, tensors) if x._requires_grad)
            raise RuntimeError(f"{self.name}: argument '{self.names[i]}{'' if k is None else f'[{k}]'}' requires a gradient, and this operator, which "
                               f"writes {', '.join(self.names[i] for i in self.written)}, declares none: declare one (.gradient), or give it "
                               "mindspore.ops.stop_gradient(x)")
        if not self.gradient and self.native:
            found = self.native(dict(zip((s["name"] for s in self.slots), _put(frame.values, frame.places, tensors))))[0]
            return found[0] if len(found) == 1 else tuple(found)
        given = _put(frame.values, frame.places, tensors)
        flat = self.node.apply(frame, *tensors)
        flat = list(flat) if isinstance(flat, tuple) else [flat]
        results = _put(frame.results, frame.made, flat)
        for i, argument in enumerate(self.alias):
            if argument in self.written:
                results[i] = given[argument]
        return None if not results else results[0] if len(results) == 1 else tuple(results)

    def unrecorded(self, args, kwargs):
        before = _pynative_executor.enable_grad()
        _pynative_executor.set_enable_grad(False)
        try:
            return self.function(*args, **kwargs)
        finally:
            _pynative_executor.set_enable_grad(before)

    # ---- The node ----

    def forward(self, ctx, frame, *tensors):
        values = _put(frame.values, frame.places, tensors)
        made = self.function(*[v for n, v in zip(self.names, values) if n not in self.keywords],
                             **{n: v for n, v in zip(self.names, values) if n in self.keywords})
        results = [] if not self.results else [made] if len(self.results) == 1 else list(made)
        written = [(i, k) for i, k in frame.places if i in self.written]
        flat = Frame([None if a in self.written else r for a, r in zip(self.alias, results)])
        fresh = flat.take()
        frame.results, frame.made = flat.values, flat.places
        frame.wrote = written
        dirty = [x for place, x in zip(frame.places, tensors) if place in written]
        if dirty:
            ctx.mark_dirty(*dirty)
        ctx.mark_non_differentiable(*(x for x in fresh if not x.is_floating_point() and not x.is_complex()))
        n = len(self.slots)
        kept = [(i, k, x) for (i, k), x in zip(frame.places, tensors) if self.saves and self.saves[i]]
        kept += [(n + i, k, x) for (i, k), x in zip(frame.made, fresh) if self.saves and self.saves[n + i]]
        frame.kept = [(i, k) for i, k, _ in kept]
        ctx.save_for_backward(*(x for _, _, x in kept))
        ctx.frame = frame
        outputs = [*fresh, *dirty]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def backward(self, ctx, *grads):
        if not self.gradient:
            raise RuntimeError(f"{self.name}: it declares no gradient and no decomposition, so nothing flows back through it: "
                               "use mindspore.ops.stop_gradient on its result, or declare a gradient")
        frame = ctx.frame
        values = _put(frame.values + frame.results, frame.kept, ctx.saved_tensors)
        result_grads = _put([[None] * len(r) if isinstance(r, list) else None for r in frame.results], frame.made, grads)
        rest = {i: [None] * len(frame.values[i]) if isinstance(frame.values[i], list) else None for i in self.written}
        for (i, k), g in zip(frame.wrote, grads[len(frame.made):]):
            if k is None:
                rest[i] = g
            else:
                rest[i][k] = g
        for i, argument in enumerate(self.alias):  # a result that is a written argument
            if argument in rest:
                result_grads[i] = rest[argument]
        needs = {self.slots[i]["name"]: [False] * len(v) if isinstance(v, list) else False for i, v in enumerate(frame.values)}
        for (i, k), need in zip(frame.places, ctx.needs_input_grad[1:]):
            if k is None:
                needs[self.slots[i]["name"]] = need
            else:
                needs[self.slots[i]["name"]][k] = need
        by_name = {self.slots[i]["name"]: g for i, g in rest.items()}
        found = self.vjp(*values, *result_grads, *(by_name[n] for n in self.gradient.written), needs)
        of = [found.get(self.slots[i]["name"]) for i, _ in frame.places]
        return (None, *(g if k is None or g is None else g[k] for g, (_, k) in zip(of, frame.places)))


@functools.cache
def _operator(function):
    return Operator(function)


def call(operator, args, kwargs):
    return _operator(operator)(args, kwargs)
