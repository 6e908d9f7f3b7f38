"""A contract over symbolic sizes: the fake function of an operator (docs/json.md has the form of its tree).

A contract with cases, optional tensors and lists is a different straight line of code for every combination of them. So the tree is
turned into Python source once for each combination that a program uses (a *plan*): no plan asks about a size, every comparison of
sizes is a torch._check, and reading a plan reads like the contract. DOVETAIL_DEBUG=3 prints them.
"""
import os
import sys

import torch

from . import symbolic
from .symbolic import NUMBERS

_DEBUG = int(os.environ.get("DOVETAIL_DEBUG") or 0)
_MULTI = ("run", "list")  # expressions that stand for several dims
_MULTI_CALLS = ("broadcast", "reduced", "swap", "permute", "shape")
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
              "gt": ">", "ge": ">="}


class Contract:
    """What `infer(values)` needs of one operator: values are the arguments in the schema's order, defaults filled in."""

    def __init__(self, name, tree, arguments, returns):
        self.name, self.tree = name, tree
        self.arguments, self.returns = arguments, returns  # of the schema: {"name": ..., "type": "Tensor?", ...}
        self.names = [a["name"] for a in arguments]
        self._plans = {}
        self._lists = sorted({i["slot"] for i in tree["inputs"] if i["kind"] == "list"})
        self._optional = [s for s, a in enumerate(arguments) if a["type"].endswith("?")]

    def infer(self, values):
        """The results' fakes, one for each return (None for an absent one). Raises RuntimeError where the C side would fail."""
        return self._run("outputs", values)

    def sizes(self, values):
        """What its sizes are bound to: {"n": 3} and {"s": (2, 4)}, dims and runs."""
        return self._run("sizes", values)

    def flops(self, values):
        """What a call costs by its fact `flops`; 0 where it speaks of an argument that is None."""
        return self._run("flops", values)

    def cases(self, values):
        """Which case of each group holds."""
        return tuple(_Plan(self, values).choose(group) for group in self.tree["groups"])

    def taken(self, values):
        """The patterns and the outputs of the cases that hold."""
        cases = self.cases(values)
        return [[p for p in self.tree[kind] if p["case"] is None or cases[p["case"][0]] == p["case"][1]] for kind in ("inputs", "outputs")]

    def _run(self, what, values):
        cases = self.cases(values)
        there = tuple(values[s] is None for s in self._optional)
        lists = tuple(None if values[s] is None else tuple(x is None for x in values[s]) for s in self._lists)
        plan = self._plans.get((what, cases, there, lists))
        if plan is None:
            plan = self._plans[what, cases, there, lists] = _Plan(self, values, cases).function(what)
        return plan(*values)


class _Plan:
    """One combination: which case of each group, which optional arguments are there, how long the lists are."""

    def __init__(self, contract, values, cases=()):
        self.c, self.tree, self.values, self.cases = contract, contract.tree, values, cases
        self.names = contract.names
        self.lines = []
        self.bound = set()  # ("dim", "n"), ("run", "s"), ("dtype", "T"), ("element", "n", 0)
        self.aside = []     # (expression, source of what was found, source of what to say, argument)
        self.first = None   # the first argument whose device counts
        self.element = None  # which tensor of a list is matched
        self.what = "outputs"  # what is asked: "outputs", "sizes" or "flops"
        self.real = False      # flops are real numbers
        self.counter = 0

    def value(self, name):
        return self.values[self.names.index(name)]

    # ---- cases

    def choose(self, group):
        """The first case of a group that holds. It asks about arguments, presence, dtypes and ranks only: plain Python."""
        scope = dict(symbolic.HELPERS)
        scope.update(("a_" + n, v) for n, v in zip(self.names, self.values))
        for d in self.tree["dtypes"]:
            for slot in d["carriers"]:
                carrier = _first_tensor(self.values[slot])
                if carrier is not None:
                    scope["t_" + d["name"]] = carrier.dtype
                    break
        for i, case in enumerate(group["cases"]):
            if case["when"] is None or eval(self.expr(case["when"]), scope):  # our own tree, of names that we made
                return i
        raise RuntimeError(f"{self.c.name}: {self.no_case(group, scope)}")

    def no_case(self, group, scope):
        """Where all cases ask about one thing, `when layout == "BSND": ... / "TND": ...`, say what it was and what there is."""
        whens = [c["when"] for c in group["cases"]]
        subject = whens[0][1] if all(w and w[0] in ("in", "eq") and w[1] == whens[0][1] for w in whens) else None
        names = _arguments_of(subject)
        if not names:
            return f"no case holds of: when {group['cases'][0]['text']}"
        wanted = [symbolic.shown(x[1] if len(x) > 1 else None) if x[0] != "str" else f'"{x[1]}"' for w in whens for x in w[2:]]
        kind = "rank " if subject[0] == "call" and subject[1] == "rank" else ""
        found = eval(self.expr(subject), scope)
        return f"argument '{names[0]}': expected {kind}{symbolic.listed(wanted)}, found {symbolic.shown(found)}"

    def taken(self, case):
        return case is None or self.cases[case[0]] == case[1]

    # ---- expressions

    def expr(self, e):
        """Python source of an expression."""
        kind = e[0]
        if kind in ("int", "float", "str", "bool"):
            return repr(e[1])
        if kind == "none":
            return "None"
        if kind in ("dim", "run", "dtype_var"):
            return {"dim": "d_", "run": "r_", "dtype_var": "t_"}[kind] + e[1]
        if kind in ("arg", "list"):
            return "a_" + e[1]
        if kind == "element":
            return f"e_{e[1]}_{self.element}"
        if kind == "dtype":
            return f"dtype({e[1]!r})"
        if kind == "index":
            return f"index({self.expr(e[1])}, {self.expr(e[2])}, {self.c.name + ': argument ' + repr(print_expr(e[1]))!r})"
        if kind == "in":
            return f"({self.expr(e[1])} in ({', '.join(self.expr(x) for x in e[2:])},))"
        if kind in ("and", "or"):
            return f"{kind}_({self.expr(e[1])}, lambda: {self.expr(e[2])})"
        if kind == "not":
            return f"not_({self.expr(e[1])})"
        if kind == "neg":
            return f"(-{self.expr(e[1])})"
        if kind == "div":
            exact = "({} / {})" if self.real else "exact({}, {})"
            return exact.format(self.expr(e[1]), self.expr(e[2]))
        if kind in _OPERATORS:
            return f"({self.expr(e[1])} {_OPERATORS[kind]} {self.expr(e[2])})"
        if kind == "call":
            return self.call(e[1], e[2:])
        raise NotImplementedError(f"{self.c.name}: contract: '{kind}' is not known to this version of dovetail.torch")

    def call(self, name, args):
        if name in ("present", "absent"):
            return repr((self.value(args[0][1]) is not None) == (name == "present"))
        if name == "total":
            return f"d_{args[0][1]}"
        if name == "promote":
            return f"promote([{', '.join(self.promoted(a) for a in args)}])"
        if name == "broadcast":
            text = print_expr(["call", name, *args])
            binders = [self.binders([tuple(a)]) if a[0] == "run" else "" for a in args]
            return f"broadcast_([{', '.join(map(self.expr, args))}], {self.c.name + ': ' + text!r}, {binders!r})"
        return f"{name}_({', '.join(self.expr(a) for a in args)})"

    def promoted(self, e):
        """What promote() gets of a dtype variable is the arguments that carry it: 0-d tensors count for less."""
        if e[0] != "dtype_var":
            return self.expr(e)
        slots = next(d["carriers"] for d in self.tree["dtypes"] if d["name"] == e[1])
        there = [s for s in slots if s < len(self.names) and self.values[s] is not None]
        return ", ".join(("*" if isinstance(self.values[s], (list, tuple)) else "") + "a_" + self.names[s] for s in there)

    def unknown(self, e):
        """The variables in e that are not bound yet."""
        kind, out = e[0], []
        if kind in ("dim", "run"):
            out = [(kind, e[1])]
        elif kind == "dtype_var":
            out = [("dtype", e[1])]
        elif kind == "element":
            out = [("element", e[1], self.element)]
        elif kind == "call" and e[1] == "total":
            out = [("dim", e[2][1])]
        else:
            return [v for x in e[1:] if isinstance(x, list) for v in self.unknown(x)]
        return [v for v in out if v not in self.bound]

    def absent(self, e):
        """Does e speak of the value of an argument that is None?"""
        if e[0] in ("arg", "list"):
            return self.value(e[1]) is None
        if e[0] == "call" and e[1] in ("present", "absent", "reduced"):  # reduced() takes None for all dims
            return False
        return any(self.absent(x) for x in e[1:] if isinstance(x, list))

    def emit(self, line):
        self.lines.append(line)

    def new(self):
        self.counter += 1
        return f"v{self.counter}"

    # ---- inputs

    def inputs(self):
        spoken = set()
        for p in self.tree["inputs"]:
            if not self.taken(p["case"]):
                continue
            spoken.add(p["slot"])
            value, label = self.values[p["slot"]], f"{self.c.name}: argument '{p['arg']}'"
            if value is None:
                if p["presence"] in ("required", "present"):
                    self.emit(f"fail({label + ': expected a tensor' + self.when(p['case']) + ', found None'!r})")
            elif p["presence"] == "absent":
                self.emit(f"fail({label + ': expected None' + self.when(p['case']) + ', found a tensor'!r})")
            elif p["kind"] == "ints":
                self.match(p, f"(len(a_{p['arg']}),)", label)
            elif p["kind"] == "list":
                self.list(p, value)
            else:
                self.tensor(p, "a_" + p["arg"], label)
        for s, a in enumerate(self.c.arguments):
            if a["type"] == "Tensor?" and s not in spoken and self.values[s] is not None and any(p["slot"] == s for p in self.tree["inputs"]):
                self.emit(f"fail({self.c.name + ': argument ' + repr(a['name']) + ': expected None in this case, found a tensor'!r})")

    def list(self, p, value):
        there = [i for i, x in enumerate(value) if x is not None]
        for i in there:
            self.element = i
            self.tensor(p, f"a_{p['arg']}[{i}]", f"{self.c.name}: argument '{p['arg']}[{i}]'")
        for name in dict.fromkeys(d[1] for d in p["dims"] or () if d[0] == "element"):
            if ("dim", name) not in self.bound:
                self.emit(f"d_{name} = {' + '.join(f'e_{name}_{i}' for i in there) or 0}")
                self.bound.add(("dim", name))

    def tensor(self, p, source, label):
        if p["device"] != "any":
            first = f" as '{self.first}' is" if self.first else ""
            self.emit(f"device = on_{p['device']}(device, {source}, {label!r}, {first!r})")
            if p["device"] == "same" and not self.first:
                self.first = p["arg"]
        if p["dims"] is not None:
            self.match(p, f"{source}.shape", label)
        if p["dtype"] is not None:
            self.dtype(p["dtype"], f"{source}.dtype", label)

    def dtype(self, e, source, label):
        label += ": expected dtype "
        if e[0] == "any_of":
            self.emit(f"dtype_in({source}, ({', '.join(self.expr(x) for x in e[1:])},), {label!r}, '')")
        elif e[0] != "dtype_var":
            self.emit(f"same_dtype({source}, {self.expr(e)}, {label!r}, '')")
        elif ("dtype", e[1]) in self.bound:
            if self.what == "outputs":  # elsewhere autocast may still make them equal
                self.emit(f"same_dtype({source}, t_{e[1]}, {label!r}, {self.binders([('dtype', e[1])])!r})")
        else:
            self.bound.add(("dtype", e[1]))
            self.emit(f"t_{e[1]} = {source}")
            allowed = next(d["in"] for d in self.tree["dtypes"] if d["name"] == e[1])
            if allowed:
                self.emit(f"dtype_in(t_{e[1]}, ({', '.join(f'dtype({x!r})' for x in allowed)},), {label!r}, {f' ({e[1]})'!r})")

    def match(self, p, shape, label):
        """Bind and compare the dims of one tensor from left to right. At most one run is free: it takes what is left."""
        found = self.new()
        self.emit(f"{found} = {shape}  # {p['arg']}[{' '.join(map(print_expr, p['dims']))}]")
        lengths, free = [], None
        for i, d in enumerate(p["dims"]):
            lengths.append(self.length(d, label))
            if lengths[i] is None:
                free = i
        known = _sum(n for n in lengths if n)
        self.emit(f"rank({found}, {known}, {free is not None}, {self.wrong(p, None, found, label)})")
        if free is not None:
            lengths[free] = self.new()
            self.emit(f"{lengths[free]} = len({found}) - ({known})")
        for i, d in enumerate(p["dims"]):
            at = _sum(lengths[:i])
            wrong = self.wrong(p, d, found, label)
            if is_multi(d):
                self.run(d, f"{found}[{at}:{_sum([at, lengths[i]])}]", wrong)
            else:
                self.dim(d, f"{found}[{at}]", wrong, p["arg"])

    def wrong(self, p, d, found, label):
        """Source of a function that says what was expected of the dim d (None: of the number of dims), in the C side's words."""
        items = []
        for x in p["dims"]:
            known = x[0] != "element" and not self.unknown(x)
            items.append(("*" if is_multi(x) else "") + self.expr(x) if known else repr(print_expr(x)))
        names = [] if d is None else self.variables(d)
        binders = self.binders(names)
        if p["kind"] == "ints":
            return f"lambda: wrong_length({label!r}, [{', '.join(items)}], {binders!r}, {found})"
        computed = d is not None and d[0] not in ("dim", "run", "int", "element")
        return f"lambda: wrong_shape({label!r}, [{', '.join(items)}], {(' with ' + print_expr(d) if computed else '') + binders!r}, {found})"

    def binders(self, names):
        """" ('n' is bound by 'x')": who said first what these variables are."""
        said = []
        for kind, name in dict.fromkeys(names):
            by = self.binder(kind, name)
            if by:
                said.append(f"'{'*' if kind == 'run' else ''}{name}' is bound by '{by}'")
        return f" ({', '.join(said)})" if said else ""

    def binder(self, kind, name):
        there = [p for p in self.tree["inputs"] if self.taken(p["case"]) and self.values[p["slot"]] is not None]
        for p in there:
            if kind == "dtype" and p["dtype"] == ["dtype_var", name]:
                return p["arg"]
            if any(d == [kind, name] or (kind == "dim" and d == ["element", name]) for d in p["dims"] or ()):
                return p["arg"]
        if any(d["name"] == name and self.taken(d["case"]) for d in self.tree["definitions"]):
            return None
        return next((p["arg"] for p in there for d in p["dims"] or () if (kind, name) in self.variables(d)), None)

    def variables(self, e):
        """All size variables and runs in e."""
        if e[0] in ("dim", "run"):
            return [(e[0], e[1])]
        if e[0] == "element":
            return [("dim", e[1])]
        return [v for x in e[1:] if isinstance(x, list) for v in self.variables(x)]

    def length(self, d, label):
        """Source of how many dims an item is; None: a run that is not known yet."""
        if not is_multi(d):
            return "1"
        name = self.new()
        if not self.unknown(d):
            self.emit(f"{name} = len({self.expr(d)})")
            return name
        for r in self.tree["run_ranks"]:
            if r["run"] == d[1] and not self.unknown(r["rank"]):
                text = f"rank(*{d[1]}) == {print_expr(r['rank'])}"
                self.emit(f"{name} = rank_of_run({self.expr(r['rank'])}, {self.c.name!r}, {text!r})")
                return name
        return None

    def run(self, d, source, wrong):
        if d[0] == "run" and ("run", d[1]) not in self.bound:
            self.bound.add(("run", d[1]))
            self.emit(f"r_{d[1]} = {source}")
        else:
            self.emit(f"same_run({source}, {self.expr(d)}, {wrong})")

    def dim(self, d, source, wrong, who):
        key = ("element", d[1], self.element) if d[0] == "element" else (d[0], d[1]) if d[0] == "dim" else None
        if key and key not in self.bound:
            self.bound.add(key)
            self.emit(f"{self.expr(d)} = {source}")
        elif self.unknown(d):
            found = self.new()
            self.emit(f"{found} = {source}")
            self.aside.append((d, found, wrong, who))
        else:
            self.emit(f"same({source}, {self.expr(d)}, {wrong})")

    # ---- what was put aside

    def solve(self):
        todo = [("compare", *a) for a in self.aside]
        todo += [("define", d["value"], d["name"]) for d in self.tree["definitions"] if self.taken(d["case"])]
        while todo:
            item = next((t for t in todo if not self.unknown(t[1]) and not self.absent(t[1])), None)
            if item:
                self.settle(*item)
            else:
                item = next((t for t in todo if t[0] == "compare" and len(set(self.unknown(t[1]))) == 1), None)
                if item is None:
                    return  # what is left speaks of absent arguments
                self.invert(*item[1:])
            todo.remove(item)

    def settle(self, what, e, *rest):
        if what == "compare":
            found, wrong, _ = rest
            self.emit(f"same({found}, {self.expr(e)}, {wrong})")
        elif ("dim", rest[0]) in self.bound:
            text = f"{self.c.name}: {rest[0]} = {print_expr(e)}: expected {rest[0]} = {{}}, found {{}}{self.binders([('dim', rest[0])])}"
            self.emit(f"defined(d_{rest[0]}, {self.expr(e)}, {text!r})")
        else:
            self.bound.add(("dim", rest[0]))
            self.emit(f"d_{rest[0]} = {self.expr(e)}")

    def invert(self, e, origin, wrong, who):
        """Solve e = found for the one variable in e that is unknown: it stands in it once, under + - * / and unary -."""
        label, found = f"{self.c.name}: argument '{who}': {print_expr(e)}", origin
        (_, name), = set(self.unknown(e))
        while e[0] != "dim":
            if e[0] == "neg":
                e, found = e[1], f"(-{found})"
                continue
            left = bool(self.unknown(e[1]))
            known = self.expr(e[2] if left else e[1])
            if e[0] == "add":
                found = f"({found} - {known})"
            elif e[0] == "sub":
                found = f"({found} + {known})" if left else f"({known} - {found})"
            elif e[0] == "mul":
                found = f"divided({found}, {known}, {label!r}, {name!r}, {origin})"
            elif e[0] == "div":
                found = f"({found} * {known})" if left else f"divided({known}, {found}, {label!r}, {name!r}, {origin})"
            else:
                raise NotImplementedError(f"{label}: cannot be solved")
            e = e[1] if left else e[2]
        self.bound.add(("dim", e[1]))
        self.emit(f"d_{e[1]} = {found}")
        self.emit(f"not_negative(d_{e[1]}, {label!r}, {e[1]!r})")

    def when(self, case):
        return f" when {self.tree['groups'][case[0]]['cases'][case[1]]['text']}" if case else ""

    def constraints(self):
        for c in self.tree["constraints"]:
            e = c["expr"]
            if not self.taken(c["case"]) or c["values"] is not None or self.unknown(e) or self.absent(e):
                continue
            names = {}
            _collect(e, names)
            arguments = sorted(set(_arguments_of(e)))
            label = self.c.name + (f": argument '{arguments[0]}'" if len(arguments) == 1 else "")
            found = ", ".join(f"({n!r}, {s})" for n, s in names.items())
            text = f"{label}: expected {c['text']}{self.when(c['case'])}, found "
            self.emit(f"constraint({self.expr(e)}, {text!r}, lambda: [{found}], {self.binders(self.variables(e))!r})")

    # ---- outputs

    def outputs(self):
        results = []
        for u in self.tree["unbacked"]:
            low, high = self.expr(u["min"]) if u["min"] else "0", self.expr(u["max"]) if u["max"] else "None"
            self.emit(f"d_{u['name']} = unbacked({low}, {high}, {self.c.name!r})")
            self.bound.add(("dim", u["name"]))
        for i, r in enumerate(self.c.returns):
            slot = len(self.names) + i
            o = next((o for o in self.tree["outputs"] if o["slot"] == slot and self.taken(o["case"])), None)
            results.append(self.new())
            self.output(results[-1], o, r)
        self.emit(f"return [{', '.join(results)}]")

    def output(self, to, o, r):
        if o is None:
            if r["declared"] in NUMBERS:
                self.emit(f"{to} = number({r['declared']!r}, {self.c.name!r})")
            elif r["type"].endswith("?"):
                self.emit(f"{to} = None")
            else:
                self.emit(f"fail({self.c.name + ': its contract does not say what its result is, so it has no fake'!r})")
        elif o["is_argument"] is not None:
            self.emit(f"{to} = a_{self.names[o['is_argument']]}")
        elif o["view_of"] is not None:
            self.emit(f"{to} = {self.view(o)}")
        elif o["dims"] is None:
            self.emit(f"fail({self.c.name + ': its shapes come from a C function, which has no symbolic form'!r})")
        else:
            dtype = self.expr(o["dtype"]) if o["dtype"] else "None"
            where = {"same": "device", "cpu": "'cpu'"}[o["device"]] if isinstance(o["device"], str) else self.expr(o["device"])
            shape = self.shape(o["dims"])
            if o["like"] is None:
                self.emit(f"{to} = new({shape}, {dtype}, {where}, {self.c.name!r}, {o['name']!r})")
            else:
                same = any(p["slot"] == o["like"] and p["dims"] == o["dims"] and self.taken(p["case"]) for p in self.tree["inputs"])
                self.emit(f"{to} = new_like(a_{self.names[o['like']]}, {None if same else shape}, {dtype}, {where})")

    def shape(self, dims):
        return "(" + "".join(("*" if is_multi(d) else "") + self.expr(d) + ", " for d in dims) + ")"

    def view(self, o):
        base = f"a_{self.names[o['view_of']]}"
        if o["transform"]:
            return f"view_{o['transform'][1]}({', '.join([base, *map(self.expr, o['transform'][2:])])})"
        if o["strides"] is None and o["offset"] is None:
            return f"view_same({base})"
        strides = self.shape(o["strides"]) if o["strides"] is not None else f"{base}.stride()"
        return f"view_strided({base}, {self.shape(o['dims'])}, {strides}, {self.expr(o['offset']) if o['offset'] else '0'})"

    # ---- what else is asked of it

    def sizes(self):
        names = {kind: sorted(v[1] for v in self.bound if v[0] == kind) for kind in ("dim", "run")}
        self.emit("return {%s}, {%s}" % (", ".join(f"{n!r}: d_{n}" for n in names["dim"]), ", ".join(f"{n!r}: r_{n}" for n in names["run"])))

    def flops(self):
        e = self.tree["flops"]
        self.real = True
        self.emit(f"return {0 if self.unknown(e) or self.absent(e) else self.expr(e)}")

    # ---- the whole

    def function(self, what):
        self.what = what
        self.emit("device = None")
        self.inputs()
        self.solve()
        if what == "outputs":
            self.constraints()
        getattr(self, what)()
        source = "\n    ".join([f"def plan({', '.join('a_' + n for n in self.names)}):", *self.lines]) + "\n"
        if _DEBUG >= 3:
            print(f"# {what} of {self.c.name}, cases {self.cases}\n{source}", file=sys.stderr)
        scope = dict(symbolic.HELPERS)
        exec(compile(source, f"<{what} of {self.c.name}>", "exec"), scope)  # our own source, made above
        return scope["plan"]


def is_multi(d):
    return d[0] in _MULTI or (d[0] == "call" and d[1] in _MULTI_CALLS)


def print_expr(e):
    """An expression as one writes it in a contract: for messages."""
    kind = e[0]
    if kind == "element":
        return e[1] + "{i}"
    if kind in _MULTI:
        return "*" + e[1]
    if kind == "call":
        return f"{e[1]}({', '.join(print_expr(x) for x in e[2:])})"
    if kind == "index":
        return f"{print_expr(e[1])}[{print_expr(e[2])}]"
    if kind == "neg":
        return "-" + print_expr(e[1])
    if kind in _OPERATORS or kind in ("div", "and", "or"):
        space = " " if kind in ("and", "or", "eq", "ne", "lt", "le", "gt", "ge") else ""
        return f"{print_expr(e[1])}{space}{_OPERATORS.get(kind, '/' if kind == 'div' else kind)}{space}{print_expr(e[2])}"
    return str(e[1]) if len(e) > 1 else kind


def _first_tensor(value):
    if isinstance(value, (list, tuple)):
        return next((x for x in value if x is not None), None)
    return value


def _arguments_of(e):
    if not isinstance(e, list) or not e:
        return []
    return [e[1]] if e[0] in ("arg", "list") else [n for x in e[1:] for n in _arguments_of(x)]


def _collect(e, names):
    """The names in e that a message shows, with the source of their values."""
    forms = {"dim": ("{}", "d_{}"), "run": ("*{}", "list(r_{})"), "dtype_var": ("{}", "dtype_name(t_{})"), "arg": ("{}", "shown(a_{})")}
    if e[0] in forms:
        name, source = forms[e[0]]
        names[name.format(e[1])] = source.format(e[1])
    for x in e[1:]:
        if isinstance(x, list):
            _collect(x, names)


def _sum(parts):
    """Source of a sum, constants added up: "v1 + 2"."""
    parts = [q for p in parts for q in p.split(" + ")]
    constant = sum(int(p) for p in parts if p.isdigit())
    names = [p for p in parts if not p.isdigit()]
    return " + ".join(names + ([str(constant)] if constant or not names else []))
