"""One operator in torch: its fake function and its gradient, from its declaration."""
import torch

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
        self.namespace, local = self.name.split("::")
        local, _, overload = local.partition(".")
        self.packet = getattr(getattr(torch.ops, self.namespace), local)
        self.overload = getattr(self.packet, overload or "default")
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

    def fake(self, *args, **kwargs):
        values = self.bind(args, kwargs)
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
        def gone(*args, **kwargs):
            raise RuntimeError(f"{name}: its library was unloaded")
        name = self.name
        self.overload._op = gone
        if len(self.packet.overloads()) <= 1:
            self.packet._op = gone
            vars(getattr(torch.ops, self.namespace)).pop(self.packet.__name__, None)
