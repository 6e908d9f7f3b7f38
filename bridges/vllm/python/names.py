"""Names of layers that a program registers in vLLM in the place of vLLM's own.

vLLM's CustomOp.register_oot gives such a class the name of the class that it replaces ("SiluAndMul"), so that the words of custom_ops
("+silu_and_mul") have no effect on it. Once a library of Dovetail is loaded, such a class keeps the name in these words, and answers to
both names. Classes of vLLM and of its platforms (packages whose names begin with vllm) are left alone.
"""
import warnings

import vllm.config

from vllm.model_executor import custom_op

_done = False


def install():
    """Replaces vLLM's CustomOp.register_oot, once."""
    global _done
    if _done:
        return
    _done = True
    theirs = custom_op.CustomOp.register_oot.__func__

    def register_oot(cls, _decorated_op_cls=None, name=None):
        if _decorated_op_cls is not None and not isinstance(_decorated_op_cls, type):
            return theirs(cls, _decorated_op_cls, name)  # its error

        def decorator(layer):
            kept = policy_name(layer, name or cls.__name__)
            layer = theirs(cls, layer, name)
            if kept and not layer.__module__.partition(".")[0].startswith("vllm"):
                answer_to_both(layer, layer.name, kept)
                warn_of_main(layer)
            return layer

        return decorator if _decorated_op_cls is None else decorator(_decorated_op_cls)

    register_oot.__doc__ = theirs.__doc__
    custom_op.CustomOp.register_oot = classmethod(register_oot)


def answer_to_both(layer, given, kept):
    """Gives a layer the name `kept`; a word with the name that vLLM has given to it turns the layer on and off as well."""
    theirs = layer.enabled.__func__
    layer.name = kept

    def enabled(cls):
        words = vllm.config.get_cached_compilation_config().custom_ops
        on, off = (any(sign + name in words for name in (given, cls.name)) for sign in "+-")
        return on if on != off else theirs(cls)

    layer.enabled = classmethod(enabled)


def policy_name(layer, replaced):
    """Returns the name, in words of custom_ops, of the class that a layer replaces; None: it has none."""
    registered = custom_op.op_registry.items()
    return next((n for n, c in registered if c.__name__ == replaced), next((n for n, c in registered if c in layer.__mro__), None))


def warn_of_main(layer):
    """Warns of a layer from __main__, which is not registered in processes that vLLM spawns."""
    if layer.__module__ == "__main__":
        warnings.warn(f"{layer.__qualname__} is registered in vLLM from __main__: processes that vLLM spawns run vLLM's own layer in its place, unless "
                      "it is registered outside of `if __name__ == \"__main__\":`. A plugin of vLLM (entry point group vllm.general_plugins) "
                      "registers it in every process", stacklevel=4)
