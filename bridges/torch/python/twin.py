"""Operators with argument types that torch's C interface does not carry: Scalar, complex, SymBool, and before torch 2.13 Generator.

The C side defines a twin for each, in a namespace of its own, with numbers in place of such arguments (DV_TORCH_TWINS of
dovetail_torch.h). Here the operator itself is defined, and its kernels pack the arguments and call the twin, which checks, allocates and
runs as every operator does. So a fake, a gradient and the rest are added to it as to any other.
"""
import struct

import torch

from . import native

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


# torch's type, without Optional[...]: what a twin has instead
_PACK = {"number": _scalar, "List[number]": _joined(_scalar), "complex": _complex, "List[complex]": _joined(_complex), "Generator": _generator}


def _plain(type):
    text = str(type)
    return text[len("Optional["):-1] if text.startswith("Optional[") else text


def define(library, name, pointer, declaration):
    """Define the operator in torch: before anything is added to it."""
    tags = [getattr(torch.Tag, t) for t in {*declaration["tags"], "pt2_compliant_tag"} if hasattr(torch.Tag, t)]
    schema = native.core.dv_operator_schema(pointer).decode().removeprefix(library.ns + "::")
    library.define(schema, tags=tags)
    kernel = _Kernel(name)
    for key, device in _KEYS.items():
        if device == "cpu" or native.has_rows(pointer, device):  # the CPU's always: its message says which rows there are
            library.impl(name.split("::")[1], kernel, key)


class _Kernel:
    """Runs on torch's values, below everything: they are plain."""

    def __init__(self, name):
        self.name = name
        space, local = name.split("::")
        self.call, self.arguments = _overload(native.TWINS + space, local), _overload(space, local)._schema.arguments
        pairs = zip(self.arguments, self.call._schema.arguments)
        self.packs = [(i, _PACK[_plain(a.type)]) for i, (a, twin) in enumerate(pairs) if _plain(a.type) != _plain(twin.type)]

    def __call__(self, *args, **kwargs):
        values = list(args)
        for a in self.arguments[len(args):]:
            values.append(kwargs[a.name] if a.name in kwargs else a.default_value)
        for i, pack in self.packs:
            if values[i] is not None:
                try:
                    values[i] = pack(values[i])
                except OverflowError as e:
                    raise RuntimeError(f"{self.name}: argument '{self.arguments[i].name}': {e}") from None
        return self.call(*values)


def _overload(space, local):
    local, _, overload = local.partition(".")
    return getattr(getattr(getattr(torch.ops, space), local), overload or "default")
