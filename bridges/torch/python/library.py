"""torch.library, with short ways to Python kernels: `import dovetail.torch.library as lib` in place of `import torch.library as lib`.

All functions are torch's; those that register kernels also inform short.py, so that calls which need nothing else run the kernels
directly. A
kernel that is replaced later through torch.library itself is not seen: replace it through this module.

Operators may be given by name, as torch's objects, or as functions of a library that dovetail.load gave.
"""
import torch
import torch.library
from torch.library import *  # noqa: F403

from .. import _core
from .custom_op import CustomOp, custom_op
from .overridden import full_name
from .private import python_kernels as _torch
from .short import Short, of, register_rule, replaying

__all__ = sorted({*torch.library.__all__, "CustomOp", "custom_op", "direct_register_custom_op", "infer_schema", "opcheck"})

infer_schema = torch.library.infer_schema
# Only autograd's kernels may come before these keys: they matter only when a gradient is needed, and such a call is never direct.
_KERNELS = ("CPU", "CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


class Library(torch.library.Library):
    """torch.library.Library."""

    def impl(self, op_name, fn, dispatch_key="", **options):
        _impl(self, op_name, fn, dispatch_key, **options)


def _impl(library, op_name, fn, dispatch_key="", **options):
    """torch.library.Library.impl, and a direct call of the kernel if the operator allows it."""
    name = full_name(library, op_name)
    key = dispatch_key or library.dispatch_key or "CompositeImplicitAutograd"
    direct = key in _KERNELS and not options.get("with_keyset") and fn is not torch.library.fallthrough_kernel
    torch.library.Library.impl(library, op_name, replaying(fn) if direct else fn, dispatch_key, **options)
    short = of(name) or _new_short(name)
    if short:
        short.set(key, fn if direct else None)


def _new_short(name):
    """Operators defined in Python that have no other kernel yet. Kernels of other operators are unknown here."""
    try:
        overload = _torch.lookup_op(name)
    except (AttributeError, RuntimeError):  # not defined yet
        return None
    keys = [k for k in _torch._impls if k.startswith(f"{overload.namespace}/{overload._opname}/")]
    there = [k for k in ("AutogradCPU", "AutogradCUDA", "ADInplaceOrView", "BackendSelect") if _torch._dispatch_has_kernel_for_dispatch_key(name, k)]
    if not overload._defined_in_python or len(keys) > 1 or there or overload.is_view:
        return None
    return Short(overload)


def _keep(library, name):
    """The default library, kept until the process ends."""
    if library is None:
        library = Library(_torch.parse_namespace(name)[0], "FRAGMENT")
        _torch._keep_alive.append(library)
    return library


def define(qualname, schema=None, *args, **options):
    """torch.library.define; the schema may also be part of the name: define("ns::f(Tensor x) -> Tensor")."""
    if schema is None and isinstance(qualname, str):
        qualname, bracket, rest = qualname.partition("(")
        schema = bracket + rest
    return torch.library.define(qualname, schema, *args, **options)


def impl(qualname, types, func=None, *args, lib=None):
    """torch.library.impl; the function may also come before the key: impl("ns::f", f, "CPU")."""
    if not isinstance(qualname, str):
        return torch.library.impl(qualname, types, *([func] if func is not None else []), *args)
    if callable(types):
        types, func = func or "CompositeImplicitAutograd", types
    return torch.library.impl(qualname, types, func, lib=_keep(lib, qualname))


def _op(op):
    """An operator as torch knows it."""
    if isinstance(op, _core.Operator):
        space, local = op.name.split("::")
        local, _, overload = local.partition(".")
        return getattr(getattr(getattr(torch.ops, space), local), overload or "default")
    return op


def register_kernel(op, device_types, func=None, /, *, lib=None):
    op = _op(op)
    name = op if isinstance(op, str) else None if isinstance(op, torch.library.CustomOpDef) else op._name
    return torch.library.register_kernel(op, device_types, func, lib=_keep(lib, name) if name else lib)


def register_fake(op, func=None, /, *, _stacklevel=1, **options):
    return torch.library.register_fake(_op(op), func, _stacklevel=_stacklevel + (func is not None), **options)


def register_autograd(op, backward, /, **options):
    register_rule(_op(op), "autograd", backward, options.get("setup_context"))
    return torch.library.register_autograd(_op(op), backward, **options)


def register_vmap(op, func=None, /, **options):
    return torch.library.register_vmap(_op(op), func, **options)


def register_autocast(op, device_type, cast_inputs, /, **options):
    register_rule(_op(op), f"autocast {device_type}", cast_inputs)
    return torch.library.register_autocast(_op(op), device_type, cast_inputs, **options)


def register_torch_dispatch(op, torch_dispatch_class, func=None, /, **options):
    return torch.library.register_torch_dispatch(_op(op), torch_dispatch_class, func, **options)


def opcheck(op, args, kwargs=None, **options):
    try:
        return torch.library.opcheck(_op(op), args, kwargs, **options)
    except Exception as error:
        if "Stride mismatch" in str(error):
            error.add_note("dovetail.custom_op(..., fake_strides=True) brings results to the strides that the fake function gives")
        raise


_vllm = None


def direct_register_custom_op(op_name, op_func, mutates_args=None, fake_impl=None, target_lib=None, dispatch_key=None, tags=()):
    """vLLM's function: defines the operator in the library (default: vLLM's, torch.ops.vllm), with a kernel for one dispatch key (default:
    "CUDA" where there is a device, else "CPU"), and no autograd. The operator lives as long as the library."""
    global _vllm
    if target_lib is None:
        target_lib = _vllm = _vllm or Library("vllm", "FRAGMENT")
    schema = infer_schema(op_func, mutates_args=mutates_args or [])
    target_lib.define(op_name + schema, tags=tags)
    _impl(target_lib, op_name, op_func, dispatch_key or ("CUDA" if torch.cuda.is_available() else "CPU"))
    if fake_impl is not None:
        target_lib._register_fake(op_name, fake_impl)
