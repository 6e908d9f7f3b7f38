"""Kernels that a program registers for a Dovetail operator by torch.library. Only torch's dispatcher knows them, so every call goes
through it: direct calls and the kernel on the Autograd keys are off while such a kernel exists, until its torch.library.Library is
destroyed. torch does not report registrations, so torch.library.Library.impl is replaced while libraries are registered (private.py).
Earlier kernels are found in torch's list. A registration from C++ is not seen.
"""
import functools
import threading
import weakref

import torch

from . import private

# Keys that come before autograd, or that plain tensors never have: such calls go through torch in any case.
_HARMLESS = ("Meta", "Autocast", "FuncTorch", "Functionalize", "Python", "Batched", "Sparse", "Nested", "Quantized", "Mkldnn")

_lock = threading.RLock()
_switches = {}  # "ns::name.overload" -> a function called with whether such kernels exist
_checks = {}    # "ns::name.overload" -> call_kernel() of the Operator or of its out= overload
_by = {}        # "ns::name.overload" -> the libraries that they came by
_earlier = set()  # kernels that were registered unobserved, which may exist for ever: "ns/name.overload/KEY"
_before = {}     # namespace -> those of its operators that have such a kernel
_own = weakref.WeakSet()  # Own


class Own(torch.library.Library):
    """The libraries of Dovetail's own kernels, which direct calls are equivalent to."""

    def __init__(self, *args):
        super().__init__(*args)
        _own.add(self)

    def impl(self, *args, **kwargs):
        _impl.original(self, *args, **kwargs)

    def _destroy(self):
        """torch repeats this when the object is collected, and would remove operators that were loaded in the meantime."""
        super()._destroy()
        self._op_defs.clear()
        self._op_impls.clear()


def begin():
    """Notes the earlier kernels before the first registration: of a library, or of an operator in Python that functions of torch must know."""
    if private.registered():
        look()


def look():
    """Note the kernels registered so far; called when the first library is registered."""
    global _earlier
    with _lock:
        _earlier = getattr(torch.library, "_impls", set()).difference(*(library._op_impls for library in _own))
        _before.clear()


def _came_before(name):
    space = name.partition("::")[0]
    if space not in _before:
        found = [place.rpartition("/") for place in _earlier if place.startswith(space + "/")]
        _before[space] = {name.replace("/", "::", 1) for name, _, key in found if not key.startswith(_HARMLESS)}
    return name in _before[space]


def watch(checks, switch):
    """Call switch(True) when a program gives one of these operators a kernel (at once, if one is there), switch(False) when the last is
    gone. checks: name -> the function that calls such a kernel from then on. True: a kernel without these checks is registered already."""
    with _lock:
        _checks.update(checks)
        _switches.update(dict.fromkeys(checks, switch))
        there = any(_by.get(name) or _came_before(name) for name in checks)
        if there:
            switch(True)
        return there


def forget(names):
    with _lock:
        for name in names:
            _switches.pop(name, None)
            _checks.pop(name, None)


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


def _checked(library, op_name, fn, dispatch_key="", *args, with_keyset=False, **options):
    """The same registration, with the contract's checks around the kernel."""
    name, key = full_name(library, op_name), dispatch_key or library.dispatch_key or "CompositeImplicitAutograd"
    if name not in _checks or key.startswith(_HARMLESS) or isinstance(library, Own) or fn is torch.library.fallthrough_kernel or not callable(fn):
        return None

    @functools.wraps(fn, updated=())
    def kernel(*args, **kwargs):
        keys, args = args[:with_keyset], args[with_keyset:]
        check = _checks.get(name)  # of the operator that has the name now
        return check(functools.partial(fn, *keys), args, kwargs) if check else fn(*keys, *args, **kwargs)

    return (library, op_name, kernel, dispatch_key, *args), {"with_keyset": with_keyset, **options}


def _seen(library, op_name, fn, dispatch_key="", *args, **kwargs):
    _came(library, full_name(library, op_name), dispatch_key or library.dispatch_key or "CompositeImplicitAutograd")


def _destroyed(library):
    with _lock:
        for name, references in list(_by.items()):
            for reference in [r for r in references if r() is library]:
                _gone(reference, name)


_impl = private.Replaced("torch.library.Library.impl", change=_checked, after=_seen)
private.Replaced("torch.library.Library._destroy", after=_destroyed)
