"""Dovetail's operators on MindSpore's tensors: docs/mindspore.md. Importing this module does not import MindSpore."""
__all__ = ["primitive"]
OFFERS = frozenset()


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


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    from . import graph
    return getattr(graph, name)
