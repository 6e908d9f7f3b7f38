"""dovetail.custom_op and dovetail.torch.library: torch.library is the oracle. Every scenario runs with both and must give the same."""
import copy
import gc
import itertools
import pickle
import re
import sys
import threading
import warnings
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import dovetail
import dovetail.torch.library as ours

_names = itertools.count()


def same(scenario):
    """Run it with torch.library and with ours, each in a namespace of its own; whatever it gives or raises must be the same."""
    told = []
    for lib in (torch.library, ours):
        space = f"py_ops_{next(_names)}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer = scenario(lib, space)
        except Exception as error:
            answer = type(error), str(error)
        told.append(re.sub(r"0x[0-9a-f]+", "ADDRESS", repr(answer).replace(space, "SPACE")))
    assert told[1] == told[0]
    return told[0]


def raised(f, *args, **kwargs):
    """What it raises; or what it gives, where it is for torch to say whether it fails."""
    try:
        return "gives", f(*args, **kwargs)
    except Exception as error:
        return type(error), str(error)


def is_short(f, *args):
    """Does the kernel run without torch between it and us? f must take the list that its kernel adds a caller's name to."""
    callers = []
    _watch.append(callers)
    try:
        f(*args)
    finally:
        _watch.pop()
    assert len(callers) == 1
    return callers[0] == "is_short"


_watch = []


def caller_of_kernel(frame):
    """The caller's name, without the frames that only keep Dynamo away."""
    frame = frame.f_back
    if frame.f_code.co_name == "kernel" and frame.f_code.co_filename.endswith("short.py"):
        frame = frame.f_back
    return frame


def watched():
    """For kernels: who called?"""
    if _watch:
        _watch[-1].append(caller_of_kernel(sys._getframe(1)).f_code.co_name)


@pytest.fixture
def add():
    @dovetail.custom_op(f"py_add_{next(_names)}::add", mutates_args=())
    def add(a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
        watched()
        return a + b * alpha

    add.register_fake(lambda a, b, alpha=1.0: torch.empty_like(a))
    add.register_autograd(lambda ctx, g: (g, g * ctx.alpha, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "alpha", inputs[2]))
    return add


# ---- The short way ---------------------------------------------------------------------------------------------------------------------

def test_plain_calls_are_short(add):
    a, b = torch.ones(3), torch.ones(3)
    parameter = torch.nn.Parameter(torch.ones(3))
    space = getattr(torch.ops, add._namespace)
    assert dovetail._core.torch.why() == ""
    assert is_short(add, a, b) and is_short(add, a, b, 2.0)
    with torch.no_grad():
        assert is_short(add, parameter, b)
    with torch.inference_mode():
        assert is_short(add, a, b) and is_short(add, torch.ones(3), b)
    for f in (space.add, space.add.default):  # torch's own __call__ stands between
        callers = []
        _watch.append(callers)
        f(a, b)
        _watch.pop()
        assert callers == ["__call__"]


class Sub(Tensor):
    pass


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class FunctionMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


NOT_PLAIN = {
    "wants a gradient": lambda f, a, b: f(a.requires_grad_(), b),
    "a parameter": lambda f, a, b: f(torch.nn.Parameter(a), b),
    "conj": lambda f, a, b: f(torch.complex(a, a).conj(), b),
    "neg": lambda f, a, b: f(torch._neg_view(a), b),
    "zero": lambda f, a, b: f(torch._efficientzerotensor(3), b),
    "subclass": lambda f, a, b: f(a.as_subclass(Sub), b),
    "an int for a float": lambda f, a, b: f(a, b, 2),
    "by name": lambda f, a, b: f(a, b=b),
    "profiled": lambda f, a, b: profiled(f, a, b),
    "dispatch mode": lambda f, a, b: under(Mode(), f, a, b),
    "function mode": lambda f, a, b: under(FunctionMode(), f, a, b),
    "forward mode": lambda f, a, b: dual(f, a, b),
}


def under(mode, f, *args):
    with mode:
        return f(*args)


def profiled(f, *args):
    with torch.profiler.profile() as p:
        f(*args)
    assert any("add" in e.name for e in p.events())


def dual(f, a, b):
    with torch.autograd.forward_ad.dual_level(), torch.no_grad():
        return f(torch.autograd.forward_ad.make_dual(a, a), b)


@pytest.mark.parametrize("what", NOT_PLAIN)
def test_other_calls_are_torchs(add, what):
    callers = []
    _watch.append(callers)
    try:
        NOT_PLAIN[what](add, torch.ones(3), torch.ones(3))
    except RuntimeError as error:  # what torch cannot do it says
        assert "forward" in what and "forward" in str(error)
        return
    finally:
        _watch.pop()
    assert callers != ["is_short"] and callers != ["<lambda>"] and callers != ["under"]


def test_what_a_kernel_sees():
    def scenario(lib, space):
        seen, weight = [], torch.ones(3, requires_grad=True)

        @lib.custom_op(f"{space}::look", mutates_args=())
        def look(x: Tensor, n: int, s: float, flag: bool, name: str, sizes: Sequence[int], xs: list[Tensor], y: Tensor | None = None,
                 more: Sequence[float] | None = None, last: int = 7) -> Tensor:
            made = x * weight
            seen.append((type(n), n, type(s), s, flag, name, type(sizes), sizes, type(xs), len(xs), y is None, more, last,
                         torch.is_grad_enabled(), torch.is_inference_mode_enabled(), made.requires_grad, made.grad_fn is None))
            return made.detach().clone()

        x = torch.ones(3)
        sizes, xs = [1, 2], [x, x]
        results = [look(x, 1, 2.0, True, "s", sizes, xs), look(x, 1, 2, False, "s", (1, 2), (x,)), look(x, True, 2.0, True, "", [], []),
                   look(x, 1, 2.0, True, "s", sizes, xs, x, [1.0], 8), look(x, 1, 2.0, True, "s", sizes, xs, None, [1, 2]),
                   look(x, 1, 2.0, True, "s", sizes, xs, last=9), look(x, np.int64(3), np.float32(2), True, "s", torch.Size([4]), xs)]
        with torch.no_grad():
            look(x, 1, 2.0, True, "s", sizes, xs)
        with torch.inference_mode():
            look(x, 1, 2.0, True, "s", sizes, xs)
        errors = [raised(look), raised(look, x), raised(look, x, "1", 2.0, True, "s", sizes, xs), raised(look, x, 2**70, 2.0, True, "s", sizes, xs),
                  raised(look, x, 1, 2.0, True, "s", [1.5], xs), raised(look, x, 1, 2.0, True, "s", sizes, [x, None]),
                  raised(look, x, 1, 2.0, True, "s", sizes, xs, None, None, 1, 1), raised(look, x, 1, 2.0, True, "s", sizes, xs, zzz=1),
                  raised(look, None, 1, 2.0, True, "s", sizes, xs)]
        return seen, [(r.tolist(), r.requires_grad) for r in results], errors

    same(scenario)


def test_a_kernel_that_changes_its_lists():
    """They are copies."""
    def scenario(lib, space):
        @lib.custom_op(f"{space}::take", mutates_args=())
        def take(x: Tensor, sizes: list[int]) -> Tensor:
            sizes.append(1)
            return x.clone()

        sizes = [1, 2]
        take(torch.ones(1), sizes)
        return sizes

    assert same(scenario) == "[1, 2]"


# ---- Results ------------------------------------------------------------------------------------------------------------------------------

RESULTS = {
    "itself": (Tensor, lambda x: x),
    "a view": (Tensor, lambda x: x[1:]),
    "a new one": (Tensor, lambda x: x.clone()),
    "an int for a tensor": (Tensor, lambda x: 1),
    "None for a tensor": (Tensor, lambda x: None),
    "a subclass": (Tensor, lambda x: x.clone().as_subclass(Sub)),
    "a parameter": (Tensor, lambda x: torch.nn.Parameter(x.clone())),
    "a list for a pair": (tuple[Tensor, Tensor], lambda x: [x + 1, x + 2]),
    "a pair": (tuple[Tensor, Tensor], lambda x: (x + 1, x + 2)),
    "one twice": (tuple[Tensor, Tensor], lambda x: (x + 1,) * 2),
    "one for a pair": (tuple[Tensor, Tensor], lambda x: x + 1),
    "a list": (list[Tensor], lambda x: [x + 1, x + 2]),
    "a list with itself": (list[Tensor], lambda x: [x + 1, x]),
    "a tuple for a list": (list[Tensor], lambda x: (x + 1, x + 2)),
    "an int": (int, lambda x: 3),
    "a bool for an int": (int, lambda x: True),
    "a float for an int": (int, lambda x: 3.5),
    "an int for a float": (float, lambda x: 3),
    "a bool": (bool, lambda x: True),
    "mixed": (tuple[Tensor, int], lambda x: (x + 1, 3)),
    "nothing": (None, lambda x: None),
    "something for nothing": (None, lambda x: x.clone()),
}


@pytest.mark.parametrize("what", RESULTS)
def test_results(what):
    type_, function = RESULTS[what]

    def scenario(lib, space):
        count = []

        def f(x):
            count.append(1)
            return function(x)

        f.__annotations__ = {"x": Tensor, "return": type_}
        op = lib.custom_op(f"{space}::f", f, mutates_args=())
        try:
            r = op(torch.arange(3.0))
        except Exception as error:
            return type(error), re.sub(r"(?s)with implementation in .*?\)", "", str(error)).split("\n\nException raised")[0], count
        return type(r), r, [type(x) for x in r] if isinstance(r, (list, tuple)) else None, count

    same(scenario)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_results(grad, count):
    """torch's custom_op ends the process."""
    @dovetail.custom_op(f"py_count_{next(_names)}::f", mutates_args=())
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(x + i for i in range(count))

    with pytest.raises(RuntimeError, match=rf"py_count_\d+::f: expected 2 results, found {count}"):
        f(torch.ones(2, requires_grad=grad))


def transposed(x: Tensor, times: int) -> tuple[Tensor, int, Tensor]:
    return x.t().contiguous().t() * times, times, x * times


@pytest.mark.parametrize("grad", [False, True])
def test_results_with_the_strides_of_the_fake(grad):
    name = f"py_strides_{next(_names)}"
    f = dovetail.custom_op(f"{name}::f", transposed, mutates_args=(), fake_strides=True)
    x = torch.randn(2, 3, requires_grad=grad)
    with pytest.raises(RuntimeError, match=f"{name}::f: fake_strides: expected a fake function"):
        f(x, 2)
    f.register_fake(lambda x, times: (torch.empty_like(x), times, torch.empty_like(x)))
    for call in (f, getattr(torch.ops, name).f):
        a, n, b = call(x, 2)
        assert a.is_contiguous() and n == 2 and torch.equal(a, x * 2) and torch.equal(b, a)
    f.register_kernel("cpu", lambda x, times: (x.t().contiguous().t() + times, times, x + times))
    assert f(x, 5)[0].is_contiguous() and torch.equal(f(x, 5)[0], x + 5)
    f.register_fake(lambda x, times: (x.new_empty(3, 2), times, torch.empty_like(x)))
    with pytest.raises(RuntimeError, match=r"expected a result of torch.float32 and shape \[3, 2\] as its fake function gives, found .* \[2, 3\]"):
        f(x, 2)


def test_opcheck_names_the_keyword():
    for strides in (False, True):
        f = dovetail.custom_op(f"py_strides_{next(_names)}::f", lambda x: x.t().contiguous().t(), mutates_args=(), fake_strides=strides,
                               schema="(Tensor x) -> Tensor")
        f.register_fake(torch.empty_like)
        if strides:
            assert set(dovetail.opcheck(f, (torch.randn(2, 3),)).values()) == {"SUCCESS"}
            x = torch.randn(2, 3)
            assert torch.equal(torch.compile(f, fullgraph=True)(x), x)
        elif raised(torch.library.opcheck, f, (torch.randn(2, 3),))[0] != "gives":  # torch 2.10's does not compare strides
            with pytest.raises(Exception, match=r"Stride mismatch(?s:.)*fake_strides=True"):
                dovetail.opcheck(f, (torch.randn(2, 3),))


def test_exceptions_arrive_as_they_are():
    def scenario(lib, space):
        class Mine(Exception):
            pass

        @lib.custom_op(f"{space}::f", mutates_args=())
        def f(x: Tensor, what: int) -> Tensor:
            if what == 0:
                raise Mine("text") from KeyError("cause")
            if what == 1:
                raise KeyboardInterrupt
            return x.clone()

        with pytest.raises(Mine, match="text") as caught:
            f(torch.ones(1), 0)
        assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(KeyboardInterrupt):
            f(torch.ones(1), 1)
        x = torch.ones(1, requires_grad=True)
        return (x * 2).grad_fn.name(), f(torch.ones(1), 2)  # autograd is on again

    same(scenario)


# ---- Writes -----------------------------------------------------------------------------------------------------------------------------

def test_writes():
    def scenario(lib, space):
        @lib.custom_op(f"{space}::sin_", mutates_args={"x", "xs"})
        def sin_(x: Tensor, xs: list[Tensor], y: Tensor | None) -> None:
            np.sin(x.numpy(), out=x.numpy())
            for t in xs:
                t.numpy()[:] = 1

        x, a = torch.arange(3.0), torch.zeros(2)
        versions = [(sin_(x, [a], None), x._version, a._version), (sin_(x, [], None), x._version)]
        w = torch.arange(3.0, requires_grad=True)
        y = x.clone()
        square = (w * y)
        sin_(y, [], None)
        stale = raised(square.sum().backward)
        leaf = raised(lambda: sin_(torch.ones(3, requires_grad=True), [], None))
        with torch.inference_mode():
            made = torch.zeros(2)
            sin_(made, [], None)
            sin_(x, [], None)
        outside = raised(sin_, made, [], None)
        return versions, stale, leaf, outside, x, made

    same(scenario)


def test_a_written_tensor_that_may_be_missing():
    def scenario(lib, space):
        @lib.custom_op(f"{space}::fill", mutates_args=("out",))
        def fill(x: Tensor, out: Tensor | None) -> None:
            if out is not None:
                out.copy_(x)

        x, out = torch.ones(2), torch.zeros(2)
        return fill(x, None), fill(x, out), out, out._version, x._version

    same(scenario)


def test_inplace_and_out_tags():
    if "tags" not in torch.library.custom_op.__kwdefaults__:
        pytest.skip("this torch's custom_op takes no tags")

    def scenario(lib, space):
        @lib.custom_op(f"{space}::sin_", mutates_args={"x"}, tags=torch.Tag.inplace)
        def sin_(x: Tensor) -> Tensor:
            x.sin_()
            return x

        @lib.custom_op(f"{space}::sin_out", mutates_args={"out"}, tags=torch.Tag.out)
        def sin_out(x: Tensor, *, out: Tensor) -> Tensor:
            out.copy_(x.sin())
            return out

        @lib.custom_op(f"{space}::bad_", mutates_args={"x"}, tags=torch.Tag.inplace)
        def bad_(x: Tensor) -> Tensor:
            return x.clone()

        x, out = torch.ones(2), torch.zeros(2)
        return sin_(x) is x, sin_out(x, out=out) is out, x, out, x._version, out._version, raised(bad_, x)[0]

    same(scenario)


# ---- Gradients -------------------------------------------------------------------------------------------------------------------------

def test_gradients():
    def scenario(lib, space):
        @lib.custom_op(f"{space}::mul", mutates_args=())
        def mul(x: Tensor, y: Tensor, *, by: float = 1.0) -> Tensor:
            return x * y * by

        x, y = torch.arange(3.0, requires_grad=True), torch.ones(3)
        none = raised(lambda: mul(x, y).sum().backward())

        def setup(ctx, inputs, keyword_only_inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.by = keyword_only_inputs["by"]

        lib.register_autograd(f"{space}::mul", lambda ctx, g: (g * ctx.saved_tensors[1] * ctx.by, g * ctx.saved_tensors[0] * ctx.by), setup_context=setup)
        first = torch.autograd.grad(mul(x, x * 2).sum(), x, create_graph=True)[0]
        second = torch.autograd.grad(first.sum(), x)[0]
        with torch.no_grad():
            off = mul(x, y).requires_grad
        with torch.inference_mode():
            inference = mul(x, y).is_inference()
        by = torch.autograd.grad(mul(x, y, by=3.0).sum(), x)
        return none, first, second, off, inference, by, mul(y, y).requires_grad, mul(x, y).requires_grad

    same(scenario)


# ---- Kernels for devices -----------------------------------------------------------------------------------------------------------------

def test_kernels_of_devices(caplog):
    def scenario(lib, space):
        @lib.custom_op(f"{space}::f", mutates_args=())
        def f(x: Tensor) -> Tensor:
            return torch.zeros(1)

        x, told = torch.ones(1), []
        told.append(f(x))

        @f.register_kernel("cpu")
        def _(x):
            return torch.ones(1)

        told.append(f(x))
        with f.set_kernel_enabled("cpu", enabled=False):
            told.append(f(x))
            with f.set_kernel_enabled("cpu"):
                told.append(f(x))
            told.append(f(x))
        told.append(f(x))
        with pytest.raises(ZeroDivisionError), f.set_kernel_enabled("cpu", enabled=False):
            told.append(f(x))
            1 / 0  # noqa: B018
        told.append(f(x))
        lib.register_kernel(f, "cpu", lambda x: torch.full((1,), 2.0))
        told.append(f(x))
        lib.register_kernel(f"{space}::f", ("cuda", "cpu"))(lambda x: torch.full((1,), 3.0))
        told.append(f(x))
        with f.set_kernel_enabled("mps", enabled=True):
            told.append(f(x))
        return told, f.register_kernel("cpu", len) is len, [r.getMessage() for r in caplog.records if r.name.startswith("torch._library")][-1:]

    same(scenario)


def test_device_types():
    def scenario(lib, space):
        @lib.custom_op(f"{space}::f", mutates_args=(), device_types="cpu")
        def f(x: Tensor) -> Tensor:
            return x.clone()

        @lib.custom_op(f"{space}::g", mutates_args=(), device_types=("cpu", "cuda"))
        def g(x: Tensor) -> Tensor:
            return x.clone()

        @lib.custom_op(f"{space}::make", mutates_args=(), device_types="cpu")
        def make(device: torch.device) -> Tensor:
            return torch.ones(3)

        @lib.custom_op(f"{space}::cuda", mutates_args=(), device_types="cuda")
        def cuda(x: Tensor) -> Tensor:
            return x.clone()

        bad = raised(lambda: lib.custom_op(f"{space}::bad", mutates_args=(), device_types="cpu")(_no_device))
        return f(torch.ones(1)), g(torch.ones(1)), make(torch.device("cpu")), raised(cuda, torch.ones(1))[0], bad, raised(make, "cuda")[0]

    same(scenario)


def _no_device() -> Tensor:
    return torch.ones(1)


# ---- Transforms, modes, compilers -------------------------------------------------------------------------------------------------------------

def test_vmap():
    def scenario(lib, space):
        @lib.custom_op(f"{space}::f", mutates_args=())
        def f(x: Tensor) -> Tensor:
            return torch.from_numpy(np.sin(x.numpy()))

        before = raised(torch.vmap(f), torch.ones(2, 3))

        @lib.register_vmap(f"{space}::f")
        def _(info, in_dims, x):
            return f(x), in_dims[0]

        f.register_vmap(lambda info, in_dims, x: (f(x) + 1, in_dims[0]))
        return before, torch.vmap(f)(torch.ones(2, 3))

    same(scenario)


def test_autocast():
    def scenario(lib, space):
        @lib.custom_op(f"{space}::f", mutates_args=())
        def f(x: Tensor) -> Tensor:
            return x.clone()

        lib.register_autocast(f"{space}::f", "cpu", torch.bfloat16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = f(torch.ones(1)).dtype
        return inside, f(torch.ones(1)).dtype

    same(scenario)


def test_modes_and_subclasses():
    def scenario(lib, space):
        @lib.custom_op(f"{space}::f", mutates_args=())
        def f(x: Tensor) -> Tensor:
            return x.clone()

        f.register_fake(lambda x: torch.empty_like(x))
        seen = []

        class See(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        class SeeFunction(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        with See():
            f(torch.ones(1))
        with SeeFunction():
            f(torch.ones(1))
            getattr(torch.ops, space).f(torch.ones(1))
        with torch._subclasses.FakeTensorMode() as mode:
            fake = f(mode.from_tensor(torch.ones(2, 3)))
        return seen, fake.shape, f(torch.ones(1, device="meta")), f(torch.ones(2).as_subclass(Sub)), f(torch.eye(2).to_sparse())

    same(scenario)


def test_compile(add):
    a, b = torch.randn(3, requires_grad=True), torch.randn(3)
    graphs = []

    def backend(graph, inputs):
        graphs.append([n.target for n in graph.graph.nodes if n.op == "call_function"])
        return graph

    f = torch.compile(lambda a, b: add(a, b, 2.0) * 2, fullgraph=True, backend=backend)
    assert torch.equal(f(a, b), (a + b * 2) * 2)
    assert graphs[0][0] is add._opoverload  # as if torch.ops had been called
    f = torch.compile(lambda a, b: add(a, b) * 2, fullgraph=True, backend="aot_eager")
    f(a, b).sum().backward()
    assert torch.equal(a.grad, torch.full((3,), 2.0))
    assert torch.equal(torch.compile(add, fullgraph=True, backend="aot_eager")(b, b), b + b)


@pytest.mark.parametrize("strict", [False, True])
def test_export(add, strict):
    class M(torch.nn.Module):
        def forward(self, a, b):
            return add(a, b)

    x = torch.ones(3)
    program = torch.export.export(M(), (x, x), strict=strict)
    assert add._opoverload in [n.target for n in program.graph.nodes]
    assert torch.equal(program.module()(x, x), x + x)


def test_inductor_calls_are_short(add):
    f = torch.compile(lambda a, b: add(a, b) * 2, fullgraph=True)
    a, b = torch.ones(3), torch.ones(3)
    assert torch.equal(f(a, b), torch.full((3,), 4.0))
    callers = []
    _watch.append(callers)
    f(a, b)
    _watch.pop()
    assert len(callers) == 1 and callers != ["_fn"]


def test_dynamo_does_not_look_into_kernels():
    """Called from a frame that runs between graphs, with Dynamo at work."""
    compiled = []

    @dovetail.custom_op(f"py_quiet_{next(_names)}::f", mutates_args=())
    def f(x: Tensor) -> Tensor:
        compiled.append(torch.compiler.is_compiling() or torch._C._dynamo.eval_frame.get_eval_frame_callback() is not None)
        return _helper(x)

    def _helper(x):
        return x.sin().cos()

    @torch.compiler.disable(recursive=False)
    def between(x):
        return f(x)

    seen = []

    def backend(graph, inputs):
        seen.append(str(graph.graph))
        return graph

    torch.compile(lambda x: between(x + 1) + 1, backend=backend)(torch.ones(2))
    assert compiled == [False]
    assert not any("sin" in s for s in seen)


def test_jit():
    space = f"py_jit_{next(_names)}"

    @dovetail.custom_op(f"{space}::f", mutates_args=())
    def f(x: Tensor) -> Tensor:
        return x + 1

    traced = torch.jit.trace(lambda x: f(x) * 2, (torch.ones(2),), check_trace=False)
    assert f"{space}::f" in str(traced.graph) and torch.equal(traced(torch.zeros(2)), torch.full((2,), 2.0))
    scope = {"torch": torch, "Tensor": Tensor, "__name__": __name__}
    import linecache
    source = f"def g(x: Tensor) -> Tensor:\n    return torch.ops.{space}.f(x) * 3\n"
    linecache.cache[f"<{space}>"] = len(source), None, source.splitlines(True), f"<{space}>"
    exec(compile(source, f"<{space}>", "exec"), scope)
    assert torch.equal(torch.jit.script(scope["g"])(torch.zeros(2)), torch.full((2,), 3.0))


# ---- The object -----------------------------------------------------------------------------------------------------------------------------

@dovetail.custom_op("py_module::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    """Twice x."""
    return x * 2


def test_the_object():
    assert isinstance(doubled, torch.library.CustomOpDef) and repr(doubled) == "<CustomOpDef(py_module::doubled)>"
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert copy.copy(doubled) is doubled and copy.deepcopy({"op": doubled})["op"] is doubled
    assert doubled.__doc__ == "Twice x." and doubled.__name__ == "doubled"
    import inspect
    assert list(inspect.signature(doubled).parameters) == ["x"]
    dovetail.opcheck(doubled, (torch.ones(2),), test_utils=("test_schema", "test_autograd_registration"))


def test_torchs_tables_by_operator_still_hold(add):
    """torch hashes packets by their call, and overloads until torch 2.14."""
    overload = add._opoverload
    packet = overload._overloadpacket
    table = {overload: 1, packet: 2}
    add.register_kernel("cpu", lambda a, b, alpha=1.0: a - b)
    assert table[overload] == 1 and table[packet] == 2
    assert hash(overload._op) == hash(overload._op.fallback) and hash(packet) == hash(packet._op.fallback)
    assert torch.equal(overload(torch.ones(2), torch.ones(2)), torch.zeros(2))


def test_a_name_that_is_defined_again():
    def scenario(lib, space):
        @lib.custom_op(f"{space}::f", mutates_args=())
        def f(x: Tensor) -> Tensor:
            return x + 1

        old, x = f, torch.zeros(1)
        first = f(x)

        @lib.custom_op(f"{space}::f", mutates_args=())
        def f(x: Tensor, y: int = 3) -> Tensor:
            return x + y

        return first, f(x), getattr(torch.ops, space).f(x, 4), str(f._opoverload._schema)

    same(scenario)
    space = f"py_again_{next(_names)}"
    old = dovetail.custom_op(f"{space}::f", mutates_args=())(_plus_one)
    second = dovetail.custom_op(f"{space}::f", mutates_args=())(_plus_two)
    assert old(torch.zeros(1)).item() == 2  # the name is what it calls, as in torch

    def three_more(x: Tensor, y: Tensor) -> Tensor:  # another schema: torch's object would read what is freed
        return x + y + 3

    dovetail.custom_op(f"{space}::f", mutates_args=())(three_more).register_fake(torch.add)
    for op in old, second, torch.compile(old, backend="eager", fullgraph=True):
        assert op(torch.zeros(1), torch.ones(1)).item() == 4


def _plus_one(x: Tensor) -> Tensor:
    return x + 1


def _plus_two(x: Tensor) -> Tensor:
    return x + 2


def test_an_object_that_is_dropped():
    space = f"py_gone_{next(_names)}"
    dovetail.custom_op(f"{space}::f", mutates_args=())(_plus_one)
    gc.collect()
    assert getattr(torch.ops, space).f(torch.zeros(1)).item() == 1


def test_bad_declarations():
    def scenario(lib, space):
        def untyped(x):
            return x

        return (raised(lib.custom_op(f"{space}::f", mutates_args=()), untyped), raised(lib.custom_op("noname", mutates_args=()), _plus_one),
                raised(lib.custom_op(f"{space}::g", mutates_args=("zzz",)), _plus_one), raised(lib.custom_op, f"{space}::h"),
                raised(lib.custom_op(f"{space}::i", mutates_args=("x",), schema="(Tensor x) -> Tensor"), _plus_one))

    same(scenario)


def test_a_schema_of_ones_own():
    def scenario(lib, space):
        f = lib.custom_op(f"{space}::f", lambda x, y: x + y, mutates_args=(), schema="(Tensor x, SymInt y=2) -> Tensor")
        x = torch.zeros(2)
        return f(x, 1), raised(f, x)[0], f._opoverload._schema.arguments[1].default_value

    same(scenario)


def test_operators_that_call_operators():
    space = f"py_nested_{next(_names)}"

    @dovetail.custom_op(f"{space}::fib", mutates_args=())
    def fib(x: Tensor, n: int) -> Tensor:
        if n < 2:
            return x.clone()
        return fib(x, n - 1) + fib(x, n - 2)

    assert fib(torch.ones(1), 10).item() == 89


def test_threads(add):
    wrong = []

    def work(seed):
        a = torch.full((4,), float(seed))
        for i in range(300):
            if not torch.equal(add(a, a, float(i)), a + a * float(i)):
                wrong.append((seed, i))
            w = a.clone().requires_grad_()
            if i % 50 == 0 and not add(w, a).requires_grad:
                wrong.append("grad")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for i in range(200):
        add.register_kernel("cpu" if i % 2 else None, lambda a, b, alpha=1.0: a + b * alpha)
    for t in threads:
        t.join()
    assert not wrong


def test_without_torch():
    import subprocess
    code = """
import sys
class No:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, No())
import dovetail
try:
    dovetail.custom_op
except ImportError as error:
    print(error)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "dovetail.custom_op needs PyTorch, which is not installed\n"
