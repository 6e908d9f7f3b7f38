"""One operator in torch: its fake function and its gradient, from its declaration."""
import torch

from . import native
from .contract import Contract
from .formula import Gradient, Native, NativeGradient


def type_text(t):
    """A torch type as a schema writes it, as far as fakes care: "Tensor?", "int[]"."""
    text = str(t)
    return text[len("Optional["):-1] + "?" if text.startswith("Optional[") else text


class Operator:
    def __init__(self, pointer, declaration):
        self.pointer, self.declaration = pointer, declaration
        self.name = declaration["name"]  # "ns::name.overload"
        self.namespace = self.name.split("::")[0]
        self.packet, self.overload = _objects(self.name)
        schema = self.overload._schema
        self.arguments = list(schema.arguments)
        self.writes = [i for i, a in enumerate(self.arguments) if a.alias_info is not None and a.alias_info.is_write]
        self.returns = list(schema.returns)
        self.contract = None
        if declaration["contract"]:
            self.contract = Contract(self.name, declaration["contract"],
                                     [{"name": a.name, "type": type_text(a.type)} for a in self.arguments],
                                     [{"name": r.name, "type": type_text(r.type)} for r in self.returns])
        self.native = Native(self.name, declaration["native"]) if declaration["native"] else None
        self.gradient = None
        if declaration["gradient"]:
            self.gradient = Gradient(self, declaration["gradient"])
        elif self.native and not self.writes:
            self.gradient = NativeGradient(self, self.native)

    def bind(self, args, kwargs):
        """All arguments in the schema's order: the dispatcher leaves out those that equal their defaults."""
        values = list(args)
        for a in self.arguments[len(args):]:
            values.append(kwargs[a.name] if a.name in kwargs else a.default_value)
        return values

    def runs_on(self, device):
        """Are there kernel rows for this kind of device ("cpu", "cuda", "npu")?"""
        return native.core.dv_operator_has_rows(self.pointer, {"cpu": 1, "cuda": 2, "npu": 12}[device])

    def fake(self, *args, **kwargs):
        values = self.bind(args, kwargs)
        if self.writes and torch.is_grad_enabled():
            self.refuse_gradient(values)
        if self.contract:
            results = self.contract.infer(values)
        elif not self.returns:
            results = []
        else:
            raise NotImplementedError(f"{self.name}: it has no contract, so the shapes of its results are not known without running it")
        for i in self.writes:
            if values[i] is not None:
                torch.autograd.graph.increment_version(values[i])
        return None if not results else results[0] if len(results) == 1 else tuple(results)

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

    def install(self, library):
        """Add what the C side cannot give. library: the torch.library.Library that it lives as long as."""
        if self.contract or not self.returns:
            torch.library.register_fake(self.name, self.fake, lib=library)
        if self.gradient and not self.writes:
            torch.library.register_autograd(self.name, self.gradient.backward, setup_context=self.setup_context(), lib=library)

    def setup_context(self):
        """register_autograd looks at the names of its parameters."""
        if any(a.kwarg_only for a in self.arguments):
            return lambda ctx, inputs, keyword_only_inputs, output: self.gradient.setup(ctx, inputs, output, keyword_only_inputs)
        return lambda ctx, inputs, output: self.gradient.setup(ctx, inputs, output)

    def retire(self):
        """What still holds the operator gets a message instead of what torch says of an operator without a schema."""
        self.packet._op = _Gone(self.packet._op, self.name)
        self.overload._op = _Gone(self.overload._op, self.name)
        _retired[self.name] = self.packet, self.overload
        space = getattr(torch.ops, self.namespace)
        vars(space).pop(self.packet.__name__, None)
        space._dir[:] = [n for n in space._dir if n != self.packet.__name__]  # torch goes through it, and asks for each


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


def _objects(name):
    """The packet and the overload of an operator that torch knows by now."""
    space, local = name.split("::")
    local, _, overload = local.partition(".")
    packets = getattr(torch.ops, space)
    packet = getattr(packets, local)
    fresh = getattr(packet, overload or "default")
    if name not in _retired:
        return packet, fresh
    packet, old = _retired.pop(name)
    for x in (packet, old):
        if isinstance(x._op, _Gone):
            x._op = x._op.call
    old._schema, old._tags, old._op_dk = fresh._schema, fresh._tags, fresh._op_dk
    old._dispatch_cache.clear()
    packet._overload_names = torch._C._jit_get_operation(f"{space}::{local}")[1]
    setattr(packets, local, packet)
    setattr(packet, overload or "default", old)
    return packet, old
