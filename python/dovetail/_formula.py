"""Translates the formulas of an operator (decomposition, gradient, tangent) from their trees (docs/json.md) to Python source on a host's tensors.

Hosts differ in three things, which a Host gives: how an operator is found by its name, a dtype by its name, and how an attribute of a tensor
is written. Arithmetic on tensors, indexing and `None` are the same everywhere.
"""
import collections
import keyword

from . import _debug

_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "eq": "==", "ne": "!=", "lt": "<",
           "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or"}
_LOCALS = {"arg": "a_", "result": "r_", "grad": "g_", "grad_of": "w_", "tangent": "t_", "needs": "n_"}


class Host:
    """lookup(name): the function that computes the operator "ns::name.overload". dtype(name): the host's dtype. attributes: the source of an
    attribute that differs from Python's `{}.shape`, by its name."""

    def __init__(self, lookup, dtype, attributes):
        self.lookup, self.dtype, self.attributes = lookup, dtype, attributes


def identifier(name):
    return "".join(c if c.isalnum() else "_" for c in name)


def is_list(type_text):
    return type_text.startswith("Tensor") and "[" in type_text


def local(kind, what):
    """The local variable that holds an argument `x` ("a_x"), result 0 ("r_0"), its gradient ("g_0"), ..."""
    return _LOCALS[kind] + str(what)

_told = set()  # sources that were printed: one may be compiled twice, to call different functions


class Source:
    """Python source of expressions. names(kind, what) gives the source of an argument, a result or a gradient."""

    def __init__(self, host, names=local):
        self.host, self.names = host, names
        self.scope = {"dtype": host.dtype}
        self.counts, self.twice = collections.Counter(), {}
        self.depth, self.parts = 0, []

    def count(self, e):
        """A call that occurs several times is made once."""
        if isinstance(e, list) and e and e[0] == "call":
            self.counts[repr(e)] += 1
            if self.counts[repr(e)] > 1:
                return
        for x in e if isinstance(e, list) else ():
            self.count(x)

    def operator(self, name):
        """An operator is looked up at the first call, since it may be loaded after the formula was read."""
        key, scope, lookup = "op_" + identifier(name), self.scope, self.host.lookup

        def find(*args, **kwargs):
            scope[key] = found = lookup(name)
            return found(*args, **kwargs)

        scope.setdefault(key, find)
        return key

    def call(self, e):
        call = f"{self.operator(e[1])}({', '.join(map(self.expr, e[2:]))})"
        if self.counts[repr(e)] < 2:
            return call
        once = self.twice.setdefault(repr(e), f"once_{len(self.twice)}")
        return f"({once} if {once} is not None else ({once} := {call}))"

    def expr(self, e):
        """Python takes 200 nested parentheses, and a level here can need three: deeper parts are functions of their own."""
        self.depth += 1
        source = self.write(e)
        if self.depth % 50 == 0:
            self.parts.append(source)
            source = f"part_{len(self.parts) - 1}()"
        self.depth -= 1
        return source

    def write(self, e):
        kind = e[0]
        if kind in ("int", "float", "str", "bool"):
            return repr(e[1])
        if kind == "none":
            return "None"
        if kind in ("arg", "result", "grad", "grad_of", "tangent"):
            return self.names(kind, e[1])
        if kind == "dtype":
            return f"dtype({e[1]!r})"
        if kind == "call":
            return self.call(e)
        if kind == "keyword":
            return f"**{{{e[1]!r}: {self.expr(e[2])}}}" if keyword.iskeyword(e[1]) else f"{e[1]}={self.expr(e[2])}"
        if kind == "if":
            return f"({self.expr(e[2])} if {self.expr(e[1])} else {self.expr(e[3])})"
        if kind == "present":
            return f"({self.expr(e[1])} is not None)"
        if kind == "needs":
            return self.names(kind, e[1][1])
        if kind == "len":
            return f"len({self.expr(e[1])})"
        if kind == "list":
            return f"[{', '.join(map(self.expr, e[1:]))}]"
        if kind == "index":
            return f"{self.expr(e[1])}[{self.expr(e[2])}]"
        if kind == "attr":
            return self.host.attributes.get(e[2], "{}." + e[2]).format(self.expr(e[1]))
        if kind in ("neg", "not"):
            return f"({'-' if kind == 'neg' else 'not '}{self.expr(e[1])})"
        if kind == "in":
            return f"({self.expr(e[1])} in ({', '.join(map(self.expr, e[2:]))},))"
        if kind in _BINARY:
            return f"({self.expr(e[1])} {_BINARY[kind]} {self.expr(e[2])})"
        raise NotImplementedError(f"formula: '{kind}' is not known to this version of dovetail")

    def function(self, name, parameters, lines):
        """lines are written last, when repeated calls and deep parts are known."""
        first = [" = ".join([*self.twice.values(), "None"])] if self.twice else []
        shared = [f"    nonlocal {', '.join(self.twice.values())}"] if self.twice else []
        for i, part in enumerate(self.parts):
            first += [f"def part_{i}():", *shared, f"    return {part}"]
        self.twice, self.parts = {}, []
        source = "\n    ".join([f"def {name}({parameters}):", *first, *lines]) + "\n"
        if _debug.LEVEL >= 3 and source not in _told:
            _told.add(source)
            _debug.say(3, *source.splitlines())
        exec(compile(source, f"<{name}>", "exec"), self.scope)  # our own source, made above
        return self.scope[name]


def _sequence(parts):
    return f"[{', '.join(parts)}]"


_VIEWS = {"transpose", "reshape", "expand", "unsqueeze", "squeeze", "slice", "narrow", "to", "type_as"}


def _may_share(e):
    """May the value have memory of an argument? ATen's operators of these names give views, or what they were given."""
    if e[0] == "call":
        return e[1].partition("::")[2].partition(".")[0] in _VIEWS and _may_share(e[2])
    return e[0] in ("arg", "index") or (e[0] == "if" and any(map(_may_share, e[2:]))) or (e[0] == "list" and any(map(_may_share, e[1:])))


def native(host, name, tree, clone=None):
    """The decomposition: a function of the arguments, a dict by name, that gives ([results], {written argument: its new value}). An argument
    that is None is not written. clone: copies an argument's value before anything is written, if it is not the base set's."""
    source = Source(host, lambda kind, what: f"a[{what!r}]" if kind == "arg" else f"r[{what}]")
    for e in [*tree["results"], *tree["writes"].values()]:
        source.count(e)

    def own(value):
        return [own(v) for v in value] if isinstance(value, (list, tuple)) else value if value is None else clone(value)

    def of(e):  # all values are those before the first write
        return f"own({source.expr(e)})" if tree["writes"] and _may_share(e) else source.expr(e)
    if tree["writes"]:
        clone, source.scope["own"] = clone or host.lookup("base::clone"), own
    lines = [f"w_{i} = None if a[{n!r}] is None else {of(e)}" for i, (n, e) in enumerate(tree["writes"].items())]
    writes = ", ".join(f"{n!r}: w_{i}" for i, n in enumerate(tree["writes"]))
    lines.append(f"return {_sequence(map(of, tree['results']))}, {{{writes}}}")
    return source.function("native_" + identifier(name), "a", lines)


class Gradient:
    """Declared gradients. slots and results: [{"name", "type"}] of the arguments and returns, types as a schema writes them."""

    def __init__(self, host, name, slots, results, tree):
        self.host, self.name, self.slots, self.results, self.saves = host, name, slots, results, tree["saves"]
        names = [a["name"] for a in slots]
        self.lists = {a["name"] for a in slots if is_list(a["type"])}
        self.clauses = [([names[t] for t in c["targets"] if t < len(names)], c["value"]) for c in tree["clauses"] if c["value"] is not None]
        self.targets = [n for targets, _ in self.clauses for n in targets]
        self.grads = set()  # what is named of the results' gradients
        for _, value in self.clauses:
            self.grads |= _named(value, ("grad", "grad_of"))
        self.written = [n for n in names if n in self.grads]

    def names(self, kind, what):
        """A list is needed when one of its tensors is."""
        return f"any(n_{what})" if kind == "needs" and what in self.lists else local(kind, what)

    def source(self):
        source = Source(self.host, self.names)
        for _, value in self.clauses:
            source.count(value)
        return source

    def lines(self, source):
        """d_x for every target x; n_x is true if it is needed."""
        lines = [" = ".join("d_" + t for t in self.targets) + " = None"]
        for targets, value in self.clauses:
            wanted = "" if len(self.targets) == 1 else f"if {' or '.join(self.names('needs', t) for t in targets)}: "
            lines.append(f"{wanted}{', '.join('d_' + t for t in targets)} = {source.expr(value)}")
        return lines

    def vjp(self, needs=False):
        """All gradients, as a function of arguments, results, and gradients of the results, that gives a dict by name. needs: then
        follow the gradients of written arguments (`written`), and a dict of which targets are needed."""
        source, n = self.source(), len(self.results)
        lines = [f"n_{t} = " + (f"needs[{t!r}]" if needs else "[True]" if t in self.lists else "True") for t in self.targets] + self.lines(source)
        lines.append("return {" + ", ".join(f"{t!r}: d_{t}" for t in self.targets) + "}")
        names = [*(f"a_{a['name']}" for a in self.slots), *(f"r_{i}" for i in range(n)), *(f"g_{i}" for i in range(n)), *([*(f"w_{x}" for x in self.written), "needs"] if needs else [])]
        return source.function("vjp_of_" + identifier(self.name), ", ".join(names), lines)


class Tangent:
    """Declared tangents: a function of (arguments, their tangents, results) that gives those of the results. used: the names of the arguments
    whose tangents it reads."""

    def __init__(self, host, name, slots, results, tree):
        source, n = Source(host), len(slots)
        clauses = [(c["targets"], c["value"]) for c in tree["clauses"] if c["value"] is not None]
        self.used = set()
        for _, value in clauses:
            source.count(value)
            self.used |= _named(value, ("tangent",))
        lines = [f"{', '.join(f'd_{t - n}' for t in targets)} = {source.expr(value)}" for targets, value in clauses]
        there = {t - n for targets, _ in clauses for t in targets}
        lines.append("return " + _sequence(f"d_{i}" if i in there else "None" for i in range(len(results))))
        names = [prefix + a["name"] for prefix in ("a_", "t_") for a in slots] + [f"r_{i}" for i in range(len(results))]
        self.function = source.function("tangent_of_" + identifier(name), ", ".join(names), lines)

    def __call__(self, values, tangents, results):
        return self.function(*values, *tangents, *results)


def _named(e, kinds):
    """What an expression names of these kinds."""
    if not isinstance(e, list) or not e:
        return set()
    return {e[1]} if e[0] in kinds else set().union(*(_named(x, kinds) for x in e[1:]))
