"""Kernels that are aclnn operators or launchers, on tensors of torch_npu and MindSpore: docs/ascend.md. Importing this module does not import them
and does not open CANN.

CANN is opened once torch_npu or MindSpore is imported and a library with such kernels is loaded. The framework is torch_npu if it is imported.
A failure is not raised then: open() raises it again.
"""
import os
import sys

from ..torch import _when_imported

__all__ = ["open"]
OFFERS = frozenset()
_waiting = []
_wanted = False  # True if a library with such kernels was loaded
_opened = None  # name of the framework with which CANN was opened; "": none; None: CANN is not open


def attach(library):
    if getattr(library, "name", None) != "base":
        _waiting.append(library)
        for framework in ("torch_npu", "mindspore"):
            _when_imported(framework, _open_for_waiting)


def detach(library):
    if library in _waiting:
        _waiting.remove(library)


def _open_for_waiting():
    global _wanted
    waiting, _waiting[:] = _waiting[:], []
    _wanted = _wanted or any(map(_has_rows, waiting))
    if _wanted and _opened != _framework():
        try:
            open()
        except (RuntimeError, OSError):
            pass  # a call's message names open(), which raises this again


def _framework():
    return "torch_npu" if "torch_npu" in sys.modules else ""


def _has_rows(library):
    """True if such kernels are among those of its operators, or among those that it adds to operators of another library."""
    import json

    from .._library import libraries
    overloads = (o for loaded in libraries() if loaded.name == library.name for op in loaded.operators().values() for o in op.overloads)
    return any(row["device"] == "npu" for o in overloads for row in json.loads(o.json())["kernels"])


def open():
    """Open CANN's libraries, with torch_npu's streams, memory and queue where torch_npu is imported. RuntimeError says what is missing."""
    import ctypes  # here, so that programs without an NPU do not pay for it
    global _opened
    framework = _framework()
    bridge = ctypes.CDLL(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib", "libdovetail_ascend.so"))
    bridge.dv_last_error.restype = ctypes.c_char_p
    if bridge.dv_ascend_open_torch() if framework else bridge.dv_ascend_open(None):
        raise RuntimeError(bridge.dv_last_error().decode())
    _opened = framework
