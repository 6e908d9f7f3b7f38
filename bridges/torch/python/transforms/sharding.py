"""The placements that DTensor may use for the tensors of an operator, from its contract.

`parallel(b, *s)`: sharded along such a dim in all tensors that have it, results alike. `sum(k)`: inputs sharded along k give partial sums.
Both only if the contract does not use the dim's size elsewhere, since a shard's size differs. Replicating everything is always right;
for an operator written in Python nothing else is known to be. Written arguments keep their placement: DTensor would write to a redistributed copy.

DTensor does not move keyword arguments and does not see lists among them. For an operator whose name ends in "_" it returns the first
argument. In torch 2.10 it refuses operators that return nothing. So an operator with keyword-only tensors or lists, with out=, without
results, or with a result that is an argument or may be None is called through a positional form, `dovetail_dtensor::ns_name_positional`: all
arguments by position, new tensors as results (an empty one where there is none), and the operator itself as its kernel.

This module never imports torch.distributed.tensor; strategies are registered when a program imports it.
"""
import contextlib
import sys
import threading

import torch

from .. import _when_imported, private
from ..private import sharding as _torch
from ..schema import Schema
from ..types import type_text

_MODULE = "torch.distributed.tensor"
_waiting = []  # strategies


def install(operator):
    """Registers the strategies of a declared operator and of its out= overload. Returns them for retire()."""
    if not all(map(_is_tensor, operator.overload._schema.returns)):
        return []  # DTensor has no place for numbers and lists
    strategies = [_Strategy(operator.overload, operator)]
    if operator.out and not operator.out.lists:
        strategies.append(_Strategy(operator.out.overload, operator, operator.out.names))
    return _register_later(strategies)


def install_python(overload):
    """Registers the strategy of an operator written in Python. Returns it for retire()."""
    return _register_later([_Strategy(overload)] if all(map(_is_tensor, overload._schema.returns)) else [])


def retire(strategies):
    """Removes the strategies that install() or install_python() returned."""
    for strategy in strategies:
        if strategy in _waiting:
            _waiting.remove(strategy)
        elif _MODULE in sys.modules and _torch:
            strategy.remove()


def _is_tensor(result):
    """True for a returned Tensor or Tensor?."""
    kind = result.type.getElementType() if isinstance(result.type, torch.OptionalType) else result.type
    return isinstance(kind, torch.TensorType)


def _register_later(strategies):
    _waiting.extend(strategies)
    _when_imported(_MODULE, _register)
    return strategies


def _register():
    if not _torch:
        return
    waiting, _waiting[:] = _waiting[:], []
    for strategy in waiting:
        strategy.register()


class _Strategy(Schema):
    """Strategy of one overload, which DTensor calls for its valid placements. operator: the declared operator, None for one written in Python.
    out: the names of the arguments that take its results."""

    def __init__(self, overload, operator=None, out=()):
        super().__init__(overload)
        self.operator, self.out = operator, out
        schema = overload._schema
        self.name = operator.name if operator else self.name
        self.inputs = [i for i, a in enumerate(self.arguments) if a.name not in out]
        self.is_random = torch.Tag.nondeterministic_seeded in overload.tags or "Generator" in str(schema)
        keyword = any(a.kwarg_only and ("Tensor" in str(a.type) or "List" in str(a.type)) for a in self.arguments)
        self.fresh = [i for i, alias in enumerate(self.alias) if alias is None]  # results that are new tensors
        optional = any(isinstance(r.type, torch.OptionalType) for r in schema.returns)
        self.needs_positional = (keyword or optional or self.is_random or len(self.fresh) < len(self.alias) or not self.fresh or
                                 schema.name.endswith("_"))
        self.generators = [i for i, a in enumerate(self.arguments) if "Generator" in str(a.type)]
        # Of the current call: .generators, which DTensor's cache could not hold; .absent, for each new tensor whether it is None.
        self.now = threading.local()
        self.library = self.positional = None

    def register(self):
        if self.needs_positional:
            _torch._custom_op_handlers[self.overload] = self.handle
            _torch.sharding_propagator.op_to_schema_info[self.overload] = self.info(self.overload)
        else:
            self.give(self.overload)
        if self.is_random:
            _torch._random_ops.add(self.overload)

    def give(self, overload):
        """Registers this strategy for an overload."""
        _torch.sharding_propagator.register_op_strategy(overload, self, self.info(overload))

    def info(self, overload):
        """Returns which arguments DTensor's cache has in its key: from the first one that is not a required tensor on (an absent tensor before it
        would not count), and all that are given by keyword."""
        first = next((i for i, a in enumerate(self.arguments) if str(a.type) != "Tensor"), len(self.arguments))
        keywords = [a.name for a in overload._schema.arguments if a.kwarg_only]
        return _torch.RuntimeSchemaInfo(first, keywords or None, needs_pytree=True)

    def remove(self):
        propagator = _torch.sharding_propagator
        _torch._custom_op_handlers.pop(self.overload, None)
        _torch._random_ops.discard(self.overload)
        for overload in (self.overload, self.positional):
            propagator.op_strategy_funcs.pop(overload, None)
            propagator.op_to_schema_info.pop(overload, None)
        if self.library is not None:
            self.library._destroy()
            self.library = self.positional = None

    # ---- the positional form

    def handle(self, overload, args, kwargs):
        """Handles a call of the overload in the place of DTensor: calls the positional form."""
        propagator = _torch.sharding_propagator
        if overload in propagator.op_strategy_funcs or overload in getattr(propagator, "op_single_dim_strategy_funcs", ()):
            _torch._custom_op_handlers.pop(overload)  # the program has registered another strategy
            return overload(*args, **kwargs)
        if self.positional is None:
            self.define()
        values = self.bind(args, kwargs)
        with private.operators._AutoDispatchBelowAutograd(), self.randomness(values):
            self.now.generators, self.now.absent = [values[i] for i in self.generators], [False for _ in self.fresh]
            fresh = self.positional(*(v for i, v in enumerate(values) if i not in self.generators))
        fresh = (fresh,) if isinstance(fresh, torch.Tensor) else fresh or ()
        fresh = iter([None if absent else x for x, absent in zip(fresh, self.now.absent)])
        return self.returned([next(fresh) if alias is None else values[alias] for alias in self.alias])

    def define(self):
        """Defines the positional form, with the overload as its kernel and fake function, and registers this strategy for it."""
        arguments = ", ".join(f"{_type_text(a, i in self.writes and f'(w{i}!)')} {a.name}" for i, a in enumerate(self.arguments)
                              if i not in self.generators)
        name = self.overload._schema.name.replace("::", "_") + "_" + self.overload._overloadname + "_positional"
        self.library = torch.library.Library("dovetail_dtensor", "FRAGMENT")  # noqa: TOR901
        self.library.define(f"{name}({arguments}) -> ({', '.join('Tensor' for _ in self.fresh or [None])})", tags=torch.Tag.pt2_compliant_tag)

        def run(*values):
            values = list(values)
            for i, generator in zip(self.generators, self.now.generators):
                values.insert(i, generator)
            made = self.call(values)
            made = (made,) if len(self.alias) == 1 else made
            made = [made[i] for i in self.fresh]
            self.now.absent = [x is None for x in made]
            empty = next(x for v in values for x in _leaves(v) if isinstance(x, torch.Tensor)).new_empty(0)
            return self.returned([empty if x is None else x for x in made or [None]])

        def traced(mode, /, *values):
            with mode:
                return run(*values)

        self.library.impl(name, run, "CompositeExplicitAutograd")
        private.register_fake("dovetail_dtensor::" + name, run, self.library)
        self.positional = getattr(torch.ops.dovetail_dtensor, name).default
        if private.functional:  # graphs contain the operator itself
            from .functional import give_rule
            give_rule(self.positional, traced)
        self.give(self.positional)

    @contextlib.contextmanager
    def randomness(self, values):
        """Makes shards draw different random numbers and replicas the same, as DTensor does for its own operators. A generator in values becomes
        None."""
        first = next((x for v in values for x in _leaves(v) if isinstance(x, _torch.DTensor)), None)
        if not self.is_random or first is None:
            yield
            return
        if not _torch._random._rng_tracker and _torch._random.is_rng_supported_mesh(first.device_mesh):
            _torch._random._rng_tracker = _torch._random.OffsetBasedRNGTracker(first.device_mesh)
        if not _torch._random._rng_tracker or not _torch._random._rng_tracker.distribute_region_enabled or first._local_tensor.is_meta:
            yield
            return
        given = next((i for i, v in enumerate(values) if isinstance(v, torch.Generator)), None)
        generator = None
        if given is not None:
            generator, values[given] = values[given], None
        with _torch._random._rng_tracker._distribute_region(first._spec, generator=generator):
            yield

    # ---- the strategy

    def __call__(self, schema):
        """An OpStrategy: all valid placements, of which DTensor takes the cheapest."""
        values = list(schema.args_schema)
        if schema.op is self.positional:
            for i in self.generators:
                values.insert(i, None)
        given = dict(zip((a.name for a in self.arguments), (*values, *self.defaults[len(values):])))
        specs = [(slot, x) for slot, a in enumerate(self.arguments) for x in _leaves(given[a.name])]
        tensors = [(slot, x.strategies[0].output_spec) for slot, x in specs if isinstance(x, _torch.OpStrategy)]
        if self.out:
            self.check_out(given)
        from torch.distributed.tensor import Replicate
        rows = []
        for outs, ins in self.placements(given):
            rows.append(([outs[i] or Replicate() for i in self.fresh] or [Replicate()]) + [ins[slot] if isinstance(x, _torch.OpStrategy) else None for slot, x in specs])
        found = _torch.expand_to_full_mesh_op_strategy(tensors[0][1].mesh, schema, rows, input_index=len(schema.op._schema.returns))
        stay = [(i, slot, now) for i, (slot, now) in enumerate(tensors) if slot in self.writes]
        fitting = [s for s in found.strategies if all(s.input_specs[i].placements == now.placements for i, _, now in stay)]
        if not fitting:
            said = ", ".join(f"'{self.arguments[slot].name}' is placed as {now.placements}" for _, slot, now in stay)
            raise RuntimeError(f"{self.name}: no way to run it where its arguments lie, without moving what it writes to: {said}. Redistribute it "
                               "first, for instance to Replicate()")
        return _torch.OpStrategy(fitting)

    def check_out(self, given):
        """Raises RuntimeError if a tensor given for a result has another shape or dtype, since DTensor cannot resize."""
        made = self.operator.contract.infer([_meta(given[self.arguments[i].name]) for i in self.inputs]) if self.operator.contract else ()
        for name, result in zip(self.out, made):
            meta = given[name].strategies[0].output_spec.tensor_meta
            if (meta.shape, meta.dtype) != (result.shape, result.dtype):
                raise RuntimeError(f"{self.name}: argument '{name}': expected {result.dtype} and shape {[*result.shape]}, found {meta.dtype} and "
                                   f"{[*meta.shape]}: a DTensor is not resized")

    def placements(self, given):
        """(those of the results, those of the arguments by slot) for one dim of the mesh."""
        from torch.distributed.tensor import Replicate
        yield [Replicate()] * len(self.alias), [Replicate()] * len(self.arguments)
        if self.operator:
            for outs, ins in self.declared([given[self.arguments[i].name] for i in self.inputs]):
                ins = iter(ins)
                results = dict(zip(self.out, outs))
                yield outs, [results[a.name] if a.name in results else next(ins) for a in self.arguments]

    def declared(self, values):
        """Yields the placements of the operator's own results and arguments, from its contract. values: its arguments, with strategies for tensors."""
        from torch.distributed.tensor import Partial, Replicate, Shard
        operator = self.operator
        n = len(operator.arguments)
        if not operator.contract or not operator.contract.tree["places"]:
            return
        values = [_meta(v) for v in values]
        parallel, sums, kinds = operator.contract.items(values)
        tensors = [s for s in range(n) if any(isinstance(x, torch.Tensor) for x in _leaves(values[s]))]

        def shards(item, k):
            """The placement of each argument; None if no argument is sharded, or the item's position in one is unknown."""
            if not item.free(True) or any(item.at.get(s, 0) is None for s in tensors):
                return None
            out = [Shard(item.at[s] + k) if s in tensors and s in item.at else Replicate() for s in range(n)]
            return out if any(p != Replicate() for p in out) else None

        made = [i for i, kind in enumerate(kinds) if operator.alias[i] is None and kind != "absent"]
        for item in parallel:
            at = [item.at.get(n + i) for i in range(len(kinds))]
            for k in range(item.count if all(at[i] is not None for i in made) else 0):
                ins = shards(item, k)
                if ins:
                    yield [ins[alias] if alias is not None else Shard(at[i] + k) if i in made else None for i, alias in enumerate(operator.alias)], ins
        for ins in (shards(item, k) for item in sums for k in range(item.count)):
            # An argument without k takes part in each partial sum; only a non-differentiable number is known to be harmless there.
            whole = [s for s in tensors if ins and ins[s] == Replicate() and any(x.is_floating_point() or x.is_complex() for x in _leaves(values[s]))]
            if ins and not whole and not operator.writes:
                yield [None if kind == "absent" else Partial() for kind in kinds], ins


def _type_text(argument, written):
    """Returns an argument's type as a schema writes it, with the annotation of a written argument. torch does not tell SymInt from int."""
    text = type_text(argument.type)
    for theirs, schemas in (("number", "Scalar"), ("int", "SymInt"), ("Tensor", "Tensor" + (written or ""))):
        if text.startswith(theirs):
            return schemas + text.removeprefix(theirs)
    return text


def _leaves(value):
    value = getattr(value, "children", value)  # of a TupleStrategy
    return value if isinstance(value, (list, tuple)) else [value]


def _meta(value):
    """A tensor with the shape and dtype of a strategy's argument."""
    if hasattr(value, "strategies"):
        meta = value.strategies[0].output_spec.tensor_meta
        return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device="meta")
    value = getattr(value, "children", value)
    return [_meta(x) for x in value] if isinstance(value, (list, tuple)) else value
