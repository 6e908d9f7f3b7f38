"""Registering a library: C code defines operators and kernels; this module adds their fake functions and gradients."""
import ctypes
import functools
import json
import threading
import warnings

import torch

from .. import _core, _errors
from . import _when_imported, functionalized, native, out, overridden, packed, private  # noqa: F401: functionalized mends torch's functions
from .operator import Operator
from .types import from_number

_lock = threading.RLock()
_by_library = {}   # handle -> Registration
_callables = {}    # "ns::name" -> its operators, "ns::name.overload" -> that one
_incomplete = set()  # "ns::name" of which torch lacks an overload
_waiting = {"dynamo": [], "inductor": []}  # operators not yet registered with a compiler that may be imported later


def _tell(compiler):
    """Importing them is slow, so operators are registered with a compiler only after the program imports it."""
    from importlib import import_module
    operators, _waiting[compiler][:] = _waiting[compiler][:], []
    if not private.features[compiler]:
        return
    module = import_module("." + compiler, __package__)
    for op in operators:
        module.install(op)


def _tell_dynamo():
    _tell("dynamo")


def _tell_inductor():
    _tell("inductor")


_core.torch.attach(native.bridge.dv_torch_get_functions())
_core.torch.set_from_number(from_number)


def _handle(library):
    """Of a result of dovetail.load, or of _core.load."""
    handle = getattr(library, "_handle", library)
    if handle is not None and type(handle).__name__ != "PyCapsule":
        raise TypeError(f"expected a library that dovetail.load gave, found {type(library).__name__}")
    return handle


def gradients_that_call(name):
    """The operators in whose declared gradients this one is called."""
    return sorted({op.name for operators in _callables.values() for op in operators if f"['call', '{name}'" in repr(op.declaration["gradient"])})


class Registration:
    """A library's operators in torch, until unregister()."""

    def __init__(self, library, strict):
        handle = ctypes.c_void_p()
        self.namespace, _, pointer = _core.library_info(library)
        flags = 0 if strict else native.SKIP_UNSUPPORTED | native.PACK_UNSUPPORTED
        if _core.torch.why():  # tensor objects cannot be read from C: then the Autograd kernels are in Python
            flags |= native.NO_AUTOGRAD
        native.check(native.bridge.dv_torch_register(pointer, flags, ctypes.byref(handle)))
        self._handle = handle
        self._library, self.operators, self.skipped = None, {}, {}  # skipped: name -> why torch does not have it
        overridden.begin()
        try:
            self._fill(_core.library_operators(library))
        except BaseException:  # all or nothing
            self.close()
            raise

    def _fill(self, operators):
        self._library = overridden.Own(self.namespace, "FRAGMENT")  # lives as long as this
        for op in operators:
            self._add(op)
        for name, op in self.operators.items():
            _callables.setdefault(name.split(".")[0], []).append(op)
            if "." in name:
                _callables[name] = [op]
        for waiting in _waiting.values():
            waiting.extend(self.operators.values())
        _when_imported("torch._dynamo", _tell_dynamo)
        _when_imported("torch._inductor.lowering", _tell_inductor)

    def _add(self, op):
        name, declaration = op.name, json.loads(op.json())
        why = native.bridge.dv_torch_skip_reason(self._handle, name.encode())
        if why:
            why = why.decode()
            if why.endswith("libtorch gave no reason") and private.dispatch_dump and private.dispatch_dump(name):
                why = why.replace("libtorch gave no reason", "it has an operator of this name")
            self._skip(name, why)
            return
        if native.bridge.dv_torch_has_packed(self._handle, name.encode()):
            try:
                packed.define(self._library, name, op, declaration, native.bridge.dv_torch_get_out_schema(self._handle, name.encode()))
            except RuntimeError as error:
                packed.retire(name)
                self._skip(name, f"{name}: torch refused the schema: {error}")
                return
        operator = self.operators[name] = Operator(op, declaration)
        operator.install(self._library, self._handle)
        operator.shorten(operator.autograd.direct)
        operator.kernels_came_before = overridden.watch(operator.kernel_checks, functools.partial(self._override, operator))

    def _skip(self, name, why):
        self.skipped[name] = why
        _incomplete.add(name.partition(".")[0])
        warnings.warn(f"dovetail: not registered in torch: {why}", stacklevel=2)

    def _override(self, op, yes):
        op.overridden = yes
        native.bridge.dv_torch_set_overridden(self._handle, op.name.encode(), yes)
        if yes:
            _core.torch.operator(op.pointer, None, None, (), None)
        else:
            op.shorten(op.autograd.direct)

    def close(self):
        for name, op in self.operators.items():
            overridden.forget(op.kernel_checks)
            if not op.overridden:
                _core.torch.operator(op.pointer, None, None, (), None)
            _callables.pop(name, None)
            _callables.pop(name.split(".")[0], None)
            for waiting in _waiting.values():
                if op in waiting:
                    waiting.remove(op)
            op.retire()
            if native.bridge.dv_torch_has_packed(self._handle, name.encode()):
                packed.retire(name)
        _incomplete.difference_update(name.partition(".")[0] for name in self.skipped)
        if self._library is not None:
            self._library._destroy()
            self._library = None
        native.bridge.dv_torch_unregister(self._handle)
        self._handle = None
        private.unregistered()

    def __repr__(self):
        return f"<dovetail.torch registration of {self.namespace}: {', '.join(self.operators)}>"


def register(library, *, strict):
    handle = _handle(library)
    if handle is None:
        raise ValueError(f"{library!r}: load it again")
    with _lock:
        if handle not in _by_library:
            _by_library[handle] = Registration(handle, strict)
        registration = _by_library[handle]
    if strict and registration.skipped:
        raise RuntimeError(next(iter(registration.skipped.values())))
    return registration


def unregister(library):
    with _lock:
        registration = _by_library.pop(_handle(library), None)
    if registration:
        registration.close()


def find(library):
    return _by_library.get(_handle(library))


def call(operator, args, kwargs):
    """Call an operator on torch tensors through torch's dispatcher."""
    name = operator.name
    operators = _callables.get(name)
    if operators is None and name.partition(".")[0].endswith("_functional"):
        raise RuntimeError(f"{name}: a functional form runs on NumPy arrays and in C; PyTorch makes one of the operator itself, in torch.compile and "
                           "torch.func.functionalize")
    if operators is None:
        try:
            _core.find(operator.overloads[0].name)
        except LookupError:
            raise _errors.make("EUNLOADED", f"{name}: the operator's library was unloaded: load it again") from None
        raise RuntimeError(f"not registered in torch: {_why_not(name)}")
    if is_incomplete(operator):  # torch would select among the others
        first = next((o for o in operator.overloads if o._accepts(*args, **(kwargs or {}))), None)
        if first is not None and first.name not in {o.name for o in operators}:
            raise RuntimeError(f"not registered in torch: {_why_not(first.name)}")
    return out.call(operators[0], args, kwargs) if len(operators) == 1 else operators[0].packet(*args, **kwargs)  # torch selects the overload


def _why_not(name):
    for registration in list(_by_library.values()):
        for skipped, why in registration.skipped.items():
            if name in (skipped, skipped.partition(".")[0]):
                return why
    return f"{name}: call dovetail.torch.register(library)"


def is_incomplete(operator):
    """Is it a function of several overloads of which torch lacks some?"""
    return operator.name in _incomplete


def operators_of(name):
    return _callables.get(name)


# torch's opcheck and generate_opcheck_tests refuse a name with several overloads. Ours have an out= overload as well, which these tests do not
# call: they are given the other overload.

_OPTESTS = "torch.testing._internal.optests.generate_tests"


def _without_out(packet):
    operators = operators_of(packet._qualified_op_name) or ()
    return operators[0].overload if len(operators) == 1 and operators[0].out else None


private.Replaced(f"{_OPTESTS}.resolve_unique_overload_or_throw", instead=_without_out, module=_OPTESTS)
