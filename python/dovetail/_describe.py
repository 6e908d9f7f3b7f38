"""Descriptions of an operator: the signature, help(), the table of explain(). Made on demand."""
import ast
import inspect
import keyword

_WRITES, _KWARG_ONLY = 8, 4
_TYPES = {"Tensor": "Array", "int": "int", "float": "float", "bool": "bool", "str": "str", "Scalar": "Number", "complex": "complex",
          "ScalarType": "DType", "Device": "str", "Layout": "str", "MemoryFormat": "str", "Generator": "Generator"}


class _Words(str):
    """An annotation that is shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def annotation(type):
    """A schema type as a Python annotation: "Tensor?[]" is "Sequence[Array | None]"."""
    return _Words(_annotation(type))


def _annotation(type):
    if type.endswith("?"):
        return _annotation(type[:-1]) + " | None"
    if type.endswith("]"):
        return f"Sequence[{_annotation(type[:type.rindex('[')])}]"
    return _TYPES.get(type, "object")


def python_name(name):
    """An argument's name in Python: a keyword gets a '_', which calls accept."""
    return name + "_" if keyword.iskeyword(name) else name


def default(text):
    """A default of a schema as a Python value; text if Python has no such value."""
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value.encode("latin-1").decode() if isinstance(value, str) else value  # schemas print the bytes of UTF-8 as escapes


def _outs(results):
    return [r for r in results if r[1] == "Tensor" and r[4] < 0]


def result_annotation(results):
    types = [annotation(r[1]) for r in results]
    return _Words("None" if not types else types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]")


def signature(op):
    if len(op.overloads) > 1:
        return inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                                  inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)])
    arguments, results = op._slots()
    parameters = [inspect.Parameter(python_name(name), inspect.Parameter.KEYWORD_ONLY if flags & _KWARG_ONLY else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                                    default=inspect.Parameter.empty if text is None else default(text), annotation=annotation(type))
                  for name, type, text, flags, alias in arguments]
    if _outs(results) and not any(a[0] == "out" for a in arguments):
        many = f"tuple[{', '.join(['Array | None'] * len(results))}] | None"
        parameters.append(inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None,
                                            annotation=_Words("Array | None" if len(results) == 1 else many)))
    required = [p for p in parameters if p.default is inspect.Parameter.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if positional[:len(required)] != required:  # a schema may have a required argument after one with a default
        last = max(i for i, p in enumerate(positional) if p.default is p.empty)
        parameters = [p.replace(default=p.empty) if p in positional[:last] else p for p in parameters]
    return inspect.Signature(parameters, return_annotation=result_annotation(results))


def text_signature(op):
    sig = signature(op)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in sig.parameters.values()]
    return str(sig.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _notes(op):
    arguments, results = op._slots()
    written = [a[0] for a in arguments if a[3] & _WRITES]
    lines = []
    if written:
        lines.append(f"Writes to {', '.join(written)}.")
    named = [r[0] for r in results if r[0] and r in _outs(results)]
    if named:
        lines.append(f"Results: {', '.join(r[0] or '(unnamed)' for r in results)}; to write into arrays of your own, give them by name or as out=.")
    return lines


def help_text(op):
    parts = []
    if len(op.overloads) > 1:
        parts.append("\n".join(f"{short_name(o)}{signature(o)}" for o in op.overloads))
        parts.append("The first of these that takes the arguments is called.")
    if op.doc:
        parts.append(op.doc)
    if len(op.overloads) == 1:
        parts.extend(_notes(op))
    parts.append("\n".join(f"Schema: {o.schema}" for o in op.overloads))
    return "\n\n".join(parts)


def schemas(op):
    return "\n".join(o.schema for o in op.overloads)


def short_name(op):
    return op.name.split("::")[1].split(".")[0]


def module_name(op):
    return op.name.split("::")[0]


class Explanation(list):
    """The kernels of an operator in the order in which they are tried: dicts. str() is a table. `flops` and `bytes` are what the contract declares for
    this call; None: nothing."""

    def __init__(self, op, rows, flops=-1, bytes=-1):
        names = ("name", "provider", "device", "dtypes", "isa", "when", "selected", "reason")
        super().__init__(dict(zip(names, row)) for row in rows)
        self.operator = op.name
        self.flops, self.bytes = (x if x > 0 else None for x in (flops, bytes))

    @property
    def selected(self):
        """The kernel that would run, or None."""
        return next((row for row in self if row["selected"]), None)

    def __str__(self):
        if not self:
            return f"{self.operator}: no kernel"
        cells = [("", "kernel", "device", "dtypes", "isa", "when", "why")]
        cells += [("*" if r["selected"] else "", r["name"] or "?", r["device"] or "", r["dtypes"] or "any", r["isa"] or "", r["when"] or "", r["reason"] or "")
                  for r in self]
        widths = [max(len(c[i]) for c in cells) for i in range(len(cells[0]))]
        return "\n".join([self.operator, *("  ".join(text.ljust(w) for text, w in zip(c, widths)).rstrip() for c in cells)])

    __repr__ = __str__
