"""Dovetail's operators in PyTorch.

`register(library)` makes every operator of a loaded library a torch operator: `torch.ops.<namespace>.<name>`, with a fake function,
gradients, mutation and aliasing from its declaration. Libraries that `dovetail.load` loads are registered by themselves, when torch is
imported already or as soon as it is (`attach`). Importing this module does not import torch.
"""
import importlib.machinery
import sys

__all__ = ["register", "unregister", "attach", "registered"]


def register(library, *, strict=True):
    """Make a library's operators torch operators. Gives a Registration; calling it again gives the same one.

    strict: an operator that torch's C interface cannot carry (Scalar, complex, Generator arguments) is an error. Otherwise it is left
    out, and says so when it is called with tensors.
    """
    from . import registration
    return registration.register(library, strict=strict)


def unregister(library):
    """Take them out of torch again. Calls by what still holds them fail with a message."""
    from . import registration
    registration.unregister(library)


def registered(library):
    """Its Registration, or None."""
    module = sys.modules.get(__name__ + ".registration")
    return module.find(library) if module else None


def _call(name, args, kwargs):
    """What a function object of a loaded library does with torch tensors: "ns::name.overload" by torch's dispatcher."""
    from . import registration
    global _call
    _call = registration.call
    return _call(name, args, kwargs)


_waiting = []


def attach(library):
    """Register a library now if torch is imported, else when it is. The base set is torch's own already."""
    if getattr(library, "name", None) == "base":
        return
    if _torch_is_ready():
        register(library, strict=False)
        return
    _waiting.append(library)
    if not any(isinstance(f, _Watcher) for f in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


def detach(library):
    """The library is about to be unloaded."""
    if library in _waiting:
        _waiting.remove(library)
    if registered(library):
        unregister(library)


def _torch_is_ready():
    torch = sys.modules.get("torch")
    spec = getattr(torch, "__spec__", None)
    return torch is not None and not getattr(spec, "_initializing", False)


class _Watcher:
    """A finder that finds nothing: it sees `import torch` go by, and registers what waits once torch is there."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                waiting, _waiting[:] = _waiting[:], []
                for library in waiting:
                    register(library, strict=False)

            spec.loader.exec_module = exec_module
        return spec
