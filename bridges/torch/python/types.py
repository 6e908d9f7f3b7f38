"""Names of element types: the contract's and torch's."""
import torch

# what the contract language calls them: torch's attribute
_NAMES = {
    "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool",
    "c32": "complex32", "c64": "complex64", "c128": "complex128",
    "f8_e4m3fn": "float8_e4m3fn", "f8_e4m3fnuz": "float8_e4m3fnuz", "f8_e5m2": "float8_e5m2", "f8_e5m2fnuz": "float8_e5m2fnuz",
    "f8_e8m0fnu": "float8_e8m0fnu",
}
DTYPES = {ours: getattr(torch, theirs) for ours, theirs in _NAMES.items() if hasattr(torch, theirs)}
_BACK = {theirs: ours for ours, theirs in DTYPES.items()}


def dtype_name(dtype):
    """The contract language's name of a torch.dtype: "f32"."""
    return _BACK.get(dtype, str(dtype))
