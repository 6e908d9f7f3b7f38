"""Kernel rows that call aclnn operators or launchers, on torch_npu's tensors: docs/ascend.md. Importing this module imports neither torch_npu nor opens CANN.

Where torch_npu is imported and a library with such rows is loaded, CANN is opened with torch_npu as the framework. A failure is kept until
somebody asks: open() raises it.
"""
import os
import sys

from ..torch import _when_imported

__all__ = ["open"]
OFFERS = frozenset()
_waiting = []
_is_open = False


def attach(library):
    if getattr(library, "name", None) != "base":
        _waiting.append(library)
        _when_imported("torch_npu", _open_for_waiting)


def detach(library):
    if library in _waiting:
        _waiting.remove(library)


def _open_for_waiting():
    waiting, _waiting[:] = _waiting[:], []
    if not _is_open and any(map(_has_rows, waiting)):
        try:
            open()
        except (RuntimeError, OSError):
            pass  # a call's message names open(), which raises this again


def _has_rows(library):
    """Its operators, or those of another library to which it adds rows."""
    import json

    from .._library import libraries
    overloads = (o for loaded in libraries() if loaded.name == library.name for op in loaded.operators().values() for o in op.overloads)
    return any(row["device"] == "npu" for o in overloads for row in json.loads(o.json())["kernels"])


def open():
    """Open CANN's libraries, with torch_npu's streams, memory and queue where torch_npu is imported. RuntimeError says what is missing."""
    import ctypes  # here, so that programs without an NPU do not pay for it
    global _is_open
    bridge = ctypes.CDLL(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib", "libdovetail_ascend.so"))
    bridge.dv_last_error.restype = ctypes.c_char_p
    if bridge.dv_ascend_open_torch() if "torch_npu" in sys.modules else bridge.dv_ascend_open(None):
        raise RuntimeError(bridge.dv_last_error().decode())
    _is_open = True
