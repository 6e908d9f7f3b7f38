"""libdovetail and libdovetail_torch by ctypes, only for registering a library. Calls do not use it."""
import ctypes
import json
import os
import pathlib

_LIB = pathlib.Path(__file__).absolute().parent.parent / "lib"  # dovetail/lib, in the build tree too


class Error(RuntimeError):
    """An error of libdovetail, with its message."""

    def __init__(self, status):
        super().__init__(core.dv_last_error().decode())
        self.status = status


core = ctypes.CDLL(str(_LIB / "libdovetail.so.1"))
bridge = ctypes.CDLL(str(_LIB / "libdovetail_torch.so"))

_P, _PP, _S, _SP = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)


def _declare(lib, result, name, *args):
    f = getattr(lib, name)
    f.restype, f.argtypes = result, args


_declare(core, _S, "dv_last_error")
_declare(core, None, "dv_free", _P)
_declare(core, ctypes.c_int, "dv_load", _S, _PP)
_declare(core, None, "dv_library_free", _P)
_declare(core, _S, "dv_library_name", _P)
_declare(core, ctypes.c_size_t, "dv_library_size", _P)
_declare(core, _P, "dv_library_operator", _P, ctypes.c_size_t)
_declare(core, _S, "dv_operator_name", _P)
_declare(core, _S, "dv_operator_doc", _P)
_declare(core, _S, "dv_operator_schema", _P)
_declare(core, ctypes.c_int, "dv_operator_json", _P, _PP)
_declare(core, ctypes.c_bool, "dv_operator_has_rows", _P, ctypes.c_int32)
_declare(core, ctypes.c_bool, "dv_policy_enabled", _P, ctypes.c_bool)
_declare(core, ctypes.c_uint64, "dv_policy_generation")
_declare(bridge, ctypes.c_int, "dv_torch_available")
_declare(bridge, ctypes.c_int, "dv_torch_register", _P, ctypes.c_uint32, _PP)
_declare(bridge, None, "dv_torch_unregister", _P)
_declare(bridge, ctypes.c_bool, "dv_torch_has", _P, _S)
_declare(bridge, ctypes.c_bool, "dv_torch_has_twin", _P, _S)
_declare(bridge, _S, "dv_torch_out_schema", _P, _S)
_declare(bridge, ctypes.c_size_t, "dv_torch_capacity")
_declare(bridge, _P, "dv_torch_inside")
_declare(bridge, _P, "dv_torch_operator", _P, _S)

_declare(bridge, _P, "dv_torch_exchange")
_declare(bridge, ctypes.c_bool, "dv_torch_has_autograd", _P, _S)
_declare(bridge, None, "dv_torch_set_autograd", _P, _S, _P, _P)
_declare(bridge, ctypes.c_int, "dv_torch_set_native", _P, _S, _P)
_declare(bridge, None, "dv_torch_set_overridden", _P, _S, ctypes.c_bool)

SKIP_UNSUPPORTED, TWIN_UNSUPPORTED, NO_AUTOGRAD = 1, 2, 4  # enum dv_torch_flags
TWINS = "_dovetail_"  # DV_TORCH_TWINS: before a twin's namespace


def check(status):
    if status:
        raise Error(status)


def load(path):
    """A dv_library * as a number, for tests; programs use dovetail.load."""
    out = _P()
    check(core.dv_load(os.fspath(path).encode(), ctypes.byref(out)))
    return out.value


def operators(library):
    return [core.dv_library_operator(library, i) for i in range(core.dv_library_size(library))]


def has_rows(op, device):
    """Are there kernel rows for this kind of device ("cpu", "cuda", "npu")?"""
    return core.dv_operator_has_rows(op, {"cpu": 1, "cuda": 2, "npu": 12}[device])


def declaration(op):
    """The declaration of an operator: docs/json.md."""
    text = _P()
    check(core.dv_operator_json(op, ctypes.byref(text)))
    try:
        return json.loads(ctypes.string_at(text))
    finally:
        core.dv_free(text)
