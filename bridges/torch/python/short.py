"""Direct calls ("the short way") of torch operators whose kernels are Python functions. If nothing but the kernel would run, calling it
directly gives the result of torch.ops without its dispatcher, which saves microseconds. _core.torch.kernel decides that at every call
(see host/kernel.c). It replaces the call stored in torch's operator objects, so torch.ops.ns.name is direct as well, also in programs
that Inductor compiled. Other calls go on to the original.
"""
import functools
import sys
import threading

import torch

from . import _when_imported, functionalized, native, private  # noqa: F401: functionalized mends torch's functions
from .. import _core
from .private import DEVICES, python_kernels as _torch

# Kernels for devices without their own, in the dispatcher's order: the first one also applies to the Autograd key.
_EVERYWHERE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
# A kernel on one of these runs before the device's, so there is no short way.
_BEFORE = ("Autograd", "ADInplaceOrView", "BackendSelect", "PreDispatch", "Python", "Tracer")

_lock = threading.RLock()
_all = {}  # "ns::name" or "ns::name.overload" -> Short
_given = threading.local()  # value: (a result,) that torch's call uses as the kernel's result

try:
    _core.torch.attach(native.bridge.dv_torch_get_functions())
    _possible = True
except RuntimeError:  # the guard does not know this libtorch
    _possible = False


class Short:
    """The short way of one overload.

    custom_op: kernels run as those of torch.library.custom_op do, below autograd, and their results must be new tensors. possible: False
    for operators whose results torch looks at in other ways.
    """

    def __init__(self, overload, *, custom_op=False, possible=True):
        self.kernels, self.closed, self._calls = {}, not (possible and _possible), []
        packet = overload._overloadpacket
        if not self.closed:
            self._calls = [_call(owner, overload._schema, custom_op) for owner in (overload, packet)[:1 + (len(packet.overloads()) == 1)]]
            # torch.jit.script looks up the name of a packet's call.
            _torch._register_builtin(packet._op, packet._qualified_op_name)
        self.call = self._calls[0] if self._calls else overload
        _tell_inductor_of(overload)
        _all[overload._name] = self

    def set(self, key, fn):
        """A kernel was registered for a dispatch key; None: one that cannot be called directly."""
        with _lock:
            self.kernels[key] = fn
            self.update()

    def update(self):
        usable = not self.closed and not any(k.startswith(_BEFORE) for k in self.kernels)
        everywhere = next((self.kernels[k] for k in _EVERYWHERE if k in self.kernels), None)
        found = [self.kernels.get(d, everywhere) if usable else None for d in DEVICES]
        made = {fn: _undisturbed(fn) for fn in dict.fromkeys(found)}
        those = tuple(made[fn] for fn in found)
        for call in self._calls:
            call.kernels = those

    def close(self):
        """From now on all calls are torch's."""
        with _lock:
            self.closed = True
            self.update()


def of(name):
    return _all.get(name)


_registered = {}  # "ns::name" -> rules that dovetail.torch.library registered for an operator that is no CustomOpDef: kind -> functions


def register_rule(op, kind, *functions):
    """Records a rule of an operator, for the keys of caches."""
    if not isinstance(op, torch.library.CustomOpDef):
        _registered.setdefault(op if isinstance(op, str) else op._name, {})[kind] = functions


def rules(overload):
    """Returns the functions and tags of an operator with a Python kernel, without the kernel itself. None: the operator has no Python kernel."""
    if overload._name not in _all:
        return None
    made = _torch.OPDEFS.get(overload._name)
    fake = private.fake and private.fake.singleton.find(overload._name).fake_impl.kernel
    return [made and {name: getattr(made, name, None) for name in private.RULES}, getattr(fake, "func", None), _registered.get(overload._name),
            sorted(map(str, overload._tags))]


_to_lower = []  # overloads that Inductor does not know yet


def _tell_inductor_of(overload):
    if not _all:
        private.registered()  # as a library: it counts until the process ends
    _to_lower.append(overload)
    _when_imported("torch._inductor.lowering", _tell_inductor)


def _tell_inductor():
    if private.inductor:
        from . import inductor
        while _to_lower:
            inductor.install_python(_to_lower.pop())


def _call(owner, schema, custom_op):
    arguments = tuple((str(a.real_type), a.has_default_value(), a.alias_info is not None and a.alias_info.is_write, a.kwarg_only)
                      for a in schema.arguments)
    results = tuple(str(r.real_type) for r in schema.returns)
    below = 0 if not custom_op else 2 if private.writes_below and schema.is_mutable else 1
    owner._op = _core.torch.kernel(owner._op, arguments, results, below, custom_op, _again)
    return owner._op  # it hashes as torch's own call


def _again(fallback, args, result):
    """A kernel that was called directly returned a value that torch would not pass on unchanged. Call through torch with this as the
    kernel's result: torch converts it or raises."""
    _given.value = (result,)
    try:
        return fallback(*args)
    finally:
        _given.value = None


def replaying(kernel):
    """The kernel registered in torch: it returns a result that exists already."""
    @functools.wraps(kernel)
    def run(*args, **kwargs):
        given = getattr(_given, "value", None)
        if given is None:
            return kernel(*args, **kwargs)
        _given.value = None
        return given[0]
    return run


def _undisturbed(fn):
    """torch.compile never traces a kernel: if Dynamo is active on this thread, it is turned off for this call."""
    dynamo = sys.modules.get("torch._dynamo")
    if fn is None or not hasattr(dynamo, "disable"):
        return fn
    callback, disabled = _torch.get_eval_frame_callback, dynamo.disable(fn)

    def kernel(*args):
        return fn(*args) if callback() is None else disabled(*args)

    return dynamo.decorators.skip(kernel)


def _update_all():
    with _lock:
        for short in list(_all.values()):
            short.update()


if "torch._dynamo" not in sys.modules:
    _when_imported("torch._dynamo", _update_all)
