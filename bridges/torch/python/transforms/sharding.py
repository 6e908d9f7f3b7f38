"""The placements that DTensor may use for the tensors of an operator, from its contract.

`parallel(b, *s)`: sharded along such a dim in all tensors that have it, results alike. `sum(k)`: inputs sharded along k give partial sums.
Both only if the contract does not use the dim's size elsewhere, since a shard's size differs. Replicating everything is always right.
Written and keyword arguments keep their placement: DTensor would write to a redistributed copy, and does not move keyword arguments. This
module never imports torch.distributed.tensor; strategies are registered when a program imports it.
"""
import sys

import torch

from .. import _when_imported
from ..private import sharding as _torch

_MODULE = "torch.distributed.tensor"
_waiting = []  # operators


def install(operator):
    if operator.returns and not all(isinstance(r.type, torch.TensorType) for r in operator.returns):
        return  # DTensor has no place for numbers and lists
    _waiting.append(operator)
    _when_imported(_MODULE, _register)


def retire(operator):
    if operator in _waiting:
        _waiting.remove(operator)
    elif _MODULE in sys.modules and _torch:
        propagator = _torch.sharding_propagator
        propagator.op_strategy_funcs.pop(operator.overload, None)
        propagator.op_to_schema_info.pop(operator.overload, None)


def _register():
    if not _torch:
        return
    propagator = _torch.sharding_propagator
    waiting, _waiting[:] = _waiting[:], []
    for operator in waiting:
        static = [a for a in operator.arguments if "Tensor" not in str(a.type)]
        first = next((i for i, a in enumerate(operator.arguments) if a in static and not a.kwarg_only), len(operator.arguments))
        info = _torch.RuntimeSchemaInfo(first, [a.name for a in static if a.kwarg_only] or None, needs_pytree=True)
        propagator.register_op_strategy(operator.overload, _Strategy(operator), info)


class _Strategy:
    def __init__(self, operator):
        self.operator = operator

    def __call__(self, schema):
        """An OpStrategy: all valid placements, of which DTensor takes the cheapest."""
        given = {a.name: v for a, v in zip(self.operator.arguments, schema.args_schema)} | dict(schema.kwargs_schema)
        specs = [(slot, x) for slot, a in enumerate(self.operator.arguments) if a.name in given for x in _leaves(given[a.name])]
        rows = [outs + [ins[slot] if isinstance(x, _torch.OpStrategy) else None for slot, x in specs] for outs, ins in self.placements(given)]
        found = _torch.expand_to_full_mesh_op_strategy(schema.get_mesh_from_args(), schema, rows, input_index=len(self.operator.returns))
        tensors = [(slot, x.strategies[0].output_spec) for slot, x in specs if isinstance(x, _torch.OpStrategy)]
        stay = [(i, slot, now) for i, (slot, now) in enumerate(tensors) if slot in self.operator.writes or self.operator.arguments[slot].kwarg_only]
        fitting = [s for s in found.strategies if all(s.input_specs[i].placements == now.placements for i, _, now in stay)]
        if not fitting:
            said = ", ".join(f"'{self.operator.arguments[slot].name}' is placed as {now.placements}" for _, slot, now in stay)
            raise RuntimeError(f"{self.operator.name}: no way to run it where its arguments lie, without moving what it writes to and what is "
                               f"given by keyword: {said}. Redistribute it first, for instance to Replicate()")
        return _torch.OpStrategy(fitting)

    def placements(self, given):
        """(those of the results, those of the arguments by slot) for one dim of the mesh."""
        from torch.distributed.tensor import Partial, Replicate, Shard
        operator = self.operator
        n = len(operator.arguments)
        yield [Replicate()] * len(operator.returns), [Replicate()] * n
        if not operator.contract or not operator.contract.tree["places"]:
            return
        values = [_meta(given[a.name]) if a.name in given else default for a, default in zip(operator.arguments, operator.defaults)]
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
