"""Kernels that a program gives an operator of ours by torch.library: only torch's dispatcher knows them, so it gets every call.

The short ways and the kernel on the Autograd keys are off while there is one, until the torch.library.Library that it came by is gone.
torch tells nobody of a registration, so torch.library.Library.impl is wrapped. A registration from C++ is not seen.
"""
import functools
import threading
import weakref

import torch

# What comes before autograd, or never with plain tensors: the short ways leave those calls to torch in every case.
_HARMLESS = ("Meta", "Autocast", "FuncTorch", "Functionalize", "Python", "Batched", "Sparse", "Nested", "Quantized", "Mkldnn")

_lock = threading.RLock()
_switches = {}  # "ns::name.overload" -> a function that is told whether there are such kernels
_by = {}        # "ns::name.overload" -> the libraries that they came by


class Own(torch.library.Library):
    """What our own kernels come by: they are what the short ways stand for."""

    def impl(self, *args, **kwargs):
        _impl(self, *args, **kwargs)

    def _destroy(self):
        """torch does the same again when the object is collected, and would take away what has been loaded in the meantime."""
        super()._destroy()
        self._op_defs.clear()
        self._op_impls.clear()


def watch(names, switch):
    """Call switch(True) when a program gives one of these operators a kernel (at once, if one is there), switch(False) when the last is
    gone."""
    with _lock:
        for name in names:
            _switches[name] = switch
        if any(_by.get(name) for name in names):
            switch(True)


def forget(names):
    with _lock:
        for name in names:
            _switches.pop(name, None)


def _gone(reference, name):
    with _lock:
        left = _by.get(name, set())
        left.discard(reference)
        if not left and _by.pop(name, None) is not None and name in _switches:
            _switches[name](False)


def _came(library, name, key):
    if not key.startswith(_HARMLESS):
        with _lock:
            _by.setdefault(name, set()).add(weakref.ref(library, functools.partial(_gone, name=name)))
            if name in _switches:
                _switches[name](True)


def full_name(library, op):
    """"ns::name.overload" of what Library.impl takes: a name, with or without the library's namespace, or a torch operator."""
    if not isinstance(op, str):
        schema = op._schema
        return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    return op if "::" in op else f"{library.ns}::{op}"


_impl, _destroy = torch.library.Library.impl, torch.library.Library._destroy


@functools.wraps(_impl)
def _noted(self, op_name, fn, dispatch_key="", *args, **kwargs):
    name = full_name(self, op_name)
    result = _impl(self, op_name, fn, dispatch_key, *args, **kwargs)
    _came(self, name, dispatch_key or self.dispatch_key or "CompositeImplicitAutograd")
    return result


@functools.wraps(_destroy)
def _noted_destroy(self):
    _destroy(self)
    with _lock:
        for name, references in list(_by.items()):
            for reference in [r for r in references if r() is self]:
                _gone(reference, name)


torch.library.Library.impl, torch.library.Library._destroy = _noted, _noted_destroy
