"""libdovetail_torch by ctypes, only for registering a library: _core names no framework, so it cannot call it. Calls do not use it."""
import ctypes
import pathlib

bridge = ctypes.CDLL(str(pathlib.Path(__file__).absolute().parent.parent / "lib" / "libdovetail_torch.so"))  # dovetail/lib, in the build tree too


class Error(RuntimeError):
    """An error of libdovetail, with its message."""

    def __init__(self, status):
        super().__init__(bridge.dv_last_error().decode())
        self.status = status


_P, _PP, _S = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p


def _declare(result, name, *args):
    f = getattr(bridge, name)
    f.restype, f.argtypes = result, args


_declare(_S, "dv_last_error")  # of libdovetail, which it links
_declare(ctypes.c_int, "dv_torch_available")
_declare(ctypes.c_int, "dv_torch_register", _P, ctypes.c_uint32, _PP)
_declare(None, "dv_torch_unregister", _P)
_declare(_S, "dv_torch_skip_reason", _P, _S)
_declare(ctypes.c_bool, "dv_torch_has_packed", _P, _S)
_declare(_S, "dv_torch_get_out_schema", _P, _S)
_declare(None, "dv_torch_print_parsable_schema", _S, _S)
_declare(ctypes.c_size_t, "dv_torch_capacity")
_declare(_P, "dv_torch_get_functions")
_declare(_P, "dv_torch_find_operator", _P, _S)
_declare(ctypes.c_bool, "dv_torch_has_autograd_kernel", _P, _S)
_declare(None, "dv_torch_set_autograd", _P, _S, _P, _P)
_declare(ctypes.c_int, "dv_torch_set_decomposition", _P, _S, _P)
_declare(None, "dv_torch_set_overridden", _P, _S, ctypes.c_bool)

SKIP_UNSUPPORTED, PACK_UNSUPPORTED, NO_AUTOGRAD = 1, 2, 4  # enum dv_torch_flags
PACKED_PREFIX = "_dovetail_"  # DV_TORCH_PACKED_PREFIX: before the namespace of a packed operator


def check(status):
    if status:
        raise Error(status)
