"""One operator in torch: its fake function and its gradient, from its declaration."""
import copy

import torch

import dovetail._core

from . import native, out, packed, private
from .autograd import Autograd
from .contract import Contract
from .entry import entry
from .formula import Native, expanding
from .gradient import Missing
from .transforms import autocast, flops, sharding
from .schema import Schema
from .types import readable_schema, type_text


natives = {}  # "dovetail_native::ns_name.overload" -> operator


def same_numbers(a, b):
    """Decides without a guard on symbols: False if unknown."""
    if all(type(n) is int for n in (*a, *b)):
        return tuple(a) == tuple(b)
    from torch.fx.experimental.symbolic_shapes import statically_known_true
    return all(statically_known_true(n == m) for n, m in zip(a, b))


def _tensors(values):
    """Those among values, and in lists of them."""
    for v in values:
        if isinstance(v, torch.Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from (t for t in v if isinstance(t, torch.Tensor))


def give_tags(overload, names):
    """The declared tags that torch has. The C code sets them if libtorch accepts them (from 2.12)."""
    tags = [getattr(torch.Tag, n) for n in (*names, "pt2_compliant_tag") if hasattr(torch.Tag, n)]
    missing = [t for t in dict.fromkeys(tags) if t not in overload._tags]
    if missing:
        overload._tags = [*overload._tags, *missing]
        overload._nondeterministic_seeded = torch.Tag.nondeterministic_seeded in overload._tags


class Operator(Schema):
    def __init__(self, op, declaration):
        self.pointer, self.declaration = op._pointer, declaration
        self.name = declaration["name"]  # "ns::name.overload"
        self.namespace = self.name.split("::")[0]
        self.packet, overload = _objects(self.name)
        try:
            super().__init__(overload)
            self._describe(declaration)
        except BaseException:
            _take_out(self.name, self.packet)
            raise

    def _describe(self, declaration):
        self.slots = [{"name": a.name, "type": type_text(a.type), "keyword": a.kwarg_only} for a in self.arguments]
        declared = declaration["schema"]["returns"]  # torch does not tell SymInt from int
        self.results = [{"name": r.name, "type": type_text(r.type), "declared": d["type"][0]} for r, d in zip(self.returns, declared)]
        returned = set().union(*(r.alias_info.before_set for r in self.returns if r.alias_info is not None))
        self.written_only = [i for i in self.writes if not returned & self.arguments[i].alias_info.before_set]
        self.contract = Contract(self.name, declaration["contract"], self.slots, self.results) if declaration["contract"] else None
        self.native = Native(self.name, declaration["native"]) if declaration["native"] else None
        self.autograd = Autograd(self)
        self.gradient = not isinstance(self.autograd.rule, Missing)  # is there one?

        self.out = out.find(self)
        for overload in (self.overload, self.out.overload) if self.out else (self.overload,):
            give_tags(overload, declaration["tags"])
        self.overridden = False  # the program has registered kernels for it: overridden.py
        self.kernels_came_before = False
        self.kernel_checks = {x.name: x.call_kernel for x in (self, self.out) if x}
        self.entry = entry(self.name)
        self.entry.function = dovetail._core.find(self.name)
        self._native_library, self._native_overload, self._registration = None, None, None
        self.strategies = []  # for DTensor

    @property
    def is_view(self):
        """Are all its results views of arguments? Then torch's own views implement the contract."""
        return bool(self.contract and self.returns and not self.writes and all(r.alias_info is not None for r in self.returns))

    def fake(self, /, *args, **kwargs):
        values = self.bind(args, kwargs)
        if self.contract:
            results = self.contract.infer(values)
        elif not self.returns:
            results = []
        else:
            raise NotImplementedError(f"{self.name}: it has no contract, so the shapes of its results are not known without running it")
        return self.returned(results)

    def refuse_gradient(self, values):
        """An operator that writes and declares no gradient: torch would drop the gradient silently."""
        for i, (a, value) in enumerate(zip(self.arguments, values)):
            for x in value if isinstance(value, (list, tuple)) else (value,):
                if not isinstance(x, torch.Tensor) or not x.requires_grad:
                    continue
                if i in self.writes and x.is_leaf:
                    raise RuntimeError(f"{self.name}: argument '{a.name}': a leaf that requires grad cannot be written to in place")
                raise RuntimeError(f"{self.name}: argument '{a.name}' requires grad, and this operator, which writes to its arguments, declares "
                                   "no gradient: declare one (.gradient), detach it, or call under torch.no_grad()")

    def install(self, library, registration):
        """Add the parts that C cannot register. library: the torch.library.Library that owns them; registration: the C registration."""
        self._registration = registration
        if self.contract or not self.returns:
            private.register_fake(self.name, self.fake, library)
        if native.bridge.dv_torch_has_autograd_kernel(registration, self.name.encode()):
            self.autograd.attach(registration)
        else:
            library.impl(self.name.split("::")[1], self.autograd.python, "Autograd")
        if self.out and self.contract:
            self.out.install(library)
        if self.native:
            self._kept = self.run_native  # C has its address
            native.check(native.bridge.dv_torch_set_decomposition(registration, self.name.encode(), id(self._kept)))
        local = self.name.split("::")[1]
        if private.vmap:
            from .transforms import vmap
            vmap.install(self, library, local)
        if private.functional:
            from .transforms import functional
            functional.install(self, library)
        autocast.install(self, library, local)
        flops.install(self)
        self.strategies = sharding.install(self)

    def shorten(self, gradient):
        """Let calls of the library's function run the kernel directly if nothing else would run; and if only a gradient is needed besides,
        call `gradient` with all arguments by position."""
        entry = native.bridge.dv_torch_find_operator(self._registration, self.name.encode())
        dovetail._core.torch.operator(self.pointer, entry, self.overload, self.defaults, gradient)

    # ---- the decomposition, run by torch

    def call_native(self, values):
        """The decomposition as the operator itself would run: the contract is checked, and results are new tensors of its dtypes and strides."""
        return self.checked(lambda: self.native(dict(zip(self.names, values))), values, "the decomposition")

    def checked(self, run, values, who):
        """Call run(), which returns a list of results, in place of the operator's kernels, with all checks of the contract."""
        expected = self.contract.expected(values) if self.contract else [None] * len(self.returns)
        results = run()
        if len(results) != len(self.returns):
            raise RuntimeError(f"{self.name}: {who} gives {len(results)} results, but there must be {len(self.returns)}")
        for i, (alias, e) in enumerate(zip(self.alias, expected)):
            results[i] = values[alias] if alias is not None else self._conformed(results[i], e, self.results[i]["name"] or i, who, values)
        return self.returned(results)

    def call_kernel(self, kernel, args, kwargs):
        """Call a Python kernel that the program registered for the operator."""
        def run():
            out = kernel(*args, **kwargs)
            return [out] if len(self.returns) == 1 else [] if out is None else list(out)

        return self.checked(run, self.bind(args, kwargs), "the Python kernel")

    def _conformed(self, x, expected, name, who, values):
        """A result as the operator's own kernels would give it: a new tensor with the contract's strides, or a list of such."""
        label = f"{self.name}: result '{name}': {who}"
        if isinstance(expected, list):
            if not isinstance(x, (list, tuple)) or len(x) != len(expected):
                found = f"a list of {len(x)}" if isinstance(x, (list, tuple)) else type(x).__name__
                raise RuntimeError(f"{label} gives {found}, but it must be a list of {len(expected)} tensors")
            return [self._conformed(y, e, f"{name}[{i}]", who, values) for i, (y, e) in enumerate(zip(x, expected))]
        as_expected = expected is not None and expected.is_met(x)
        if expected is not None and not as_expected:
            expected.check(x, label)
        if not isinstance(x, torch.Tensor):
            return x
        is_new = not any(private.operators._is_alias_of(x, t) for t in _tensors(values))
        if expected is None:
            return x if is_new else x.clone()
        if is_new and (as_expected or x.dim() < 2 and x.is_contiguous() or same_numbers(x.stride(), expected.example.stride())):
            return x
        return torch.empty_strided(x.shape, expected.example.stride(), dtype=x.dtype, device=x.device).copy_(x)

    def run_native(self, *values):
        """The C kernel calls this to run the decomposition where it cannot itself: on an accelerator. The arguments of out= follow."""
        values = packed.values_of(self.name) or list(values)
        with private.operators._AutoDispatchBelowADInplaceOrView():  # gradients and versions are settled
            made = self.call_native(values[:len(self.arguments)])
            return self.out.results(self.out.copy(values[len(self.arguments):], made)) if len(values) > len(self.arguments) else made

    def native_overload(self):
        """The decomposition as a torch operator of its own, dovetail_native::ns_name, which every trace decomposes below autograd. A graph
        contains it if the policy turns the operator off. Gradients, vmap and autocast are the operator's. Defined when first needed."""
        if self._native_overload is None:
            local = self.name.replace("::", "_")
            library = self._native_library = torch.library.Library("dovetail_native", "FRAGMENT")  # noqa: TOR901
            schema = readable_schema(self.overload._schema)
            library.define(local + schema[schema.index("("):], tags=torch.Tag.pt2_compliant_tag)
            packet, _, overload = local.partition(".")
            as_native = copy.copy(self)
            as_native.overload = self._native_overload = getattr(getattr(torch.ops.dovetail_native, packet), overload or "default")
            as_native.autograd = Autograd(as_native)

            def kernel(*args, **kwargs):
                with expanding(self):
                    return self.call_native(self.bind(args, kwargs))

            library.impl(local, kernel, "CompositeExplicitAutograd")
            library.impl(local, as_native.autograd.python, "Autograd")
            as_native.overload.py_impl(private.operators.DispatchKey.CompositeImplicitAutograd)(kernel)  # where OpOverload.decompose() looks
            if self.contract or not self.returns:
                private.register_fake("dovetail_native::" + local, self.fake, library)
            if private.vmap:
                from .transforms import vmap
                vmap.install(as_native, library, local)
            autocast.install(as_native, library, local)
            natives["dovetail_native::" + local] = self
        return self._native_overload

    def retire(self):
        """Code that keeps the operator gets Dovetail's message, not torch's for an operator without a schema."""
        self.entry.clear()
        self.autograd.detach()
        if self._registration is not None:
            native.bridge.dv_torch_set_decomposition(self._registration, self.name.encode(), None)
        if self._native_library is not None:
            natives.pop("dovetail_native::" + self.name.replace("::", "_"), None)
            self._native_overload.py_kernels.clear()
            self._native_overload._dispatch_cache.clear()
            self._native_library._destroy()
        if private.functional:
            from .transforms import functional
            functional.retire(self)
        flops.retire(self)
        sharding.retire(self.strategies)
        _take_out(self.name, self.packet)


# torch keeps one Python object for an operator's name as long as the process lives, also when the operator is defined anew. So the
# objects of a removed operator are used again when it is registered again.
_retired = {}


class _Gone:
    """Replaces the call of a removed operator. torch hashes operators by their call."""

    def __init__(self, call, name):
        self.call, self.name = call.call if isinstance(call, _Gone) else call, name

    def __hash__(self):
        return hash(self.call)

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{self.name}: its library was unloaded")


def _take_out(name, packet):
    """Remove an operator's objects from torch.ops: its overload and the out= overload, if they exist."""
    own = name.partition(".")[2]
    overloads = {n: getattr(packet, n) for n in packet._dir if n in (own or "default", f"{own}_out" if own else "out")}
    for x in (packet, *overloads.values()):
        x._op = _Gone(x._op, name)
    _retired[name] = packet, overloads
    space = getattr(torch.ops, name.split("::")[0])
    vars(space).pop(packet.__name__, None)
    space._dir[:] = [n for n in space._dir if n != packet.__name__]  # torch goes through it, and asks for each


def _objects(name):
    """The packet and the overload of an operator that is registered in torch."""
    space, local = name.split("::")
    local, _, overload = local.partition(".")
    packets = getattr(torch.ops, space)
    fresh = getattr(packets, local)
    overload = overload or "default"
    if name not in _retired:
        return fresh, getattr(fresh, overload)
    packet, overloads = _retired.pop(name)
    if isinstance(packet._op, _Gone):
        packet._op = packet._op.call
    for key, old in overloads.items():
        if key in fresh.overloads():
            _revive(old, getattr(fresh, key))
            setattr(packet, key, old)
    packet._overload_names = private.operators._jit_get_operation(f"{space}::{local}")[1]
    setattr(packets, local, packet)
    return packet, getattr(packet, overload)


def _revive(old, fresh):
    if isinstance(old._op, _Gone):
        old._op = old._op.call
    old._schema, old._tags, old._op_dk = fresh._schema, fresh._tags, fresh._op_dk
    old._dispatch_cache.clear()
