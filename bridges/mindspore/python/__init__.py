"""Dovetail's operators on MindSpore's tensors: docs/mindspore.md. Importing this module does not import MindSpore."""
import sys

from .. import _core

__all__ = ["primitive"]
OFFERS = frozenset()
IN_GRAPH = ("a graph of MindSpore (ms.jit, ms.vmap, GRAPH_MODE) would lose this call's gradient and writes: make a function of it outside, "
            "dovetail.mindspore.primitive(operator), and call that")


def refusal(text):
    """For __ms_class__, which MindSpore's parser of functions wants of each object that it does not know: the only place where it hears our text
    before its own."""
    def ask(self):
        if sys._getframe(1).f_code.co_name != "_is_ms_class":
            raise AttributeError("__ms_class__")
        raise RuntimeError(text(self))
    return property(ask)


_core.Operator.__ms_class__ = refusal(lambda operator: f"{operator.name}: {IN_GRAPH}")


def attach(library):
    """Nothing to register: the extension calls operators on MindSpore's tensors directly."""


def detach(library):
    pass


def _call(operator, args, kwargs):
    """Called by a function object where MindSpore records gradients."""
    from . import gradient
    global _call
    _call = gradient.call
    return _call(operator, args, kwargs)


def settle():
    if "mindspore" in sys.modules:
        sys.modules["mindspore"].runtime.synchronize()


def __getattr__(name):
    if name not in __all__ and name != "_":  # "_": as in dovetail.ops
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    from .graph import primitive
    globals()["primitive"] = primitive
    return primitive
