"""Converters and prototypes as text, from a declaration. This module needs neither torch nor torchair."""
import keyword
import re

# a schema type -> (torchair's attribute, the word of REG_OP). A list has "List" before both.
_ATTRIBUTES = {"int": ("Int", "Int"), "symint": ("Int", "Int"), "float": ("Float", "Float"), "scalar": ("Float", "Float"), "bool": ("Bool", "Bool"),
               "str": ("Str", "String"), "dtype": ("DataType", "Type")}
_TYPES = {"f16": "DT_FLOAT16", "f32": "DT_FLOAT", "f64": "DT_DOUBLE", "bf16": "DT_BF16", "i8": "DT_INT8", "i16": "DT_INT16", "i32": "DT_INT32",
          "i64": "DT_INT64", "u8": "DT_UINT8", "u16": "DT_UINT16", "u32": "DT_UINT32", "u64": "DT_UINT64", "bool": "DT_BOOL", "c64": "DT_COMPLEX64",
          "c128": "DT_COMPLEX128"}
_TORCH = {"f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
          "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool", "c64": "complex64", "c128": "complex128"}

PREAMBLE = '''import functools
import inspect
import operator
import struct

import torch
import torchair
from torchair._ge_concrete_graph import ge_apis as ge
from torchair.ge import attr
from torchair.ge._ge_graph import torch_type_to_ge_type

_FLOATS = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128


def _fixed(name, value, read):
    """An attribute is fixed when the graph is made."""
    if isinstance(value, torchair.ge.Tensor):
        raise RuntimeError(f"{name}: a symbolic size cannot be an attribute of a GE node: compile with dynamic=False, or mark the size static")
    try:
        return value if value is None else [read(v) for v in value] if isinstance(value, (list, tuple)) else read(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise RuntimeError(f"{name}: expected what an attribute of a GE node can hold (floats have 32 bits), found {value!r}") from None


def _float(value):
    found = float(value)
    if isinstance(value, int) and struct.unpack("f", struct.pack("f", found))[0] != value:
        raise ValueError
    return found


def _renamed(names):
    """torchair gives arguments by the schema's names, some of which cannot be names here."""
    def of(convert):
        @functools.wraps(convert)
        def by_schema(*args, **kwargs):
            return convert(*args, **{names.get(name, name): value for name, value in kwargs.items()})
        return by_schema
    return of


def _present(name, value, expected, why):
    if value is None:
        raise RuntimeError(f"{name}: expected {expected}, found None: {why}")


def _same(name, value, default):
    """GE has no attribute for it, so the node has the default."""
    if value != default:
        raise RuntimeError(f"{name}: expected the default {default!r}, found {value!r}: no attribute of a GE node holds such a value")


def _as_float(name, value, dtype):
    """GE promotes by the attribute, which is a float."""
    to = torch_type_to_ge_type(dtype) if isinstance(dtype, torch.dtype) else dtype
    if isinstance(value, int) and dtype is not None and to not in [torch_type_to_ge_type(t) for t in _FLOATS]:
        raise RuntimeError(f"{name}: expected a float, found {value!r}: it is a Float in a GE node, so the result would be promoted as by a float")


def _dense(name, values):
    """A dynamic input has no absent elements."""
    absent = [i for i, value in enumerate(values or ()) if value is None]
    if absent:
        raise RuntimeError(f"{name}: element {absent[0]} is None, and a dynamic input of a GE node has no absent elements: give an empty tensor, or compile the call without it")
    return values


def _given(attributes):
    """Without those that are None: they keep the prototype's default."""
    return {name: make(value) for name, (make, value) in attributes.items() if value is not None}


def _promoted(dtype, *inputs):
    """As torch does before it computes: GE's kernels want one dtype, and GE infers dtypes without shapes."""
    to = torch_type_to_ge_type(dtype) if isinstance(dtype, torch.dtype) else dtype
    return [x if x is None or x.dtype == to else torchair.ge.Cast(x, dst_type=to) for x in inputs]


def _last(out, n, optional=()):
    """The operator's results: the outputs before them are the new values of written inputs. One that may be absent is a list of one tensor or none."""
    out = list(out) if isinstance(out, tuple) else [out]
    for i in optional:
        out[i - n] = out[i - n][0] if out[i - n] else None
    return None if not n else out[-1] if n == 1 else tuple(out[-n:])
'''

# Converters for operators of ATen that the base set has and for which torchair only has an error: decompositions and gradients call them.
ATEN = '''
def _for_aten(overload):
    """Registers a converter, unless there is one already that does more than raise."""
    there = getattr(overload, "_ge_converter", None)
    raises = there is None or set(inspect.unwrap(there).__code__.co_names) <= {"NotImplementedError", "RuntimeError"}
    return torchair.register_fx_node_ge_converter(overload) if raises else lambda convert: convert


@_for_aten(torch.ops.aten.amax.default)
def convert_amax(self, dim=(), keepdim=False, *, meta_outputs=None):
    return ge.ReduceMax(self, torchair.ge.Const(list(dim) or list(range(self.rank)), dtype=torch_type_to_ge_type(torch.int64)), keep_dims=keepdim)


@_for_aten(torch.ops.aten.sub.Scalar)
def convert_sub_scalar(self, other, alpha=1, *, meta_outputs=None):
    if not isinstance(other, torchair.ge.Tensor) and not isinstance(alpha, torchair.ge.Tensor):
        other, alpha = other * alpha, 1
    return inspect.unwrap(torch.ops.aten.sub.Tensor._ge_converter)(self, other, alpha=alpha, meta_outputs=meta_outputs)


@_for_aten(torch.ops.aten._efficientzerotensor.default)
def convert_efficientzerotensor(size, *, dtype=None, layout=None, device=None, pin_memory=None, meta_outputs=None):
    return inspect.unwrap(torch.ops.aten.zeros.default._ge_converter)(size, meta_outputs=meta_outputs)


@_for_aten(torch.ops.aten.silu_backward.default)
def convert_silu_backward(grad_output, self, *, meta_outputs=None):
    float32, result = torch_type_to_ge_type(torch.float32), meta_outputs.dtype
    wide = float32 if result in map(torch_type_to_ge_type, (torch.float16, torch.bfloat16)) else result  # as PyTorch computes it
    grad_output, self = _promoted(wide, grad_output, self)
    one, y = torchair.ge.Const(1, dtype=wide), ge.Sigmoid(self)
    slope = ge.Mul(y, ge.Add(ge.Mul(self, ge.Sub(one, y)), one))
    return _promoted(result, ge.Mul(grad_output, slope))[0]
'''

_USED = ["torch", "complex", "torchair", "attr", "ge", "inspect", "meta_outputs", "len", "operator", "bool", "str", "torch_type_to_ge_type", *re.findall(r"^def (\w+)", PREAMBLE, re.M)]
_READ = {"Int": "operator.index", "Float": "_float", "Bool": "bool", "Str": "str", "DataType": "torch_type_to_ge_type"}


def node_name(name):
    """torchair's rule: "ns::add_custom" is the node AddCustom. An overload has its name behind: "ns::add.Tensor" is AddTensor."""
    return "".join(word.capitalize() for word in name.split("::")[-1].replace(".", "_").split("_"))


def _plain(type):
    return _plain(type[1]) if type[0] == "optional" else type


def _is_list(type):
    return _plain(type)[0] == "list"


def _element(type):
    type = _plain(type)
    return _plain(type[1]) if type[0] == "list" else type


def is_tensor(type):
    return _element(type) == ["tensor"]


def _may_be_absent(r):
    """A result Tensor?: GE has no optional outputs, but dynamic ones, with one tensor or none."""
    return r["type"] == ["optional", ["tensor"]]


def _may_lack(type):
    """Tensor?[]"""
    return _is_list(type) and _plain(type)[1][0] == "optional"


def _writes(a):
    return bool(a["alias"] and (a["alias"]["write"] or (a["alias"]["element"] or {}).get("write")))


def _attributes(tree):
    """(argument, torchair's word, REG_OP's word)."""
    for a in tree["schema"]["args"]:
        if not is_tensor(a["type"]) and not _is_lost(a):
            yield a, *(("List" if _is_list(a["type"]) else "") + w for w in _ATTRIBUTES[_element(a["type"])[0]])


def attribute_words(tree):
    """torchair's word for the type of each attribute: "Int", "ListFloat"."""
    return [word for _, word, _ in _attributes(tree)]


def _is_lost(a):
    """Complex numbers, devices, layouts, memory formats and generators are neither inputs nor attributes."""
    return not is_tensor(a["type"]) and _element(a["type"])[0] not in _ATTRIBUTES


def outputs(tree):
    """(names of written arguments, names of new results). A node that writes has an output with the name of that input."""
    schema = tree["schema"]
    fresh = [r for r in schema["returns"] if not _writes(r)]
    taken = {a["name"] for a in schema["args"]}  # an input and an output of one name are a written argument
    free = next(names for word in ("out", "result", "output", "out_of_node")
                if not taken & set(names := [r["name"] or (f"{word}{i}" if len(fresh) > 1 else word) for i, r in enumerate(fresh)]) or word == "out_of_node")
    return [a["name"] for a in schema["args"] if _writes(a)], list(zip(free, fresh))


def names(tree, others=None):
    """The names of a node's inputs, outputs and attributes. others: the schema's name -> another."""
    written, fresh = outputs(tree)
    found = ([a["name"] for a in tree["schema"]["args"] if is_tensor(a["type"])], written + [name for name, _ in fresh],
             [a["name"] for a, *_ in _attributes(tree)])
    return tuple([(others or {}).get(name, name) for name in group] for group in found)


def refusal(tree, node=None):
    """Why an operator cannot be one node of GE, or None."""
    schema, node = tree["schema"], node or node_name(tree["name"])
    if not re.fullmatch(r"[A-Za-z_]\w*", node, re.ASCII):
        return f"'{node}' cannot be the name of a node"
    if any(_writes(a) and _is_list(a["type"]) for a in schema["args"]):
        return "it writes the elements of a list"
    if any(_element(r["type"]) != ["tensor"] for r in schema["returns"]):
        return "it has a result that is not a tensor"
    if any(_is_list(r["type"]) and (r["type"][0] == "optional" or _may_lack(r["type"])) for r in schema["returns"]):
        return "it has a list as result that may be absent or lack elements"
    for a in schema["args"]:
        if _is_lost(a) and "default" not in a:
            return f"no attribute of a GE node holds its argument '{a['name']}' of type {_element(a['type'])[0]}, which has no default"
    if schema["returns"] and not any(_writes(r) for r in schema["returns"]) and all(r["alias"] for r in schema["returns"]):
        return "its results are views of arguments, which torch makes itself"
    return None


def _numbers(tree):
    """The slot of a number -> the return whose dtype it takes part in."""
    found = {}
    for r in (tree["contract"] or {"program": {"results": []}})["program"]["results"]:
        for s in r["steps"]:
            if s["op"] == "number_dtype" and r["kind"] == "new":
                found.setdefault(s["slot"], r["slot"] - len(tree["schema"]["args"]))
    return found


def _default(a):
    """The default in Python, or "None" if torch has no name for it."""
    value = a.get("default_value")
    if not isinstance(value, dict):
        return f"float('{value}')" if value in (float("inf"), -float("inf")) else repr(value)
    (kind, value), = value.items()
    if kind == "complex":
        return f"complex({value[0]!r}, {value[1]!r})"
    if kind == "dtype":
        return f"torch.{_TORCH[value]}" if value in _TORCH else "None"
    names = {"memory_format": ["contiguous_format", "preserve_format", "channels_last", "channels_last_3d"], "layout": ["strided"]}.get(kind, [])
    return f"torch.{names[value]}" if value in range(len(names)) else "None"


def promoted(tree):
    """The inputs whose dtypes the contract promotes to that of the only result: ["self", "other"] of `self[*a]:T, other[*b]:U -> [...]:promote(T, U)`."""
    schema, contract = tree["schema"], tree["contract"] or {"program": {"results": []}}
    written, fresh = outputs(tree)
    results = contract["program"]["results"]
    if written or len(fresh) != 1 or len(results) != 1 or results[0]["kind"] != "new":
        return []
    step = next((s for s in results[0]["steps"] if s["op"] == "promote" and s["to"] == results[0]["dtype"]), {"in": []})
    variables = {v["name"] for v in contract["program"]["variables"] if v["kind"] == "dtype" and v["register"] in step["in"][::2]}
    slots = [slot for v in contract.get("dtypes", []) if v["name"] in variables for slot in v["carriers"]]
    arguments = [schema["args"][slot] for slot in sorted(slots) if slot < len(schema["args"])]
    return [a["name"] for a in arguments if is_tensor(a["type"]) and not _is_list(a["type"])] if len(variables) > 1 else []


def _name(a):
    return a["name"] + "_" if keyword.iskeyword(a["name"]) or a["name"] in _USED else a["name"]


def converter(tree, overload=None, node=None, others=None, order=()):
    """The source of a function that makes the node; registered for torch's overload of that name. others: GE's names, by the schema's; order: of GE's
    inputs, with those that the operator lacks."""
    of = lambda name: (others or {}).get(name, name)
    schema, (written, fresh) = tree["schema"], outputs(tree)
    full = f"{schema['ns']}.{schema['name']}.{schema['overload'] or 'default'}"
    plain, keywords = ([a for a in schema["args"] if a["kwarg_only"] == k] for k in (False, True))
    required = max((i for i, a in enumerate(plain) if "default" not in a), default=-1)  # a schema may have a default before one without

    def parameter(a, may=True):
        return _name(a) + (f"={_default(a)}" if may and "default" in a else "")

    parameters = [parameter(a, i > required) for i, a in enumerate(plain)] + ["*", *map(parameter, keywords), "meta_outputs=None"]
    inputs = {of(a["name"]): f"_dense({full + ': ' + a['name']!r}, {_name(a)})" if _may_lack(a["type"]) else _name(a)
              for a in schema["args"] if is_tensor(a["type"])}
    inputs = ", ".join(f"{name!r}: {inputs.get(name)}" for name in order or inputs)
    attributes = ", ".join(f"{of(a['name'])!r}: (attr.{word}, _fixed({full + ': ' + a['name']!r}, {_name(a)}, {_READ[word.removeprefix('List')]}))"
                           for a, word, _ in _attributes(tree))
    same = [_name(a) for a in schema["args"] if a["name"] in promoted(tree)]
    at = len(schema["returns"]) - len(fresh)
    results = [repr(of(name)) for name in written]
    metas = ["meta_outputs" if len(fresh) == 1 else f"meta_outputs[{i if overload else at + i}]" for i in range(len(fresh))]
    for meta, (name, r) in zip(metas, fresh):
        count = f"len({meta})" if _is_list(r["type"]) else f"int({meta}.dtype is not None)" if _may_be_absent(r) else None
        results.append(f"({of(name)!r}, {count})" if count else repr(of(name)))
    optional = [i for i, (_, r) in enumerate(fresh) if _may_be_absent(r)]
    checks, numbers = [], _numbers(tree)
    for slot, a in enumerate(schema["args"]):
        given = f"{full + ': ' + a['name']!r}, {_name(a)}"
        if _writes(a) and a["type"][0] == "optional":
            checks.append(f"    _present({given}, 'a tensor', 'torchair makes no graph in which an argument that the operator writes is absent')")
        elif _is_lost(a):
            checks.append(f"    _same({given}, {_default(a)})")
        elif a["type"][0] == "optional" and _default(a) != "None":
            checks.append(f"    _present({given}, 'a value', {'a GE node without this attribute has its default, ' + _default(a)!r})")
        if slot in numbers:
            checks.append(f"    _as_float({given}, {metas[numbers[slot] - at]}.dtype)")
    renamed = {a["name"]: _name(a) for a in schema["args"] if _name(a) != a["name"]}
    lines = [f"@torchair.register_fx_node_ge_converter(torch.ops.{overload or full})",
             *([f"@_renamed({renamed!r})"] if renamed else []),
             f"def convert_{schema['name']}{'_' + schema['overload'] if schema['overload'] else ''}({', '.join(parameters)}):",
             *checks,
             *([f"    {', '.join(same)} = _promoted(meta_outputs.dtype, {', '.join(same)})"] if same else []),
             f"    out = torchair.ge.custom_op({node or node_name(tree['name'])!r}, inputs={{{inputs}}}, outputs=[{', '.join(results)}],",
             f"                              attrs=_given({{{attributes}}}))"]
    lines.append(f"    return _last(out, {len(fresh)}{f', {optional}' if optional else ''})")
    return "\n".join(lines) + "\n"


def _types(tree, slot):
    """The element types of an input, as REG_OP writes them."""
    variables = {v["name"]: v["in"] for v in (tree["contract"] or {"dtypes": []})["dtypes"] if slot in v["carriers"]}
    names = next(iter(variables.values()), None)
    return f"TensorType({{{', '.join(_TYPES[n] for n in names)}}})" if names and all(n in _TYPES for n in names) else "TensorType::ALL()"


def _absent(word):
    """GE has no attribute without a value: this one stands for None."""
    return "{}" if word.startswith("List") else {"String": '""', "Bool": "false", "Type": "DT_UNDEFINED"}.get(word, "0")


def _literal(value):
    if isinstance(value, dict):
        return _TYPES.get(value.get("dtype"), "DT_UNDEFINED")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"{{{', '.join(map(_literal, value))}}}"
    if isinstance(value, str):
        return '"' + re.sub(r'[\\"\x00-\x1f\x7f]', lambda m: f"\\{m[0]}" if m[0] in '\\"' else f"\\{ord(m[0]):03o}", value) + '"'
    return repr(value)


def prototype(tree, node=None):
    """REG_OP, the prototype of the node that a package of operators for CANN declares."""
    schema, node, (written, fresh) = tree["schema"], node or node_name(tree["name"]), outputs(tree)
    lines = [f"REG_OP({node})"]
    for i, a in enumerate(schema["args"]):
        if is_tensor(a["type"]):
            kind = "DYNAMIC_INPUT" if _is_list(a["type"]) else "OPTIONAL_INPUT" if a["type"][0] == "optional" else "INPUT"
            lines.append(f"    .{kind}({a['name']}, {_types(tree, i)})")
    lines += [f"    .OUTPUT({name}, TensorType::ALL())" for name in written]
    lines += [f"    .{'DYNAMIC_OUTPUT' if _is_list(r['type']) or _may_be_absent(r) else 'OUTPUT'}({name}, TensorType::ALL())" for name, r in fresh]
    for a, _, word in _attributes(tree):
        value = a.get("default_value")
        lines.append(f"    .REQUIRED_ATTR({a['name']}, {word})" if "default" not in a and a["type"][0] != "optional"
                     else f"    .ATTR({a['name']}, {word}, {_absent(word) if value is None else _literal(value)})")
    lines.append(f"    .OP_END_FACTORY_REG({node})")
    return "\n".join(lines) + "\n"


def types():
    """GE's element types and ours, as rows of dv_ge_type."""
    return ", ".join(f'{{ ge::{ge}, "{name}" }}' for name, ge in _TYPES.items())


def shape(tree, node=None):
    """InferShape and InferDataType, by the operator's contract."""
    return f'DOVETAIL_GE({node or node_name(tree["name"])}, "{tree["name"]}")\n'
