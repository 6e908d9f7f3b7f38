"""Dovetail's operators in torchair's graphs for Ascend (GE): docs/torchair.md. Importing this module imports neither torch nor torchair.

When torchair is imported, each operator of a loaded library gets a converter, if GE knows its node. A converter that the program registers
itself stays, or takes the place of ours.
"""
import sys

from ..torch import _when_imported

__all__ = ["decompositions", "explain", "export", "prototypes", "refused", "register", "shapes"]
OFFERS = frozenset()
_waiting = []
_said = {}  # "ns::name" -> what became of it
_ours = {}  # torch's overload -> the converter that it got here


def attach(library):
    if getattr(library, "name", None) != "base":
        _waiting.append(library)
        _when_imported("torchair", _convert_waiting)


def detach(library):
    if library in _waiting:
        _waiting.remove(library)


def _convert_waiting():
    waiting, _waiting[:] = _waiting[:], []
    for library in waiting:
        for op in _operators(library):
            _said[op.name] = _convert(op)


def _operators(library):
    return [o for op in library.operators().values() for o in op.overloads]


def _overloads(op):
    """torch's overloads that are this operator: itself, and that of its writes alone (dovetail.torch's), which functionalized graphs have."""
    import torch
    space, name = op.name.split("::")
    name, _, overload = name.partition(".")
    for name in (name, f"_writes_of_{name}"):
        packet = getattr(getattr(torch.ops, space), name, None)
        if packet is not None and (overload or "default") in packet.overloads():
            yield f"{space}.{name}.{overload or 'default'}", getattr(packet, overload or "default")


def _tree(op):
    import json
    return json.loads(op.json())


def _convert(op, node=None, replace=False):
    from torchair.core import _torchair

    from . import source
    tree = _tree(op)
    reason = source.refusal(tree, node)
    if reason:
        return f"no node: {reason}"
    wanted = node or source.node_name(op.name)
    found = _torchair.get_registered_ir_def(wanted)
    if found[0] != "SUCCESS":
        return f"no node: GE has no prototype {wanted}"
    for what, ours, theirs in zip(("inputs", "outputs", "attributes"), source.names(tree), found[1:]):
        theirs = [name for name, _ in theirs]
        if ours != theirs if what != "attributes" else set(ours) - set(theirs):  # another operator of that name
            return f"no node: GE's {wanted} has the {what} {', '.join(theirs) or 'none'}, expected {', '.join(ours) or 'none'}"
    for i, (name, overload) in enumerate(_overloads(op)):
        if replace or getattr(overload, "_ge_converter", None) is _ours.get(overload):
            scope = {"__name__": __name__}
            exec(compile(source.PREAMBLE + "\n\n" + source.converter(tree, name if i else None, node), f"<converter of {name}>", "exec"), scope)
            _ours[overload] = overload._ge_converter
        elif not i:
            return "a converter of the program"
    return f"the node {wanted}"


def register(operator, node=None):
    """Give an operator a converter now, in place of any other. node: the name of its node in GE, if it is not the operator's in CamelCase.

    ValueError: an operator that cannot be a node; the text has the reason."""
    for op in operator.overloads:
        said = _convert(op, node, True)
        if said.startswith("no node"):
            raise ValueError(f"{op.name}: {said.removeprefix('no node: ')}")
        _said[op.name] = said


def explain():
    """What became of each operator of the loaded libraries, as text."""
    if "torchair" not in sys.modules:
        return "torchair is not imported\n"
    return "".join(f"{name}: {said}\n" for name, said in _said.items())


def decompositions(*libraries):
    """For torchair.get_npu_backend(custom_decompositions=...): the native forms of the operators that have one and for which GE has no node."""
    from .._library import libraries as loaded
    from ..torch import registration
    found = {}
    for library in libraries or loaded():
        torch_side = registration.find(library)
        for op in torch_side.operators.values() if torch_side else ():
            if op.native and not op.writes and not _said.get(op.name, "").startswith("the node"):
                found[op.overload] = _native(op)
    return found


def _native(op):
    def native(*args, **kwargs):
        return op.returned(op.native(dict(zip(op.names, op.bind(args, kwargs)))))
    return native


def export(*libraries):
    """The converters of these libraries as a Python file, which needs torchair and not Dovetail."""
    from . import source
    return _text(libraries, source.PREAMBLE, source.converter, "# ", "\n\n")


def prototypes(*libraries):
    """REG_OP of their nodes, for a package of operators for CANN."""
    from . import source
    guard = "_".join(["DOVETAIL", *(library.name.upper() for library in libraries), "PROTO_H"])
    return _text(libraries, f'#ifndef {guard}\n#define {guard}\n\n#include "graph/operator_reg.h"\n\nnamespace ge {{\n', source.prototype, "// ") + \
        "} // namespace ge\n#endif\n"


def shapes(library):
    """InferShape and InferDataType of its nodes for GE, in C++: one line each, beside dovetail_ge.h."""
    import os

    from . import source
    head = f'#include "dovetail_ge.h"\n\nstatic const dv_ge_type dovetail_types[] = {{ {source.types()}, {{ 0, nullptr }} }};\n' \
           f'static dv_ge_package dovetail_package = {{ "{os.path.basename(library.path)}", dovetail_types, dovetail_types, nullptr, 0 }};\n\n'
    return _text([library], head, source.shape, "// ", "")


def refused(*libraries):
    """The operators of these libraries that cannot be nodes, with the reasons."""
    return {op.name: reason for op, _, reason in _nodes(libraries) if reason}


def _nodes(libraries):
    """(operator, its tree, why it is no node or None)."""
    from . import source
    names = {}
    for op in (op for library in libraries for op in _operators(library)):
        tree = _tree(op)
        reason = source.refusal(tree)
        other = op.name if reason else names.setdefault(source.node_name(op.name), op.name)
        yield op, tree, reason if other == op.name else f"{source.node_name(op.name)} is the node of {other}"


def _text(libraries, head, write, comment, between="\n"):
    return between.join([head, *(f"{comment}{op.name}: no node: {reason}\n" if reason else write(tree) for op, tree, reason in _nodes(libraries))])
