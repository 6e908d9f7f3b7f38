"""Everything private of torch that the bridge uses: one Feature each, with the names that it needs and what is lost without it; and the
attributes of its objects.

torch promises nothing about these names, and each version has others. A feature looks its names up when it is first asked for. Where one
is missing the feature is off, and torch is left alone: `if feature:` asks, `feature.name` gives. `dovetail.torch.explain()` lists them all,
and DOVETAIL_DEBUG=1 says so when one turns out to be off.
"""
import functools
import importlib
import os
import sys
import threading

_DEBUG = int(os.environ.get("DOVETAIL_DEBUG") or 0)
_lock = threading.RLock()
features = {}  # name -> Feature, in the order of the table below


class Lacking(Exception):
    """What this torch does not have: raised by the `works` of a Feature."""


class Feature:
    """A group of private names of torch, each an attribute under its last part. `works`: a function of the feature that raises if the
    names exist but behave differently. `after`: explain() tests the feature only once this module is imported."""

    def __init__(self, name, lost, *names, works=None, after="torch"):
        self.name, self.lost, self.names, self.works, self.after = name, lost, names, works, after
        self.why = None  # None: not looked up yet; "": on; else why it is off
        features[name] = self

    def __bool__(self):
        if self.why is None:
            self.why = self._missing()
            if self.why and _DEBUG >= 1:
                print(f"dovetail: torch: {self}", file=sys.stderr)
        return not self.why

    def __getattr__(self, name):  # called only for names that are not looked up yet
        if name.startswith("__") or self.why is not None or not self:
            raise AttributeError(f"{name}: {self}")
        return getattr(self, name)

    def _missing(self):
        for path in self.names:
            try:
                setattr(self, path.rpartition(".")[2], find(path))
            except ImportError:
                return f"this torch has no {path}"
        try:
            if self.works:
                self.works(self)
        except Lacking as lacking:
            return str(lacking)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def off(self, why):
        """It was found not to work."""
        self.why = why
        if _DEBUG >= 1:
            print(f"dovetail: torch: {self}", file=sys.stderr)

    def __str__(self):
        if self.why is None:
            return f"{self.name}: not asked for before {self.after} is imported"
        return f"{self.name}: off: {self.why}: {self.lost}" if self.why else f"{self.name}: on"


def find(path):
    """The object at a dotted path, whose modules are imported if necessary."""
    found, so_far = importlib.import_module("torch"), "torch"
    for part in path.split(".")[1:]:
        so_far += "." + part
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(so_far)
    return found


# ---- functions of torch that are replaced while libraries are registered, where torch has no other way to tell us

class Replaced:
    """A function of torch (an attribute of `owner`) that also calls Dovetail's function while a library is registered. It always calls
    torch's function, unless `instead` returns a value; `change` may replace its arguments: (args, kwargs). An error in Dovetail's
    function turns this off; torch never sees it."""

    def __init__(self, path, before=None, instead=None, after=None, change=None, module="torch"):
        self.path, self.before, self.instead, self.after, self.change, self.module = path, before, instead, after, change, module
        self.owner = self.ours = self._original = None
        _replaced.append(self)
        if _registered:
            self.expect()

    def expect(self):
        """on(), as soon as its module is there."""
        from . import _when_imported
        _when_imported(self.module, self._on_if_registered)

    def _on_if_registered(self):
        with _lock:
            if _registered:
                self.on()

    @property
    def original(self):
        """torch's own, replaced or not."""
        return self._original or find(self.path)

    def on(self):
        if self.ours is None:
            try:
                self.owner = find(self.path.rpartition(".")[0])
                self._original = original = vars(self.owner)[self.path.rpartition(".")[2]]
            except (ImportError, KeyError):
                return replacing.off(f"this torch has no {self.path}")

            @functools.wraps(original)
            def calls_on(*args, **kwargs):
                self._ask(self.before, *args, **kwargs)
                found = self._ask(self.instead, *args, **kwargs)
                if found is not None:
                    return found
                args, kwargs = self._ask(self.change, *args, **kwargs) or (args, kwargs)
                result = original(*args, **kwargs)
                self._ask(self.after, *args, **kwargs)
                return result

            self.ours = calls_on
            setattr(self.owner, self.path.rpartition(".")[2], calls_on)

    def off(self):
        """If other code has replaced this function meanwhile, it stays below that code and only calls torch's function."""
        name = self.path.rpartition(".")[2]
        if self.ours is not None and vars(self.owner).get(name) is self.ours:
            setattr(self.owner, name, self._original)
            self.ours = self._original = None

    def _ask(self, f, *args, **kwargs):
        if f is None or not _registered:
            return None
        try:
            return f(*args, **kwargs)
        except Exception as error:
            replacing.off(f"{self.path}: {type(error).__name__}: {error}")
            return None


_replaced = []
_registered = 0


def registered():
    """Called before a library is registered. Is it the first?"""
    global _registered
    with _lock:
        _registered += 1
        if _registered == 1:
            for x in _replaced:
                x.expect()
        return _registered == 1


def unregistered():
    global _registered
    with _lock:
        _registered -= 1
        if not _registered:
            for x in _replaced:
                x.off()




# ---- the table

DEVICES = ("CPU", "CUDA", "PrivateUse1")  # of plain tensors, as guard.h counts them

# Attributes of torch's objects, which other files read without a Feature: `operators` is off where an object lacks one.
ATTRIBUTES = {
    "torch.ops.aten.add.Tensor": ("_schema", "_op", "_op_dk", "_tags", "_opname", "_overloadname", "_overloadpacket", "_dispatch_cache",
                                  "_nondeterministic_seeded", "_defined_in_python"),
    "torch.ops.aten.add": ("_op", "_dir", "_overload_names", "_qualified_op_name"),
    "torch.ops.aten": ("_dir",),
    "torch.library.Library": ("_destroy", "_register_fake"),
    "torch.autograd.forward_ad": ("_current_level", "_set_fwd_grad_enabled"),
    "torch.Tensor": ("_cdata", "_is_view", "_base"),
}
# Attributes that only instances have: of torch.library.Library, CustomOpDef, the contexts and classes of torch.autograd.Function, and backends
# that Dynamo wraps; DTensor.
OF_INSTANCES = {"_op_defs", "_op_impls", "_autograd_function_id", "_input_metadata", "_backward_cls", "_opoverload", "_qualname", "_backend_fns",
                "_disabled_kernel", "_torchdynamo_orig_backend", "_local_tensor", "_spec", "_lib", "_name"}
RULES = ("_abstract_fn", "_setup_context_fn", "_backward_fn", "_torch_dispatch_fns", "_vmap_fn", "_autocast_cpu_dtype", "_autocast_cuda_dtype")  # of CustomOpDef


def _has_attributes(feature):
    for path, names in ATTRIBUTES.items():
        for name in names:
            if not hasattr(find(path), name):
                raise Lacking(f"this torch has no {path}.{name}")


_KEYS = "torch._C.DispatchKey", "torch._C.DispatchKeySet", "torch._C._ExcludeDispatchKeyGuard"
_FUNCTORCH = "torch._functorch.pyfunctorch.retrieve_current_functorch_interpreter", "torch._C._functorch.peek_interpreter_stack"

operators = Feature(
    "operators", "libraries are not registered in torch: their functions take NumPy arrays and no tensors", *_KEYS,
    "torch._C._after_autograd_keyset", "torch._C._AutoDispatchBelowAutograd", "torch._C._AutoDispatchBelowADInplaceOrView",
    "torch._C._is_fwd_grad_enabled", "torch._VF._unpack_dual", "torch._C._functorch.unwrap_if_dead", "torch._C._functorch.peek_interpreter_stack",
    "torch._C._get_privateuse1_backend_name", "torch._C._autograd._get_creation_meta", "torch._C._VariableFunctions", "torch._C._is_alias_of", "torch._C._jit_get_operation", "torch._ops.key_extractor",
    "torch._functorch.utils.enable_single_level_autograd_function", "torch._functorch.eager_transforms.enable_inplace_requires_grad",
    "torch.autograd.function._SingleLevelFunction", "torch._prims_common.wrappers._maybe_resize_out", "torch._C._FunctionBase.to_save",
    "torch._C._FunctionBase.dirty_tensors", "torch._C._FunctionBase.non_differentiable", "torch._C._FunctionBase.materialize_grads",
    works=_has_attributes)
fake = Feature("fake", "fakes are registered by torch.library.register_fake, which is slower", "torch._library.simple_registry.singleton",
               works=lambda torch: torch.singleton.find("aten::add").fake_impl.register)


def register_fake(name, fn, library):
    """torch.library.register_fake, without its search through all modules for the caller's name: 5 ms for each operator at import."""
    if fake:
        fakes = fake.singleton.find(name).fake_impl
        library._registration_handles.append(fakes.register(fn, "the operator's declaration", lib=library))
    else:
        import torch.library
        torch.library.register_fake(name, fn, lib=library)


vmap = Feature("vmap", "torch.vmap loops over the batch", *_KEYS, *_FUNCTORCH, "torch._C._functorch._add_batch_dim", "torch._C._functorch._unwrap_batched")
functional = Feature(
    "functional", "operators that write to what they return are refused in graphs and by torch.func.functionalize", *_KEYS, *_FUNCTORCH,
    "torch._C._functorch.TransformType", "torch._C._functorch._wrap_functional_tensor", "torch._is_functional_tensor",
    "torch._functionalize_replace", "torch._functionalize_commit_update", "torch._functionalize_sync", "torch._from_functional_tensor",
    "torch._to_functional_tensor", "torch._C._get_dispatch_mode", "torch._C._TorchDispatchModeKey", "torch._ops._get_dispatch_mode_pre_dispatch",
    "torch._subclasses.functional_tensor.FunctionalTensorMode")
modes = Feature("modes", "a contract is evaluated at each call of a decomposition on an accelerator", "torch._C._len_torch_dispatch_stack")
like = Feature("like", "a result that is `like` an argument of another shape has no fake",
               "torch._prims_common.compute_elementwise_output_logical_to_physical_perm")
samples = Feature(
    "samples", "calls use torch's dispatcher", "torch._C._dispatch_keys", "torch._C._parse_dispatch_key", "torch._C.DispatchKeySet",
    "torch._C._set_throw_on_mutable_data_ptr", "torch._lazy_clone", "torch._C._AutoDispatchBelowAutograd", "torch._C._AutoDispatchBelowADInplaceOrView",
    "torch._neg_view", "torch._efficientzerotensor", "torch._VF._make_dual")
python_kernels = Feature(
    "python_kernels", "dovetail.custom_op and its like are torch.library's own: calls take as long as there", "torch._library.custom_ops.CustomOpDef",
    "torch._library.custom_ops.OPDEFS", "torch._library.utils.lookup_op", "torch._library.utils.parse_namespace", "torch.library._impls",
    "torch.library._keep_alive", "torch._C._dispatch_has_kernel_for_dispatch_key", "torch._C._dispatch_key_for_device",
    "torch.jit._builtins._register_builtin", "torch._C._dynamo.eval_frame.get_eval_frame_callback")
def _derives_from_its_global(feature):
    """Raises Lacking unless make_autograd_impl() takes the base class of its Function from its global `autograd`."""
    import torch
    if "autograd" not in feature.make_autograd_impl.__code__.co_names or torch.autograd is not feature.make_autograd_impl.__globals__["autograd"]:
        raise Lacking("torch._library.autograd.make_autograd_impl has another form")


python_autograd = Feature("python_autograd", "torch.func refuses the gradients of dovetail.custom_op", "torch._library.autograd.make_autograd_impl",
                          "torch._C._are_functorch_transforms_active", works=_derives_from_its_global)
traced = Feature("traced", "torch.func.functionalize refuses such operators while a graph is made",
                 "torch._higher_order_ops.auto_functionalize.auto_functionalized_v2", "torch._C._SetExcludeDispatchKeyGuard")
out = Feature("out", "graphs refuse out= overloads", "torch._subclasses.functional_tensor.CppFunctionalizeAPI",
              "torch._subclasses.functional_tensor.FunctionalTensorMode", "torch._subclasses.functional_tensor.PythonFunctionalizeAPI")
flops = Feature("flops", "FlopCounterMode counts nothing", "torch.utils.flop_counter.flop_registry", "torch._C._jit_resolve_packet",
                after="torch.utils.flop_counter")
functional_views = Feature(
    "functional_views", "a compiled program that writes a part of an input with a storage offset writes another part",
    "torch._higher_order_ops.auto_functionalize.get_base", "torch._from_functional_tensor", "torch._sync", "torch._prims_common.compute_required_storage_length")
sharding = Feature("sharding", "DTensor refuses the operators", "torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator",
                   "torch.distributed.tensor.DTensor", "torch.distributed.tensor._random", "torch.distributed.tensor._random._rng_tracker",
                   "torch.distributed.tensor._random.OffsetBasedRNGTracker",
                   "torch.distributed.tensor.DTensor._op_dispatcher._custom_op_handlers", "torch.distributed.tensor.DTensor._op_dispatcher._random_ops",
                   "torch.distributed.tensor._op_schema.RuntimeSchemaInfo", "torch.distributed.tensor._op_schema.OpStrategy",
                   "torch.distributed.tensor._ops.utils.expand_to_full_mesh_op_strategy", after="torch.distributed.tensor")
dynamo = Feature(
    "dynamo", "torch.compile traces torch.ops.ns.f only, not functions of a library, and the policy is asked at every call",
    "torch._dynamo.guards.GuardBuilder", "torch._dynamo.guards.install_guard", "torch._dynamo.source.AttrSource", "torch._dynamo.source.GlobalSource",
    "torch._dynamo.variables.base.VariableTracker", "torch._dynamo.variables.torch.TorchInGraphFunctionVariable._get_handlers",
    "torch._dynamo.guards.GuardBuilder.ID_MATCH", "torch._dynamo.guards.GuardBuilder.CONSTANT_MATCH", "torch._dynamo.exc.unimplemented",
    "torch._dynamo.eval_frame.skip_code", "torch._dynamo.variables.base.VariableTracker.build", works=lambda torch: torch._get_handlers().items(),
    after="torch._dynamo")
inductor = Feature(
    "inductor", "compiled programs call the operators by torch's dispatcher, and Inductor does not plan their memory", "torch._inductor.ir",
    "torch._inductor.ir.FallbackKernel", "torch._inductor.ir.FallbackKernel.process_kernel", "torch._inductor.ir.MultiOutput",
    "torch._inductor.ir.MultiOutputLayout", "torch._inductor.lowering", "torch._inductor.lowering.lowerings",
    "torch._inductor.lowering.add_layout_constraint", "torch._inductor.lowering.tag_to_layout_constraint", "torch._inductor.virtualized.V",
    "torch._library.utils.get_layout_constraint_tag", "torch._inductor.lowering.fallback_handler", "torch._inductor.codecache.BypassFxGraphCache", after="torch._inductor.lowering")
replacing = Feature("replacing", "some events in torch are missed: see private.Replaced")

def _gives_reasons(feature):
    import ctypes
    import pathlib

    import torch
    if not hasattr(ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")), "torch_exception_get_what_without_backtrace"):
        raise Lacking("this libtorch has no torch_exception_get_what_without_backtrace, which is torch 2.13's")


reasons = Feature("reasons", "where libtorch refuses something, such as the memory of a fake tensor, our message says 'libtorch gave no reason'; torch "
                  "prints it to stderr", works=_gives_reasons)


def _found(path):
    """None: this torch has no such name, and nothing is lost."""
    try:
        return find(path)
    except ImportError:
        return None


out_variant = _found("torch._library._out_variant")  # since 2.11
dispatch_dump = _found("torch._C._dispatch_dump")
# Before torch had this name, kernels of torch.library.custom_op that write ran below ADInplaceOrView, where no writes are counted.
writes_below = _found("torch._library.custom_ops.CustomOpDef._register_mutation_version_bump") is None


def factor_of(size):
    """The number that a SymInt is a multiple of, as its expression shows: 2 of `2*s0`; else 1."""
    try:
        return int(size.node.expr.as_coeff_Mul()[0])
    except Exception:
        return 1


def explain():
    """Which private features of this torch are on and off, as text."""
    import torch
    from .. import _core
    short = _core.torch.why()
    lines = [f"torch {torch.__version__}", f"  short calls: off: {short}: calls use torch's dispatcher" if short else "  short calls: on"]
    for feature in features.values():
        if feature.after in sys.modules:
            bool(feature)
        lines.append(f"  {feature}")
    return "\n".join(lines)
