"""Names of element types: the contract's and torch's."""
import ctypes
import functools
import pathlib

import torch

from .. import _core
from . import native
from .private import operators

# the contract language's name -> torch's attribute
_NAMES = {ours: theirs for ours, (theirs, code, bits) in _core.dtypes().items() if theirs and bits % 8 == 0}
DTYPES = {ours: getattr(torch, theirs) for ours, theirs in _NAMES.items() if hasattr(torch, theirs)}
_BACK = {theirs: ours for ours, theirs in DTYPES.items()}


def dtype_name(dtype):
    """The contract language's name of a torch.dtype: "f32"."""
    return _BACK.get(dtype, str(dtype))


@functools.cache
def _numbers(kind):
    """libtorch's numbers of dtypes, layouts, memory formats and device types, from its functions for each."""
    lib = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    names = {"dtype": _NAMES.values(), "layout": ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "jagged"),
             "memory_format": ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"),
             "device_type": ("cpu", "cuda", "meta", "xpu", "mps", "privateuse1")}[kind]
    return {getattr(lib, f"aoti_torch_{kind}_{n}")(): n for n in names if hasattr(lib, f"aoti_torch_{kind}_{n}")}


def from_number(kind, n, index=-1):
    """A dtype, a device, a layout or a memory format by its number in libtorch."""
    name = _numbers("device_type" if kind == "device" else kind).get(n)
    if name is None:
        raise RuntimeError(f"libtorch's {kind} number {n} is not known to this version of dovetail.torch")
    if kind == "device":
        name = operators._get_privateuse1_backend_name() if name == "privateuse1" else name
        return torch.device(name) if index < 0 else torch.device(name, index)
    return getattr(torch, name)


def type_text(t):
    """Returns a torch type as a schema writes it: "Tensor?", "int[]"."""
    text = str(t)
    for form, suffix in (("Optional[", "?"), ("List[", "[]")):
        if text.startswith(form):
            return type_text(text[len(form):-1]) + suffix
    return text


_BY_NUMBER = {"ScalarType": "dtype", "Layout": "layout", "MemoryFormat": "memory_format"}  # what torch's schemas have numbers for


def default_of(argument):
    """The default of a schema's argument as a Python value: torch's schemas have numbers for dtypes, layouts and memory formats."""
    kind = str(argument.real_type).removeprefix("Optional[").removeprefix("List[").rstrip("]")
    return _from_numbers(_BY_NUMBER[kind], argument.default_value) if kind in _BY_NUMBER else argument.default_value


def _from_numbers(kind, value):
    if isinstance(value, (list, tuple)):
        return [_from_numbers(kind, x) for x in value]
    return from_number(kind, value) if type(value) is int and value in _numbers(kind) else value


def readable_schema(schema):
    """A schema in a form that torch can parse, which is not always the one that it prints."""
    text = str(schema).encode()
    to = ctypes.create_string_buffer(2 * len(text) + 1)
    native.bridge.dv_torch_print_parsable_schema(text, to)
    return to.value.decode()
