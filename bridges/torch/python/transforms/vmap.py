"""vmap of every operator, from its contract.

`parallel(*s)` means that slices along a run of dims are independent: then a batch becomes one more dim of that run, and the operator runs
once. `parallel(b)` means the same for a dim: then the batch is folded into it. Both require that every batched tensor has the run or the
dim, and that the contract does not use it elsewhere. Otherwise vmap is a loop over the batch.

The kernel stands on torch's key FuncTorchBatched, as torch.library.register_vmap does it: it unwraps the tensors of its own level and
calls the operator with that key excluded, which sends it on to the next level (another vmap, a gradient, or the kernel).
"""
import torch

from ..private import vmap as _torch

_BATCHED = _torch.DispatchKeySet(_torch.DispatchKey.FuncTorchBatched)
_RANDOM = _torch.DispatchKeySet(_torch.DispatchKey.FuncTorchVmapMode)


def install(operator, library, local):
    rule = _Rule(operator)
    library.impl(local, rule.batched, "FuncTorchBatched")
    if "nondeterministic_seeded" in operator.declaration["tags"]:
        library.impl(local, rule.random, "FuncTorchVmapMode")


class _Tensor:
    """One tensor of a call: `x` with its batch, `dim` the batch's dim (None: not batched)."""

    def __init__(self, slot, x, dim):
        self.slot, self.x, self.dim = slot, x, dim


class _Rule:
    def __init__(self, operator):
        self.operator, self.name = operator, operator.name
        self.tree = operator.declaration["contract"]
        self.alias = operator.alias

    # ---- the kernels

    def batched(self, /, *args, **kwargs):
        given = self.operator.bind(args, kwargs)
        if self.operator.is_view:
            return self.operator.returned(self.operator.contract.infer(given))  # torch's own views, which have rules
        interpreter = _torch.retrieve_current_functorch_interpreter()
        with _torch._ExcludeDispatchKeyGuard(_BATCHED):
            return self.run(given, interpreter, False)

    def random(self, /, *args, **kwargs):
        """torch calls this for every call inside a vmap, with or without batched tensors."""
        interpreter = _torch.retrieve_current_functorch_interpreter()
        given = self.operator.bind(args, kwargs)
        with _torch._ExcludeDispatchKeyGuard(_RANDOM | _BATCHED):
            if interpreter.randomness() == "error":
                raise RuntimeError(f"vmap: called random operation {self.name} while in randomness error mode. Please either use the 'same' "
                                   "or 'different' randomness flags on vmap or perform the randomness operation out of vmap")
            return self.run(given, interpreter, True)

    def run(self, given, interpreter, random):
        level, size = interpreter.level(), interpreter.batch_size()
        values, tensors = _unwrap(given, level)
        batched = any(t.dim is not None for t in tensors)
        if not batched and not (random and interpreter.randomness() == "different"):
            return self.operator.call(_fill(values, [t.x for t in tensors]))
        if random and interpreter.randomness() == "same":
            raise RuntimeError(f"vmap: {self.name}: the same randomness with a batched tensor input is not supported")
        self.refuse(tensors, size)
        way = None if random else self.way(given, tensors)
        found, dims = way.run(values, size) if way else self.loop(values, tensors, size)
        out = []
        for i, (x, dim) in enumerate(zip(found, dims)):
            if self.alias[i] is not None:
                out.append(given[self.alias[i]])
            elif isinstance(x, list):
                out.append([_torch._add_batch_dim(y, dim, level) for y in x])
            else:
                out.append(x if dim is None else _torch._add_batch_dim(x, dim, level))
        return self.operator.returned(out)

    def results(self, values):
        out = self.operator.call(values)
        return [] if not self.alias else [out] if len(self.alias) == 1 else list(out)

    # ---- what cannot be

    def refuse(self, tensors, size):
        names = [a.name for a in self.operator.arguments]
        if self.tree and self.tree["unbacked"]:
            raise RuntimeError(f"vmap: {self.name}: the size of its result depends on data, so that results of different slices do not fit together")
        for t in tensors:
            if t.slot not in self.operator.writes:
                continue
            if t.dim is None:
                other = next((names[o.slot] for o in tensors if o.dim is not None), None)
                why = f"there exists a Tensor '{other}' that is" if other else "each slice would write something else"
                raise RuntimeError(f"vmap: {self.name}: argument '{names[t.slot]}' is written to in place and is not being vmapped over, but {why}. "
                                   "Vmap over it too, or use an operator that does not write")
            if size > 1 and t.x.stride(t.dim) == 0:
                raise RuntimeError(f"vmap: {self.name}: argument '{names[t.slot]}': unsupported operation: more than one element of the written-to "
                                   "tensor refers to a single memory location. Please clone() the tensor before performing the operation")

    # ---- one call for the whole batch

    def way(self, given, tensors):
        """The run or the dim that takes the batch, or None."""
        if not self.tree or not self.tree["parallel"]:
            return None
        if self.operator.contract.promotes and any(t.x.dim() - (t.dim is not None) == 0 for t in tensors):
            return None  # a 0-d tensor has lower precedence in type promotion, and with a batch it would not be 0-d
        items, _, kinds = self.operator.contract.items(given)
        made = [i for i, kind in enumerate(kinds) if self.alias[i] is None and kind != "absent"]
        for fold in (False, True):
            for item in items if "view" not in kinds else ():
                if (item.free(fold) and (item.size is not None or not fold)
                        and all(item.at.get(t.slot, 0 if t.dim is None else None) is not None for t in tensors)
                        and all(item.at.get(len(given) + i) is not None for i in made)):
                    return _Way(item, fold, tensors, [item.at[len(given) + i] if i in made else None for i in range(len(kinds))], self)
        return None

    # ---- a call for each slice

    def loop(self, values, tensors, size):
        if any(r.alias_info is not None and not r.alias_info.is_write for r in self.operator.returns):
            raise RuntimeError(f"vmap: {self.name}: a result that is a view of an argument cannot be gathered from a loop over the batch")
        if size == 0:
            return self.nothing(values, tensors)
        rows = [self.results(_fill(values, [t.x if t.dim is None else t.x.select(t.dim, i) for t in tensors])) for i in range(size)]
        return self.gathered(list(zip(*rows)))

    def gathered(self, columns):
        out, dims = [], []
        for i, column in enumerate(columns):
            x, dim = column[0], 0
            if self.alias[i] is not None or x is None:
                dim = None
            elif isinstance(x, torch.Tensor):
                x = torch.stack(column)
            elif isinstance(x, (list, tuple)) and all(isinstance(y, torch.Tensor) for y in x):
                if any(len(row) != len(x) for row in column):
                    raise RuntimeError(f"vmap: {self.name}: result {i}: its lists are of different lengths for different slices")
                x = [torch.stack(row) for row in zip(*column)]
            elif any(y != x for y in column):
                raise RuntimeError(f"vmap: {self.name}: result {i} is a number that differs between slices: {x}, {next(y for y in column if y != x)}. "
                                   "A number cannot be batched")
            else:
                dim = None
            out.append(x)
            dims.append(dim)
        return out, dims

    def nothing(self, values, tensors):
        """A batch of size 0: shapes come from the fake function for one slice."""
        metas = [t.x.new_empty([n for d, n in enumerate(t.x.shape) if d != t.dim], device="meta") for t in tensors]
        device = tensors[0].x.device
        found, dims = self.gathered([(x,) for x in self.results(_fill(values, metas))])

        def empty(x):
            return torch.empty((0, *x.shape[1:]), dtype=x.dtype, device=device)

        return [x if d is None else [empty(y) for y in x] if isinstance(x, list) else empty(x) for x, d in zip(found, dims)], dims


class _Way:
    """Move the batch into `item`: as its first dim, or folded into its first dim."""

    def __init__(self, item, fold, tensors, out, rule):
        self.fold, self.tensors, self.out, self.rule = fold, tensors, out, rule
        self.size = item.size  # of the dim that it is folded into
        self.at = [item.at.get(t.slot) for t in tensors]

    def run(self, values, size):
        laid, back = [], []
        for t, at in zip(self.tensors, self.at):
            x = t.x
            if at is not None:
                x = x.unsqueeze(at).expand(*x.shape[:at], size, *x.shape[at:]) if t.dim is None else x.movedim(t.dim, at)
                if self.fold:
                    x = self.folded(t, x, at, back)
            laid.append(x)
        found = self.rule.results(_fill(values, laid))
        for to, x, at in back:
            to.copy_(x.unflatten(at, (size, self.size)))
        if self.fold:
            found = [x if at is None else _each(x, lambda y, at=at: y.unflatten(at, (size, self.size))) for x, at in zip(found, self.out)]
        return found, self.out

    def folded(self, t, x, at, back):
        shape = (*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2:])
        if t.slot not in self.rule.operator.writes:
            return x.reshape(shape)
        try:
            return x.view(shape)
        except RuntimeError:  # no strides for it: written to in a copy
            back.append((x, x.reshape(shape), at))
            return back[-1][1]


def _each(x, f):
    return [f(y) for y in x] if isinstance(x, (list, tuple)) else f(x)


def _unwrap(given, level):
    """The values with a _Tensor in the place of each tensor, and those."""
    tensors = []

    def unwrapped(slot, x):
        if not isinstance(x, torch.Tensor):
            return x
        tensors.append(_Tensor(slot, *_torch._unwrap_batched(x, level)))
        return tensors[-1]

    return [[unwrapped(i, x) for x in v] if isinstance(v, (list, tuple)) else unwrapped(i, v) for i, v in enumerate(given)], tensors


def _fill(values, xs):
    """The values with these tensors."""
    xs = iter(xs)

    def filled(v):
        return next(xs) if isinstance(v, _Tensor) else [filled(x) for x in v] if isinstance(v, list) else v

    return [filled(v) for v in values]
