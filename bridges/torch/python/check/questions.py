"""What `dovetail check` asks of an operator in PyTorch. Each question is a function of an operator and its arguments in the schema's order;
it raises Broken for a wrong answer, and Unsure if there is no answer. The functions need only torch: __main__.py copies their sources
into programs that show a failure.
"""
import ctypes
import keyword
import mmap
import os
import signal
import tempfile
import warnings

import torch

DECLARED = {"rtol": 0, "atol": 0}  # the contract's tolerance, beside rounding


class Broken(Exception):
    """What was promised does not hold."""


class Contents(Broken):
    """Without a contract, the values in integer tensors may be the cause of the failure."""


class Stricter(Broken):
    """It refuses arguments that the kernel accepts: the arguments may be the cause."""


class Unsure(Exception):
    """Not checked, and why."""


def call(op, values):
    """With all arguments in the schema's order."""
    arguments = op._schema.arguments
    return op(*[v for a, v in zip(arguments, values) if not a.kwarg_only], **{a.name: v for a, v in zip(arguments, values) if a.kwarg_only})


def each(value):
    """The tensors in an argument or a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for x in value for t in each(x)] if isinstance(value, (list, tuple)) else []


def with_tensors(values, change):
    """The same arguments, with change(tensor) for each tensor."""
    if isinstance(values, torch.Tensor):
        return change(values)
    return [with_tensors(v, change) for v in values] if isinstance(values, (list, tuple)) else values


def copy(values):
    """Copies of the tensors with the same layout."""
    return with_tensors(values, lambda t: torch.empty(0, dtype=t.dtype).set_(t.untyped_storage().clone(), t.storage_offset(), t.shape, t.stride()))


def named(op, values):
    """(argument, its name in words, tensor)."""
    for a, value in zip(op._schema.arguments, values):
        for i, t in enumerate(each(value)):
            yield a, f"argument '{a.name}'" + (f"[{i}]" if isinstance(value, (list, tuple)) else ""), t


def is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def writes_any(op):
    return any(is_written(a) for a in op._schema.arguments)


def is_view(op):
    return any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns) or \
        any("*" in a.alias_info.after_set for a in op._schema.arguments if a.alias_info is not None)


def is_composite(op):
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def is_random(op):
    return torch.Tag.nondeterministic_seeded in op.tags


def data(t):
    """The bytes of a tensor's whole storage."""
    s = t.untyped_storage()
    return ctypes.string_at(s.data_ptr(), s.nbytes()) if s.nbytes() else b""


def bits(value):
    """The bytes of all elements of a result."""
    return [data(t.detach().resolve_conj().resolve_neg().contiguous().clone()) for t in each(value)]


def near(a, b):
    """Equal up to rounding, relative to the largest number: sums may be added in another order."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.dtype.is_floating_point and not a.dtype.is_complex:
        return torch.equal(a, b)
    size = torch.finfo(a.dtype).eps
    wide = torch.complex128 if a.dtype.is_complex else torch.float64
    a, b = a.detach().to(wide), b.detach().to(wide)
    finite = b[torch.isfinite(b)]
    largest = finite.abs().max().item() if finite.numel() else 0.0
    return torch.allclose(a, b, rtol=200 * size + DECLARED["rtol"], atol=200 * size * largest + DECLARED["atol"], equal_nan=True)


def outcome(op, values):
    """The outcome of a call: its results and the written arguments."""
    torch.manual_seed(0)
    out = call(op, values)
    return each(out) + [t for a, _, t in named(op, values) if is_written(a)]


def shown(t):
    return f"{str(t.dtype).removeprefix('torch.')}{[int(n) for n in t.shape]} with strides {tuple(int(n) for n in t.stride())} on {t.device}"


# ---- The questions, in the order in which they are asked

def runs(op, values):
    """It runs to its end."""
    call(op, copy(values))


def writes(op, values):
    """Only arguments that the schema declares are written, and autograd's version counters are raised."""
    given, values = values, copy(values)
    before = [(data(t), t._version) for _, _, t in named(op, values)]
    call(op, values)
    for k, ((a, name, t), (old, version)) in enumerate(zip(named(op, values), before)):
        changed = data(t) != old
        if not is_written(a) and (changed or t._version != version):
            raise Broken(f"{name} is written, and the schema does not declare it")
        if is_written(a) and changed and t._version == version and misleads(op, given, k):
            raise Broken(f"{name} is written and its version counter stays: autograd does not see it, and gives wrong gradients without an error")


def misleads(op, values, k):
    """Save the k-th tensor for a backward, then let the operator write it: is the gradient wrong without an error?"""
    order, kept = iter(range(10**6)), []

    def saved(t):
        if next(order) != k or not t.is_floating_point():
            return t
        leaf = t.clone().requires_grad_()
        kept.extend((leaf, leaf * 1))
        return kept[1]

    mine = with_tensors(copy(values), saved)
    if not kept:
        return False
    leaf, x = kept
    square = x * x  # which saves x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(op, mine)
            square.sum().backward()
        except Exception:
            return False
    return not near(leaf.grad, 2 * leaf.detach())


def aliases(op, values):
    """Results have memory of their own, unless the schema declares an alias."""
    if is_composite(op):
        raise Unsure("it consists of other operators, which autograd sees one by one")
    values = copy(values)
    results = each(call(op, values))
    memory = lambda t: t.untyped_storage().data_ptr() if t.untyped_storage().nbytes() else None  # noqa: E731
    for a, name, t in named(op, values):
        if any(memory(t) is not None and memory(r) == memory(t) for r in results) and a.alias_info is None:
            raise Broken(f"a result shares the memory of {name}, and the schema does not declare it")
    own = [memory(r) for r in results if memory(r) is not None]
    if len(set(own)) < len(own) and all(r.alias_info is None for r in op._schema.returns) and not is_view(op):
        raise Broken("two results share their memory, and the schema does not declare it")


def same_answer(op, values):
    """The same arguments give the same results; operators that draw random numbers are tagged."""
    first, second = bits(outcome(op, copy(values))), bits(outcome(op, copy(values)))
    if first != second:
        if not all(near(a, b) for a, b in zip(outcome(op, copy(values)), outcome(op, copy(values)))):
            raise Broken("two calls with the same arguments and the same seed give different results")
        raise Unsure("results differ in their last bits from call to call")
    if is_random(op):
        return
    mine = copy(values)
    torch.manual_seed(1)
    other = each(call(op, mine)) + [t for a, _, t in named(op, mine) if is_written(a)]
    if bits(other) != first:
        raise Broken("it draws random numbers, and is not tagged nondeterministic_seeded: compilers may run it twice and expect the same")


def layouts(op, values):
    """The same numbers in another layout give the same results, or are refused."""
    if is_random(op) or is_view(op):
        raise Unsure("the layout is part of what it does" if is_view(op) else "it is random, in the order of memory")
    plain = [with_tensors(v, lambda t: t.clone(memory_format=torch.contiguous_format)) for v in values]
    try:
        expected = outcome(op, copy(plain))
    except Exception as error:
        raise Unsure(f"contiguous tensors are refused: {error}") from None
    if bits(expected) != bits(outcome(op, copy(plain))):
        raise Unsure("it does not give the same twice")

    def transposed(t):
        return t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else sliced(t)

    def sliced(t):
        wide = torch.zeros([2 * n + 1 for n in t.shape], dtype=t.dtype)
        if t.dtype.is_floating_point or t.dtype.is_complex:
            wide.fill_(1e4)
        part = wide[tuple(slice(1, None, 2) for _ in t.shape)]
        part.copy_(t)
        return part

    tried = 0
    for i, a in enumerate(op._schema.arguments):
        for layout in (transposed, sliced):
            if not any(t.numel() > 1 for t in each(plain[i])):
                continue
            mine = [with_tensors(v, layout if k == i else torch.clone) for k, v in enumerate(plain)]
            try:
                found = outcome(op, mine)
            except Exception:
                continue  # refused: fine
            tried += 1
            if not all(near(x, y) for x, y in zip(found, expected)):
                strides = ", ".join(str(tuple(t.stride())) for t in each(mine[i]))
                raise Broken(f"argument '{a.name}' with strides {strides} gives other results than the same numbers in contiguous memory")
    if not tried:
        raise Unsure("no tensor of more than one element, or all other layouts are refused")


def not_traced():
    """What is raised where a call has no fake: it has no such function, or its results are numbers, or depend on a tensor's contents."""
    from torch._subclasses import fake_tensor
    from torch.fx.experimental import symbolic_shapes
    return (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException, fake_tensor.UnsupportedFakeTensorException,
            fake_tensor.UnsupportedOperatorException, symbolic_shapes.GuardOnDataDependentSymNode, NotImplementedError)


def fake(op, values):
    """FakeTensor predicts the results, with sizes as numbers and as symbols."""
    from torch._subclasses import fake_tensor
    from torch.fx.experimental import symbolic_shapes
    real, mine = each(call(op, copy(values))), copy(values)
    for symbolic in (False, True):
        mode = fake_tensor.FakeTensorMode(shape_env=symbolic_shapes.ShapeEnv() if symbolic else None)
        how = " (sizes as symbols)" if symbolic else ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with mode:
                    results = each(call(op, with_tensors(mine, mode.from_tensor)))
            except not_traced() as error:
                raise Unsure(f"no fake{how}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from None
            except Exception as error:
                refuses = isinstance(error, (RuntimeError, ValueError, IndexError, AssertionError))  # others are mistakes in it
                raise (Stricter if refuses else Broken)(f"the fake function{how} fails where the kernel does not: {type(error).__name__}: {error}") from None
            if len(results) != len(real):
                raise Broken(f"the fake function{how} gives {len(results)} tensors, and {len(real)} came")
            for i, (f, r) in enumerate(zip(results, real)):
                try:
                    sizes, strides = [int(n) for n in f.shape], [int(n) for n in f.stride()]
                except symbolic_shapes.GuardOnDataDependentSymNode:
                    continue
                matter = [(n, a, b) for n, a, b in zip(r.shape, strides, r.stride()) if n > 1] if r.numel() else []
                if sizes != list(r.shape) and f.dtype == r.dtype and f.device == r.device:
                    raise Contents(f"result {i}: the fake function{how} says {shown(f)}, and {shown(r)} came")
                if sizes != list(r.shape) or f.dtype != r.dtype or f.device != r.device or f.layout != r.layout or any(a != b for _, a, b in matter):
                    raise Broken(f"result {i}: the fake function{how} says {shown(f)}, and {shown(r)} came")


def unwritten(op, values):
    """Every element of a result is written, and no unwritten memory is read."""
    perturb, libc = -6, ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        raise Unsure("this C library cannot fill memory")
    found = []
    try:
        for poison in (0xa5, 0x5a):
            libc.mallopt(perturb, poison ^ 0xff)
            memory = torch.empty(64, dtype=torch.uint8)
            if memory.tolist().count(poison) < 32:
                raise Unsure("this process's memory is not filled: run with GLIBC_TUNABLES=glibc.malloc.tcache_count=0")
            found.append(outcome(op, copy(values)))
            if bits(outcome(op, copy(values))) != bits(found[-1]):
                raise Unsure("it does not give the same twice")
    finally:
        libc.mallopt(perturb, 0)
    for i, (a, b) in enumerate(zip(*found)):
        if bits(a) != bits(b):
            raise Contents(f"result {i} depends on memory that nobody wrote: an element is not written, or is made from such memory")


def bounds(op, values):
    """No memory outside the tensors is accessed, and only declared arguments are written."""
    libc, page, spare = ctypes.CDLL(None, use_errno=True), mmap.PAGESIZE, 1 << 20

    def guarded(t, guard, at_end, read_only, keep):  # without a guard: with spare memory around it, so that a fault does not end the call by luck
        size, around = t.untyped_storage().nbytes(), page if guard else spare
        if not size:
            return t
        room = -(-size // page) * page
        pages = mmap.mmap(-1, room + 2 * around)
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        keep.append(pages)
        start = address + around + (room - size if at_end else 0)
        start -= start % t.element_size()
        ctypes.memmove(start, data(t), size)
        for at in (address, address + page + room) if guard else ():
            libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 0)
        if guard and read_only:
            libc.mprotect(ctypes.c_void_p(address + page), ctypes.c_size_t(room), 1)
        flat = torch.frombuffer(pages, dtype=torch.uint8)[start - address:start - address + size].view(t.dtype)
        return flat.as_strided(t.shape, t.stride(), flat.storage_offset() + t.storage_offset())

    def dies(at_end, read_only, only):
        """The signal that ends a call in a separate process, or None."""
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            torch.set_num_threads(1)
            keep, order = [], iter(range(10**6))
            try:
                arguments = [with_tensors(v, lambda t, w=is_written(a): guarded(t, next(order) in only, at_end, read_only and not w, keep))
                             for a, v in zip(op._schema.arguments, copy(values))]
                call(op, arguments)
            finally:
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None

    there = list(named(op, values))
    everything = range(len(there))
    if dies(True, False, ()):
        raise Unsure("the call crashes in a process of its own")
    for at_end in (True, False):
        if dies(at_end, False, everything):
            for i, (_, name, _) in enumerate(there):
                if dies(at_end, False, (i,)):
                    raise Broken(f"{name}: memory {'past its end' if at_end else 'before its beginning'} is touched")
            raise Broken(f"memory {'past the end' if at_end else 'before the beginning'} of an argument is touched")
    if dies(True, True, everything):
        for i, (a, name, _) in enumerate(there):
            if not is_written(a) and dies(True, True, (i,)):
                raise Broken(f"{name} is written, and the schema does not declare it")


def opcheck(op, values):
    """torch.library.opcheck: the schema, the autograd registration, fake tensors, AOTAutograd with symbolic sizes (which compares values, and
    takes NaN for a difference)."""
    arguments = op._schema.arguments
    tests, left_out = ["test_schema", "test_autograd_registration", "test_faketensor"], None
    if any(keyword.iskeyword(a.name) for a in arguments):
        raise Unsure("PyTorch writes Python with the names of its arguments, and one of them is a word of Python's")
    if writes_any(op) and any(a.name == "mode" for a in arguments):
        left_out = "test_aot_dispatch_dynamic: PyTorch itself compiles no operator that writes and has an argument named 'mode'"
    elif not is_random(op) and not any(r.isnan().any() for r in each(call(op, copy(values))) if r.dtype.is_floating_point or r.dtype.is_complex):
        tests.append("test_aot_dispatch_dynamic")
    split = copy(values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = torch.library.opcheck(op, tuple(v for a, v in zip(arguments, split) if not a.kwarg_only),
                                     {a.name: v for a, v in zip(arguments, split) if a.kwarg_only}, test_utils=tests, raise_exception=False)
    for test, answer in done.items():
        if "not implemented for 'Float8" in str(answer):
            left_out = f"{test} itself computes with the arguments, and PyTorch cannot: {answer}"
        elif isinstance(getattr(answer, "__cause__", None) or answer, not_traced()):
            left_out = f"{test}: no fake: {type(answer).__name__}: {answer}"
        elif answer != "SUCCESS":
            raise Broken(f"{test}: {answer}")
    if left_out:
        raise Unsure(left_out)


def differentiable(op, values, seed):
    """Arguments in f64 that require grad, away from zero; and the function of them. Unsure where there is no gradient."""
    g = torch.Generator().manual_seed(seed)

    def moved(t):
        if not t.dtype.is_floating_point:
            return t.clone()
        sign = torch.where(t.double() < 0, -1.0, 1.0)
        return (sign * (0.3 + 0.7 * torch.rand(t.shape, generator=g, dtype=torch.float64))).requires_grad_()

    if writes_any(op) or is_random(op):
        raise Unsure("it writes to its arguments" if writes_any(op) else "it is random")
    mine = with_tensors(list(values), moved)
    leaves = [t for t in each(mine) if t.requires_grad]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = each(call(op, mine))
        except Exception as error:
            raise Unsure(f"f64 tensors are refused: {error}") from None
    functions = {type(r.grad_fn).__name__ for r in results if r.requires_grad}
    if not leaves or not functions or functions & {"NotImplemented", "WarnNotImplemented"}:
        raise Unsure("it has no gradient for these arguments")
    if not all(torch.isfinite(r).all() for r in results):
        raise Unsure("results are not finite")
    # A missing gradient (None) of some arguments, while others have one, counts as intended.
    smooth = [r for r in results if r.requires_grad]
    try:
        gradients = torch.autograd.grad([r.sum() for r in smooth], leaves, allow_unused=True)
    except RuntimeError as error:
        raise Unsure(f"no derivative: {error}") from None
    for t, gradient in zip(leaves, gradients):
        if gradient is None and any(g is not None for g in gradients):
            t.requires_grad_(False)
    leaves = [t for t in leaves if t.requires_grad]

    def function(*tensors):
        given = iter(tensors)
        return tuple(r for r in each(call(op, with_tensors(mine, lambda t: next(given) if t.requires_grad else t))) if r.requires_grad)

    return function, leaves


def larger_steps(function, leaves):
    """For an operator that computes f64 tensors in f32: steps that its precision allows; None for another. Unsure where differences say nothing."""
    def at(by):
        return [r.detach() for r in function(*[(t.detach() + by).requires_grad_() for t in leaves])]

    here = at(0)
    if any(r.dtype in (torch.float32, torch.float16, torch.bfloat16) for r in here):
        raise Unsure("its results are narrower than f64: finite differences have no precision")
    if all(map(torch.equal, here, at(1e-4))) and not all(map(torch.equal, here, at(0.7))):
        raise Unsure("its results are flat here and not farther away, as those of rounding: finite differences are 0")
    single = all(r.dtype == torch.float64 and torch.equal(r, r.float().double()) for r in here)
    return {"eps": 1e-2, "atol": 1e-2, "rtol": 1e-2} if single else None


def checked_three_times(op, values, check, most):
    """Three random points do not all lack a derivative by chance."""
    from torch.autograd.gradcheck import GradcheckError
    tolerance = {"rtol": 1e-3 + DECLARED["rtol"], "atol": 1e-5 + DECLARED["atol"]}
    for seed in range(3):
        function, leaves = differentiable(op, values, seed)
        if sum(t.numel() for t in leaves) > most:
            raise Unsure("the tensors are too large for finite differences")
        sizes = {}
        while sizes is not None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    check(function, leaves, check_undefined_grad=False, **(sizes or tolerance))
                return
            except GradcheckError as error:
                text = " ".join(str(error).split())
                if "not differentiable" in text or "non-deterministic" in text or "none of the" in text:
                    raise Unsure(text[:300]) from None
                sizes = None if sizes else larger_steps(function, leaves)
            except RuntimeError as error:
                raise Unsure(f"no derivative: {error}") from None
    raise Broken(text[:700])


def gradcheck(op, values):
    """The gradient is that of finite differences, in f64."""
    checked_three_times(op, values, torch.autograd.gradcheck, 60)


def gradgradcheck(op, values):
    """The gradient's gradient is that of finite differences, in f64."""
    checked_three_times(op, values, torch.autograd.gradgradcheck, 20)


def functional(op, values):
    """Functionalized, as compilers do it, it returns and writes the same values as in eager mode."""
    from torch._subclasses.functional_tensor import dispatch_functionalize
    if not writes_any(op):
        raise Unsure("it writes nothing")
    expected, mine = outcome(op, copy(values)), copy(values)

    def function(*tensors):
        given = iter(tensors)
        return [t * 1 if t.dtype != torch.bool else t | False for t in outcome(op, with_tensors(mine, lambda t: next(given)))]

    try:
        found = dispatch_functionalize(function)(*each(mine))
    except Exception as error:
        raise Unsure(f"torch does not functionalize it: {' '.join(str(error).split())[:200]}") from None
    if len(found) != len(expected) or not all(near(x, y) for x, y in zip(found, expected)):
        raise Broken("functionalized it gives or writes something else")


def vmapped(op, values):
    """vmap gives what a loop gives."""
    if writes_any(op) or is_random(op):
        raise Unsure("it writes to its arguments" if writes_any(op) else "it is random")
    flat = each(list(values))
    if not flat:
        raise Unsure("there is no tensor")
    other = [t.flip(0) if t.dim() and t.dtype.is_floating_point else t for t in flat]

    def function(*tensors):
        given = iter(tensors)
        return tuple(each(call(op, with_tensors(list(values), lambda t: next(given)))))

    try:
        loop = [function(*flat), function(*other)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.func.vmap(function)(*[torch.stack([a, b]) for a, b in zip(flat, other)])
    except Exception as error:
        raise Unsure(f"vmap does not take it: {error}") from None
    for i, batch in enumerate(found):
        if not all(near(batch[k], loop[k][i]) for k in range(2)):
            raise Broken(f"result {i} under vmap is not that of a loop")


def sharded(op, values):
    """As DTensors on two ranks it gives the results of one device, for every placement of the arguments."""
    if is_random(op):
        raise Unsure("it is random")
    sets = [a.alias_info and a.alias_info.before_set for a in (*op._schema.arguments[:1], *op._schema.returns[:1])]
    if op._schema.name.endswith("_") and op._schema.returns and (not all(sets) or sets[0] != sets[1]):
        raise Unsure("PyTorch's DTensor returns the first argument of an operator whose name ends in '_', and this one returns something else")
    expected, there = outcome(op, copy(values)), list(named(op, values))
    places = [(i, d) for i, (_, _, t) in enumerate(there) for d in range(t.dim()) if t.shape[d] > 1 and t.numel()]
    if not places:
        raise Unsure("there is no tensor to be sharded")
    # Placements: everything replicated; one dim of one tensor sharded; all tensors with the same first size sharded together.
    plans = [{}, *({i: d} for i, d in places)]
    plans += [p for n in {t.shape[0] for _, _, t in there if t.dim()} if len(p := {i: 0 for i, d in places if d == 0 and there[i][2].shape[0] == n}) > 1]

    def rank_of_two(rank, store):
        """The answer of a rank: a fault, "" for none, or None if DTensor accepts no placement."""
        import torch.distributed as dist
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", rank=rank, world_size=2, store=dist.FileStore(store, 2))
        mesh, taken = init_device_mesh("cpu", (2,)), False
        for plan in plans[:8]:
            order = iter(range(len(there)))
            mine = with_tensors(copy(values), lambda t: distribute_tensor(t, mesh, [Shard(plan[i]) if (i := next(order)) in plan else Replicate()], src_data_rank=None))
            try:
                found = [t.full_tensor() for t in outcome(op, mine)]
            except (NotImplementedError, RuntimeError):
                continue  # refused: fine
            taken = True
            for i, (a, b) in enumerate(zip(found, expected)):
                if not near(a, b):
                    how = ", ".join(f"{there[k][1]} sharded along dim {d}" for k, d in plan.items()) or "everything replicated"
                    return f"as DTensor on two ranks, with {how}, result {i} is not that of one device"
        return "" if taken else None

    pids, reader, writer = [], *os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(2):
            pids.append(os.fork())
            if pids[-1] == 0:
                signal.alarm(30)  # ranks may wait for each other for ever
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        said = rank_of_two(rank, os.path.join(folder, "store"))
                    if rank == 0 and said is not None:
                        os.write(writer, f" {said}".encode())
                finally:
                    os._exit(0)
        for pid in pids:
            os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    if said.strip():
        raise Broken(said.strip())
    if not said:
        raise Unsure("DTensor does not take it")


def compiled(op, *cases, native=None):
    """torch.compile, fullgraph and with dynamic shapes, gives what eager gives, in no more compilations than its decomposition (or, where it
    has none, than copying each tensor; one for each number of results, which sizes may decide)."""
    import torch._dynamo
    positional = sum(not a.kwarg_only for a in op._schema.arguments)
    keywords = [a.name for a in op._schema.arguments if a.kwarg_only]
    if is_random(op):
        raise Unsure("it is random")
    if any(map(keyword.iskeyword, keywords)):
        raise Unsure("PyTorch writes Python with the names of its arguments, and one of them is a word of Python's")

    def count(function):
        counted, answers = [], []

        def backend(graph, inputs):
            counted.append(graph)
            return graph

        torch._dynamo.reset()
        f = torch.compile(function, fullgraph=True, dynamic=True, backend=backend)
        for values in cases:
            mine = copy(values)
            answers.append(each(f(*mine)) + [t for a, _, t in named(op, mine) if is_written(a)])
        return len(counted), answers

    def whole(*v):
        return op(*v[:positional], **dict(zip(keywords, v[positional:])))

    def plain(*v):
        return [t.clone() for x in v for t in (x if isinstance(x, (list, tuple)) else [x]) if isinstance(t, torch.Tensor)]

    options = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True, "error_on_recompile": False}
    with torch._dynamo.config.patch(options), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [outcome(op, copy(values)) for values in cases]
        try:
            times, found = count(whole)
        except Exception as error:
            text = " ".join(str(error).split())
            if any(w in text for w in ("data-dependent", "DataDependent", "no fake impl", "FakeTensor", "meta kernel", "unbacked", "fake tensors", "non-Tensor")):
                raise Unsure(f"it is not traced: {text[:300]}") from None
            raise Broken(f"torch.compile with fullgraph fails: {text[:500]}") from None
        for a, b in zip(found, expected):
            if len(a) != len(b) or not all(near(x, y) for x, y in zip(a, b)):
                raise Broken("compiled it gives other results than eager")
        try:
            least = max(count(native or plain)[0], 1)
        except Exception as error:
            raise Unsure(f"the decomposition is not compiled: {error}") from None
    counts = len({len(e) for e in expected})  # a graph has one number of results
    if times > max(least, counts):
        raise Broken(f"{times} compilations for {len(cases)} calls, and {'its decomposition' if native else 'a copy of each tensor'} needs {least}")


def on_device(op, values):
    """On each other device that it has kernels for, results and written arguments are those of the CPU, and nothing else is written."""
    if is_random(op):
        raise Unsure("it is random")
    if any(t.dim() > 8 for t in each(values)):
        raise Unsure("tensors have more dims than a device's libraries take")
    keys = {"CUDA": "cuda", "PrivateUse1": torch._C._get_privateuse1_backend_name().replace("privateuseone", "npu")}
    names = [d for key, d in keys.items() if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)]
    here = [d for d in names if hasattr(torch, d) and getattr(torch, d).is_available()]
    if not here:
        raise Unsure(f"torch sees no {' or '.join(names)} here: the kernels for it did not run")
    with_tensor = [i for i, v in enumerate(values) if each(v)]

    def outcome_there(device, stays):
        """The outcome of a call with all tensors but those of argument number `stays` on the device; and the arguments that no one may write."""
        def move(t):
            whole = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
            return whole.to(device).as_strided(t.shape, t.stride(), t.storage_offset())
        mine = [v if i == stays else with_tensors(v, move) for i, v in enumerate(copy(values))]
        found = outcome(op, mine)
        getattr(torch, device).synchronize()
        return [t.cpu() for t in found], [(name, t.cpu()) for a, name, t in named(op, mine) if not is_written(a)]

    expected, given = outcome(op, copy(values)), [t for a, _, t in named(op, values) if not is_written(a)]
    for device in here:
        found = why = None
        for stays in (None, *with_tensor):  # an argument may be one that is always on the CPU
            try:
                found, kept = outcome_there(device, stays)
                break
            except Exception as error:
                text = " ".join(str(error).split())[:300]
                misplaced = "expected a tensor on " in text
                why = why if why and misplaced else text
                if not misplaced:
                    break
        if found is None:
            refused = any(w in why for w in ("expected a tensor on ", "no kernel", "Could not run"))
            raise (Unsure if refused else Broken)(f"on {device} it {'is refused' if refused else 'fails, and on the CPU it does not'}: {why}")
        for i, (a, b) in enumerate(zip(found, expected)):
            if not near(a, b):
                raise Broken(f"on {device} result {i}{' or a written argument' if writes_any(op) else ''} is not that of the CPU")
        for (name, a), b in zip(kept, given):
            if bits(a) != bits(b):
                raise Broken(f"on {device} {name} is written, and the schema does not declare it")


QUESTIONS = (runs, writes, aliases, bounds, unwritten, same_answer, layouts, fake, opcheck, gradcheck, gradgradcheck, functional, vmapped, sharded, compiled,
             on_device)
