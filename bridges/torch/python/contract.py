"""Evaluates a contract's program (docs/json.md) on torch's sizes, which may be symbols: the fake function of an operator. A condition on
symbols is never tested with `if`: a check becomes torch._check, a choice becomes torch.sym_ite.
"""

import torch

from .. import _debug
from .._program import Program, World
from . import private
from .transforms.facts import Item, holds
from .types import DTYPES, dtype_name

_NUMBERS = {"symint": torch.int64, "symbool": torch.bool, "int": None, "float": None, "bool": None}
_CPU = torch.device("cpu")


class _All:
    """Conditions that hold together. A check takes them one by one: torch learns more from `a == b` than from a conjunction."""

    def __init__(self, parts):
        self.parts = parts


def _parts(x):
    return x.parts if isinstance(x, _All) else [x]


def _whole(x):
    out, *rest = _parts(x)
    for part in rest:
        out = out & part
    return out


class Symbols(World):
    """torch's values: sizes are int or SymInt, conditions bool or SymBool. label: the operator's name."""

    def __init__(self, label):
        self.label = label

    def check(self, holds, status, message):
        for part in _parts(holds):
            torch._check(part, message)

    def at_most(self, a, b):
        factor = private.factor_of(a) if isinstance(a, torch.SymInt) and isinstance(b, int) else 1
        return a // factor <= b // factor if factor > 1 else a <= b  # torch's export takes no other bound of a named Dim than a whole number

    def strides(self, x):
        return tuple(x.stride())

    def dtype_name(self, dtype):
        return dtype_name(dtype)

    def device(self, text):
        return torch.device(text)

    def is_tensor(self, x):
        return isinstance(x, torch.Tensor)

    def number_dtype(self, x):
        if isinstance(x, (bool, torch.SymBool)):
            return "bool"
        if isinstance(x, (int, torch.SymInt)):
            return "i64"
        default = torch.get_default_dtype()
        return dtype_name(default if isinstance(x, (float, torch.SymFloat)) else torch.promote_types(default, torch.complex32))

    def promote(self, pairs):
        """Tensors with dims have precedence over 0-d tensors, and these over numbers; a lower one counts only if it is of a higher kind."""
        sorts = [None, None, None]
        try:
            for name, sort in pairs:
                dtype = DTYPES[name]
                sorts[sort] = dtype if sorts[sort] is None else torch.promote_types(sorts[sort], dtype)
        except RuntimeError:
            return None
        result = _combined(_combined(sorts[0], sorts[1]), sorts[2])
        return None if result is None else dtype_name(result)

    def is_condition(self, x):
        return isinstance(x, (bool, torch.SymBool, _All))

    def minimum(self, a, b):
        return torch.sym_min(a, b)

    def maximum(self, a, b):
        return torch.sym_max(a, b)

    def negation(self, a):
        return torch.sym_not(_whole(a))

    def both(self, a, b):
        return _All([*_parts(a), *_parts(b)])

    def either(self, a, b):
        return _whole(a) | _whole(b)

    def choice(self, condition, x, y):
        condition = _whole(condition)
        return torch.sym_ite(condition, *[n if isinstance(n, torch.SymInt) else torch.SymInt(condition.node.wrap_int(n)) for n in (x, y)])

    def broadcast(self, shapes):
        return tuple(torch.broadcast_shapes(*shapes))

    def unbacked(self, low, high):
        """A size that only the kernel knows: a new symbol."""
        context = self.context("a size of its result")
        size = context.new_dynamic_size(min=low if isinstance(low, int) else 0, max=high if isinstance(high, int) else None)
        if not isinstance(high, int):
            torch._check(size <= high)
        if not isinstance(low, int):
            torch._check(size >= low)
        return size

    def context(self, what):
        try:
            return torch.library.get_ctx()
        except RuntimeError as e:  # without a fake mode no symbols can be made
            raise RuntimeError(f"{self.label}: {what} depends on data: it has no meta kernel") from e


class Ends(Symbols):
    """Replaces a size that only the kernel knows by one end of its range: 0 the minimum, 1 the maximum."""

    def __init__(self, label, end):
        super().__init__(label)
        self.end = end

    def unbacked(self, low, high):
        return (low, high)[self.end]


class Expected:
    """The expected result. example: a meta tensor; None if the result is absent. least: its minimum sizes, equal to those of example if
    none depends on data."""

    def __init__(self, device, example, least):
        self.device, self.example, self.least = device, example, least
        self.dtype, self.shape = (None, None) if example is None else (example.dtype, example.shape)
        sizes = () if example is None else (*example.shape, *example.stride(), *least)
        certain = example is not None and all(type(n) is int for n in sizes) and tuple(least) == tuple(example.shape)
        self._exact = (example.dtype, example.shape, example.stride(), device) if certain else None

    def is_met(self, x):
        """Is x, a plain tensor, all that is expected, strides included? False may also mean that only check() can tell."""
        return type(x) is torch.Tensor and self._exact == (x.dtype, x.shape, x.stride(), x.device)

    @property
    def is_certain(self):
        return self.example is not None and all(low is high or _known(low == high) for low, high in zip(self.least, self.shape))

    def check(self, x, who):
        """who: the result and what made it, for messages."""
        if self.example is None or x is None:
            if self.example is not x:
                raise RuntimeError(f"{who} gives {'None' if x is None else 'a tensor'}, but it must be {self}")
            return
        if not _same_device(x.device, self.device):
            raise RuntimeError(f"{who} gives a tensor on {x.device}, but it must be on {self.device}")
        if x.dtype != self.dtype or x.dim() != len(self.shape):
            raise RuntimeError(self._wrong(x, who))
        for n, low, high in zip(x.shape, self.least, self.shape):
            if low is high or _known(low == high):
                torch._check(n == high, lambda: self._wrong(x, who))
            else:
                torch._check(n >= torch.sym_min(low, high), lambda: self._wrong(x, who))
                torch._check(n <= torch.sym_max(low, high), lambda: self._wrong(x, who))

    def _wrong(self, x, who):
        return f"{who} gives {dtype_name(x.dtype)}{list(x.shape)}, but it must be {self}"

    def __str__(self):
        if self.example is None:
            return "None"
        sizes = [str(high) if _known(low == high) else f"{low} to {high}" for low, high in zip(self.least, self.shape)]
        return f"{dtype_name(self.dtype)}[{', '.join(sizes)}]"


def _same_device(a, b):
    return a == b or (a.type == b.type and None in (a.index, b.index))


def _combined(higher, lower):
    """The lower one counts only if its kind (bool, integer, real, complex) is above that of the higher one."""
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.is_complex or (higher.is_floating_point and not lower.is_complex):
        return higher
    if higher.is_floating_point:
        return torch.promote_types(higher, torch.complex32)
    if higher is torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def _plain(value):
    """What a contract sees of a value that is no symbol, no fake and no subclass; raises TypeError for others."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return value.dtype, value.shape, value.stride(), value.device
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    if value is None or type(value) in (bool, int, float, str, torch.dtype, torch.device):
        return type(value), value  # 1, 1.0 and True are equal
    raise TypeError


def _key(values):
    """Of plain values, where no mode makes other tensors of them; else TypeError, also for a size that is a symbol once it is looked up."""
    if not private.modes or private.modes._len_torch_dispatch_stack():
        raise TypeError
    return tuple(map(_plain, values))


class Contract:
    """One operator's contract. `values` are always the arguments in the schema's order, defaults filled in."""

    def __init__(self, name, tree, arguments, returns):
        self.name, self.tree, self.returns = name, tree, returns
        self.names = [a["name"] for a in arguments]
        self._program, self._world = None, Symbols(name)
        self._kept = {}  # expected results of plain values
        results = tree["program"]["results"]
        self.views = any(r["kind"] == "view" for r in results)
        self.promotes = any(step["op"] == "promote" for r in results for step in r["steps"])  # is a result's dtype promoted?

    @property
    def program(self):
        if self._program is None:
            self._program = Program(self.name, self.tree["program"], self.names)
        return self._program

    def infer(self, values):
        """Fake results, one for each return (None for an absent one). Raises RuntimeError where the C code would fail."""
        run = self.program.run(values, self._world)
        if _debug.LEVEL >= 3:
            _debug.say(3, f"{self.name}: fake: sizes {run.bound('dim')}, shapes {run.bound('run')}, dtypes {run.bound('dtype')}")
        return [self._make(values, run.result(len(self.names) + i), r) for i, r in enumerate(self.returns)]

    def expected(self, values):
        """The Expected of each return (of a list, a list of them), without memory; None if the contract does not describe it. Raises as
        infer() does. Kept for calls with the same plain values: decompositions of devices without a kernel are called again and again."""
        try:
            key = _key(values)
            kept = self._kept.get(key)
        except TypeError:
            return self._expect(values)
        if kept is None:
            if len(self._kept) >= 64:
                self._kept.clear()
            kept = self._kept[key] = self._expect(values)
        return kept

    def _expect(self, values):
        runs = [self.program.run(values, Ends(self.name, end)) for end in ((0, 1) if self.tree["unbacked"] else (1,))]
        return [self._expected(values, [run.result(len(self.names) + i) for run in runs], r) for i, r in enumerate(self.returns)]

    def _expected(self, values, found, declared):
        if found[-1] is None or found[-1]["kind"] not in ("absent", "new", "like", "list"):
            return None
        if found[-1]["kind"] == "list":
            return [self._expected(values, ends, declared) for ends in zip(*(f["each"] for f in found))]
        example = self._make(values, {**found[-1], "device": torch.device("meta")}, declared)
        return Expected(found[-1]["device"] or _CPU, example, found[0]["shape"])

    def items(self, values):
        """The parallel dims and runs of this call, those that it sums over, and what each return is ("new", "view", ...; None: unknown)."""
        run = self.program.run(values, self._world, checks=("shape",))  # autocast may still change dtypes
        known, places = (run.cases(), run.bound("dim"), run.bound("run")), iter(self.tree["places"])  # of the parallel ones, then of the sums
        parallel, sums = ([Item(kind, place, *known) for (kind, _), place in zip(self.tree[key], places) if holds(place, known[0])]
                          for key in ("parallel", "sum"))
        return parallel, sums, [run.kind(len(self.names) + i) for i in range(len(self.returns))]

    def flops(self, values):
        """The cost of a call by the fact `flops`; 0 if the fact refers to an argument that is None."""
        return self.program.run(values, self._world, checks=()).cost("flops") or 0

    def _make(self, values, found, declared):
        if found is None:
            return self._undescribed(declared)
        kind = found["kind"]
        if kind == "list":
            return [self._make(values, one, declared) for one in found["each"]]
        if kind == "absent":
            return None
        if kind == "function":
            raise NotImplementedError(f"{self.name}: its shapes come from a C function, which has no symbolic form")
        of = None if found["of"] is None else values[found["of"]]
        if isinstance(of, (list, tuple)) and "place" in found:
            of = of[found["place"]]
        if kind == "argument":
            return of
        if kind == "view":
            if not found["transform"]:
                self._check_view(of, found, declared, found.get("place"))
            return _view(of, found)
        dtype, device = DTYPES[found["dtype"]], found["device"] or _CPU
        if kind == "like":
            return _like(of, found["shape"], dtype, device)
        return torch.empty(found["shape"], dtype=dtype, device=device)

    def _check_view(self, x, found, declared, place):
        """A view has only elements of the argument, also where the argument is itself a part of more memory."""
        offset, (low, high), (x_first, x_last) = found["offset"] or 0, _extent(found["shape"], found["strides"]), _extent(x.shape, x.stride())
        first, last = offset + low, offset + high
        if isinstance(high, int) and high < low:  # a view without elements is anywhere
            return
        where = declared["name"] + ("" if place is None else f"[{place}]")
        for holds in (first >= x_first, last <= x_last):
            torch._check(holds, lambda: f"{self.name}: result '{where}': expected a view inside '{self.names[found['of']]}', which has "
                                        f"elements {x_first} to {x_last}, found elements {first} to {last}")

    def _undescribed(self, declared):
        """A number that only the kernel knows is a symbol where the schema can have one, by torch's rules for Tensor.item(). For other types
        torch has none, so a compiled program is cut here."""
        if declared["declared"] in _NUMBERS:
            self._world.context("its result")
            if _NUMBERS[declared["declared"]] is None:
                raise torch._subclasses.fake_tensor.DataDependentOutputException(_overload(self.name))
            return torch.empty((), dtype=_NUMBERS[declared["declared"]], device="cpu").item()
        if declared["type"].endswith("?"):
            return None
        raise NotImplementedError(f"{self.name}: its contract does not say what its result is, so it has no fake")


def _overload(name):
    space, local = name.split("::")
    local, _, overload = local.partition(".")
    return getattr(getattr(getattr(torch.ops, space), local), overload or "default")


def _known(condition):
    from torch.fx.experimental.symbolic_shapes import statically_known_true
    return statically_known_true(condition)


def _same(a, b):
    return len(a) == len(b) and all(_known(x == y) for x, y in zip(a, b))


def _like(x, shape, dtype, device):
    """The strides of torch.empty_like(x); for another shape, with dims in the order of x's."""
    if _same(shape, x.shape):
        return torch.empty_like(x, dtype=dtype, device=device)
    order, _ = private.like.compute_elementwise_output_logical_to_physical_perm(x)
    back = [order.index(d) for d in range(len(order))]
    return torch.empty([shape[d] for d in order], dtype=dtype, device=device).permute(back)


def _extent(shape, strides):
    """The first and the last element, counted from the one at index 0. Without elements: 0 to -1."""
    if any(isinstance(n, int) and not n for n in shape):
        return 0, -1
    reach = [(n - 1) * stride for n, stride in zip(shape, strides)]
    return sum(torch.sym_min(r, 0) for r in reach), sum(torch.sym_max(r, 0) for r in reach)


def _view(x, found):
    if found["transform"]:
        kind, operands = found["transform"]
        return {"swap": torch.transpose, "permute": torch.permute, "narrow": torch.narrow, "select": torch.select}[kind](x, *operands)
    shape, strides, offset = found["shape"], found["strides"], found["offset"]
    if offset is None and _same(shape, x.shape) and _same(strides, x.stride()):
        return x.view(x.shape) if x.is_contiguous() else x.as_strided(x.shape, x.stride())
    return x.as_strided(shape, strides, x.storage_offset() + (0 if offset is None else offset))
