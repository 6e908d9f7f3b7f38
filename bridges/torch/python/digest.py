"""Description of a Python function as text that is equal in every process: its code, constants, defaults, closure, and the globals that the code
names, with those that these need in turn. The keys of caches on disk contain it. describe() raises Unknown for a value without such a text.
"""
import builtins
import enum
import functools
import hashlib
import inspect
import sys
import types

import torch

from .. import _core

# Modules whose contents change only with their version, which is in the key.
_FIXED = {"torch", "numpy", "dovetail", "builtins", *sys.stdlib_module_names} - {"__main__"}
_BUILTIN = (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset)
_MAX_BYTES = 1 << 22  # of a tensor or an array


class Unknown(Exception):
    """Raised for a value that has no text that is equal in every process."""


def describe(value, operator=None):
    """Returns the text for a value. operator: called with each torch operator that is found; returns a value that describes its rules, or None."""
    return _Digest(operator or (lambda overload: None)).of(value)


def _is_fixed(module):
    return (module or "").partition(".")[0] in _FIXED


class _Digest:
    def __init__(self, operator):
        self.operator, self.seen, self.kept = operator, {}, []

    def of(self, value):
        if value is None or value is ... or isinstance(value, (bool, int, float, complex, str, bytes)) and type(value).__module__ == "builtins":
            return f"{type(value).__name__} {value!r}"
        if id(value) in self.seen:  # also a function that calls itself
            return f"seen {self.seen[id(value)]}"
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)  # so that no other value gets its id
        return f"{type(value).__name__}({self.parts(value)})"

    def all(self, values):
        return ", ".join(map(self.of, values))

    def table(self, values):
        return ", ".join(f"{key!r}: {self.of(values[key])}" for key in sorted(values, key=repr))

    def parts(self, value):
        if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, types.EllipsisType, range, slice)):
            return repr(value)
        if type(value) in _BUILTIN:
            return self.contents(value)
        if isinstance(value, types.CodeType):
            return self.all((value.co_name, value.co_code, value.co_consts, value.co_names, value.co_varnames, value.co_freevars, value.co_flags))
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType, types.WrapperDescriptorType)):
            return f"{getattr(value, '__module__', None)} {value.__qualname__}"
        if isinstance(value, types.MethodType):
            return self.all((value.__func__, value.__self__))
        if isinstance(value, functools.partial):
            return self.all((value.func, value.args, value.keywords))
        if isinstance(value, (staticmethod, classmethod, property)):
            return self.all((getattr(value, "__func__", None), *(getattr(value, f, None) for f in ("fget", "fset", "fdel"))))
        if isinstance(value, types.ModuleType):
            return value.__name__  # names_in() describes the attributes that the code reads
        if isinstance(value, type):
            return self.type(value)
        if isinstance(value, enum.Enum):
            return self.all((type(value), value.name, value.value))
        if isinstance(value, torch.library.CustomOpDef):
            value = value._opoverload
        if isinstance(value, torch._ops.OpOverloadPacket):
            return self.all([getattr(value, name) for name in value.overloads()])
        if isinstance(value, torch._ops.OpOverload):
            return f"{value.name()} {self.of(self.operator(value))}"
        if isinstance(value, _core.Operator):
            return self.all([getattr(getattr(torch.ops, value.name.split("::")[0]), value.name.split("::")[1])])
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            return self.tensor(value)
        if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
            return f"{value.dtype} {value.shape} {self.data(value.nbytes, value.tobytes)}"
        if isinstance(value, _BUILTIN):
            return f"{self.contents(value)} {self.instance(value)}"
        if isinstance(getattr(value, "__dict__", None), dict) and not _is_fixed(type(value).__module__) and not _has_hidden_state(value):
            return self.instance(value)
        raise Unknown(f"{type(value).__module__}.{type(value).__qualname__}")

    def contents(self, value):
        """Returns the text for a value of a built-in type, or for the part of an instance of a subclass that is of this type."""
        if isinstance(value, (tuple, list)):
            return self.all(tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value))
        if isinstance(value, dict):
            return ", ".join(f"{self.of(k)}: {self.of(v)}" for k, v in dict.items(value))
        if isinstance(value, (set, frozenset)):
            return ", ".join(sorted(_Digest(self.operator).of(v) for v in value))
        return next(base.__repr__(value) for base in _BUILTIN if isinstance(value, base))

    def instance(self, value):
        """Returns the text for an instance's class and attributes, those in slots and in members of a C class included."""
        members = {n for cls in type(value).__mro__ for n, v in vars(cls).items() if inspect.ismemberdescriptor(v)}
        return self.all((type(value), getattr(value, "__dict__", None), {n: getattr(value, n) for n in sorted(members) if hasattr(value, n)}))

    def function(self, f):
        if _is_fixed(f.__module__):
            return f"{f.__module__} {f.__qualname__}"
        cells = [_contents(cell) for cell in f.__closure__ or ()]
        return f"{self.all((f.__code__, f.__defaults__, f.__kwdefaults__, cells))} {self.names_in(f.__code__, f.__globals__, cells)}"

    def names_in(self, code, space, cells):
        """Returns the text for the globals that the code names, and for the named attributes of modules whose contents may change."""
        names = _names(code)
        found = {n: space[n] for n in names if n in space}
        modules = [v for v in [*found.values(), *cells] if isinstance(v, types.ModuleType)]
        for module in modules:
            if not _is_fixed(module.__name__):
                inside = {f"{module.__name__}.{n}": vars(module)[n] for n in names if n in vars(module)}
                modules += [v for k, v in inside.items() if isinstance(v, types.ModuleType) and k not in found]
                found.update(inside)
        return self.table(found) + " " + self.all(sorted(n for n in names if n not in space and not hasattr(builtins, n)))

    def type(self, cls):
        if _is_fixed(cls.__module__):
            return f"{cls.__module__} {cls.__qualname__}"
        own = {n: v for n, v in vars(cls).items() if n not in ("__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__")
               and not inspect.isgetsetdescriptor(v) and not inspect.ismemberdescriptor(v)}
        return f"{cls.__qualname__} {self.all(cls.__bases__)} {self.table(own)}"

    def tensor(self, x):
        if x.layout != torch.strided or x.is_meta:
            raise Unknown("a tensor without data")
        return f"{x.dtype} {tuple(x.shape)} {x.stride()} {x.device} {x.requires_grad} " + self.data(
            x.nbytes, lambda: bytes(x.detach().cpu().contiguous().view(-1).view(torch.uint8).tolist()))

    @staticmethod
    def data(size, read):
        if size > _MAX_BYTES:
            raise Unknown(f"{size} bytes of numbers")
        return hashlib.sha256(read()).hexdigest()


def _has_hidden_state(value):
    """True if an instance may have a state beside its attributes: its class has its own rules for pickle, or pickle refuses it."""
    cls = type(value)
    if cls.__reduce__ is not object.__reduce__ or cls.__reduce_ex__ is not object.__reduce_ex__ or cls.__getstate__ is not object.__getstate__:
        return True
    try:
        object.__reduce_ex__(value, 2)
    except Exception:
        return True
    return False


def _contents(cell):
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return None


def _names(code):
    """Returns the names that a code object and those inside it use, in a fixed order."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(dict.fromkeys(_names(constant)))
    return list(found)
