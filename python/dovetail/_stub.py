"""The .pyi of a library: every operator as a typed, documented function."""
import re
import textwrap

from . import _describe

_HEAD = """# Made by dovetail from the operators' declarations.
from typing import overload

from dovetail.typing import AnyArray, Array, DType, Generator, Number, Sequence
"""


def _function(op, overloaded):
    sig = str(_describe.signature(op))
    arguments, arrow, result = sig.rpartition(" -> ")
    if "Array" not in re.sub(r"out: .*", "", arguments):  # a type variable must be bound by an argument
        sig = sig.replace("Array", "AnyArray")
    doc = _describe.help_text(op)
    body = '    r"""' + textwrap.indent(doc.replace('"""', "'''"), "    ").lstrip() + '\n    """\n'
    return f"{'@overload' + chr(10) if overloaded else ''}def {_describe.short_name(op)}{sig}:\n{body}    ...\n"


def stub(library):
    parts = [_HEAD]
    for name in library:
        overloads = library[name].overloads
        parts.extend(_function(op, len(overloads) > 1) for op in overloads)
    parts.append(f"__all__: list[str] = {sorted(library)!r}\n")
    return "\n".join(parts)
