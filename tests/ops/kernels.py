"""Runs single kernels of an operator binary straight from its descriptor, with no runtime between: every row, also those that the
dispatcher would not choose, can be compared with an oracle. What it reads is the ABI of dovetail_op.h."""
import ctypes as C
import os
import pathlib

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))

DTYPES = {  # torch dtype: DLPack code, bits
    torch.float16: (2, 16), torch.float32: (2, 32), torch.float64: (2, 64), torch.bfloat16: (4, 16), torch.bool: (6, 8),
    torch.int8: (0, 8), torch.int16: (0, 16), torch.int32: (0, 32), torch.int64: (0, 64), torch.uint8: (1, 8)}
NAMES = {"f16": torch.float16, "f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "bool": torch.bool,
         "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8}


class Dtype(C.Structure):
    _fields_ = [("code", C.c_uint8), ("bits", C.c_uint8), ("lanes", C.c_uint16)]


class Device(C.Structure):
    _fields_ = [("type", C.c_int32), ("id", C.c_int32)]


class Tensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("device", Device), ("ndim", C.c_int32), ("dtype", Dtype), ("shape", C.POINTER(C.c_int64)),
                ("strides", C.POINTER(C.c_int64)), ("byte_offset", C.c_uint64)]


class List(C.Structure):
    _fields_ = [("data", C.c_void_p), ("size", C.c_size_t)]


class Scalar(C.Structure):
    class As(C.Union):
        _fields_ = [("i", C.c_int64), ("f", C.c_double), ("b", C.c_bool), ("c", C.c_double * 2)]
    _fields_ = [("kind", C.c_uint32), ("value", As)]


class Field(C.Structure):
    _fields_ = [("size", C.c_uint32), ("type", C.c_uint32), ("name", C.c_char_p), ("offset", C.c_size_t)]


class Row(C.Structure):
    _fields_ = [("size", C.c_uint32), ("priority", C.c_int32), ("name", C.c_char_p), ("device", C.c_char_p), ("dtypes", C.c_char_p),
                ("isa", C.c_char_p), ("when", C.c_char_p), ("takes", C.c_char_p), ("provider", C.c_char_p), ("run", C.c_void_p),
                ("split", C.c_int64), ("flags", C.c_uint32), ("reserved", C.c_uint32)]


class Operator(C.Structure):
    _fields_ = [("size", C.c_uint32), ("flags", C.c_uint32), ("name", C.c_char_p), ("schema", C.c_char_p), ("mutates", C.c_char_p),
                ("contract", C.c_char_p), ("native", C.c_char_p), ("gradient", C.c_char_p), ("tangent", C.c_char_p), ("tags", C.c_char_p),
                ("doc", C.c_char_p), ("frame_size", C.c_uint32), ("line", C.c_uint32), ("file", C.c_char_p),
                ("fields", C.POINTER(C.POINTER(Field))), ("kernels", C.POINTER(C.POINTER(Row))), ("shape", C.c_void_p)]


class Library(C.Structure):
    _fields_ = [("size", C.c_uint32), ("abi_minor", C.c_uint32), ("kind", C.c_uint32), ("reserved", C.c_uint32), ("name", C.c_char_p),
                ("version", C.c_char_p), ("provider", C.c_char_p), ("operators", C.POINTER(C.POINTER(Operator)))]


class Services(C.Structure):
    _fields_ = [("size", C.c_uint32), ("reserved", C.c_uint32)] + [(n, C.c_void_p) for n in
               ("error", "alloc", "parallel_for", "set_output", "call", "random", "object", "query")]


class Context(C.Structure):
    _fields_ = [("size", C.c_uint32), ("flags", C.c_uint32), ("services", C.POINTER(Services)), ("workspace", C.c_void_p),
                ("workspace_size", C.c_size_t), ("stream", C.c_void_p), ("device", Device), ("origin", C.POINTER(C.c_int64)),
                ("origin_ndim", C.c_int32), ("reserved", C.c_uint32)]


class KernelError(Exception):
    pass


def _list(pointer):
    i = 0
    while pointer and pointer[i]:
        yield pointer[i].contents
        i += 1


_kept, _error, _outputs = [], [], []
libc = C.CDLL(None)
RANGE = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int64, C.c_int64)


@C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int, C.c_char_p, C.c_void_p)
def _on_error(ctx, status, text, args):
    buffer = C.create_string_buffer(1024)
    libc.vsnprintf(buffer, C.c_size_t(1024), C.c_char_p(text), C.c_void_p(args))
    _error.append(buffer.value.decode())
    return status


@C.CFUNCTYPE(C.c_void_p, C.c_void_p, C.c_size_t, C.c_size_t)
def _on_alloc(ctx, size, alignment):
    block = C.create_string_buffer(size + alignment)
    _kept.append(block)
    return (C.addressof(block) + alignment - 1) // alignment * alignment


@C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_int64, C.c_int64, C.c_int64, RANGE, C.c_void_p)
def _on_parallel_for(ctx, begin, end, grain, fn, arg):
    for at in range(begin, end, max(grain, 1)):
        status = fn(arg, at, min(at + grain, end))
        if status:
            return status
    return 0


@C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(Tensor), Dtype, C.c_int32, C.POINTER(C.c_int64))
def _on_set_output(ctx, out, dtype, ndim, shape):
    torch_dtype = next(t for t, (code, bits) in DTYPES.items() if (code, bits) == (dtype.code, dtype.bits))
    _outputs.append((torch_dtype, tuple(shape[i] for i in range(ndim))))
    return 0


_services = Services(C.sizeof(Services), 0, *[C.cast(f, C.c_void_p) for f in (_on_error, _on_alloc, _on_parallel_for, _on_set_output)])


def tensor_view(t, keep):
    """A dv_tensor over the memory of a torch tensor."""
    shape, strides = (C.c_int64 * max(t.dim(), 1))(*t.shape), (C.c_int64 * max(t.dim(), 1))(*t.stride())
    code, bits = DTYPES[t.dtype]
    view = Tensor(t.data_ptr(), Device(1, 0), t.dim(), Dtype(code, bits, 1), shape, strides, 0)
    keep += [t, shape, strides, view]
    return view


def _scalar(value):
    if isinstance(value, bool):
        return Scalar(3, Scalar.As(b=value))
    return Scalar(1, Scalar.As(i=value)) if isinstance(value, int) else Scalar(2, Scalar.As(f=value))


def _bytes(kind, value, keep):
    """A frame field of this kind (enum dv_field_type)."""
    optional = {24: (3, 16), 25: (4, 16), 26: (5, 2), 27: (6, 24), 28: (7, 32), 30: (9, 6), 34: (14, 24), 35: (16, 24), 36: (17, 24)}
    if kind in (1, 2):
        return bytes(8) if value is None else C.addressof(tensor_view(value, keep)).to_bytes(8, "little")
    if kind in optional:
        inner, size = optional[kind]
        if value is None:
            return bytes(size)
        body = _bytes(inner, value, keep)
        return b"\1" + bytes(size - len(body) - 1) + body
    if kind == 3:
        return int(value).to_bytes(8, "little", signed=True)
    if kind == 4:
        return bytes(C.c_double(value))
    if kind == 5:
        return bytes(C.c_bool(value))
    if kind == 6:
        text = C.create_string_buffer(value.encode())
        keep.append(text)
        return bytes(List(C.addressof(text), len(value)))
    if kind == 7:
        return bytes(_scalar(value))
    if kind == 9:
        return bytes(Dtype(*DTYPES[value], 1))
    if kind in (14, 15):
        array = (C.c_void_p * max(len(value), 1))(*[C.addressof(tensor_view(t, keep)) for t in value])
        keep.append(array)
        return bytes(List(C.addressof(array), len(value)))
    if kind == 16:
        array = (C.c_int64 * max(len(value), 1))(*value)
        keep.append(array)
        return bytes(List(C.addressof(array), len(value)))
    if value is None:
        return b""
    raise NotImplementedError(f"field type {kind}")


class Kernels:
    """The operators of one binary: run(operator, row index, **fields)."""

    def __init__(self, name):
        self.path = BUILD / "ops" / f"{name}.so"
        self.library = Library.in_dll(C.CDLL(str(self.path)), "dovetail_library_1")
        self.operators = {op.name.decode(): op for op in _list(self.library.operators)}

    def rows(self, name):
        return [row for row in _list(self.operators[name].kernels) if row.run]

    def runnable(self, name, dtype=None):
        """Names of the rows that this processor can run and that take this dtype."""
        have = open("/proc/cpuinfo").read()
        missing = {isa for isa, flag in {"amx-bf16": "amx_bf16", "amx-int8": "amx_int8", "avx512bf16": "avx512_bf16", "avx512vnni": "avx512_vnni", "avx512": "avx512bw", "avx2": "avx2"}.items() if flag not in have}
        return [row.name.decode() for row in self.rows(name) if not (row.isa and row.isa.decode() in missing) and
                (dtype is None or not row.dtypes or dtype in [NAMES.get(n) for n in row.dtypes.decode().split()])]

    def _frame(self, name, values):
        op, keep = self.operators[name], []
        frame = C.create_string_buffer(max(op.frame_size, 1))
        fields = {f.name.decode(): f for f in _list(op.fields)}
        assert set(values) <= set(fields), f"{name}: no such field: {set(values) - set(fields)}"
        for key, value in values.items():
            data = _bytes(fields[key].type, value, keep)
            C.memmove(C.addressof(frame) + fields[key].offset, data, len(data))
        return frame, keep

    def _context(self):
        _error.clear(), _kept.clear(), _outputs.clear()
        return Context(C.sizeof(Context), 0, C.pointer(_services), None, 0, None, Device(1, 0))

    def run(self, name, row, /, **values):
        function = next(r.run for r in self.rows(name) if row in (None, r.name.decode()))
        frame, keep = self._frame(name, values)
        context = self._context()
        status = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p)(function)(C.addressof(context), C.addressof(frame))
        if status:
            raise KernelError(_error[0] if _error else f"status {status}")

    def shape(self, name, /, **values):
        """What the operator's C shape function says: [(dtype, shape)]."""
        frame, keep = self._frame(name, values)
        context = self._context()
        status = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p)(self.operators[name].shape)(C.addressof(context), C.addressof(frame))
        if status:
            raise KernelError(_error[0] if _error else f"status {status}")
        return list(_outputs)


def ulps(found, exact):
    """Largest distance of found (f32, f64, bf16 or f16) from exact (f64, or f32 for 16 bits) in units in the last place of found's type."""
    dtype = found.dtype
    bits = {torch.float32: 23, torch.float64: 52, torch.bfloat16: 7, torch.float16: 10}[dtype]
    info = torch.finfo(dtype)
    want = exact.to(dtype)
    same = (found == want) | (found.isnan() & want.isnan())
    f, e = found.double()[~same], exact.double()[~same]
    if not f.numel():
        return 0.0
    if (f.isnan() | e.isnan()).any():
        return float("inf")
    exponent = torch.frexp(e.abs().clamp(min=info.tiny, max=info.max)).exponent - 1
    distance = (f.clamp(-info.max, info.max) - e.clamp(-info.max, info.max)).abs() / torch.ldexp(torch.ones_like(e), exponent - bits)
    return float(distance.max())


def floats(n, dtype, seed=0, scale=3.0):
    return (torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale).to(dtype)


SPECIAL = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38,
           88.7, 88.8, -88.0, -103.9, -104.1, 1e-8, 0.5, 100.0, -100.0]
