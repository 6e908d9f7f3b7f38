"""Prototypes of GE, read from REG_OP, and what is made from one: a Python function that builds its node, and an operator to start from.

This module needs neither torch nor torchair.
"""
import collections
import keyword
import re

from .source import _ATTRIBUTES, _TYPES, node_name

# inputs, outputs: (name, "required" | "optional" | "dynamic", the text of the element types). attributes: (name, REG_OP's word, REQUIRED or the
# default as a Python value; a name of an element type is a DataType). refusal: why no function can build the node, or None.
Prototype = collections.namedtuple("Prototype", "name inputs outputs attributes refusal")
REQUIRED = object()


class DataType(str):
    """DT_FLOAT"""


_KINDS = {f"{kind}{what}": (place, word) for kind, word in (("", "required"), ("OPTIONAL_", "optional"), ("DYNAMIC_", "dynamic"))
          for place, what in enumerate(("INPUT", "OUTPUT"))}
_IGNORED = {"DATATYPE", "INFER_SHAPE_AND_TYPE"}
_ELEMENTS = {"Int": "int", "Float": "float", "Bool": "bool", "String": "str", "Type": "int"}
_TORCHAIR = {"String": "Str", "Type": "DataType"}  # the other words are torchair's own
# What C++ converts to an attribute's type: in words, the test, what it becomes.
_VALUES = {"Int": ("an integer of 64 bits", lambda v: isinstance(v, (int, DataType)) and (isinstance(v, str) or -2**63 <= v < 2**63), None),
           "Float": ("a number", lambda v: isinstance(v, (int, float)) and abs(v) < float("inf"), float),
           "Bool": ("true or false", lambda v: v in (0, 1), bool),
           "String": ("a text", lambda v: isinstance(v, str) and not isinstance(v, DataType), None),
           "Type": ("DT_...", lambda v: isinstance(v, DataType), None)}
_TOKEN = re.compile(r"""\s*(?: (?P<comment> //[^\n]* | /\*.*?\*/ ) | (?P<string> "(?:[^"\\\n]|\\.)*" ) | (?P<character> '(?:[^'\\\n]|\\.)+' )
                         | (?P<number> 0[xX][0-9a-fA-F]+[lLuU]* | (?: \d+\.?\d*(?:[eE][-+]?\d+)? | \.\d+(?:[eE][-+]?\d+)? ) [fFlLuU]* )
                         | (?P<word> \w+(?:::\w+)* ) | (?P<open> /\* ) | (?P<mark> . ) )""", re.X | re.S)


def _number(text):
    if text[:2] in ("0x", "0X"):
        return int(text.rstrip("lLuU"), 16)
    plain = text.rstrip("fFlLuU")
    return int(plain, 8 if re.fullmatch("0[0-7]+", plain) else 10) if plain.isdigit() else float(plain)


class _Reader:
    """The tokens of a header, from a place in it."""

    def __init__(self, text, path):
        self.text, self.path, self.at, self.about = text, path, 0, ""  # about: "AddCustom: ", in the prototype of that name

    def error(self, what):
        self.at += len(self.text[self.at:]) - len(self.text[self.at:].lstrip())
        line = self.text.count("\n", 0, self.at) + 1
        return ValueError(f"{self.path}:{line}: {self.about}{what}")

    def fail(self, expected):
        found = self.text[self.at:].strip().partition("\n")[0][:40]
        raise self.error(f"expected {expected}, found {repr(found) if found else 'the end'}")

    def look(self):
        while m := _TOKEN.match(self.text, self.at):
            if m["open"]:
                self.fail("the end of a comment")
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
        sign = self.take("-") or self.take("+")
        kind, text, self.at = self.look()
        if kind == "string" and not sign:
            while more := self.take(kind="string"):
                text = text[:-1] + more[1:]
            return text[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape") if "\ufffd" not in text else self.fail("UTF-8")
        if kind == "number":
            number = _number(text) * (-1 if sign == "-" else 1)
            return number / self.value() if self.take("/") else number
        word = text.rpartition("::")[2]
        if word in ("true", "false") and not sign:
            return word == "true"
        if word in ("UNKNOWN_RANK", "UNKNOWN_SHAPE") and not sign:
            return [-2 if word == "UNKNOWN_RANK" else -1]
        if word.startswith("DT_") and not sign:
            return DataType(word)
        return self.fail("a value")

    def directive(self):
        """A line of the preprocessor, from behind its '#'. What is between #if 0 and its #endif or #else is skipped; other conditions count as true."""
        start, depth = self.at, 0
        while True:
            end = self.text.find("\n", self.at)
            while end > 0 and self.text[end - 1] == "\\":
                end = self.text.find("\n", end + 1)
            line, self.at = self.text[self.at:end if end >= 0 else None], end if end >= 0 else len(self.text)
            if depth == 0:
                macro = re.match(r"\s*define\s+(?!REG_OP\b)(\w+).*\bREG_OP\s*\(", line, re.S)
                if macro:
                    self.at = start
                    raise self.error(f"the macro {macro[1]} has REG_OP: expected prototypes that no macro makes")
                if not re.match(r"\s*if\s+0\b", line):
                    return
                depth = 1
            elif m := re.match(r"\s*#\s*(if|endif|else|elif)", line):
                depth += (m[1] == "if") - (m[1] == "endif" or m[1] != "if" and depth == 1)
                if depth == 0:
                    return
            if end < 0:
                self.fail("#endif")
            self.at += 1


def parse(text, path="REG_OP"):
    """The prototypes of a header, in its order. ValueError names the line. What one can declare and no Python function can build has a refusal."""
    reader, found = _Reader(text, path), []
    while reader.look()[0]:
        if reader.take("#"):  # macros named REG_OP are defined in such a line
            reader.directive()
        elif reader.take("REG_OP"):
            found.append(_prototype(reader))
            if found[-1].name in [p.name for p in found[:-1]]:
                raise reader.error(f"a second REG_OP({found[-1].name}) in this file")
        else:
            reader.at = reader.look()[2]
    return found


def _attribute(reader, word):
    """.ATTR or .REQUIRED_ATTR -> (name, REG_OP's word, default), why no function can have it or None."""
    argument = reader.need(kind="word")
    reader.need(",")
    of = reader.need(kind="word")
    element, lists = of.replace("List", ""), of.count("List")
    known = element in _ELEMENTS and lists <= 1 + (element in ("Int", "Float"))
    refusal = None if known else f"attribute '{argument}': {of} has no form in Python"
    if word == "REQUIRED_ATTR":
        return (argument, of, REQUIRED), refusal
    reader.need(",")
    start, (wanted, fits, convert) = reader.at, _VALUES.get(element, ("a value", None, None))

    def converted(value, depth):
        if isinstance(value, list) != bool(depth) or not depth and not fits(value):
            raise ValueError
        return [converted(v, depth - 1) for v in value] if depth else convert(value) if convert else value
    try:
        default = converted(reader.value(), lists) if known else reader.rest()
        if reader.look()[1] != ")":
            raise ValueError
    except (ValueError, ZeroDivisionError, RecursionError):
        reader.at, default = start, None
        refusal = f"attribute '{argument}': the default: expected {wanted}{', in a list' * bool(lists)}, found {' '.join(reader.rest().split())[:40]}"
    return (argument, of, default), refusal


def _prototype(reader):
    reader.need("(")
    name = reader.need(kind="word")
    reader.need(")")
    reader.about = f"{name}: "
    places, attributes, refusals = ([], []), [], []
    while True:
        if not reader.take("."):
            reader.fail(f"'.OP_END_FACTORY_REG({name})'")
        word = reader.need(kind="word")
        reader.need("(")
        if word == "OP_END_FACTORY_REG":
            reader.need(name)
            reader.need(")")
            reader.about = ""
            break
        if word in _IGNORED:
            reader.rest()
        elif word in _KINDS:
            place, kind = _KINDS[word]
            argument = reader.need(kind="word")
            types = reader.rest() if reader.take(",") else ""
            places[place].append((argument, kind, types))
            refusals += [f"output '{argument}' is optional"] * (word == "OPTIONAL_OUTPUT")
        elif word in ("ATTR", "REQUIRED_ATTR"):
            attribute, refusal = _attribute(reader, word)
            attributes.append(attribute)
            refusals += [refusal] if refusal else []
        else:
            refusals.append(f".{word} has no form in Python")
            reader.rest()
        reader.need(")")
    return Prototype(name, *places, attributes, refusals[0] if refusals else None)


# ---- Python functions that build a node ------------------------------------------------------------------------------------

BUILDERS = '''from typing import List, Optional

from torchair._ge_concrete_graph.compat_ir import ge_op
from torchair.ge import attr
from torchair.ge._ge_graph import DataType, Tensor, auto_convert_to_tensor
'''


def _parameters(p):
    """The Python names of inputs and attributes: torchair's own rules for those that cannot be a parameter."""
    python = lambda n: n + "_changed_as_is_python_key" if keyword.iskeyword(n) else n + "_" if n in ("attr", "ge_op") else n
    inputs = [n for n, *_ in p.inputs]
    return [python(n) for n in inputs], [n + "_changed_as_duplicate_with_input" if n in inputs else python(n) for n, *_ in p.attributes]


def _default(value):
    if isinstance(value, list):
        return f"[{', '.join(map(_default, value))}]"
    return f"DataType.{value}" if isinstance(value, DataType) else repr(value)


def no_function(p):
    """Why no Python function can build the node of a prototype, or None."""
    names = [n for part in _parameters(p) for n in part] + [f"size_of_{n}" for n, kind, _ in p.outputs if kind == "dynamic"] + ["dependencies", "node_name"]
    if keyword.iskeyword(p.name) or not p.name.isidentifier() or re.search(rf"\b{p.name}\b", BUILDERS):
        return f"'{p.name}' cannot be the name of a function in Python"
    twice = next((n for n in names if names.count(n) > 1), None)
    return p.refusal or (f"two parameters would have the name '{twice}'" if twice else None)


def builder(p):
    """The source of a function p.name(inputs..., *, attributes...), as document 003's auto_generated_ge_raw_custom_ops.py has it. It returns the
    outputs: one, a tuple, or None; a dynamic output is a list of size_of_<its name> tensors."""
    reason = no_function(p)
    if reason:
        return f"# {p.name}: {reason}\n"
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
               "signed sizeof static struct switch typedef union unsigned void volatile while bool true false NULL".split())


def is_word(name):
    """A word of C or of Python, which is no name."""
    return name in _C_WORDS or keyword.iskeyword(name)


def operator_name(node):
    """AddCustom -> add_custom"""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", node).lower()


def why_not(p):
    """Why a prototype cannot be declared as an operator, or None."""
    for n, word, default in p.attributes:
        if word.replace("List", "") not in _SCHEMA or word.count("List") > 1:
            return f"attribute '{n}': no type of a schema is {word}"
        if p.refusal and f"'{n}': the default" in p.refusal:
            return p.refusal
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
        if is_word(n) or not re.fullmatch(r"[A-Za-z_]\w*", n, re.ASCII):
            return f"'{n}' cannot be a name in C"
    inputs = [n for n, *_ in p.inputs]
    if set(n for n, *_ in p.attributes) & set(inputs + [n for n, *_ in p.outputs]):
        return "an attribute has the name of an input or output"
    if len(set(inputs)) < len(inputs) or len({n for n, *_ in p.outputs}) < len(p.outputs):
        return "two inputs or outputs have one name"
    if any(n in inputs and (kind == "dynamic" or dict((a, k) for a, k, _ in p.inputs)[n] == "dynamic") for n, kind, _ in p.outputs):
        return "it writes the elements of a list"
    return p.refusal and p.refusal.replace("in Python", "in a schema")


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
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")  # in the schema, which is a text in C
        return '\\"' + text.replace("\\", "\\\\").replace('"', '\\"') + '\\"'
    return {True: "True", False: "False"}[bool(value)] if word.endswith("Bool") else repr(float(value)) if word.endswith("Float") else repr(int(value))


def declaration(p):
    """The source of DV_OPERATOR for a prototype that can be declared: its arguments are the prototype's; its contract is a beginning, which the author
    completes."""
    name = operator_name(p.name)
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
    """A source file for `dovetail build`, and for each prototype that is not declared in it the reason."""
    names, parts, without = {}, [], {}
    for p in prototypes:
        name = operator_name(p.name)
        reason = why_not(p) or (f"{names[name]} has the name {name} already" if name in names else None)
        if reason:
            without[p.name] = reason
            parts.append(f"/* {p.name}: {reason} */\n")
        else:
            names[name] = p.name
            parts.append(declaration(p))
    return "\n".join(["#include <dovetail_ascend.h>\n", *parts, f"DV_LIBRARY({library}{''.join(f', &dv_op_{n}' for n in names)});\n"]) if names else "", without
