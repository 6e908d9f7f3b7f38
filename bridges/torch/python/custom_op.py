"""torch.library.custom_op with a short way to the Python kernel.

torch.library.custom_op defines the operator, and its object is returned, so every rule is torch's. Only the object's class is replaced:
its call runs the kernel directly if nothing but the kernel would run (short.py).
"""
import contextlib
import functools
import importlib
import inspect
import weakref

import torch

from . import _when_imported, overridden, private, python_autograd
from .private import python_kernels as _torch
from .schema import Schema
from .short import Short, replaying
from .transforms import functional, sharding


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, fake_strides=False, **options):
    """As torch.library.custom_op: returns the operator if a function is given, else a decorator.

    fake_strides: a result whose strides are not those of the fake function's is copied into a tensor that the fake function makes, called
    with the real arguments. Programs of torch.compile refuse such a result.
    """
    def make(fn):
        old = _torch.OPDEFS.get(name)
        made = torch.library.custom_op(name, fn, mutates_args=mutates_args, device_types=device_types, **options)
        if isinstance(old, CustomOp):
            old._retire()
        CustomOp._take(made, fn, device_types, fake_strides)
        if isinstance(old, CustomOp):
            old._short.close()
            old._lib._op_defs.clear()  # its finalizer drops torch.ops' objects of these names, and they are those of `made`
            made._older = weakref.WeakSet([old, *old._older])
            for older in made._older:
                older._become(made)
        return made

    return make if fn is None else make(fn)


class CustomOp(_torch.CustomOpDef):
    """The result of dovetail.custom_op: a torch.library.CustomOpDef. Each has a separate class, whose __call__ is a C callable."""

    def _take(self, fn, device_types, fake_strides):
        looked_at = getattr(self, "_is_inplace", False) or getattr(self, "_is_out", False) or self._opoverload.is_view
        self._short = Short(self._opoverload, custom_op=True, possible=not looked_at)
        self.__class__ = type("CustomOp", (CustomOp,), {"__call__": self._short.call, "__module__": __name__})
        self.__name__, self.__qualname__, self.__module__, self.__doc__ = fn.__name__, fn.__qualname__, fn.__module__, fn.__doc__
        with contextlib.suppress(TypeError, ValueError):
            self.__signature__ = inspect.signature(fn)
        self._kernels, self._fake, self._fake_strides, self._older = {}, None, fake_strides, ()
        self._note(device_types, fn)
        python_autograd.install(self)
        self._strategies = sharding.install_python(self._opoverload)
        self._written = Schema(self._opoverload) if private.functional and self._opoverload._schema.is_mutable and not looked_at else None
        if self._written:
            overridden.begin()
            functional.install_written(self._written, self._lib)
        _new.add(self)
        _when_imported("torch._dynamo", _trace)

    def _retire(self):
        """Removes the rules of this operator, since its name is about to get another operator."""
        sharding.retire(self._strategies)
        if self._written:
            functional.retire(self._written)
            private.unregistered()

    def _become(self, made):
        """The name has another meaning now, and torch has freed the operator that this object called."""
        self.__class__, self.__dict__ = made.__class__, made.__dict__
        _new.add(self)
        _when_imported("torch._dynamo", _trace)

    def _note(self, device_types, fn):
        """A kernel was registered."""
        for device in [device_types] if device_types is None or isinstance(device_types, str) else device_types:
            self._kernels[device] = self._as_fake(fn)
            self._backend_fns[device] = self._counted(replaying(self._as_fake(self._backend_fns[device])))
        self._choose()

    def _counted(self, kernel):
        """With more results than the schema has, torch corrupts its stack."""
        count = len(self._opoverload._schema.returns)
        if count < 2:
            return kernel

        @functools.wraps(kernel)
        def run(*args, **kwargs):
            results = kernel(*args, **kwargs)
            if isinstance(results, (tuple, list)) and len(results) != count:
                raise RuntimeError(f"{self._qualname}: expected {count} results, found {len(results)}")
            return results

        return run

    def _as_fake(self, kernel):
        """The kernel with fake_strides."""
        if not self._fake_strides or not self._opoverload._schema.returns:
            return kernel

        @functools.wraps(kernel)
        def run(*args, **kwargs):
            results = kernel(*args, **kwargs)
            if self._fake is None:
                raise RuntimeError(f"{self._qualname}: fake_strides: expected a fake function (register_fake), found none")
            made = self._fake(*args, **kwargs)
            if not isinstance(results, (tuple, list)) or not isinstance(made, (tuple, list)):
                return self._like(results, made)
            return type(results)(map(self._like, results, made))

        return run

    def _like(self, result, made):
        if not isinstance(result, torch.Tensor) or not isinstance(made, torch.Tensor) or result.stride() == made.stride():
            return result
        if (result.dtype, result.shape) != (made.dtype, made.shape):
            raise RuntimeError(f"{self._qualname}: expected a result of {made.dtype} and shape {[*made.shape]} as its fake function gives, "
                               f"found {result.dtype} and {[*result.shape]}")
        return made.copy_(result)

    def register_fake(self, fn, /):
        self._fake = fn
        return super().register_fake(fn)

    def _choose(self):
        """torch handles disabled kernels."""
        for device, fn in self._kernels.items():
            key = "CompositeExplicitAutograd" if device is None else _torch._dispatch_key_for_device(device)
            self._short.set(key, None if device in self._disabled_kernel else fn)

    def register_kernel(self, device_types, fn=None, /):
        if fn is None:
            return lambda f: self.register_kernel(device_types, f)
        super().register_kernel(device_types, fn)
        self._note(device_types, fn)
        return fn

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type, enabled=True):
        try:
            with super().set_kernel_enabled(device_type, enabled):
                self._choose()
                yield
        finally:
            self._choose()

    def __reduce__(self):
        return _find, (self._qualname, self.__module__)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


_new = weakref.WeakSet()  # to be told to torch._dynamo


def _trace():
    """torch.compile traces a call of such an object as a call of the torch operator."""
    from . import private
    if not private.dynamo:
        return
    from .dynamo import trace_as
    while _new:
        op = _new.pop()
        trace_as(op, op._opoverload)


def _find(name, module):
    """For pickle: importing the module that defined the operator defines it again."""
    if name not in _torch.OPDEFS:
        importlib.import_module(module)
    return _torch.OPDEFS[name]
