"""out=: the overload that writes to given tensors, which the C code defines for every operator that writes nothing and returns new
tensors. Its fake, its functionalization, and how a call of a function with out= becomes a call of it."""
import torch

from . import private
from .private import operators, out as _torch
from .types import dtype_name


class Out:
    """The out= overload of one operator."""

    def __init__(self, operator, overload):
        self.operator, self.overload = operator, overload
        self.name = overload._schema.name + "." + overload._overloadname
        self.names = [a.name for a in overload._schema.arguments if a.alias_info is not None]
        self.lists = not overload._schema.returns  # as ATen's overloads with lists, it returns nothing
        tags = [] if self.lists else [getattr(torch.Tag, n) for n in ("out_variant", "out") if hasattr(torch.Tag, n)]  # C sets the first from 2.12 on
        overload._tags = [*overload._tags, *(t for t in tags if t not in overload._tags)]

    def install(self, library):
        private.register_fake(self.name, self.fake, library)
        if not _torch:
            return
        library.impl(self.name, lambda *args, **kwargs: self.functionalize(_torch.CppFunctionalizeAPI(), args, kwargs), "Functionalize")
        from .transforms.functional import give_rule
        give_rule(self.overload, lambda mode, /, *args, **kwargs: self.functionalize(_torch.PythonFunctionalizeAPI(mode), args, kwargs))

    def results(self, given):
        """What the overload returns."""
        return None if self.lists else self.operator.returned(given)

    def pairs(self, given, made):
        """(name, given tensor, result) of each result that is given, and of each element of a list. None among the results: it is not known."""
        for name, out, result in zip(self.names, given, made):
            if out is None:
                continue
            if result is None or isinstance(out, torch.Tensor):
                yield name, out, result
                continue
            if len(out) != len(result) or any(x is None for x in out):
                found = "None" if len(out) == len(result) else len(out)
                raise RuntimeError(f"{self.operator.name}: argument '{name}': expected {len(result)} tensors, found {found}")
            yield from ((f"{name}[{i}]", x, r) for i, (x, r) in enumerate(zip(out, result)))

    def split(self, kwargs):
        """(the operator's keyword arguments, the tensors given for results)"""
        return {k: v for k, v in kwargs.items() if k not in self.names}, [kwargs.get(n) for n in self.names]

    def fake(self, /, *args, **kwargs):
        kwargs, given = self.split(kwargs)
        values = self.operator.bind(args, kwargs)
        refuse_gradient(self.operator.name, [*values, *given])
        for name, out, result in self.pairs(given, self.operator.contract.infer(values)):
            self.fit(name, out, result)
            torch.autograd.graph.increment_version(out)
        return self.results(given)

    def refuse_overlap(self, given, values):
        """As ATen: dense tensors, one of which is written, may not share memory."""
        for name, out in zip(self.names, given):
            for x in _tensors([out]):
                if any(_overlap(x, y) for y in _tensors(values)):
                    raise RuntimeError(f"{self.operator.name}: argument '{name}': its memory overlaps an input's")

    def fit(self, name, out, result):
        """out takes the shape of the result (a tensor, or what is expected), with torch's warning where it had elements."""
        label = f"{self.operator.name}: argument '{name}': expected "
        if out.dtype != result.dtype:
            raise RuntimeError(f"{label}dtype {dtype_name(result.dtype)}, found {dtype_name(out.dtype)}")
        if out.device != result.device:
            raise RuntimeError(f"{label}a tensor on {result.device}, found one on {out.device}")
        operators._maybe_resize_out(out, result.shape)

    def call_kernel(self, kernel, args, kwargs):
        """Call a Python kernel that the program registered for the overload: the given tensors get the results' shapes before it runs."""
        rest, given = self.split(kwargs)
        operator = self.operator
        for name, out, e in self.pairs(given, operator.contract.expected(operator.bind(args, rest)) if operator.contract else ()):
            if e is not None and e.is_certain:
                self.fit(name, out, e)
        kernel(*args, **kwargs)
        return self.results(given)

    def copy(self, given, made):
        """A list of the results, of which those that are given (not None) are copies."""
        made = made if len(given) > 1 else (made,)
        for name, out, result in self.pairs(given, made):
            self.fit(name, out, result)
            out.copy_(result)
        return [result if out is None else out for out, result in zip(given, made)]

    def functionalize(self, context, args, kwargs):
        """Functionalized: call the operator itself; the given tensors get the results' values."""
        kwargs, given = self.split(kwargs)
        with context.redispatch_to_next():
            made = self.operator.overload(*context.unwrap_tensors(args), **context.unwrap_tensors(kwargs))
        for name, out, result in self.pairs(given, made if len(given) > 1 else (made,)):
            self.fit(name, out, result)
            context.replace(out, result)
            context.commit_update(out)
            context.sync(out)
        return self.results(given)


def _tensors(values):
    for x in values:
        if isinstance(x, torch.Tensor):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from _tensors(x)


def refuse_gradient(name, values):
    if torch.is_grad_enabled() and any(x.requires_grad for x in _tensors(values)):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
                           "requires grad.")


def _overlap(a, b):
    if a.is_meta or a.device != b.device or not (a.is_contiguous() and b.is_contiguous()) or not private.operators._is_alias_of(a, b):
        return False
    begin = [x.storage_offset() * x.element_size() for x in (a, b)]
    return begin[0] < begin[1] + b.numel() * b.element_size() and begin[1] < begin[0] + a.numel() * a.element_size()


def find(operator):
    """The out= overload that the C side made for an operator, or None."""
    overload = operator.name.split("::")[1].partition(".")[2]
    name = f"{overload}_out" if overload else "out"
    if operator.writes or name not in operator.packet.overloads():
        return None
    found = getattr(operator.packet, name)
    return Out(operator, found) if _returns_what_it_writes(found._schema) else None


def _returns_what_it_writes(schema):
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    lists = any("List" in str(a.type) for a in written)
    return bool(written) and all(a.kwarg_only for a in written) and len(schema.returns) == (0 if lists else len(written))


def bind(operator, args, kwargs, read=lambda given: given):
    """A call as functions of a library take it: (args, kwargs) for the torch operator, and what each result is to be written to (None: a new
    tensor), or None if nothing was given. read: makes a tuple of a tracer a tuple, and its None None.

    Results may follow the positional arguments, or be given by name, or as out=; a name that is a keyword of Python has a '_'.
    """
    names = [a.name for a in operator.arguments]
    count = sum(not a.kwarg_only for a in operator.arguments)
    results = [r.name for r in operator.returns]
    given = dict(enumerate(map(read, args[count:])))
    rest = {}
    for key, value in (kwargs or {}).items():
        if key not in names and key.endswith("_") and key[:-1] in names:
            key = key[:-1]
        if key in names or (key not in results and (key != "out" or not results)):
            rest[key] = value  # torch refuses what it does not know
            continue
        value = read(value)
        if key != "out":
            given[results.index(key)] = value
        elif len(results) == 1 and (operator.out is None or operator.out.lists or not isinstance(value, tuple)):
            given[0] = value
        elif value is not None:
            several = isinstance(value, tuple) or isinstance(value, list) and len(results) > 1
            if not several or len(value) != len(results):
                found = f"a tuple of {len(value)}" if several else "no tuple"
                raise TypeError(f"{operator.name}() got out= with {found} for {len(results)} result{'s' * (len(results) > 1)}")
            given.update(enumerate(value))
    if len(given) > len(results):
        raise TypeError(f"{operator.name}() takes {count} positional arguments and {len(results)} results to write to, and got {len(args)}")
    given = [given.get(i) for i in range(len(results))]
    return args[:count], rest, given if any(x is not None for x in given) else None


def call(operator, args, kwargs):
    """A call of a library's function, which returns what out= gives."""
    f, args, kwargs, given = target(operator, args, kwargs)
    if given is None:
        return f(*args, **kwargs)
    if operator.overridden or f is operator.overload:  # the program's kernels are the operator's, not the overload's
        kwargs, _ = operator.out.split(kwargs)
        refuse_gradient(operator.name, [*args, *kwargs.values(), *given])
        operator.out.refuse_overlap(given, [*args, *kwargs.values()])
        given = operator.out.copy(given, operator.overload(*args, **kwargs))
    else:
        f._op(*args, **kwargs)  # not f(): after a graph break Dynamo would compile that function of torch
    return operator.returned(given)


def target(operator, args, kwargs, read=lambda given: given):
    """(torch operator, args, kwargs) of a call of a library's function, and the results as bind() gives them. The torch operator is the out=
    overload if all results are given."""
    args, kwargs, given = bind(operator, args, kwargs, read)
    if given is None:
        return operator.overload, args, kwargs, None
    if operator.out is None:
        raise TypeError(f"{operator.name}() got out=, but its results cannot be given")
    if any(x is None for x in given):
        return operator.overload, args, kwargs, given
    return operator.out.overload, args, {**kwargs, **dict(zip(operator.out.names, given))}, given


def fill(f, name, names, given, *args, **kwargs):
    """For a tracer: the results of f; what is given for one (not None) takes its values."""
    refuse_gradient(name, [*args, *kwargs.values(), *given])
    made = list(f(*args, **kwargs))
    for i, out in enumerate(given):
        if out is not None:
            is_list = isinstance(out, (list, tuple))
            for to, result in zip(out if is_list else [out], made[i] if is_list else [made[i]]):
                if to.dtype != result.dtype or to.shape != result.shape:
                    raise RuntimeError(f"{name}: argument '{names[i]}': expected {result.dtype} and shape {tuple(result.shape)}, "
                                       f"found {to.dtype} and {tuple(to.shape)}")
                to.copy_(result)
            made[i] = out
    return tuple(made)
