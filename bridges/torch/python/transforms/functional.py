"""Functionalization of operators that torch does not functionalize itself: those with results that are arguments, or views of them.

torch.compile and torch.export functionalize an operator that writes (auto_functionalized), unless it has a result that is an argument,
Tensor(a!) -> Tensor(a!), or a view of one. So

- a view is made by torch's own views, from its contract;
- a result that is an argument is left out of a reduced operator, which auto_functionalized takes;
- under torch.func.functionalize such an operator runs on copies, and the copies take the place of the arguments.

torch itself functionalizes other operators that write in graphs: a kernel on the Functionalize key would prevent that.
torch.func.functionalize refuses every custom operator that writes, so they have such a kernel while a program is inside it.
"""
import functools
import threading

import torch

from .. import overridden, private
from ..private import functional as _torch
from ..types import readable_schema

_FUNCTIONALIZE = _torch.DispatchKeySet(_torch.DispatchKey.Functionalize)
_BACK = _torch.DispatchKeySet(_torch.DispatchKey.FuncTorchDynamicLayerBackMode)


def install(operator, library):
    local = operator.name.split("::")[1]
    if operator.is_view:
        library.impl(local, lambda *args, **kwargs: operator.returned(operator.contract.infer(operator.bind(args, kwargs))), "Functionalize")
        return
    if any(alias is not None for alias in operator.alias):
        rule = _Writes(operator, library)
        rule.reduced  # now: graphs that were saved may hold it
        library.impl(local, rule.kernel, "Functionalize")
        give_rule(operator.overload, rule.in_graph)
    elif operator.writes:
        install_written(operator, library)


def install_written(operator, library):
    """Lets torch.func.functionalize take an operator that writes and returns no argument. operator: a declared one, or the Schema of one in Python.
    library: a library of its namespace."""
    rule = _Writes(operator, library)
    rule.reduced  # now: graphs that were saved may hold it
    _while_inside.add(rule)


def give_rule(overload, rule):
    """Registers the rule of functionalization for an overload while a graph is made: rule(mode, *args, **kwargs). DTensor and other subclasses that
    contain tensors come first, as for torch's own operators."""
    def run(mode, /, *args, **kwargs):
        if any(hasattr(type(x), "__tensor_flatten__") for v in (*args, *kwargs.values()) for x in (v if isinstance(v, (list, tuple)) else (v,))):
            with mode:
                return overload._op_dk(_torch.DispatchKey.Python, *args, **kwargs)
        return rule(mode, *args, **kwargs)

    overload._dispatch_cache.clear()
    overload.python_key_table[_torch.FunctionalTensorMode] = run  # py_impl() refuses a library that is loaded again


def retire(operator):
    _while_inside.remove(operator)


class _WhileInside:
    """Kernels on the Functionalize key that are registered only while a program is inside torch.func.functionalize."""

    def __init__(self):
        self.lock, self.inside, self.rules, self.libraries = threading.RLock(), 0, {}, {}

    def add(self, rule):
        with self.lock:
            self.rules[rule.operator] = rule
            if self.inside:
                self.give(rule)

    def remove(self, operator):
        with self.lock:
            self.rules.pop(operator, None)

    def give(self, rule):
        space, local = rule.operator.name.split("::")
        if space not in self.libraries:
            self.libraries[space] = overridden.Own(space, "FRAGMENT")
        self.libraries[space].impl(local, rule.kernel, "Functionalize")
        rule.operator.overload._dispatch_cache.clear()

    def entered(self, *unused):
        """Called when torch begins a level of functionalization."""
        with self.lock:
            self.inside += 1
            for rule in self.rules.values() if self.inside == 1 else ():
                self.give(rule)

    def left(self, *unused):
        """torch is about to end one."""
        with self.lock:
            self.inside = max(self.inside - 1, 0)
            if not self.inside:
                while self.libraries:
                    self.libraries.popitem()[1]._destroy()
                for rule in self.rules.values():
                    rule.operator.overload._dispatch_cache.clear()


_while_inside = _WhileInside()
private.Replaced("torch._functorch.eager_transforms._func_increment_nesting", after=_while_inside.entered)
private.Replaced("torch._functorch.eager_transforms._func_decrement_nesting", before=_while_inside.left)


class _Writes:
    def __init__(self, operator, library):
        self.operator, self.library = operator, library

    @functools.cached_property
    def reduced(self):
        return _make_reduced(self.operator, self.library)

    def results(self, values, fresh):
        """The operator's results: its arguments, and new tensors."""
        fresh = iter(fresh)
        return self.operator.returned([next(fresh) if alias is None else values[alias] for alias in self.operator.alias])

    # ---- while a graph is made

    def in_graph(self, mode, /, *args, **kwargs):
        values = self.operator.bind(args, kwargs)
        named = {a.name: v for a, v in zip(self.operator.arguments, values)}
        with mode:
            out = self.reduced(**named)
        return self.results(values, () if out is None else (out,) if isinstance(out, torch.Tensor) else out)

    # ---- torch.func.functionalize, and graphs without torch's Python dispatcher

    def kernel(self, /, *args, **kwargs):
        values = self.operator.bind(args, kwargs)
        layers = _Layers()
        inner = [layers.peel(v) for v in values]
        with layers.below():
            if not layers.any:
                return self.operator.call(values)
            for i in self.operator.writes:
                if not all(_torch._is_functional_tensor(x) for x in _tensors(values[i])):
                    raise RuntimeError(f"{self.operator.name}: argument '{self.operator.arguments[i].name}': mutating a non-functional tensor "
                                       "with a functional tensor is not allowed. Please ensure that all of your inputs are wrapped inside of a "
                                       "functionalize() call.")
            fresh, written = (self.traced if _tracing() else self.copied)(inner)
        for old, new in zip((x for i in self.operator.writes for x in _tensors(values[i])), written):
            _torch._functionalize_replace(old, new)
            _torch._functionalize_commit_update(old)
            _torch._functionalize_sync(old)
        return self.results(values, [layers.wrap(x) for x in fresh])

    def copied(self, values):
        copies = [_map(torch.clone, v) if i in self.operator.writes else v for i, v in enumerate(values)]
        out = self.operator.call(copies)
        out = (out,) if len(self.operator.returns) == 1 else out or ()
        return [x for x, alias in zip(out, self.operator.alias) if alias is None], [x for i in self.operator.writes for x in _tensors(copies[i])]

    def traced(self, values):
        """auto_functionalized, where each written tensor is its own base."""
        named, bases = {}, []
        for i, (a, v) in enumerate(zip(self.operator.arguments, values)):
            if i not in self.operator.writes:
                named[a.name] = v
            elif isinstance(v, (list, tuple)):
                named[f"_{a.name}_length"] = len(v)
                named.update((f"_{a.name}_{j}_base_index", len(bases) + j) for j in range(len(v)))
                bases += v
            else:
                named[f"_{a.name}_base_index"] = None if v is None else len(bases)
                bases += [] if v is None else [v]
        # Of the keys that are excluded here, modes and fake tensors need the one that saves the thread's state.
        snapshot = private.traced._SetExcludeDispatchKeyGuard(_torch.DispatchKey.PythonTLSSnapshot, False)
        with _torch._ExcludeDispatchKeyGuard(_BACK | _FUNCTIONALIZE), snapshot:
            out = private.traced.auto_functionalized_v2(self.reduced, **named, _all_bases=bases)
        first = len(out) - len(bases)
        return out[:first] if self.reduced._schema.returns else (), out[first:]


class _Layers:
    """The functional wrappers of one level of functionalization."""

    def __init__(self):
        self.any = False
        self.interpreter = None
        if _torch.peek_interpreter_stack() is not None:
            top = _torch.retrieve_current_functorch_interpreter()
            self.interpreter = top if top.key() is _torch.TransformType.Functionalize else None

    def peel(self, value):
        return _map(self.peel_one, value)

    def peel_one(self, x):
        if not _torch._is_functional_tensor(x):
            return x
        self.any = True
        _torch._functionalize_sync(x)
        return _torch._from_functional_tensor(x)

    def wrap(self, x):
        if self.interpreter is None:
            return _torch._to_functional_tensor(x)
        return _torch._wrap_functional_tensor(x, self.interpreter.level())

    def below(self):
        return _torch._ExcludeDispatchKeyGuard(_FUNCTIONALIZE) if self.interpreter is None else self.interpreter.lower()


def _tracing():
    return any(get(_torch._TorchDispatchModeKey.PROXY) is not None for get in (_torch._get_dispatch_mode, _torch._get_dispatch_mode_pre_dispatch))


def _map(f, value):
    if isinstance(value, torch.Tensor):
        return f(value)
    return [_map(f, x) for x in value] if isinstance(value, (list, tuple)) else value


def _tensors(value):
    return [x for x in (value if isinstance(value, (list, tuple)) else (value,)) if x is not None]


def _make_reduced(operator, library):
    """The operator without the results that are its arguments. It still writes, unlike core's functional form (dv_functional()). Of that
    form Inductor would copy every written argument, unless its table `inplaceable_ops` had the operator; then it would write all of them in
    place or none, and only where both forms have the same results. auto_functionalized decides for each argument."""
    space, local = operator.name.split("::")
    local, _, overload = local.partition(".")
    schema = readable_schema(operator.overload._schema)
    arguments = schema[schema.index("("):schema.rindex(" -> ")]
    fresh = [i for i, alias in enumerate(operator.alias) if alias is None]
    name = f"_writes_of_{local}" + (f".{overload}" if overload else "")
    library.define(f"{name}{arguments} -> ({', '.join('Tensor' for _ in fresh)})", tags=torch.Tag.pt2_compliant_tag)
    packet = getattr(getattr(torch.ops, space), f"_writes_of_{local}")
    reduced = getattr(packet, overload or "default")

    def results(out):
        out = (out,) if len(operator.returns) == 1 else out
        return operator.returned([out[i] for i in fresh])

    library.impl(name, lambda *args, **kwargs: results(operator.overload(*args, **kwargs)), "CompositeExplicitAutograd")
    private.register_fake(f"{space}::{name}", lambda *args, **kwargs: results(operator.fake(*args, **kwargs)), library)
    return reduced
