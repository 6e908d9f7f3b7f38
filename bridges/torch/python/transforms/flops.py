"""The formulas of torch.utils.flop_counter for operators, from their fact `flops`; without it nothing is counted, as in torch. torch has
one formula for all overloads of a name, and a counter copies the table when it is made: so the formulas are added as soon as
torch.utils.flop_counter is imported, and this module does not import it.
"""
import sys

from .. import _when_imported
from ..private import flops as _torch

_MODULE = "torch.utils.flop_counter"
_formulas = {}  # packet -> function, of the registered libraries


def install(operator):
    if operator.contract and operator.contract.tree["program"]["flops"]:
        formula = _formulas.setdefault(operator.packet, _Formula(operator.name.split(".")[0]))
        formula.overloads[operator.overload._overloadname] = operator
        _when_imported(_MODULE, _fill)


def retire(operator):
    formula = _formulas.get(operator.packet)
    if formula is None or formula.overloads.pop(operator.overload._overloadname, None) is None or formula.overloads:
        return
    del _formulas[operator.packet]
    if _MODULE in sys.modules:
        _torch and _torch.flop_registry.pop(operator.packet, None)


def _fill():
    if _torch:
        _torch.flop_registry.update(_formulas)


class _Formula:
    def __init__(self, name):
        self.name, self.overloads = name, {}

    def __call__(self, /, *args, **kwargs):
        if all("out_val" not in op.names for op in self.overloads.values()):
            kwargs.pop("out_val", None)  # torch's: the result
        overload = _torch._jit_resolve_packet(self.name, *args, **kwargs) or "default"
        operator = self.overloads.get(overload)
        if operator is None:
            operator = next((op for op in self.overloads.values() if op.out and op.out.overload._overloadname == overload), None)
            if operator is None:
                return 0
            kwargs, _ = operator.out.split(kwargs)
        count = operator.contract.flops(operator.bind(args, kwargs))
        return int(count) if isinstance(count, float) else count
