"""What the plans of contract.py call: checks and arithmetic over sizes that may be symbolic.

A comparison of sizes is a torch._check, never a Python `if`; what is asked with `if` here (ranks, dtypes, presence) is never symbolic.
"""
import torch
from torch._library.utils import lookup_op

from .types import DTYPES, dtype_name


def fail(message):
    raise RuntimeError(message)


def shown(x):
    if isinstance(x, torch.Tensor):
        return f"a tensor of {dtype_name(x.dtype)}{list(x.shape)}"
    if isinstance(x, torch.dtype):
        return dtype_name(x)
    return f'"{x}"' if isinstance(x, str) else str(x)


# ---- checks: wrong() makes the message

def wrong_shape(label, items, more, found):
    return f"{label}: expected shape [{', '.join(map(str, items))}]{more}, found {list(found)}"


def wrong_length(label, items, more, found):
    return f"{label}: expected {', '.join(map(str, items))} elements{more}, found {found[0]}"


def rank(shape, n, more, wrong):
    if len(shape) < n or (len(shape) > n and not more):
        fail(wrong())


def same(found, expected, wrong):
    torch._check(found == expected, wrong)


def same_run(found, expected, wrong):
    if len(found) != len(expected):
        fail(wrong())
    for a, b in zip(found, expected):
        torch._check(a == b, wrong)


def rank_of_run(n, label, text):
    if n < 0:
        fail(f"{label}: {text}: expected a number of dims, found {n}")
    return n


def defined(found, expected, text):
    torch._check(found == expected, lambda: text.format(expected, found))


def divided(value, by, label, name, found):
    def wrong():
        return f"{label}: expected a size for which there is a whole '{name}', found {found}"
    torch._check(not_(by == 0), wrong)
    torch._check(value % by == 0, wrong)
    return value // by


def exact(a, b):
    torch._check(a % b == 0, lambda: f"{a} is not divisible by {b}")
    return a // b


def not_negative(n, label, text):
    torch._check(n >= 0, lambda: f"{label}: '{text}' would be negative: {n}")


def constraint(holds, text, found, more):
    torch._check(holds, lambda: text + (", ".join(f"{n} = {v}" for n, v in found()) or "otherwise") + more)


def listed(names):
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def dtype_in(found, allowed, expected, more):
    if found not in allowed:
        fail(f"{expected}{listed([dtype_name(d) for d in allowed])}{more}, found {dtype_name(found)}")


def same_dtype(found, allowed, expected, more):
    if found != allowed:
        fail(f"{expected}{dtype_name(allowed)}{more}, found {dtype_name(found)}")


def on_same(device, x, label, first):
    if device is not None and x.device != device:
        fail(f"{label}: expected a tensor on {device}{first}, found one on {x.device}")
    return x.device


def on_cpu(device, x, label, first):
    if x.device.type not in ("cpu", "meta"):
        fail(f"{label}: expected a tensor on cpu, found one on {x.device}")
    return device


# ---- arithmetic

def and_(a, b):
    if isinstance(a, torch.SymBool):
        return torch.sym_not(torch.sym_not(a) | torch.sym_not(_bool(b())))
    return b() if a else False


def or_(a, b):
    if isinstance(a, torch.SymBool):
        return a | _bool(b())
    return True if a else b()


def _bool(x):
    return x if isinstance(x, torch.SymBool) else bool(x)


def not_(a):
    return torch.sym_not(a)


def min_(*xs):
    out = xs[0]
    for x in xs[1:]:
        out = torch.sym_min(out, x)
    return out


def max_(*xs):
    out = xs[0]
    for x in xs[1:]:
        out = torch.sym_max(out, x)
    return out


def abs_(x):
    return max_(x, -x)


def ceildiv_(a, b):
    return -(-a // b)


def if_(c, x, y):
    return torch.sym_ite(c, x, y) if isinstance(c, torch.SymBool) else x if c else y


def len_(x):
    return len(x)


def rank_(x):
    return x.dim() if isinstance(x, torch.Tensor) else x[0].dim() if x and isinstance(x[0], torch.Tensor) else len(x)


def _sizes(x):
    return x.shape if isinstance(x, torch.Tensor) else x


def numel_(x):
    n = 1
    for d in _sizes(x):
        n = n * d
    return n


def shape_(x):
    return x.shape


def size_(x, i):
    return _sizes(x)[axis_(i, x)]


def stride_(x, i):
    return x.stride(i)


def axis_(i, x):
    n = rank_(x)
    if not -n <= i < n:
        fail(f"expected a dim from {-n} to {n - 1}, found {i}")
    return i + n if i < 0 else i


def index(xs, i, label):
    n = len(xs)
    if not -n <= i < n:
        fail(f"{label}: it has {n} elements: there is no element {i}")
    return xs[i]


def itemsize_(dtype):
    return dtype.itemsize


def dtype_(x):
    return x.dtype


def broadcast_(runs, label, binders):
    if all(isinstance(n, int) for run in runs for n in run):
        sizes = [tuple(run) for run in runs]
        for k in range(1, max(map(len, sizes), default=0) + 1):
            there = [s[-k] for s in sizes if len(s) >= k and s[-k] != 1]
            other = next((n for n in there if n != there[0]), None)
            if other is not None:
                shown = " and ".join(f"{list(s)}{b}" for s, b in zip(sizes, binders))
                fail(f"{label}: shapes {shown} do not broadcast: {there[0]} and {other} at dim -{k}")
    return torch.broadcast_shapes(*runs)


def reduced_(run, dims, keepdim):
    dims = range(len(run)) if dims is None or (isinstance(dims, (list, tuple)) and not dims) else [dims] if isinstance(dims, int) else dims
    gone = {axis_(d, run) for d in dims}
    return tuple(1 if i in gone else n for i, n in enumerate(run) if keepdim or i not in gone)


def swap_(run, i, j):
    out = list(run)
    i, j = axis_(i, run), axis_(j, run)
    out[i], out[j] = out[j], out[i]
    return tuple(out)


def permute_(run, order):
    if sorted(axis_(i, run) for i in order) != list(range(len(run))):
        fail(f"expected a permutation of {len(run)} dims, found {list(order)}")
    return tuple(run[axis_(i, run)] for i in order)


def promote(items):
    """torch.result_type of any number of tensors, dtypes and numbers: tensors with dims count first, then 0-d ones, then numbers."""
    first, zero, number = None, None, None
    for x in items:
        if isinstance(x, torch.dtype):
            first = _promoted(first, x)
        elif isinstance(x, torch.Tensor):
            if x.dim():
                first = _promoted(first, x.dtype)
            else:
                zero = _promoted(zero, x.dtype)
        else:
            number = _promoted(number, _dtype_of_number(x))
    return _combined(_combined(first, zero), number)


def _promoted(a, b):
    return b if a is None else a if b is None else torch.promote_types(a, b)


def _dtype_of_number(x):
    if isinstance(x, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(x, (int, torch.SymInt)):
        return torch.int64
    return torch.get_default_dtype() if isinstance(x, (float, torch.SymFloat)) else torch.promote_types(torch.get_default_dtype(), torch.complex32)


def _combined(higher, lower):
    """The lower one counts only when it is of a kind (bool, integer, real, complex) above that of the higher one."""
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.is_complex or (higher.is_floating_point and not lower.is_complex):
        return higher
    if higher.is_floating_point:
        return torch.promote_types(higher, torch.complex32)
    if higher is torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def accumulate_(dtype):
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.int64


# ---- results

def new(shape, dtype, device, label, name):
    for n in shape:
        torch._check(n >= 0, lambda: f"{label}: result '{name}': a size is negative: {list(shape)}")
    return torch.empty(shape, dtype=dtype, device=device or "cpu")


def new_like(x, shape, dtype, device):
    """Strides as torch.empty_like(x) has them; shape None: x's, else its own sizes with the dims in the order of x's."""
    if shape is None:
        return torch.empty_like(x, dtype=dtype, device=device or "cpu")
    order, _ = torch._prims_common.compute_elementwise_output_logical_to_physical_perm(x)
    back = [order.index(d) for d in range(len(order))]
    return torch.empty([shape[d] for d in order], dtype=dtype, device=device or "cpu").permute(back)


def _context(label, what):
    try:
        return torch.library.get_ctx()
    except RuntimeError as e:  # outside of a fake mode there is no symbol to give
        raise RuntimeError(f"{label}: {what} depends on data: it has no meta kernel") from e


NUMBERS = {"symint": torch.int64, "symbool": torch.bool, "int": None, "float": None, "bool": None}


def number(type, label):
    """A number that only the kernel knows: a symbol where the schema can have one, by torch's rules for Tensor.item(). For other types torch
    has none, so a compiled program is cut here."""
    _context(label, "its result")
    if NUMBERS[type] is None:
        raise torch._subclasses.fake_tensor.DataDependentOutputException(lookup_op(label))
    return torch.empty((), dtype=NUMBERS[type], device="cpu").item()


def unbacked(low, high, label):
    """A size that only the kernel knows: a symbol of its own."""
    context = _context(label, "a size of its result")
    size = context.new_dynamic_size(min=low if isinstance(low, int) else 0, max=high if isinstance(high, int) else None)
    if high is not None and not isinstance(high, int):
        torch._check(size <= high)
    if low is not None and not isinstance(low, int):
        torch._check(size >= low)
    return size


def view_swap(x, i, j):
    return x.transpose(i, j)


def view_permute(x, order):
    return x.permute(*order)


def view_narrow(x, dim, start, length):
    return x.narrow(dim, start, length)


def view_select(x, dim, i):
    return x.select(dim, i)


def view_same(x):
    return x.view(x.shape) if x.is_contiguous() else x.as_strided(x.shape, x.stride())


def view_strided(x, shape, strides, offset):
    return x.as_strided(shape, strides, x.storage_offset() + offset)


HELPERS = {k: v for k, v in globals().items() if not k.startswith("__") and k not in ("DTYPES",)}
HELPERS["dtype"] = DTYPES.__getitem__
