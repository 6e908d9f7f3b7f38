"""torch's opcheck and generate_opcheck_tests on `torch.ops.ns.f`. They take no operator that has overloads; the out= overload, which comes
with an operator, is not what its tests call."""
import functools
import sys

from . import _when_imported

_MODULE = "torch.testing._internal.optests.generate_tests"


def install(operators_of):
    """operators_of: from "ns::f" to our operators of this name, or None."""
    _when_imported(_MODULE, functools.partial(_replace, operators_of))


def _replace(operators_of):
    module = sys.modules[_MODULE]
    resolve = module.resolve_unique_overload_or_throw

    @functools.wraps(resolve)
    def without_out(packet):
        operators = operators_of(packet._qualified_op_name) or ()
        return operators[0].overload if len(operators) == 1 and operators[0].out else resolve(packet)

    module.resolve_unique_overload_or_throw = without_out
