"""A contract's program over plain integers: docs/json.md, and nothing else of Dovetail. The oracle of core's own interpreter.

A tensor is a Tensor, a dtype and a device are strings, a list of tensors is a tuple of them and None, an int[] a list."""
import dataclasses
import math

LIMITS = -2**63, 2**63 - 1


class Refused(Exception):
    pass


@dataclasses.dataclass
class Tensor:
    dtype: str
    shape: list
    strides: list
    device: str = "cpu"
    values: list = None  # flat, in the order of the shape


class Unwritten:
    def __repr__(self):
        return "unwritten"


UNWRITTEN = Unwritten()
KINDS = {"bool": 0, "u8": 1, "i8": 1, "i16": 1, "i32": 1, "i64": 1, "u16": 4, "u32": 4, "u64": 4, "f16": 2, "bf16": 2, "f32": 2, "f64": 2,
         "c32": 3, "c64": 3, "c128": 3}
BITS = {"bool": 8, "f4_e2m1fn": 4}


def bits(dtype):
    if dtype in BITS:
        return BITS[dtype]
    return int("".join(c for c in dtype.split("_")[0] if c.isdigit()))


def promote_types(a, b):
    if a == b:
        return a
    if a not in KINDS or b not in KINDS:
        return None
    if 4 in (KINDS[a], KINDS[b]):
        return a if KINDS[a] == 2 else b if KINDS[b] == 2 else None
    a, b = sorted((a, b), key=KINDS.get)
    if KINDS[a] == 2 and KINDS[b] == 3:
        other = {"f64": "c128", "f16": "c32"}.get(a, "c64")
        return max(b, other, key=bits)
    if KINDS[a] != KINDS[b]:
        return b
    if KINDS[a] == 2 and bits(a) == bits(b) == 16:
        return "f32"
    if "u8" in (a, b):
        other = b if a == "u8" else a
        return "i16" if other == "i8" else other
    return a if bits(a) >= bits(b) else b


def combine(higher, lower):
    if not higher or not lower:
        return higher or lower
    kh, kl = KINDS.get(higher, 5), KINDS.get(lower, 5)
    if kh == 3:
        return higher
    if kh == 2:
        return {"f64": "c128", "f16": "c32"}.get(higher, "c64") if kl == 3 else higher
    if kh == 0 or kl in (2, 3):
        return promote_types(higher, lower)
    return higher


def promote(operands):
    best = [None, None, None]
    for dtype, sort in zip(operands[::2], operands[1::2]):
        if sort < 3:
            best[sort] = promote_types(best[sort], dtype) if best[sort] else dtype
            if best[sort] is None:
                return None
    return combine(best[0], combine(best[1], best[2]))


def broadcast(shapes):
    """The shape, or the two sizes and the dim that do not fit."""
    out = []
    for s in shapes:
        s = list(s)
        if len(s) > len(out):
            out = s[:len(s) - len(out)] + out
        for k in range(1, len(s) + 1):
            if s[-k] in (out[-k], 1):
                continue
            if out[-k] != 1:
                return None, (out[-k], s[-k], k)
            out[-k] = s[-k]
    return out, None


def is_axis(i, rank):
    return -max(rank, 1) <= i < max(rank, 1)


def axis(i, rank):
    return (i + max(rank, 1) if i < 0 else i) if is_axis(i, rank) else 0


def fits(step, x):
    if isinstance(x, int) and not isinstance(x, bool) and not LIMITS[0] <= x <= LIMITS[1]:
        raise OverflowError(step)
    return x


class Run:
    """One call: values are the arguments in the schema's order, defaults filled in."""

    def __init__(self, program, names, values, check_values=False):
        assert program["version"] == 1
        self.program, self.names, self.values, self.check_values = program, names, values, check_values
        self.registers = [UNWRITTEN] * len(program["registers"])
        self.position = None
        self.steps(program["solve"])

    def read(self, operand):
        if isinstance(operand, int):
            value = self.registers[operand]
            assert value is not UNWRITTEN, f"register {operand} is read and was not written"
            return value
        return operand[1]

    def steps(self, steps):
        for s in steps:
            self.step(s)

    def step(self, s):
        if "guard" in s and not self.read(s["guard"]):
            return
        op = s["op"]
        if op == "check":
            if not self.read(s["in"][0]):
                raise Refused(self.message(s["message"]))
        elif op == "each":
            self.each(s)
        elif op == "each_value":
            self.each_value(s)
        else:
            try:
                self.registers[s["to"]] = fits(s, self.value(op, s))
            except (OverflowError, IndexError):
                if not s.get("say"):  # there it is behind a check that fails
                    raise Refused(self.message(s["message"])) from None
                self.registers[s["to"]] = 0

    def each(self, s):
        for c in s["carry"]:
            self.registers[c["to"]] = self.read(c["from"])
        first = True
        for i, x in enumerate(self.values[s["slot"]]):
            if x is None:
                continue
            self.registers[s["to"]], self.registers[s["index"]], self.registers[s["first"]] = x, i, first
            self.steps(s["steps"])
            for c in s["carry"]:
                self.registers[c["to"]] = self.read(c["next"])
            first = False

    def each_value(self, s):
        x = self.read(s["in"][0])
        if not self.check_values or x.values is None:
            return
        for i, value in enumerate(x.values):
            at = []
            for n in reversed(x.shape):
                at.insert(0, i % n)
                i //= n
            self.position = at
            if "before" in s:
                self.registers[s["before"]] = before if at and at[-1] else value
            before = value
            self.registers[s["to"]] = value
            self.steps(s["steps"])

    def value(self, op, s):
        read = self.read
        if "slot" in s:
            return self.argument(op, s)
        operands = s.get("in", [])
        if op == "select":
            return read(operands[1] if read(operands[0]) else operands[2])
        if op == "and":
            return read(operands[0]) and read(operands[1])
        if op == "or":
            return read(operands[0]) or read(operands[1])
        return getattr(self, "op_" + op)(*[read(x) for x in operands])

    def argument(self, op, s):
        value = self.values[s["slot"]]
        if op == "present":
            return value is not None
        if op == "holds_tensor":
            return value is not None and any(x is not None for x in value)
        if op == "tensor":
            return next(x for x in value if x is not None) if isinstance(value, tuple) else value
        if op == "len":
            return len(value)
        if op == "element":
            return value[self.read(s["in"][0])]
        if op == "number_dtype":
            return "bool" if isinstance(value, bool) else "i64" if isinstance(value, int) else "c64" if isinstance(value, complex) else "f32"
        if self.program["registers"][s["to"]] == "dims":
            return list(value)
        return value

    op_shape = staticmethod(lambda x: list(x.shape))
    op_strides = staticmethod(lambda x: list(x.strides))
    op_dtype_of = staticmethod(lambda x: x.dtype)
    op_device_of = staticmethod(lambda x: x.device)
    op_rank = staticmethod(len)
    op_at = staticmethod(lambda d, i: d[i] if -len(d) <= i < len(d) else 0)
    op_slice = staticmethod(lambda d, i, n: d[i:i + max(n, 0)])
    op_broadcasts = staticmethod(lambda *d: broadcast(d)[1] is None)
    op_broadcast = staticmethod(lambda *d: broadcast(d)[0])
    op_negative = staticmethod(lambda d: next((n for n in d if n < 0), 0))
    op_is_axis = staticmethod(is_axis)
    op_axis = staticmethod(axis)
    op_are_axes = staticmethod(lambda d, rank: all(is_axis(i, rank) for i in d))
    op_distinct_axes = staticmethod(lambda d, rank: len({axis(i, rank) for i in d}) == len(d))
    op_add = staticmethod(lambda a, b: a + b)
    op_sub = staticmethod(lambda a, b: a - b)
    op_mul = staticmethod(lambda a, b: a * b)
    op_div = staticmethod(lambda a, b: a / b)
    op_floordiv = staticmethod(lambda a, b: a // b)
    op_mod = staticmethod(lambda a, b: a % b)
    op_ceildiv = staticmethod(lambda a, b: -(-a // b))
    op_min, op_max, op_abs = staticmethod(min), staticmethod(max), staticmethod(abs)
    op_neg = staticmethod(lambda a: -a)
    op_to_number = staticmethod(lambda a: a)
    op_to_real = staticmethod(float)
    op_not = staticmethod(lambda a: not a)
    op_eq = staticmethod(lambda a, b: a is not None and b is not None and a == b)
    op_ne = staticmethod(lambda a, b: not (a is not None and b is not None and a == b))
    op_lt = staticmethod(lambda a, b: a < b)
    op_le = staticmethod(lambda a, b: a <= b)
    op_gt = staticmethod(lambda a, b: a > b)
    op_ge = staticmethod(lambda a, b: a >= b)
    op_one_of = staticmethod(lambda a, *all: a in all)
    op_on_cpu = staticmethod(lambda a: a.startswith("cpu"))
    op_same_device = staticmethod(lambda a, b: a == b)
    op_promotes = staticmethod(lambda *x: promote(x) is not None)
    op_promote = staticmethod(lambda *x: promote(x))
    op_accumulate = staticmethod(lambda t: "i64" if KINDS.get(t, 5) in (0, 1, 4) else t)
    op_itemsize = staticmethod(lambda t: (bits(t) + 7) // 8)
    op_copy = staticmethod(lambda x: x)
    op_unbacked = staticmethod(lambda least, most: most)

    @staticmethod
    def op_numel(d):
        return 0 if 0 in d else math.prod(d)

    @staticmethod
    def op_pack(*items):
        out = []
        for x in items:
            out += x if isinstance(x, list) else [x]
        return out

    @staticmethod
    def op_reduced(d, axes, keep):
        gone = {axis(i, len(d)) for i in axes} if axes else range(len(d))
        return [1 if i in gone else n for i, n in enumerate(d) if keep or i not in gone]

    @staticmethod
    def op_swap(d, i, k):
        d = list(d)
        if d:
            d[i], d[k] = d[k], d[i]
        return d

    @staticmethod
    def op_permute(d, order):
        return [d[axis(i, len(d))] for i in order]

    @staticmethod
    def op_replace(d, i, n):
        return [n if k == i else x for k, x in enumerate(d)]

    @staticmethod
    def op_drop(d, i):
        return [x for k, x in enumerate(d) if k != i]

    # ---- messages

    def message(self, parts):
        return "".join(map(self.part, parts))

    def part(self, p):
        if isinstance(p, str):
            return p
        if "show" in p:
            return self.show(self.read(p["show"]), self.type_of(p["show"]))
        if "if" in p:
            return self.message(p["then"] if self.read(p["if"]) else p["else"])
        if "join" in p:
            there = [t for t in map(self.message, p["join"]) if t]
            return p["open"] + p["between"].join(there) + p["close"] if there else ""
        if "argument" in p:
            return self.say_argument(p["argument"])
        if "wrong_axis" in p:
            axes, rank = map(self.read, p["wrong_axis"])
            return str(next(i for i in axes if not is_axis(i, rank)))
        if "repeated_axis" in p:
            axes, rank = map(self.read, p["repeated_axis"])
            axes = [axis(i, rank) for i in axes]
            return str(next(d for i, d in enumerate(axes) if d in axes[:i]))
        if "conflict" in p:
            return "{} and {} at dim -{}".format(*broadcast([self.read(x) for x in p["conflict"]])[1])
        if "dtypes" in p:
            return self.say_dtypes([self.read(x) for x in p["dtypes"]])
        assert p == {"position": True}
        return str(self.position)

    def type_of(self, operand):
        return self.program["registers"][operand] if isinstance(operand, int) else operand[0]

    @staticmethod
    def show(x, type):
        if type == "dims":
            return ", ".join(map(str, x))
        if type == "str":
            return "None" if x is None else f'"{x[:60]}"'
        if type in ("number", "real") and isinstance(x, float):
            return "%g" % x
        if type == "device":
            return x if x in ("cpu", "meta") or ":" in x else x + ":0"
        return str(x)

    def say_argument(self, slot):
        name, x = self.names[slot], self.values[slot]
        if isinstance(x, bool) or isinstance(x, int):
            return f"{name} = {x}"
        if isinstance(x, float):
            return f"{name} = {x:g}"
        if isinstance(x, str):
            return f'{name} = "{x[:40]}"'
        if isinstance(x, Tensor):
            return f"{name} of rank {len(x.shape)}"
        if isinstance(x, (list, tuple)) and x and all(type(i) is int for i in x):
            return f"{name} = [{', '.join(map(str, x[:64]))}]"
        return f"{name} = {'None' if x is None else 'a value'}"

    @staticmethod
    def say_dtypes(operands):
        said = []
        for i in range(0, len(operands), 2):
            if operands[i + 1] == 3:
                continue
            said.append(operands[i])
            best = [d for d, sort in zip(operands[:i + 2:2], operands[1:i + 2:2]) if sort == operands[i + 1]]
            total = best[0]
            for d in best[1:]:
                total = promote_types(total, d) if total else None
            if total is None:
                break
        return ", ".join(said[:7]) or "none"

    # ---- results

    def result(self, slot):
        """A dict with kind, and what docs/json.md says about it; shapes, dtypes... are values."""
        for r in self.program["results"]:
            if r["slot"] == slot and (r["guard"] is None or self.read(r["guard"])):
                if r["list"] is None:
                    return self.one_result(r)
                self.steps(r["list"]["steps"])
                return {"kind": "list", "of": [self.one_result(r, i) for i in range(self.read(r["list"]["count"]))]}
        return {"kind": "absent"}

    def one_result(self, r, i=None):
        if i is not None:
            self.registers[r["list"]["index"]] = i
        self.steps(r["steps"])
        out = {k: None if r[k] is None else self.read(r[k]) for k in ("shape", "dtype", "device", "strides", "offset")}
        return out | {k: r[k] for k in ("kind", "of", "unbacked")}

    def cost(self, which):
        cost = self.program[which]
        if cost is None:
            return None
        self.steps(cost["steps"])
        return self.read(cost["value"])
