"""Finds arguments by trial for operators without a contract: small tensors of several ranks and dtypes, by the schema, until the operator
accepts some; then the same with other sizes and dtypes."""
import random

import torch

from ..types import default_of

SHAPES = ([3, 4], [4], [3, 3], [2, 3, 4], [2, 3, 3], [1, 2, 4, 4], [2, 2, 3, 3], [2, 3, 4, 4], [], [6])
INDEX = ("index", "indices", "idx", "ids", "label", "target", "offset", "position")


def tensor(shape, dtype, r, most=2):
    n = 1
    for size in shape:
        n *= size
    if dtype.is_floating_point or dtype.is_complex:
        numbers = [r.choice((-1, 1)) * (0.25 + k % 13 * 0.125 + r.random() / 16) for k in range(n)]
    else:
        numbers = [r.randrange(most) for _ in range(n)]  # also as an index
    return torch.tensor(numbers, dtype=dtype).reshape(shape)


def scalar(a, kind, r, shape):
    name = a.name.lower()
    if kind == "BoolType":
        return r.random() < 0.5
    if kind in ("IntType", "SymIntType"):
        return r.choice((0, -1, 1)) if "dim" in name or "axis" in name else r.choice((1, 2, 1, 0, 3, 4))
    if kind in ("FloatType", "NumberType"):
        return r.choice((1e-5, 1e-3) if "eps" in name else (0.5, 1.0, 2.0, 0.25))
    if kind == "StringType":
        return r.choice(("none", "mean", "sum", "tanh", "constant", ""))
    if kind == "DeviceObjType":
        return torch.device("cpu")
    return None


def draw(op, r, i):
    """Candidate number i: the first ones are regular, later ones random."""
    shape = list(SHAPES[i % len(SHAPES)])
    wild = i >= 4 * len(SHAPES)
    mode = i // len(SHAPES) % 4  # all alike; vectors after the first; indices recognised by name; both
    values, first = [], True
    for a in op._schema.arguments:
        kind, inner, optional = type(a.type).__name__, a.type, False
        if kind == "OptionalType":
            inner, optional = a.type.getElementType(), True
            kind = type(inner).__name__
        if a.has_default_value() and not (wild and r.random() < 0.3):
            values.append(default_of(a))
            continue
        if optional and r.random() < (0.5 if wild or "Tensor" in kind else 0.9):
            values.append(None)
            continue
        list_of = type(inner.getElementType()).__name__ if kind == "ListType" else None
        if kind == "TensorType" or list_of in ("TensorType", "OptionalType"):
            mine = shape if not wild or r.random() < 0.6 else list(r.choice(SHAPES))
            if not first and mode in (1, 3):
                mine = mine[-1:]
            index = mode >= 2 and any(w in a.name.lower() for w in INDEX)
            dtype = torch.int64 if index else torch.float32 if not wild or r.random() < 0.75 else r.choice((torch.int64, torch.bool, torch.int32, torch.float64))
            values.append([tensor(mine, dtype, r) for _ in range(2)] if list_of else tensor(mine, dtype, r))
            first = False
        elif list_of in ("IntType", "SymIntType"):
            values.append(r.choice((shape[-1:], shape, [1], [0], [1, 1], [0, 0], [-1])))
        elif list_of:
            values.append([scalar(a, list_of, r, shape)] * 2)
        else:
            values.append(scalar(a, kind, r, shape))
    return values


def resized(values, sizes, r):
    """The same arguments with every size n replaced by sizes[n], in tensors and lists of sizes."""
    def change(v):
        if isinstance(v, torch.Tensor):
            return tensor([sizes.get(n, n) for n in v.shape], v.dtype, r, 1)
        if isinstance(v, (list, tuple)):
            return [sizes.get(n, n) if type(n) is int else change(n) for n in v]
        return v
    return [change(v) for v in values]


def retyped(values, dtype):
    def change(v):
        if isinstance(v, torch.Tensor):
            return v.to(dtype) if v.dtype.is_floating_point else v.clone()
        return [change(x) for x in v] if isinstance(v, (list, tuple)) else v
    return [change(v) for v in values]


def candidates(op, seed):
    """Generates arguments without end. Send True for accepted ones: variations of them follow."""
    r = random.Random(seed)
    for i in range(10**9):
        values = draw(op, r, i)
        taken = yield values
        if not taken:
            continue
        whole = any(isinstance(v, torch.Tensor) and not v.dtype.is_floating_point for v in values)  # an index into nothing is nobody's fault
        for sizes in ({3: 5, 4: 7, 2: 3, 6: 10}, {3: 2, 4: 5, 2: 1, 6: 3}, {4: 1, 3: 4}, {3: 0}, {4: 0}):
            if not whole or 0 not in sizes.values():
                yield resized(values, sizes, r)
        for dtype in (torch.float64, torch.bfloat16, torch.float16):
            yield retyped(values, dtype)
