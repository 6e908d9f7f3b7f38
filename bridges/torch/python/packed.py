"""Operators with argument types that torch's C interface does not carry: Scalar, complex, SymBool, and before torch 2.13 Generator.

The C side defines a packed operator for each, in a namespace of its own, with numbers in place of such arguments (DV_TORCH_PACKED_PREFIX of
dovetail_torch.h). Here the operator itself is defined, and its kernels pack the arguments and call the packed operator, which checks, allocates and
runs as every operator does. So a fake, a gradient and the rest are added to it as to any other.
"""
import functools
import struct
import threading

import torch

from . import native
from .types import default_of, readable_schema

_now = threading.local()  # .values: for the running call of a packed operator: (its operator's name, the arguments before packing)

_KEYS = {"CPU": "cpu", "CUDA": "cuda", "PrivateUse1": "npu"}
_INT, _FLOAT, _BOOL, _COMPLEX = 1, 2, 3, 4  # enum dv_scalar_kind


def _bits(x):
    return struct.unpack("q", struct.pack("d", x))[0]


def _scalar(x):
    if isinstance(x, bool):
        return [_BOOL, int(x), 0]
    if isinstance(x, int):
        if not -2**63 <= x < 2**63:
            raise OverflowError(f"expected a number of 64 bits, found {x}")
        return [_INT, x, 0]
    if isinstance(x, complex):
        return [_COMPLEX, _bits(x.real), _bits(x.imag)]
    return [_FLOAT, _bits(x), 0]


def _complex(x):
    x = complex(x)
    return [x.real, x.imag]


def _joined(pack):
    return lambda xs: [n for x in xs for n in pack(x)]


def _generator(g):
    """A seed, drawn from it."""
    return torch.randint(2**63 - 1, (), generator=g, device=g.device).item()


# torch's type, without Optional[...] -> the packed operator's type
_PACK = {"number": _scalar, "List[number]": _joined(_scalar), "complex": _complex, "List[complex]": _joined(_complex), "Generator": _generator}


def _plain(type):
    text = str(type)
    return text[len("Optional["):-1] if text.startswith("Optional[") else text


def define(library, name, op, declaration, out):
    """Define the operator in torch, before anything is added to it. out: the schema of its out= overload, or None."""
    tags = [getattr(torch.Tag, t) for t in {*declaration["tags"], "pt2_compliant_tag"} if hasattr(torch.Tag, t)]
    # always for the CPU: its error message lists the existing kernels
    keys = [key for key, device in _KEYS.items() if device == "cpu" or op._has_rows(device)]
    if declaration["native"] or not any(a["type"] == ["tensor"] for a in declaration["schema"]["args"]):
        keys.append("CompositeExplicitAutograd")  # for devices without kernels, and for calls without tensors
    _define(library, op.schema, tags, keys, name)
    if out:
        _define(library, out.decode(), tags, keys, name)


def _define(library, schema, tags, keys, operator):
    name = schema.partition("(")[0]
    local = name.split("::")[1]
    library.define(readable_schema(schema).removeprefix(library.ns + "::"), tags=tags)
    kernel = _Kernel(name, operator)
    for key in keys:
        library.impl(local, kernel, key)


class _Kernel:
    """Runs on torch's values below all other keys, so they are plain."""

    def __init__(self, name, operator):
        self.name, self.operator = name, operator

    @functools.cached_property
    def route(self):
        """(the packed operator, the operator's arguments, [(index of an argument, the function that packs it)]). Looked up at the first call, when all
        operators are defined."""
        space, local = self.name.split("::")
        call, arguments = _overload(native.PACKED_PREFIX + space, local), _overload(space, local)._schema.arguments
        pairs = zip(arguments, call._schema.arguments)
        return call, arguments, [(i, _PACK[_plain(a.type)]) for i, (a, packed) in enumerate(pairs) if _plain(a.type) != _plain(packed.type)]

    def __call__(self, /, *args, **kwargs):
        call, arguments, packs = self.route
        values = list(args)
        for a in arguments[len(args):]:
            values.append(kwargs[a.name] if a.name in kwargs else default_of(a))
        packed = list(values)
        for i, pack in packs:
            if values[i] is not None:
                try:
                    packed[i] = pack(values[i])
                except OverflowError as e:
                    raise RuntimeError(f"{self.name}: argument '{arguments[i].name}': {e}") from None
        before = getattr(_now, "values", None)
        _now.values = self.operator, values
        try:
            return call(*packed)
        finally:
            _now.values = before


def values_of(operator):
    """The operator's arguments in the running call of its packed operator; None: it has none."""
    name, values = getattr(_now, "values", None) or (None, None)
    return values if name == operator else None


def retire(name):
    """Remove the packed operator's objects from torch.ops, if they exist: torch iterates over torch.ops and looks up each overload."""
    space, local = (native.PACKED_PREFIX + name.partition(".")[0]).split("::")
    space = getattr(torch.ops, space)
    vars(space).pop(local, None)
    space._dir[:] = [n for n in space._dir if n != local]


def _overload(space, local):
    local, _, overload = local.partition(".")
    return getattr(getattr(getattr(torch.ops, space), local), overload or "default")
