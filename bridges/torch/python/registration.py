"""Registering a library: the C side defines operators and kernels; here their fakes and gradients are added."""
import ctypes
import threading

import torch

from .. import _core
from . import native
from .operator import Operator

_lock = threading.RLock()
_by_library = {}   # dv_library * -> Registration
_callables = {}    # "ns::name" and "ns::name.overload" -> what _call calls

_core.torch_attach(native.bridge.dv_torch_inside())


def _pointer(library):
    """The dv_library * of what dovetail.load gave, or of a number."""
    if isinstance(library, int):
        return library
    pointer = getattr(library, "_pointer", None)
    if pointer is None:
        raise TypeError(f"expected a library that dovetail.load gave, found {type(library).__name__}")
    return pointer() if callable(pointer) else pointer


class Registration:
    """A library's operators in torch, until unregister()."""

    def __init__(self, pointer, strict):
        handle = ctypes.c_void_p()
        native.check(native.bridge.dv_torch_register(pointer, 0 if strict else native.SKIP_UNSUPPORTED, ctypes.byref(handle)))
        self._handle = handle
        self.namespace = native.core.dv_library_name(pointer).decode()
        self._library = torch.library.Library(self.namespace, "FRAGMENT")  # noqa: TOR901: lives as long as this
        self.operators, self.skipped = {}, []
        try:
            for op in native.operators(pointer):
                name = native.core.dv_operator_name(op).decode()
                if native.bridge.dv_torch_has(handle, name.encode()):
                    self.operators[name] = Operator(op, native.declaration(op))
                    self.operators[name].install(self._library)
                else:
                    self.skipped.append(name)
        except BaseException:
            self.close()
            raise
        for name, op in self.operators.items():
            _callables[name.split(".")[0]] = op.packet  # torch picks the overload
        for name, op in self.operators.items():
            if "." in name or len(op.packet.overloads()) == 1:
                _callables[name] = op.overload

    def close(self):
        for name, op in self.operators.items():
            _callables.pop(name, None)
            _callables.pop(name.split(".")[0], None)
            op.retire()
        if self._library is not None:
            self._library._destroy()
            self._library = None
        native.bridge.dv_torch_unregister(self._handle)
        self._handle = None

    def __repr__(self):
        return f"<dovetail.torch registration of {self.namespace}: {', '.join(self.operators)}>"


def register(library, *, strict):
    pointer = _pointer(library)
    with _lock:
        if pointer not in _by_library:
            _by_library[pointer] = Registration(pointer, strict)
        return _by_library[pointer]


def unregister(library):
    with _lock:
        registration = _by_library.pop(_pointer(library), None)
    if registration:
        registration.close()


def find(library):
    return _by_library.get(_pointer(library))


def call(name, args, kwargs):
    """An operator on torch tensors, by torch's dispatcher."""
    f = _callables.get(name)
    if f is None:
        raise RuntimeError(f"{name} is not registered in torch: call dovetail.torch.register(library) to see why")
    return f(*args, **kwargs) if kwargs else f(*args)
