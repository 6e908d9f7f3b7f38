"""torch's opcheck and generate_opcheck_tests on `torch.ops.ns.f`. They take no operator that has overloads; the out= overload, which comes
with an operator, is not what its tests call."""
from . import private

_MODULE = "torch.testing._internal.optests.generate_tests"


def install(operators_of):
    """operators_of: from "ns::f" to our operators of this name, or None."""
    def without_out(packet):
        operators = operators_of(packet._qualified_op_name) or ()
        return operators[0].overload if len(operators) == 1 and operators[0].out else None

    private.Replaced(f"{_MODULE}.resolve_unique_overload_or_throw", instead=without_out, module=_MODULE)
