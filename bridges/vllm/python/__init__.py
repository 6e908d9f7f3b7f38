"""Dovetail in vLLM: docs/vllm.md.

`CustomOp` is the base class of layers with several forms, as in vLLM, and works without vLLM. `register` is a plugin of vLLM: it puts
Dovetail's operators into vLLM's layers, if the environment variable DOVETAIL_VLLM asks for it. Importing this module imports neither torch
nor vLLM.
"""
import importlib

__all__ = ["CompilationConfig", "CustomOp", "ForwardContext", "config", "current_platform", "get_forward_context", "register"]
OFFERS = frozenset()


def attach(library):
    """Lets layers that call operators keep their names (names.py). dovetail.torch does the rest, since vLLM calls operators as torch does."""
    from dovetail.torch import _when_imported
    _when_imported("vllm.model_executor.custom_op", _keep_names)


def _keep_names():
    from . import names
    names.install()


def detach(library):
    pass


def register():
    """Of the entry point group vllm.general_plugins: vLLM calls it in each of its processes, maybe several times."""
    from . import plugin
    plugin.register()


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    return getattr(importlib.import_module(".custom_op", __name__), name)
