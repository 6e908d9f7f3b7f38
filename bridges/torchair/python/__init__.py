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
    from . import source
    waiting, _waiting[:] = _waiting[:], []
    if waiting:
        exec(compile(source.PREAMBLE + source.ATEN, "<converters of ATen's operators>", "exec"), {"__name__": __name__})
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


def _difference(tree, node, prototype, names):
    """What keeps an operator from being GE's node of that prototype, or None. With names, which the program gives, GE's inputs may be in another
    order, and it may have optional ones that the operator lacks."""
    from . import source
    known = [name for group in source.names(tree) for name in group]
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        return f"names: expected some of {', '.join(dict.fromkeys(known))}, found {', '.join(unknown)}"
    for what, ours, theirs in zip(("inputs", "outputs", "attributes"), source.names(tree, names), prototype):
        all = [name for name, _ in theirs]
        needed = {name for name, kind in theirs if what == "inputs" and kind != "optional"}
        free = what == "attributes" or what == "inputs" and names is not None
        if not (needed <= set(ours) <= set(all) and len(set(ours)) == len(ours) if free else ours == all):  # another operator of that name
            return f"GE's {node} has the {what} {', '.join(all) or 'none'}, expected {', '.join(ours) or 'none'}"
    kinds = dict(prototype[2])
    for name, word in zip(source.names(tree, names)[2], source.attribute_words(tree)):
        kind = _kind(kinds[name])
        if kind != word:
            return f"GE's {node} has the attribute {name}: {kind}, expected {word}"
    return None


def _kind(tag):
    """torchair's word for GE's type of an attribute: "Int" of VT_INT. One that torchair cannot make stays as it is."""
    from torchair.ge import attr
    made = attr._ATTR_TYPE_MAP.get(tag)
    return next((word for word, value in vars(attr).items() if value is made), tag)


def _convert(op, node=None, names=None, replace=False):
    from torchair.core import _torchair

    from . import source
    tree = _tree(op)
    reason = source.refusal(tree, node)
    if reason:
        _refuse(op, reason)
        return f"no node: {reason}"
    wanted = node or source.node_name(op.name)
    status, *prototype = _torchair.get_registered_ir_def(wanted)
    reason = f"GE has no prototype {wanted}" if status != "SUCCESS" else _difference(tree, wanted, prototype, names)
    if reason:
        return f"no node: {reason}"
    order = None if names is None else [name for name, _ in prototype[0]]
    for i, (name, overload) in enumerate(_overloads(op)):
        if replace or getattr(overload, "_ge_converter", None) is _ours.get(overload):
            scope = {"__name__": __name__}
            text = source.PREAMBLE + "\n\n" + source.converter(tree, name if i else None, node, names, order)
            exec(compile(text, f"<converter of {name}>", "exec"), scope)
            _ours[overload] = overload._ge_converter
        elif not i:
            return "a converter of the program"
    return f"the node {wanted}"


def _refuse(op, reason):
    """torchair takes the missing node for one that was not installed. What gives views it does not ask for."""
    import torchair

    def no_node(*args, **kwargs):
        raise RuntimeError(f"{op.name}: {reason}: GE's graphs have no such node")
    for _, overload in _overloads(op):
        if not hasattr(overload, "_ge_converter"):
            torchair.register_fx_node_ge_converter(overload)(no_node)
            _ours[overload] = overload._ge_converter


def register(operator, node=None, names=None):
    """Give an operator a converter now, in place of any other. node: the name of its node in GE, if it is not the operator's in CamelCase. names: for
    inputs, outputs and attributes that GE calls otherwise, the schema's name -> GE's; GE's inputs may then be in another order, and GE may have
    optional inputs that the operator lacks. A result without a name in the schema is "out", of several "out0", "out1".

    ValueError: an operator that cannot be that node; the text has the reason."""
    for op in operator.overloads:
        said = _convert(op, node, names, True)
        if said.startswith("no node"):
            raise ValueError(f"{op.name}: {said.removeprefix('no node: ')}")
        _said[op.name] = said


def explain():
    """What became of each operator of the loaded libraries, as text."""
    if "torchair" not in sys.modules:
        return "torchair is not imported\n"
    return "".join(f"{name}: {said}\n" for name, said in _said.items())


def decompositions(*libraries):
    """For torchair.get_npu_backend(custom_decompositions=...): the decompositions of the operators that have one and for which GE has no node."""
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
    return _text(libraries, source.PREAMBLE + source.ATEN, source.converter, "# ", "\n\n")


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
