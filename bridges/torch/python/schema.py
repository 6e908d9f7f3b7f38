"""Schema of one overload in torch: of a declared operator, or of one written in Python."""
from .types import default_of


class Schema:
    def __init__(self, overload):
        self.overload = overload
        schema = overload._schema
        self.name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        self.arguments, self.returns = list(schema.arguments), list(schema.returns)
        self.names = [a.name for a in self.arguments]
        self.defaults = tuple(map(default_of, self.arguments))
        self.writes = [i for i, a in enumerate(self.arguments) if a.alias_info is not None and a.alias_info.is_write]
        self.alias = [_alias_of(r, self.arguments) for r in self.returns]  # for each return, the argument that it is: Tensor(a!)

    def bind(self, args, kwargs):
        """Returns all arguments in the schema's order, with the defaults of those that the dispatcher left out."""
        values = list(args)
        for i in range(len(args), len(self.names)):
            name = self.names[i]
            values.append(kwargs[name] if name in kwargs else self.defaults[i])
        return values

    def call(self, values):
        """Calls through the dispatcher, with all arguments in the schema's order."""
        return self.overload(*[v for a, v in zip(self.arguments, values) if not a.kwarg_only],
                             **{a.name: v for a, v in zip(self.arguments, values) if a.kwarg_only})

    def fake(self, /, *args, **kwargs):
        """Returns fake results. A declared operator overrides this."""
        return self.overload(*args, **kwargs)

    @staticmethod
    def returned(results):
        """Returns the value that an operator with these results returns: None, the only result, or a tuple."""
        return None if not results else results[0] if len(results) == 1 else tuple(results)


def _alias_of(result, arguments):
    """Returns the index of the written argument that a result is; None: the result is new."""
    if result.alias_info is None or not result.alias_info.is_write:
        return None
    return next((i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.before_set & result.alias_info.before_set), None)
