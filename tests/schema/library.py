"""libdovetail's schema functions by ctypes, and the corpus: every schema that this PyTorch knows."""
import ctypes
import functools
import json
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVETAIL_BUILD", ROOT / "build"))

_library = ctypes.CDLL(str(BUILD / "lib" / "libdovetail.so"))
_library.dv_last_error.restype = ctypes.c_char_p
_library.dv_free.argtypes = [ctypes.c_void_p]
for _f in (_library.dv_schema_normalize, _library.dv_schema_json):
    _f.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)]
_library.dv_schema_compatible.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
_out = ctypes.c_void_p()
_reference = ctypes.byref(_out)


def error():
    return _library.dv_last_error().decode(errors="replace")


def _text(f, schema):
    if f(schema.encode(), _reference):
        return None
    text = ctypes.string_at(_out.value).decode(errors="surrogateescape")
    _library.dv_free(_out)
    return text


def normalize(schema):
    """The canonical text, or None: refused."""
    return _text(_library.dv_schema_normalize, schema)


def structure(schema):
    text = _text(_library.dv_schema_json, schema)
    assert text is not None, error()
    return json.loads(text)


def compatible(new, old):
    return _library.dv_schema_compatible(new.encode(), old.encode()) == 0


@functools.cache
def corpus():
    import torch
    import torchgen
    import yaml

    path = pathlib.Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    native = [f["func"] for f in yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))]
    registered = [str(s) for s in torch._C._jit_get_all_schemas()]
    return tuple(dict.fromkeys(native + registered))
