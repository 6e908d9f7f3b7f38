"""Prototypes of GE, read from REG_OP, and what is made from one: a Python function that builds its node, and an operator to start from.

This module needs neither torch nor torchair.
"""
import collections
import keyword
import re

from .source import _ATTRIBUTES, _TYPES, node_name

# inputs, outputs: (name, "required" | "optional" | "dynamic", the text of the element types). attributes: (name, REG_OP's word, REQUIRED or the
# default as a Python value; a name of an element type is a DataType).
Prototype = collections.namedtuple("Prototype", "name inputs outputs attributes refusal")
REQUIRED = object()


class DataType(str):
    """DT_FLOAT"""


_KINDS = {f"{kind}{what}": (place, word) for kind, word in (("", "required"), ("OPTIONAL_", "optional"), ("DYNAMIC_", "dynamic"))
          for place, what in enumerate(("INPUT", "OUTPUT"))}
_IGNORED = {"DATATYPE", "OP_END_FACTORY_REG", "INFER_SHAPE_AND_TYPE"}
_ELEMENTS = {"Int": "int", "Float": "float", "Bool": "bool", "String": "str", "Type": "int"}
_TORCHAIR = {"String": "Str", "Type": "DataType"}  # the other words are torchair's own
_TOKEN = re.compile(r"""\s*(?: (?P<comment> //[^\n]* | /\*.*?\*/ ) | (?P<string> "(?:[^"\\]|\\.)*" )
                         | (?P<number> (?: \d+\.?\d*(?:[eE][-+]?\d+)? | \.\d+(?:[eE][-+]?\d+)? ) [fFlLuU]* ) | (?P<word> \w+(?:::\w+)* ) | (?P<mark> . ) )""",
                    re.X | re.S)


class _Reader:
    """The tokens of a header, from a place in it."""

    def __init__(self, text, path):
        self.text, self.path, self.at = text, path, 0

    def fail(self, expected):
        line = self.text.count("\n", 0, self.at) + 1
        found = self.text[self.at:].strip().partition("\n")[0][:40]
        raise ValueError(f"{self.path}:{line}: expected {expected}, found {repr(found) if found else 'the end'}")

    def look(self):
        while m := _TOKEN.match(self.text, self.at):
            if m["comment"] is None:
                return m.lastgroup, m[m.lastgroup], m.end()
            self.at = m.end()
        return None, "", self.at

    def take(self, text=None, kind=None):
        found, value, end = self.look()
        if (text and value != text) or (kind and found != kind):
            return None
        self.at = end
        return value

    def need(self, text=None, kind=None):
        found = self.take(text, kind)
        return self.fail(repr(text) if text else f"a {kind}") if found is None else found

    def rest(self):
        """What is left before the closing parenthesis, as text."""
        start, depth = self.at, 0
        while depth >= 0:
            at, (kind, value, end) = self.at, self.look()
            if kind is None:
                self.fail("')'")
            if kind == "mark":
                depth += (value in "({[") - (value in ")}]")
            if depth >= 0:
                self.at = end
        return self.text[start:self.at].strip()

    def value(self):
        """A default: a number, a text, true, DT_FLOAT, or a list of them in braces."""
        if self.take("{"):
            found = []
            while not self.take("}"):
                found.append(self.value())
                self.take(",")
            return found
        negative = bool(self.take("-"))
        kind, text, self.at = self.look()
        if kind == "string":
            more = self.take(kind="string")
            return bytes(text[1:-1], "utf-8").decode("unicode_escape") if more is None else self.fail("one text")
        if kind == "number":
            plain = text.rstrip("fFlLuU")
            number = (-1 if negative else 1) * (int(plain) if plain.isdigit() else float(plain))
            return number / self.value() if self.take("/") else number
        word = text.rpartition("::")[2]
        if word in ("true", "false"):
            return word == "true"
        if word in ("UNKNOWN_RANK", "UNKNOWN_SHAPE"):
            return [-2 if word == "UNKNOWN_RANK" else -1]
        if word.startswith("DT_"):
            return DataType(word)
        return self.fail("a number, a text, true, false, DT_... or a list")


def parse(text, path="REG_OP"):
    """The prototypes of a header, in its order. ValueError names the line. What one can declare and no Python function can build has a refusal."""
    reader, found = _Reader(text, path), []
    while reader.look()[0]:
        if reader.take(kind="mark") == "#":  # a line of the preprocessor; macros named REG_OP are defined in such
            while (end := reader.text.find("\n", reader.at)) > 0 and reader.text[end - 1] == "\\":
                reader.at = end + 1
            reader.at = end if end >= 0 else len(reader.text)
        elif reader.take("REG_OP"):
            found.append(_prototype(reader))
        else:
            reader.at = reader.look()[2]
    return found


def _prototype(reader):
    reader.need("(")
    name = reader.need(kind="word")
    reader.need(")")
    places, attributes, refusal = ([], []), [], None
    while reader.take("."):
        word = reader.need(kind="word")
        reader.need("(")
        if word in _IGNORED:
            reader.rest()
        elif word in _KINDS:
            place, kind = _KINDS[word]
            argument = reader.need(kind="word")
            types = reader.rest() if reader.take(",") else ""
            places[place].append((argument, kind, types))
        elif word in ("ATTR", "REQUIRED_ATTR"):
            argument = reader.need(kind="word")
            reader.need(",")
            of = reader.need(kind="word")
            default, element = REQUIRED, of.replace("List", "")
            fits = element in _ELEMENTS and of.count("List") <= 1 + (element in ("Int", "Float"))
            if word == "ATTR":
                reader.need(",")
                default = reader.value() if fits else reader.rest()
            if not fits:
                refusal = refusal or f"attribute '{argument}': {of} has no form in Python"
            elif default is not REQUIRED and of == "Float":
                default = float(default)
            attributes.append((argument, of, default))
        else:
            refusal = refusal or f".{word} has no form in Python"
            reader.rest()
        reader.need(")")
    for what, argument in [("output", o[0]) for o in places[1] if o[1] == "optional"]:
        refusal = refusal or f"{what} '{argument}' is optional"
    return Prototype(name, *places, attributes, refusal)


# ---- Python functions that build a node ------------------------------------------------------------------------------------

BUILDERS = '''from typing import List, Optional

from torchair._ge_concrete_graph.compat_ir import ge_op
from torchair.ge import attr
from torchair.ge._ge_graph import DataType, Tensor, auto_convert_to_tensor
'''


def _parameters(p):
    """The Python names of inputs and attributes: torchair's own rules for those that cannot be a parameter."""
    python = lambda n: n + "_changed_as_is_python_key" if keyword.iskeyword(n) else n
    inputs = [n for n, *_ in p.inputs]
    return [python(n) for n in inputs], [n + "_changed_as_duplicate_with_input" if n in inputs else python(n) for n, *_ in p.attributes]


def _default(value):
    if isinstance(value, list):
        return f"[{', '.join(map(_default, value))}]"
    return f"DataType.{value}" if isinstance(value, DataType) else repr(value)


def builder(p):
    """The source of a function p.name(inputs..., *, attributes...), as document 003's auto_generated_ge_raw_custom_ops.py has it. It returns the
    outputs: one, a tuple, or None; a dynamic output is a list of size_of_<its name> tensors."""
    if p.refusal:
        return f"# {p.name}: {p.refusal}\n"
    types = {"required": "Tensor", "optional": "Optional[Tensor]", "dynamic": "List[Tensor]"}
    given, set_to = _parameters(p)
    parameters = [f"{n}: {types[kind]}" for n, (_, kind, _) in zip(given, p.inputs)] + ["*"]
    parameters += [f"size_of_{n}: int" for n, kind, _ in p.outputs if kind == "dynamic"]
    for n, (_, word, default) in zip(set_to, p.attributes):
        lists = word.count("List")
        of = "List[" * lists + _ELEMENTS[word[4 * lists:]] + "]" * lists
        parameters.append(f"{n}: {of}" + ("" if default is REQUIRED else f" = {_default(default)}"))
    flags = ", ".join(f"[{', '.join(str(kind == which) for _, kind, _ in p.inputs)}]" for which in ("dynamic", "optional"))
    inputs = ", ".join(f"{n!r}: {value}" for value, (n, *_) in zip(given, p.inputs))
    outputs = ", ".join(f"({n!r}, size_of_{n})" if kind == "dynamic" else repr(n) for n, kind, _ in p.outputs)
    word = lambda w: re.sub("String|Type", lambda m: _TORCHAIR[m[0]], w)
    attributes = ", ".join(f"{n!r}: attr.{word(w)}({value})" for value, (n, w, _) in zip(set_to, p.attributes))
    return "\n".join([f"@auto_convert_to_tensor({flags})", f"def {p.name}({', '.join(parameters)}, dependencies=[], node_name=None):",
                      f"    return ge_op({p.name!r}, inputs={{{inputs}}}, outputs=[{outputs}],",
                      f"                 attrs={{{attributes}}}, dependencies=dependencies, node_name=node_name)"]) + "\n"


def builders(prototypes):
    return "\n\n".join([BUILDERS, *map(builder, prototypes)])


# ---- an operator to start from ----------------------------------------------------------------------------------------------

_SCHEMA = {"Int": ("int", "int64_t", "dv_ints"), "Float": ("float", "double", "dv_floats"), "Bool": ("bool", "bool", "dv_bools"),
           "String": ("str", "dv_string", "dv_strings"), "Type": ("ScalarType", "dv_dtype", "dv_dtypes")}
_SHORT = {ge: short for short, ge in _TYPES.items()}
_WORDS = {"f": "float", "i": "int", "u": "uint", "bf": "bfloat", "c": "complex", "bool": "bool"}  # a schema has the long names of dtypes
_C_WORDS = set("auto break case char const continue default do double else enum extern float for goto if inline int long register restrict return short "
               "signed sizeof static struct switch typedef union unsigned void volatile while bool".split())


def operator_name(node):
    """AddCustom -> add_custom"""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", node).lower()


def why_not(p):
    """Why a prototype cannot be declared as an operator, or None."""
    for n, word, default in p.attributes:
        if word.replace("List", "") not in _SCHEMA or word.count("List") > 1:
            return f"attribute '{n}': no type of a schema is {word}"
        for value in default if isinstance(default, list) else [] if default is REQUIRED else [default]:
            if word.endswith("Type") and value not in _SHORT:
                return f"attribute '{n}': the default {value} is no dtype of Dovetail"
            if isinstance(value, DataType) and not word.endswith("Type"):
                return f"attribute '{n}': the default {value} is an element type, and {word} is declared"
        if word == "ListType" and default is not REQUIRED or word == "ListString" and default not in (REQUIRED, []):
            return f"attribute '{n}': a schema has no defaults of {_SCHEMA[word[4:]][0]}[]"
    names = [n for part in (p.inputs, p.attributes, p.outputs) for n, *_ in part]
    if not names:
        return "it has neither inputs nor outputs nor attributes"
    for n in [operator_name(p.name), *names]:
        if n in _C_WORDS or keyword.iskeyword(n) or not n[0].isalpha() and n[0] != "_":
            return f"'{n}' cannot be a name in C"
    inputs = [n for n, *_ in p.inputs]
    if set(n for n, *_ in p.attributes) & set(inputs + [n for n, *_ in p.outputs]):
        return "an attribute has the name of an input or output"
    if len(set(inputs)) < len(inputs) or len({n for n, *_ in p.outputs}) < len(p.outputs):
        return "two inputs or outputs have one name"
    if any(n in inputs and (kind == "dynamic" or dict((a, k) for a, k, _ in p.inputs)[n] == "dynamic") for n, kind, _ in p.outputs):
        return "it writes the elements of a list"
    return p.refusal if p.refusal and "form in Python" not in p.refusal else None


def _dtypes(types):
    """The dtypes that a text of REG_OP lists, or None: any."""
    m = re.fullmatch(r"(?:ge::)?TensorType\s*\(\s*\{(.*)\}\s*\)", types, re.S)
    found = [_SHORT.get(t.strip().rpartition("::")[2]) for t in m[1].split(",") if t.strip()] if m else []
    return found if found and all(found) else None


def _literal(word, value):
    if isinstance(value, list):
        return f"[{', '.join(_literal(word, v) for v in value)}]"
    if word.endswith("Type"):
        return re.sub("^[a-z]+", lambda m: _WORDS[m[0]], _SHORT[value])
    if word.endswith("String"):
        return '\\"' + value.replace("\\", "\\\\\\\\").replace('"', '\\\\\\"') + '\\"'
    return {True: "True", False: "False"}[bool(value)] if word.endswith("Bool") else repr(float(value)) if word.endswith("Float") else repr(int(value))


def declaration(p):
    """The source of DV_OPERATOR for a prototype: its arguments are the prototype's; its contract is a beginning, which the author completes."""
    name = operator_name(p.name)
    reason = why_not(p)
    if reason:
        return f"/* {p.name}: {reason} */\n"
    inputs = [n for n, *_ in p.inputs]
    written = [n for n, *_ in p.outputs if n in inputs]
    results = [(n, kind) for n, kind, _ in p.outputs if n not in inputs]
    one, many = (next((n for n, kind, _ in p.inputs if kind == which), None) for which in ("required", "dynamic"))
    taken = [n for part in (p.inputs, p.outputs, p.attributes) for n, *_ in part]
    run, index = (next(n for n in names if n not in taken) for names in (("s", "dims", "sizes"), ("i", "k", "index")))
    arguments, fields, patterns = [], [], []
    for i, (n, kind, types) in enumerate(p.inputs):
        alias = f"({chr(97 + written.index(n))}!)" if n in written else ""
        tail = "[]" if kind == "dynamic" else "?" if kind == "optional" else ""
        arguments.append(f"Tensor{alias}{tail} {n}")
        fields.append(("dv_tensors " if kind == "dynamic" else "dv_tensor *" if n in written else "const dv_tensor *") + n)
        dims = f"*{run}" if n == one else "..."
        only = _dtypes(types)
        patterns.append(f"{n}{f'{{{index}}}' if kind == 'dynamic' else ''}[{dims}]" + (f":{only[0]}" if only and len(only) == 1 else ""))
    if p.attributes:
        arguments.append("*")
    for n, word, default in p.attributes:
        lists = word.count("List")
        schema, *types = _SCHEMA[word[4 * lists:]]
        absent = word == "ListString" and default == []  # the only default that a schema has is None
        arguments.append(f"{schema}{'[]' if lists else ''}{'?' if absent else ''} {n}"
                         + ("" if default is REQUIRED else "=None" if absent else f"={_literal(word, default)}"))
        fields.append(f"{types[bool(lists)].replace('dv_', 'dv_opt_' if absent else 'dv_')} {n}")
    fields += [("dv_mut_tensors " if kind == "dynamic" else "dv_tensor *") + n for n, kind in results]
    like = f"[*{run}]:dtype({one})" if one else "[]:f32"
    shown = [f"Tensor{'[]' if kind == 'dynamic' else ''} {n}" for n, kind in results]
    returns = f"({', '.join(shown)})" if len(shown) != 1 else shown[0]
    found = [n + like if kind != "dynamic" else f"{n}{{{index}}} like({many})" if many else f"{n}{{{index} < 1}}{like}" for n, kind in results]
    contract = f"{', '.join(patterns)} -> {', '.join(found)}" if results else ", ".join(patterns)
    names = [f.rpartition(" ")[2].lstrip("*") for f in fields]
    head = f"/* {p.name}" + ("" if node_name(name) == p.name else f": dovetail.torchair.register({name}, \"{p.name}\")")
    if [n for n, *_ in p.outputs] != sorted(written, key=inputs.index) + [n for n, _ in results]:
        head += "; the outputs of the node are in another order"
    head += " */\n"
    return (head + f"struct {name} {{\n" + "".join(f"    {f};\n" for f in fields) + "};\n"
            f"DV_OPERATOR({name}, struct {name}, ({', '.join(names)}),\n    .schema = \"{name}({', '.join(arguments)}) -> {returns}\",\n"
            f"    .contract = \"{contract}\"); /* shapes and dtypes to complete: docs/contract.md; then .kernels */\n")


def declarations(prototypes, library):
    """A source file for `dovetail build`."""
    parts = [declaration(p) for p in prototypes]
    names = [operator_name(p.name) for p, part in zip(prototypes, parts) if "DV_OPERATOR(" in part]
    return "\n".join(["#include <dovetail_op.h>\n", *parts, f"DV_LIBRARY({library}{''.join(f', &dv_op_{n}' for n in names)});\n"])
