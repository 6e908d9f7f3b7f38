"""Evaluates a contract's program (docs/json.md, "program") on any host's values: plain integers or symbolic sizes. The program is
straight-line: a step is skipped if its guard is a plain False, and done otherwise. A `World` has the host's operations: this one computes
with Python integers; a host with symbolic sizes overrides the operations that would branch on a symbol.
"""
from . import _core

VERSION = 1
_BITS = {name: bits for name, (_, _, bits) in _core.dtypes().items()}


class World:
    """The host's operations. Dtypes are the contract's names ("f32"); devices and tensors are the host's own."""

    def at_most(self, a, b):
        return a <= b

    def fail(self, status, message):
        raise RuntimeError(message)

    def check(self, holds, status, message):
        """message() makes the text."""
        if not holds:
            self.fail(status, message())

    # ---- tensors and arguments

    def shape(self, x):
        return tuple(x.shape)

    def strides(self, x):
        raise NotImplementedError

    def dtype_of(self, x):
        return self.dtype_name(x.dtype)

    def dtype_name(self, dtype):
        return str(dtype)

    def device_of(self, x):
        return x.device

    def device(self, text):
        return text

    def device_name(self, device):
        return str(device)

    def on_cpu(self, device):
        return self.device_name(device).split(":")[0] in ("cpu", "meta")

    def same_device(self, a, b):
        return a == b

    def is_tensor(self, x):
        return hasattr(x, "shape")

    # ---- dtypes

    def number_dtype(self, x):
        return {bool: "bool", int: "i64", float: "f32", complex: "c64"}[type(x)]

    def promote(self, pairs):
        """the host's result type of (dtype, sort) pairs; None: they do not promote."""
        raise NotImplementedError

    def itemsize(self, dtype):
        return -(-_BITS[dtype] // 8)

    # ---- integers and truth values that may be symbols

    def minimum(self, a, b):
        return min(a, b)

    def maximum(self, a, b):
        return max(a, b)

    def is_condition(self, x):
        return isinstance(x, bool)

    def negation(self, a):
        return not a

    def both(self, a, b):
        return a and b

    def either(self, a, b):
        return a or b

    def choice(self, condition, x, y):
        """x or y, integers, by a condition that is a symbol."""
        raise NotImplementedError

    def broadcasts(self, shapes):
        return _conflict(shapes) is None

    def broadcast(self, shapes):
        out = []
        for k in range(max(map(len, shapes), default=0)):
            sizes = [s[-1 - k] for s in shapes if len(s) > k]
            out.append(next((n for n in sizes if n != 1), 1))
        return tuple(reversed(out))

    def unbacked(self, low, high):
        return high


def _conflict(shapes):
    """Where plain sizes do not broadcast: (size, other size, dim from the back)."""
    for k in range(1, max(map(len, shapes), default=0) + 1):
        sizes = [s[-k] for s in shapes if len(s) >= k and s[-k] != 1]
        other = next((n for n in sizes if n != sizes[0]), None)
        if other is not None:
            return sizes[0], other, -k
    return None


# ---- operations: the world, then the operands

def _at(w, dims, i):
    return dims[i] if -len(dims) <= i < len(dims) else 0


def _pack(w, *items):
    return tuple(n for x in items for n in (x if isinstance(x, tuple) else (x,)))


def _numel(w, dims):
    n = 1
    for d in dims:
        n = n * d
    return n


def _is_axis(w, dim, rank):
    return -max(rank, 1) <= dim < max(rank, 1)


def _axis(w, dim, rank):
    return (dim + max(rank, 1) if dim < 0 else dim) if _is_axis(w, dim, rank) else 0


def _reduced(w, dims, axes, keep):
    gone = {_axis(w, a, len(dims)) for a in axes} if axes else range(len(dims))
    return tuple(1 if i in gone else n for i, n in enumerate(dims) if keep or i not in gone)


def _swap(w, dims, i, j):
    out = list(dims)
    if out:
        out[i], out[j] = out[j], out[i]
    return tuple(out)


def _negative(w, dims):
    found = 0
    for n in dims:
        if type(n) is int and n < 0:
            return n
        found = found if type(n) is int else w.minimum(n, found)
    return found


def _equal(w, a, b):
    if not isinstance(a, tuple):
        return a == b
    if len(a) != len(b):
        return False
    holds = True
    for x, y in zip(a, b):
        holds = _and(w, holds, x == y)
    return holds


def _and(w, a, b):
    """An operand that the other one makes irrelevant may be undefined."""
    for x, y in ((a, b), (b, a)):
        if x is False or x is True:
            return x and y
    return w.both(a, b)


def _or(w, a, b):
    for x, y in ((a, b), (b, a)):
        if x is False or x is True:
            return x or y
    return w.either(a, b)


def _not(w, a):
    return not a if isinstance(a, bool) else w.negation(a)


def _select(w, c, x, y):
    if isinstance(c, bool):
        return x if c else y
    if isinstance(x, tuple):
        return tuple(_select(w, c, a, b) for a, b in zip(x, y))
    if x is y:
        return x
    if w.is_condition(x) or w.is_condition(y):
        return _or(w, _and(w, c, x), _and(w, _not(w, c), y))
    return w.choice(c, x, y)


def _plain(shapes):
    return all(type(n) is int for s in shapes for n in s)


def _promote(w, *operands):
    return w.promote([(d, s) for d, s in zip(operands[::2], operands[1::2]) if s != 3])


_OPERATIONS = {
    "shape": lambda w, x: w.shape(x),
    "strides": lambda w, x: w.strides(x),
    "dtype_of": lambda w, x: w.dtype_of(x),
    "device_of": lambda w, x: w.device_of(x),
    "rank": lambda w, dims: len(dims),
    "numel": _numel,
    "at": _at,
    "slice": lambda w, dims, start, length: dims[start:start + max(length, 0)],
    "pack": _pack,
    "broadcasts": lambda w, *shapes: w.broadcasts(shapes) if _plain(shapes) else True,
    "broadcast": lambda w, *shapes: w.broadcast(shapes),
    "reduced": _reduced,
    "swap": _swap,
    "permute": lambda w, dims, axes: tuple(dims[_axis(w, a, len(dims))] for a in axes) if len(axes) == len(dims) else dims,
    "replace": lambda w, dims, i, n: (*dims[:i], n, *dims[i + 1:]),
    "drop": lambda w, dims, i: (*dims[:i], *dims[i + 1:]),
    "negative": _negative,
    "is_axis": _is_axis,
    "axis": _axis,
    "are_axes": lambda w, axes, rank: all(_is_axis(w, a, rank) for a in axes),
    "distinct_axes": lambda w, axes, rank: len({_axis(w, a, rank) for a in axes}) == len(axes),
    "add": lambda w, a, b: a + b,
    "sub": lambda w, a, b: a - b,
    "mul": lambda w, a, b: a * b,
    "neg": lambda w, a: -a,
    "abs": lambda w, a: w.maximum(a, -a),
    "div": lambda w, a, b: a / b,
    "floordiv": lambda w, a, b: a // b,
    "mod": lambda w, a, b: a % b,
    "ceildiv": lambda w, a, b: -(-a // b),
    "min": lambda w, a, b: w.minimum(a, b),
    "max": lambda w, a, b: w.maximum(a, b),
    "to_number": lambda w, a: a,
    "to_real": lambda w, a: a,
    "not": _not,
    "and": _and,
    "or": _or,
    "select": _select,
    "eq": _equal,
    "ne": lambda w, a, b: _not(w, _equal(w, a, b)) if isinstance(a, tuple) else a != b,
    "lt": lambda w, a, b: a < b,
    "le": lambda w, a, b: w.at_most(a, b),
    "gt": lambda w, a, b: a > b,
    "ge": lambda w, a, b: a >= b,
    "one_of": lambda w, a, *others: a in others,
    "on_cpu": lambda w, d: w.on_cpu(d),
    "same_device": lambda w, a, b: w.same_device(a, b),
    "promotes": lambda w, *operands: _promote(w, *operands) is not None,
    "promote": _promote,
    "accumulate": lambda w, d: "i64" if d == "bool" or d[0] in "iu" else d,
    "itemsize": lambda w, d: w.itemsize(d),
    "copy": lambda w, x: x,
    "unbacked": lambda w, low, high: w.unbacked(low, high),
}


def _first(value):
    return next((x for x in value if x is not None), None) if isinstance(value, (list, tuple)) else value


def _value(w, x, type):
    if type == "dims" and x is not None:
        return tuple(x) if isinstance(x, (list, tuple)) else (x,)
    return w.dtype_name(x) if type == "dtype" and x is not None else x


# Reads an argument: world, its value, the register's type. None: a required value is missing (a str may be None).
_READERS = {
    "present": lambda w, x, type: x is not None,
    "holds_tensor": lambda w, x, type: None if x is None else _first(x) is not None,
    "tensor": lambda w, x, type: _first(x),
    "argument": _value,
    "len": lambda w, x, type: None if x is None else len(x),
    "number_dtype": lambda w, x, type: w.number_dtype(x),
}


class _Step:
    __slots__ = ("op", "to", "operands", "guard", "fn", "reads", "slot", "type", "say", "status", "message", "steps", "more")


class Program:
    """The program of one operator's contract, decoded. name: for messages; arguments: the names of the schema's."""

    def __init__(self, name, tree, arguments):
        if tree["version"] != VERSION:
            raise NotImplementedError(f"{name}: its contract is a program of version {tree['version']}; this dovetail reads version {VERSION}")
        self.name, self.arguments = name, arguments
        self.types = list(tree["registers"])
        self.initial = [None] * len(self.types)  # registers, then literals
        self._literals, self.devices = {}, []  # positions of literals; of device literals
        self.variables = [(v["kind"], v["name"], v["register"]) for v in tree["variables"]]
        self.taken = [[self._operand(x) for x in group] for group in tree["taken"]]
        self.solve = self._steps(tree["solve"])
        self.results = {}  # slot -> its entries
        for r in tree["results"]:
            entry = {k: self._operand(r[k]) for k in ("guard", "shape", "dtype", "device", "strides", "offset")}
            transform = r["transform"] and (r["transform"]["op"], [self._operand(x) for x in r["transform"]["in"]])
            entry.update(kind=r["kind"], of=r["of"], unbacked=r["unbacked"], transform=transform, steps=self._steps(r["steps"]))
            entry["list"] = r["list"] and (self._operand(r["list"]["count"]), r["list"]["index"], self._steps(r["list"]["steps"]))
            self.results.setdefault(r["slot"], []).append(entry)
        self.costs = {k: tree[k] and (self._operand(tree[k]["value"]), self._steps(tree[k]["steps"])) for k in ("workspace", "flops", "bytes")}

    def run(self, values, world, checks=("shape", "dtype", "device", "value")):
        """Solve for these arguments, in the schema's order with defaults filled in. checks: what to refuse when it does not fit."""
        return Run(self, values, world, checks)

    # ---- decoding

    def _operand(self, x):
        """The place of a register or of a literal in a run's list."""
        if x is None or isinstance(x, int):
            return x
        key = (x[0], type(x[1]), str(x[1]))
        if key not in self._literals:
            self._literals[key] = len(self.initial)
            self.initial.append(tuple(x[1]) if x[0] == "dims" else x[1])
            self.types.append(x[0])
            if x[0] == "device":
                self.devices.append(self._literals[key])
        return self._literals[key]

    def _steps(self, steps):
        return [self._step(s) for s in steps]

    def _step(self, s):
        out = _Step()
        out.op, out.to, out.slot = s["op"], s.get("to"), s.get("slot")
        out.operands = [self._operand(x) for x in s.get("in", ())]
        out.guard, out.say = self._operand(s.get("guard")), s.get("say", False)
        out.type = self.types[out.to] if out.to is not None else None
        out.fn, out.reads = _OPERATIONS.get(out.op), _READERS.get(out.op)
        out.status = s.get("error")
        out.message = self._parts(s.get("message", ()))
        out.steps = self._steps(s.get("steps", ()))
        out.more = s
        if out.op == "each":
            out.more = {"index": s["index"], "first": s["first"],
                        "carry": [(c["to"], self._operand(c["from"]), self._operand(c["next"])) for c in s.get("carry", ())]}
        elif out.fn is None and out.reads is None and out.op not in ("check", "element", "each_value"):
            raise NotImplementedError(f"{self.name}: contract: '{out.op}' is not known to this version of dovetail")
        return out

    def _parts(self, parts):
        """Each part as a text, or (kind, operands...)."""
        return [self._part(p) for p in parts]

    def _part(self, p):
        if isinstance(p, str):
            return p
        if "if" in p:
            return "if", self._operand(p["if"]), self._parts(p["then"]), self._parts(p["else"])
        if "join" in p:
            return "join", [self._parts(x) for x in p["join"]], p["open"], p["between"], p["close"]
        kind, x = next(iter(p.items()))
        return kind, x if kind == "argument" else [self._operand(y) for y in x] if isinstance(x, list) and kind != "show" else self._operand(x)


class Run:
    """One solved call."""

    def __init__(self, program, values, world, checks):
        self.program, self.values, self.world, self.checks = program, values, world, checks
        self.registers = list(program.initial)
        for i in program.devices:
            self.registers[i] = world.device(self.registers[i])
        self.put_off = []  # steps that only messages read
        self.do(program.solve)

    def do(self, steps):
        registers, world = self.registers, self.world
        for s in steps:
            guard = True if s.guard is None else registers[s.guard]
            if guard is False:
                continue
            if s.say:
                self.put_off.append(s)
            elif s.fn is not None:
                registers[s.to] = s.fn(world, *[registers[x] for x in s.operands])
            elif s.reads is not None:
                self.read(s)
            elif s.op == "element":
                registers[s.to] = self.values[s.slot][registers[s.operands[0]]]
            elif s.op == "check":
                if s.status in self.checks:
                    holds = registers[s.operands[0]]
                    world.check(holds if guard is True else _or(world, _not(world, guard), holds), s.status, lambda s=s: self.text(s))
            elif s.op == "each":
                self.each(s)

    def read(self, s):
        value = s.reads(self.world, self.values[s.slot], s.type)
        if value is None and s.type != "str":
            self.world.fail(s.status, self.text(s))
        self.registers[s.to] = value

    def each(self, s):
        registers, before = self.registers, len(self.put_off)
        for to, origin, _ in s.more["carry"]:
            registers[to] = registers[origin]
        first = True
        for i, x in enumerate(self.values[s.slot]):
            if x is None:
                continue
            registers[s.to], registers[s.more["index"]], registers[s.more["first"]] = x, i, first
            first = False
            self.do(s.steps)
            for to, _, following in s.more["carry"]:
                registers[to] = registers[following]
            del self.put_off[before:]

    # ---- results

    def bound(self, kind):
        """{"n": 3}: the bound variables of a kind ("dim", "run", "dtype")."""
        return {name: self.registers[r] for k, name, r in self.program.variables if k == kind and self.registers[r] is not None}

    def cases(self):
        """Which case of each group holds."""
        return tuple(next(i for i, taken in enumerate(group) if self.registers[taken]) for group in self.program.taken)

    def result(self, slot):
        """What this return is: {"kind": ..., "shape": ..., ...}, of a list {"kind": "list", "each": [...]}; None: the contract does not speak
        of it here."""
        entry = self._entry(slot)
        return entry and (self._result(entry) if entry["list"] is None else {"kind": "list", "each": self._each_result(entry)})

    def kind(self, slot):
        """"new", "view", ...: of each tensor, if this return is a list. None: the contract does not describe it here."""
        entry = self._entry(slot)
        return entry and entry["kind"]

    def _entry(self, slot):
        return next((e for e in self.program.results.get(slot, ()) if e["guard"] is None or self.registers[e["guard"]]), None)

    def _each_result(self, entry):
        count, index, steps = entry["list"]
        self.do(steps)
        out = []
        for i in range(int(self.registers[count])):
            self.registers[index] = i
            out.append({**self._result(entry), "place": i})
        return out

    def _result(self, entry):
        self.do(entry["steps"])
        out = {k: None if entry[k] is None else self.registers[entry[k]] for k in ("shape", "dtype", "device", "strides", "offset")}
        transform = entry["transform"] and (entry["transform"][0], [self.registers[x] for x in entry["transform"][1]])
        return {**out, "kind": entry["kind"], "of": entry["of"], "unbacked": entry["unbacked"], "transform": transform}

    def cost(self, what):
        """"flops", "bytes" or "workspace"; None: not declared."""
        cost = self.program.costs[what]
        if cost is None:
            return None
        self.do(cost[1])
        return self.registers[cost[0]]

    # ---- messages

    def text(self, step):
        put_off, self.put_off = self.put_off, []
        for s in put_off:
            if s.fn is not None:
                self.registers[s.to] = s.fn(self.world, *[self.registers[x] for x in s.operands])
            elif s.op == "element":
                self.registers[s.to] = self.values[s.slot][self.registers[s.operands[0]]]
            else:
                self.registers[s.to] = s.reads(self.world, self.values[s.slot], s.type)
        return f"{self.program.name}: {self.parts(step.message)}"

    def parts(self, parts):
        return "".join(p if isinstance(p, str) else self.part(*p) for p in parts)

    def part(self, kind, x, *more):
        registers = self.registers
        if kind == "show":
            return self.shown(registers[x], self.program.types[x])
        if kind == "if":
            return self.parts(more[0] if registers[x] else more[1])
        if kind == "join":
            texts = [t for t in map(self.parts, x) if t]
            return more[0] + more[1].join(texts) + more[2] if texts else ""
        if kind == "argument":
            return self.argument(self.program.arguments[x], self.values[x])
        if kind == "position":
            return "[]"
        values = [registers[y] for y in x]
        if kind == "wrong_axis":
            return str(next(a for a in values[0] if not _is_axis(self.world, a, values[1])))
        if kind == "repeated_axis":
            axes = [_axis(self.world, a, values[1]) for a in values[0]]
            return str(next(a for i, a in enumerate(axes) if a in axes[:i]))
        if kind == "conflict":
            return "{} and {} at dim {}".format(*_conflict(values))
        if kind == "dtypes":
            pairs = [(d, s) for d, s in zip(values[::2], values[1::2]) if s != 3]
            n = next((n for n in range(1, len(pairs)) if self.world.promote(pairs[:n]) is None), len(pairs))
            return ", ".join(d for d, _ in pairs[:n])
        raise NotImplementedError(f"{self.program.name}: a message with '{kind}' is not known to this version of dovetail")

    def shown(self, x, type):
        if x is None:
            return "None"
        if type == "dims":
            return ", ".join(map(str, x))
        if type == "device":
            return self.world.device_name(x)
        if type == "str":
            return f'"{x[:60]}"'
        return f"{x:g}" if type in ("number", "real") and isinstance(x, float) else str(x)

    def argument(self, name, x):
        if self.world.is_tensor(x):
            return f"{name} of rank {len(self.world.shape(x))}"
        if isinstance(x, str):
            return f'{name} = "{x[:40]}"'
        if x is None or isinstance(x, (bool, int)):
            return f"{name} = {x}"
        if isinstance(x, (list, tuple)) and x and all(isinstance(i, int) and not isinstance(i, bool) for i in x):
            return f"{name} = [{', '.join(map(str, x[:64]))}]"
        return f"{name} = {x:g}" if isinstance(x, float) else f"{name} = a value"
