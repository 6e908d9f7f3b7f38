"""CustomOp: a layer with several forms, of which the platform and the policy choose one when the layer is made."""
import collections
import collections.abc
import sys
import threading
import warnings

import torch

import dovetail
from dovetail import _core

_here = threading.local()


class _Block:
    """Of its kind (_name) the one of the innermost `with` block applies."""

    def __enter__(self):
        self._outer = getattr(_here, self._name, None)
        setattr(_here, self._name, self)
        return self

    def __exit__(self, *exception):
        setattr(_here, self._name, self._outer)


PLATFORMS = ("cpu", "cuda", "hip", "xpu", "tpu", "npu", "oot")


def _is_device(name):
    try:
        return torch.device(name).type == name
    except (RuntimeError, TypeError):
        return False


def _check(words):
    """Raises ValueError if an element of custom_ops is not one word. dovetail.policy, which splits a text into words, checks the rest."""
    for word in () if isinstance(words, str) else words:
        if not word or any(c.isspace() or c in ",\0" for c in word):
            raise ValueError(f"CompilationConfig: custom_ops: expected words such as all, none, +name or -name, found {word!r}")


class CompilationConfig(_Block):
    """What CustomOps need of vLLM's class of this name. Layers that are made in its `with` block follow it:

        with CompilationConfig(custom_ops="none,+rms_norm", backend="inductor") as config:
            model = Model()
        config.enabled_custom_ops      # Counter({'rms_norm': 24})

    custom_ops: words as of dovetail.policy, a list or a str. Without any the policy of dovetail.policy applies. Where neither says all or
    none, CustomOps are off for the backend inductor, which fuses their decompositions, and on for all others.
    backend: the one that torch.compile will have; "" in eager mode.
    platform: cpu, cuda, hip, xpu, tpu, npu or oot; by default the one that torch has here.
    """

    _name, backend, platform = "config", "", None

    def __init__(self, custom_ops=(), backend="", platform=None):
        words = custom_ops.replace(",", " ").split() if isinstance(custom_ops, str) else custom_ops
        if not isinstance(words, collections.abc.Iterable) or not all(isinstance(w, str) for w in words):
            raise TypeError(f"CompilationConfig: custom_ops: expected words as of dovetail.policy, found {custom_ops!r}")
        if platform is not None and platform not in PLATFORMS and not _is_device(platform):
            raise ValueError(f"CompilationConfig: platform: expected {', '.join(PLATFORMS)} or another device of torch, found {platform!r}")
        if backend != "" and not callable(backend) and backend not in torch._dynamo.list_backends(None):
            raise ValueError(f"CompilationConfig: backend: expected \"\" or one of torch._dynamo.list_backends(None), found {backend!r}")
        self.custom_ops = list(words)
        _check(self.custom_ops)  # a str was split
        self.backend = backend
        self.platform = platform
        self.enabled_custom_ops = collections.Counter()
        self.disabled_custom_ops = collections.Counter()
        with dovetail.policy(self.custom_ops):  # a mistake is an error here, not at the first layer
            pass


    def __exit__(self, *exception):
        super().__exit__(*exception)
        made = {*getattr(self, "enabled_custom_ops", ()), *getattr(self, "disabled_custom_ops", ())}
        for word in self.custom_ops if made and exception[0] is None else ():
            if word[0] in "+-" and word[1:] not in made:
                warnings.warn(f"CompilationConfig: custom_ops: {word!r} has no effect: no layer of this name was made", stacklevel=2)


def config(layout):
    """vLLM's decorator, for a dataclass with the fields of CompilationConfig: layers that are made in its `with` block follow it."""
    return type(layout.__name__, (layout, CompilationConfig), {"__module__": layout.__module__, "__doc__": layout.__doc__})


class ForwardContext(_Block):
    """What operators need of vLLM's class of this name: the layers of a model, by name.

        with ForwardContext({"model.layers.0.mlp": layer}):
            model(x)      # its operators find the layer by get_forward_context().no_compile_layers
    """
    _name = "context"

    def __init__(self, no_compile_layers):
        self.no_compile_layers = no_compile_layers


def get_forward_context():
    """vLLM's, while it runs a model; else the innermost `with` block's."""
    vllm = sys.modules.get("vllm.forward_context")
    if vllm and vllm.is_forward_context_available():
        return vllm.get_forward_context()
    found = getattr(_here, "context", None)
    if found is None:
        raise AssertionError("get_forward_context: expected a block `with ForwardContext(...)`, or a model that vLLM runs, found none")
    return found


class _CurrentPlatform:
    """What registrations need of vLLM's object of this name."""

    @property
    def dispatch_key(self):
        return {"cpu": "CPU", "cuda": "CUDA", "hip": "CUDA", "xpu": "XPU"}.get(_platform(_config()), "PrivateUse1")


current_platform = _CurrentPlatform()
_default = CompilationConfig()


def _config():
    """vLLM's, while it makes a model; else the innermost `with` block's; else one for the process."""
    vllm = sys.modules.get("vllm.config")
    theirs = vllm.get_current_vllm_config_or_none() if vllm else None
    return theirs.compilation_config if theirs else getattr(_here, "config", None) or _default


def _platform(config):
    given = getattr(config, "platform", None)
    if given:
        return given
    if "vllm.platforms" in sys.modules and config is not _default and not isinstance(config, CompilationConfig):
        from vllm.platforms import current_platform
        known = {n: getattr(current_platform, f"is_{n}", bool)() for n in ("rocm", "cpu", "tpu", "xpu", "out_of_tree")}
        found = next((n for n, yes in known.items() if yes), "cuda")
        return {"rocm": "hip", "out_of_tree": "oot"}.get(found, found)
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    name = found.type if found else "cpu"
    return "hip" if name == "cuda" and torch.version.hip else name


class CustomOp(torch.nn.Module):
    """Derive from it, register the class by a name, and write forward_native and forms for platforms:

        @CustomOp.register("rms_norm")
        class RMSNorm(CustomOp):
            def forward_native(self, x): ...
            def forward_cuda(self, x): ...

    A layer runs forward_native where the policy turns its name off. A platform without a form runs forward_native too, except hip, which runs
    forward_cuda.
    """

    op_registry = {}      # name -> class
    op_registry_oot = {}  # name of a class -> the class that is made in its place

    def __new__(cls, *args, **kwargs):
        return super().__new__(CustomOp.op_registry_oot.get(cls.__name__, cls))

    def __init__(self, *, enforce_enable=False, compile_native=False):
        super().__init__()
        self._enforce_enable = enforce_enable
        self._forward_method = self.dispatch_forward(compile_native)

    def forward(self, *args, **kwargs):
        return self._forward_method(*args, **kwargs)

    def forward_native(self, *args, **kwargs):
        raise NotImplementedError(f"{type(self).__name__} has no forward_native")

    def forward_cuda(self, *args, **kwargs):
        return self.forward_native(*args, **kwargs)

    def forward_hip(self, *args, **kwargs):
        return self.forward_cuda(*args, **kwargs)

    forward_cpu = forward_xpu = forward_tpu = forward_npu = forward_oot = forward_cuda

    def dispatch_forward(self, compile_native=False):
        """The bound method that this layer will run; compile_native: forward_native compiled, as maybe_compile() does it. Counted in the
        configuration."""
        config = _config()
        on = self._enforce_enable or self.enabled()
        (config.enabled_custom_ops if on else config.disabled_custom_ops).update([self._policy_name()])
        return getattr(self, f"forward_{_platform(config)}", self.forward_oot) if on else self.maybe_compile(self.forward_native, enable=compile_native)

    def maybe_compile(self, fn, *, enable=True):
        """fn compiled, unless the configuration compiles nothing. For layers within an operator, where the model's torch.compile does not look."""
        config = _config()
        if not enable or config.backend == "eager":
            return fn
        if isinstance(config, CompilationConfig):
            return torch.compile(fn, dynamic=True, backend=config.backend) if config.backend else fn
        return fn if getattr(config.mode, "name", "NONE") == "NONE" else torch.compile(fn, dynamic=True)

    @classmethod
    def _policy_name(cls):
        """Returns the name in the policy. A class that is made in the place of another one has the name of that class."""
        replaced = next((r for r, layer in CustomOp.op_registry_oot.items() if layer is cls), None)
        found = next((n for n, layer in CustomOp.op_registry.items() if layer.__name__ == replaced), None)
        return found or getattr(cls, "name", cls.__name__)

    @classmethod
    def enabled(cls):
        """Would a layer that is made now run its platform's form?"""
        return _decide(cls._policy_name())

    @staticmethod
    def default_on():
        """The same for a name that no word of the policy has."""
        return _decide("")

    @classmethod
    def register(cls, name, dynamic_arg_dims=None):
        """Registers a layer under a name. dynamic_arg_dims: vLLM's hint for compiling forward_native, not used: all dims are dynamic here."""
        def decorator(layer):
            if not (isinstance(layer, type) and issubclass(layer, CustomOp)):
                raise TypeError(f"CustomOp.register: {name!r}: expected a class derived from CustomOp, found {layer!r}")
            if name in CustomOp.op_registry:
                raise ValueError(f"CustomOp.register: the name {name!r} belongs to {CustomOp.op_registry[name].__qualname__} already")
            layer.name = name
            CustomOp.op_registry[name] = layer
            return layer
        return decorator

    @classmethod
    def register_oot(cls, _decorated_op_cls=None, name=None):
        """Make another class in the place of one: @RMSNorm.register_oot, or @CustomOp.register_oot(name="RMSNorm"). It keeps the name that
        the policy knows."""
        def decorator(layer):
            replaced = name or cls.__name__
            if not (isinstance(layer, type) and issubclass(layer, CustomOp)):
                raise TypeError(f"CustomOp.register_oot: {replaced!r}: expected a class derived from CustomOp, found {layer!r}")
            if replaced in CustomOp.op_registry_oot:
                raise ValueError(f"CustomOp.register_oot: {replaced} is replaced by {CustomOp.op_registry_oot[replaced].__qualname__} already")
            CustomOp.op_registry_oot[replaced] = layer
            return layer
        return decorator if _decorated_op_cls is None else decorator(_decorated_op_cls)


def _decide(name):
    config = _config()
    _check(config.custom_ops)
    fuses = config.backend == "inductor"
    if not config.custom_ops:
        return _core.policy_enabled(name, fuses)
    with dovetail.policy(config.custom_ops):
        return _core.policy_enabled(name, fuses)
