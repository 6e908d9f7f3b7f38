"""Dovetail's operators in PyTorch.

`register(library)` makes every operator of a loaded library a torch operator: `torch.ops.<namespace>.<name>`, with a fake function,
gradients, mutation and aliasing from its declaration. Libraries that `dovetail.load` loads are registered by themselves, when torch is
imported already or as soon as it is (`attach`). Importing this module does not import torch.
"""
import sys

__all__ = ["register", "unregister", "attach", "registered", "explain"]

# For operators with Python kernels: what torch.library's functions of these names are, and vLLM's. They stand in `dovetail` as well.
OFFERS = {"custom_op", "direct_register_custom_op", "infer_schema", "opcheck", "register_autocast", "register_autograd", "register_fake",
          "register_kernel", "register_torch_dispatch", "register_vmap"}


def offer(name):
    try:
        import torch.library

        from . import private
        if not private.python_kernels and hasattr(torch.library, name):
            return getattr(torch.library, name)
        from . import library
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"dovetail.{name} needs PyTorch, which is not installed", name="torch") from None
    return getattr(library, name)


def register(library, *, strict=True):
    """Make a library's operators torch operators. Gives a Registration; calling it again gives the same one.

    strict: an operator that torch's C interface cannot carry (Scalar, complex, SymBool arguments) is an error. Otherwise it gets a Python
    kernel that hands such arguments on. What Python cannot carry either is left out, and says so when it is called with tensors.
    """
    from . import registration
    return registration.register(library, strict=strict)


def unregister(library):
    """Take them out of torch again. Later calls through kept references fail with a message."""
    from . import registration
    registration.unregister(library)


def registered(library):
    """Its Registration, or None."""
    module = sys.modules.get(__name__ + ".registration")
    return module.find(library) if module else None


def _call(operator, args, kwargs):
    """Called by a loaded library's function objects with torch tensors: calls the operator through torch's dispatcher."""
    from . import registration
    global _call
    _call = registration.call
    return _call(operator, args, kwargs)


def settle():
    torch = sys.modules.get("torch")
    if torch and torch.accelerator.is_available():
        torch.accelerator.synchronize()


def explain():
    """Report, as text, on each feature that needs private names of torch: whether it is on, and if not, why, and what is lost."""
    from . import private
    return private.explain()


_waiting = []  # for torch
_functions = []  # for torch._dynamo


def attach(library):
    """Register a library now if torch is imported, else when it is. The base set is skipped: torch has these operators."""
    if getattr(library, "name", None) == "base":
        return
    _waiting.append(library)
    _when_imported("torch", _register_waiting)


def _register_waiting():
    waiting, _waiting[:] = _waiting[:], []
    for library in waiting:
        from . import private
        if not private.operators:
            import warnings
            warnings.warn(f"dovetail: torch {sys.modules['torch'].__version__}: {private.operators}", stacklevel=2)
            return
        register(library, strict=False)
        if hasattr(library, "operators"):
            _functions.extend(_functions_of(library))
    if _functions:
        _when_imported("torch._dynamo", _trace_functions)


def _functions_of(library):
    """What can be called: its functions, and each overload of those that have several."""
    return [*{id(f): f for function in library.operators().values() for f in (function, *function.overloads)}.values()]


def _trace_functions():
    """torch.compile traces calls of the functions of a library as calls of the torch operators."""
    from . import private
    if not private.dynamo:
        return
    from . import dynamo
    functions, _functions[:] = _functions[:], []
    for f in functions:
        dynamo.trace_function(f)


def detach(library):
    """The library is about to be unloaded."""
    if library in _waiting:
        _waiting.remove(library)
    if hasattr(library, "operators"):
        gone = {id(f): f for f in _functions_of(library)}
        _functions[:] = [f for f in _functions if id(f) not in gone]
        dynamo = sys.modules.get(__name__ + ".dynamo")
        for f in gone.values() if dynamo else ():
            dynamo.forget_function(f)
    if registered(library):
        unregister(library)


def _when_imported(name, then):
    module = sys.modules.get(name)
    try:
        ready = module is not None and not getattr(module.__spec__, "_initializing", False)
    except Exception:  # torch_npu puts a module here that imports the real torchair when it is asked for anything, and that may fail
        return
    if ready:
        then()
        return
    watcher = next((f for f in sys.meta_path if isinstance(f, _Watcher) and f.name == name), None)
    if watcher is None:
        watcher = _Watcher(name)
        sys.meta_path.insert(0, watcher)
    if then not in watcher.then:
        watcher.then.append(then)


def _offer_shipped():
    from . import shipped
    shipped.offer()


class _Watcher:
    """An import finder that finds no module itself: it is called when a module is imported, and then runs the functions waiting for that
    module."""

    def __init__(self, name):
        self.name, self.then = name, []

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        import importlib.util  # imported here, so that programs without torch do not pay for it
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)  # by the other finders
        if spec and spec.loader:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                spec._initializing = False
                for then in self.then:
                    try:
                        then()
                    except Exception as error:  # also a warning that is an error: torch cannot be imported again once its import has failed
                        sys.excepthook(type(error), error, error.__traceback__)

            spec.loader.exec_module = exec_module
        return spec


_when_imported("torch", _offer_shipped)
