"""One operator in torch: its fake function and its gradient, from its declaration."""
import torch

import dovetail._core

from . import autocast, fake, flops, functional, native, out, sharding, vmap
from .autograd import Autograd
from .contract import Contract
from .entry import entry
from .formula import Native
from .gradient import Missing
from .types import default_of


def type_text(t):
    """A torch type as a schema writes it: "Tensor?", "int[]"."""
    text = str(t)
    for form, suffix in (("Optional[", "?"), ("List[", "[]")):
        if text.startswith(form):
            return type_text(text[len(form):-1]) + suffix
    return text


def _alias_of(result, arguments):
    if result.alias_info is None or not result.alias_info.is_write:
        return None
    return next((i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.before_set & result.alias_info.before_set), None)


def give_tags(overload, names):
    """Those of torch's tags that are declared. The C side gives them where libtorch can take them (2.12)."""
    tags = [getattr(torch.Tag, n) for n in (*names, "pt2_compliant_tag") if hasattr(torch.Tag, n)]
    missing = [t for t in dict.fromkeys(tags) if t not in overload._tags]
    if missing:
        overload._tags = [*overload._tags, *missing]
        overload._nondeterministic_seeded = torch.Tag.nondeterministic_seeded in overload._tags


class Operator:
    def __init__(self, pointer, declaration):
        self.pointer, self.declaration = pointer, declaration
        self.name = declaration["name"]  # "ns::name.overload"
        self.namespace = self.name.split("::")[0]
        self.packet, self.overload = _objects(self.name)
        try:
            self._describe(declaration)
        except BaseException:
            _take_out(self.name, self.packet)
            raise

    def _describe(self, declaration):
        schema = self.overload._schema
        self.arguments = list(schema.arguments)
        self.writes = [i for i, a in enumerate(self.arguments) if a.alias_info is not None and a.alias_info.is_write]
        self.slots = [{"name": a.name, "type": type_text(a.type), "keyword": a.kwarg_only} for a in self.arguments]
        self.names = [a.name for a in self.arguments]
        self.defaults = tuple(map(default_of, self.arguments))
        self.returns = list(schema.returns)
        self.alias = [_alias_of(r, self.arguments) for r in self.returns]  # of each return: the argument that it is, Tensor(a!)
        declared = declaration["schema"]["returns"]  # torch does not tell SymInt from int
        self.results = [{"name": r.name, "type": type_text(r.type), "declared": d["type"][0]} for r, d in zip(self.returns, declared)]
        returned = set().union(*(r.alias_info.before_set for r in schema.returns if r.alias_info is not None))
        self.written_only = [i for i in self.writes if not returned & self.arguments[i].alias_info.before_set]
        self.contract = Contract(self.name, declaration["contract"], self.slots, self.results) if declaration["contract"] else None
        self.native = Native(self.name, declaration["native"]) if declaration["native"] else None
        self.autograd = Autograd(self)
        self.gradient = not isinstance(self.autograd.rule, Missing)  # is there one?

        self.out = out.find(self)
        for overload in (self.overload, self.out.overload) if self.out else (self.overload,):
            give_tags(overload, declaration["tags"])
        self.names_in_torch = [self.name, self.out.name] if self.out else [self.name]
        self.overridden = False  # a program has given it kernels of its own: overridden.py
        self.entry = entry(self.name)
        self.entry.function = dovetail._core.find(self.name)
        self._native_library = None

    def bind(self, args, kwargs):
        """All arguments in the schema's order: the dispatcher leaves out those that equal their defaults."""
        values = list(args)
        for i in range(len(args), len(self.names)):
            name = self.names[i]
            values.append(kwargs[name] if name in kwargs else self.defaults[i])
        return values

    def call(self, values):
        """By the dispatcher, with all arguments in the schema's order."""
        return self.overload(*[v for a, v in zip(self.arguments, values) if not a.kwarg_only],
                             **{a.name: v for a, v in zip(self.arguments, values) if a.kwarg_only})

    @staticmethod
    def returned(results):
        """A list of results as an operator returns them."""
        return None if not results else results[0] if len(results) == 1 else tuple(results)

    @property
    def is_view(self):
        """Are all its results views of arguments? Then the contract says them with torch's own."""
        return bool(self.contract and self.returns and not self.writes and all(r.alias_info is not None for r in self.returns))

    def runs_on(self, device):
        """Are there kernel rows for this kind of device ("cpu", "cuda", "npu")?"""
        return native.has_rows(self.pointer, device)

    def fake(self, *args, **kwargs):
        values = self.bind(args, kwargs)
        if self.contract:
            results = self.contract.infer(values)
        elif not self.returns:
            results = []
        else:
            raise NotImplementedError(f"{self.name}: it has no contract, so the shapes of its results are not known without running it")
        return self.returned(results)

    def refuse_gradient(self, values):
        """As the C side does: torch has no gradient for an operator that writes, and would drop it in silence."""
        for i, (a, value) in enumerate(zip(self.arguments, values)):
            for x in value if isinstance(value, (list, tuple)) else (value,):
                if not isinstance(x, torch.Tensor) or not x.requires_grad:
                    continue
                if i in self.writes and x.is_leaf:
                    raise RuntimeError(f"{self.name}: argument '{a.name}': a leaf that requires grad cannot be written to in place")
                raise RuntimeError(f"{self.name}: argument '{a.name}' requires grad, and an operator that writes to its arguments has no "
                                   "gradient in torch: detach it, or call under torch.no_grad()")

    def install(self, library, registration):
        """Add what the C side cannot give. library: the torch.library.Library that it lives as long as; registration: the C side's."""
        if self.contract or not self.returns:
            fake.register(self.name, self.fake, library)
        if native.bridge.dv_torch_has_autograd(registration, self.name.encode()):
            self.autograd.attach(registration)
        else:
            library.impl(self.name.split("::")[1], self.autograd.python, "Autograd")
        if self.out and self.contract:
            self.out.install(library)
        vmap.install(self, library)
        functional.install(self, library)
        autocast.install(self, library)
        flops.install(self)
        sharding.install(self)

    def native_overload(self):
        """The native form as a torch operator of its own, dovetail_native::ns_name, which every trace takes apart: what a graph holds where
        the policy turns the operator off. Defined when it is first needed."""
        name = self.name.replace("::", "_")
        if self._native_library is None:
            self._native_library = torch.library.Library("dovetail_native", "FRAGMENT")  # noqa: TOR901
            schema = str(self.overload._schema)
            self._native_library.define(name + schema[schema.index("("):], tags=torch.Tag.pt2_compliant_tag)
            self._native_library.impl(name, self.call_native, "CompositeImplicitAutograd")
        packet, _, overload = name.partition(".")
        return getattr(getattr(torch.ops.dovetail_native, packet), overload or "default")

    def call_native(self, *args, **kwargs):
        values = self.bind(args, kwargs)
        results = self.native(dict(zip((a.name for a in self.arguments), values)))
        for i, alias in enumerate(self.alias):
            if alias is not None:
                results[i] = values[alias]
        return self.returned(results)

    def retire(self):
        """What still holds the operator gets a message instead of what torch says of an operator without a schema."""
        self.entry.clear()
        self.autograd.detach()
        if self._native_library is not None:
            self._native_library._destroy()
        functional.retire(self)
        flops.retire(self)
        sharding.retire(self)
        _take_out(self.name, self.packet)


# torch keeps one Python object for an operator's name as long as the process lives, also when the operator is defined anew. So the
# objects of an operator that was taken out are used again when it comes back.
_retired = {}


class _Gone:
    """Stands in for the call of an operator that was taken out. torch hashes operators by their call."""

    def __init__(self, call, name):
        self.call, self.name = call.call if isinstance(call, _Gone) else call, name

    def __hash__(self):
        return hash(self.call)

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{self.name}: its library was unloaded")


def _take_out(name, packet):
    """An operator's objects out of torch.ops: its overload and the out= overload, as far as they were asked for."""
    own = name.partition(".")[2]
    overloads = {n: getattr(packet, n) for n in packet._dir if n in (own or "default", f"{own}_out" if own else "out")}
    for x in (packet, *overloads.values()):
        x._op = _Gone(x._op, name)
    _retired[name] = packet, overloads
    space = getattr(torch.ops, name.split("::")[0])
    vars(space).pop(packet.__name__, None)
    space._dir[:] = [n for n in space._dir if n != packet.__name__]  # torch goes through it, and asks for each


def _objects(name):
    """The packet and the overload of an operator that torch knows by now."""
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
    packet._overload_names = torch._C._jit_get_operation(f"{space}::{local}")[1]
    setattr(packets, local, packet)
    return packet, getattr(packet, overload)


def _revive(old, fresh):
    if isinstance(old._op, _Gone):
        old._op = old._op.call
    old._schema, old._tags, old._op_dk = fresh._schema, fresh._tags, fresh._op_dk
    old._dispatch_cache.clear()
