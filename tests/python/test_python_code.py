"""Python code that runs while a call converts its arguments (__index__, __float__, __dlpack__, iterators, another thread) may change the
arrays and lists of that call, and may raise. Tensors keep the shapes that they had when the call began, or the call is refused; what is
raised arrives."""
import sys
import threading

import numpy as np
import pytest

pytestmark = pytest.mark.quick


class Code:
    """Argument of any type: runs `code` when it is converted, then gives `value`."""

    def __init__(self, code, value=1):
        self.code, self.value = code, value

    def _run(self, *args, **kwargs):
        self.code()
        return self.value

    __index__ = __float__ = __complex__ = __len__ = _run

    def __iter__(self):
        self.code()
        return iter([self.value])

    def __getitem__(self, i):
        self.code()
        raise IndexError(i)


class Dlpack(Code):
    def __dlpack__(self, **kwargs):
        self.code()
        return self.value.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return (1, 0)


def f32(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


# ---- Arrays that change ----

def assign(y, shape):
    def code():
        y.shape = shape
    return code


@pytest.mark.parametrize("shape", [(12,), (2, 6), (3, 2, 2), (1,) * 30 + (12,)])
def test_shapes_are_those_of_the_beginning(ops, shape):
    for call in (lambda y, code: ops.scale(y, Code(code, 2.0)),
                 lambda y, code: ops.scale(factor=Code(code, 2.0), x=y),
                 lambda y, code: ops.scale(f32(3, 4), Code(code, 2.0), out=y),
                 lambda y, code: ops.scale(f32(3, 4), Code(code, 2.0), y)):
        y = f32(3, 4).copy()
        result = call(y, assign(y, shape))
        assert y.shape == shape
        assert (result.reshape(3, 4) == 2 * f32(3, 4)).all() and (result.shape == (3, 4) or result is y)
    y = f32(3, 4).copy()
    assert (ops.fill(y, Code(assign(y, shape), 7.0)), set(y.flat)) == (None, {7.0})
    y = f32(3, 4).copy()
    assert ops.keyed(y, k=Code(assign(y, shape), 2)) == 2 * 12 + 1


def test_strides_and_dtypes_are_those_of_the_beginning(ops):
    y = f32(4, 3).copy()
    assert (ops.scale(y, Code(lambda: setattr(y, "shape", (3, 4)), 1.0)) == f32(4, 3)).all()
    z = f32(4, 3).T
    assert (ops.scale(z, Code(lambda: np.lib.stride_tricks.as_strided(z, (3, 4), (4, 4)), 1.0)) == f32(4, 3).T).all()


def test_another_argument_changes_the_array(ops):
    """The changing argument comes by DLPack, in a list, and before the array."""
    y = f32(3, 4).copy()
    assert ops.optional_sum(Dlpack(assign(y, (12,)), f32(2)), y) == 1202 and y.shape == (12,)
    y = f32(3, 4).copy()
    ops.add_(y, Dlpack(assign(y, (12,)), f32(3, 4)))
    assert (y == 2 * f32(12)).all()
    y = f32(3, 4).copy()
    assert ops.echo_tensors([y, Dlpack(assign(y, (2, 6)), f32(5)), None]) == (3, 1, 17)


def test_memory_that_is_replaced_is_refused(ops):
    def resize(y, n):
        return lambda: y.resize(n, refcheck=False)

    for n in (0, 1, 999):
        for call in (lambda y: ops.scale(y, Code(resize(y, n), 2.0)), lambda y: ops.keyed(y, k=Code(resize(y, n))),
                     lambda y: ops.scale(f32(1000), Code(resize(y, n), 2.0), out=y),
                     lambda y: ops.optional_sum(y, Dlpack(resize(y, n), f32(3))),
                     lambda y: ops.echo_tensors([y, Dlpack(resize(y, n), f32(3))])):
            with pytest.raises(TypeError, match="memory was replaced while the other arguments were converted"):
                call(f32(1000).copy())
    for n in (1000, 1 << 20):  # the memory may grow where it is
        y = f32(1000).copy()
        try:
            result = ops.scale(y, Code(resize(y, n), 2.0))
        except TypeError as error:
            assert "memory was replaced" in str(error)
        else:
            assert (result == 2 * f32(1000)).all()
    y = f32(1000).copy()
    state = f32(5).__reduce__()[2]
    with pytest.raises(TypeError, match="memory was replaced"):
        ops.scale(y, Code(lambda: y.__setstate__(state), 2.0))


def test_an_array_becomes_read_only(ops):
    y = f32(3).copy()
    with pytest.raises(TypeError, match="fill: argument 'out': .*read-only"):
        ops.fill(y, Code(lambda: y.setflags(write=False), 1.0))
    assert (y == f32(3)).all()


def test_lists_change(ops):
    """The elements of a list, and results given as a list, live as long as the call."""
    for items in ([f32(3), f32(4)], (f32(3), f32(4))):
        held = list(items)
        assert ops.echo_tensors([*held, Dlpack(held.clear, f32(2))]) == (3, 0, 9)
    items = [f32(3), None]
    items.append(Dlpack(items.clear, f32(2)))
    assert ops.echo_tensors(items) == (3, 1, 5)
    out = [np.empty((), "f4"), np.empty((), "f4")]
    lo, hi = ops.minmax(Dlpack(out.clear, f32(5)), out=out)
    assert (lo, hi) == (0, 4) and not out


def test_another_thread_assigns_shapes(ops):
    """Runs long enough for some hundred assignments during calls, in kernels that release the GIL and in others."""
    y = np.ones(1 << 12, "f4")
    stop = False
    shapes = [(64, 64), (1 << 12,), (2,) * 12, (1, 4, 1024)]

    def reshape():
        while not stop:
            for shape in shapes:
                y.shape = shape

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=reshape)
    thread.start()
    try:
        found = {ops.scale(y).shape for _ in range(3000)} | {ops.scale(y, Code(lambda: None, 2.0)).shape for _ in range(1000)}
        found |= {ops.wait_ms(y, 1).shape for _ in range(30)}
        sums = {ops.echo_tensors([y, None, y]) for _ in range(1000)}
    finally:
        stop = True
        thread.join()
        sys.setswitchinterval(interval)
    assert found <= set(shapes) and sums == {(3, 1, 2 << 12)}


def test_torch_tensors_change(python):
    """A dtype's object is the one argument of a fast call that may run Python code. Torch's tensors have their new shapes then."""
    pytest.importorskip("torch")
    out = python("""
import dovetail, numpy as np, torch
lib = dovetail.load(BINARY)

class Odd:
    def __init__(self, code):
        self.code = code

    @property
    def dtype(self):
        self.code()
        return np.dtype("float32")

for sizes in ((3, 4), (1, 1, 1, 1, 1, 1, 3, 4)):
    for change in (lambda t: t.resize_(2, 6), lambda t: t.resize_(2, 1, 1, 1, 1, 1, 6), lambda t: t.resize_(1 << 20).zero_(),
                   lambda t: t.set_(torch.ones(3)), lambda t: t.resize_(0)):
        t = torch.ones(sizes)
        result = lib.typed(t, Odd(lambda: change(t)))
        assert result.shape == t.shape and result.equal(t), (sizes, result.shape)
        assert lib.typed(t, torch.float32).equal(t)
for error in (KeyboardInterrupt(), MemoryError(), ValueError()):
    def fail():
        raise error
    try:
        lib.typed(torch.ones(3), Odd(fail))
    except BaseException as found:
        assert found is error
    else:
        raise AssertionError
print(dovetail._core.torch.taken(lib.typed))
""")
    assert out.split()[0] == "(20,", out


# ---- What is raised ----

class Mine(Exception):
    pass


def attribute(name):
    """Returns a function that makes an object whose attribute raises."""
    return lambda code: type("Odd", (), {name: property(lambda self: code())})()


class Array(np.ndarray):
    pass


def array_with(name):
    def make(code):
        return f32(1).reshape(()).view(type("Odd", (np.ndarray,), {name: property(lambda self: code())}))
    return make


def midway(code):
    class Items:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            return 1 if i < 2 else code()
    return Items()


class Truth:
    dtype = np.dtype(bool)


def truth(code):
    return np.array(True).view(type("Odd", (np.ndarray,), {"__bool__": lambda self: code()}))


def shown(code):
    """Returns an object from a framework's module whose str() runs `code`."""
    return type("dtype", (), {"__module__": "numpy", "__str__": lambda self: code()})()


# (operator, a function that makes the arguments from an object, functions that make the object)
RAISING = [
    ("echo_int", lambda o: (o,), [Code, array_with("dtype")]),
    ("echo_float", lambda o: (o,), [Code, array_with("dtype")]),
    ("echo_bool", lambda o: (o,), [truth, array_with("dtype")]),
    ("echo_complex", lambda o: (o,), [Code]),
    ("echo_scalar", lambda o: (o,), [Code, array_with("tolist")]),
    ("echo_dtype", lambda o: (o,), [attribute("dtype"), shown]),
    ("echo_places", lambda o: (o, "strided", "channels_last"), [shown]),
    ("echo_places", lambda o: ("cpu", o, "channels_last"), [shown]),
    ("echo_places", lambda o: ("cpu", "strided", o), [shown]),
    ("echo_opt", lambda o: (o, 1.0), [Code]),
    ("echo_opt", lambda o: (1, o), [Code]),
    ("echo_pair", lambda o: ([1, o],), [Code]),
    ("echo_pair", lambda o: (o,), [Code, midway]),
    ("echo_lists", lambda o: (o, [], [], [], []), [Code, midway]),
    ("echo_lists", lambda o: ([1, o], [], [], [], []), [Code]),
    ("echo_lists", lambda o: ([], o, [], [], []), [Code, midway]),
    ("echo_lists", lambda o: ([], [1.0, o], [], [], []), [Code]),
    ("echo_lists", lambda o: ([], [], [True, o], [], []), [truth]),
    ("echo_lists", lambda o: ([], [], [], o, []), [Code, midway]),
    ("echo_lists", lambda o: ([], [], [], [], [1, o]), [Code]),
    ("echo_lists", lambda o: ([], [], [], [], o), [midway]),
    ("echo_tensors", lambda o: (o,), [Code, midway]),
    ("echo_tensors", lambda o: ([f32(2), o],), [lambda code: Dlpack(code, f32(1)), attribute("__dlpack__")]),
    ("scale", lambda o: (o,), [lambda code: Dlpack(code, f32(1)), attribute("__dlpack__")]),
    ("scale", lambda o: (f32(2), o), [Code]),
    ("scale", lambda o: (f32(2), 1.0, o), [lambda code: Dlpack(code, f32(1)), attribute("__dlpack__")]),
    ("pick", lambda o: (o,), [Code]),
    ("pick", lambda o: (f32(2), o), [Code]),
]
CASES = [(name, args, make) for name, args, makers in RAISING for make in makers]


@pytest.mark.parametrize("error", [KeyboardInterrupt("mine"), MemoryError("mine"), Mine("mine"), ZeroDivisionError("mine"), OverflowError("mine"),
                                   SystemExit(3)], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name, args, make", CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_what_is_raised_arrives(ops, name, args, make, error):
    def code():
        raise error

    with pytest.raises(type(error)) as caught:
        ops[name](*args(make(code)))
    assert caught.value is error


@pytest.mark.parametrize("name, args", [("echo_int", lambda o: (o,)), ("echo_float", lambda o: (o,)), ("echo_complex", lambda o: (o,)),
                                        ("echo_pair", lambda o: ([1, o],)), ("echo_lists", lambda o: ([1, o], [], [], [], [])),
                                        ("echo_lists", lambda o: ([], o, [], [], [])), ("scale", lambda o: (f32(2), o))])
def test_a_type_error_is_the_cause(ops, name, args):
    error = TypeError("mine")

    def code():
        raise error

    with pytest.raises(TypeError, match=f"py_ops::{name}: argument .*: expected .*, found .*Code") as caught:
        ops[name](*args(Code(code)))
    assert caught.value is not error and caught.value.__cause__ is error


def test_no_cause_where_nothing_was_raised(ops):
    for name, args in (("echo_int", ("3",)), ("echo_int", (2**70,)), ("echo_float", (10**400,)), ("echo_complex", (10**400,)), ("scale", (3,))):
        with pytest.raises(TypeError) as caught:
            ops[name](*args)
        assert caught.value.__cause__ is None


def test_what_a_description_raises(ops):
    """repr() of a wrong argument, for the message: an ordinary exception is dropped, an interrupt is raised."""
    def text(error):
        def code(self):
            raise error
        return type("Text", (str,), {"__repr__": code})("abc")

    with pytest.raises(TypeError, match="expected int, found .*Text$"):
        ops.echo_int(text(Mine()))
    with pytest.raises(KeyboardInterrupt):
        ops.echo_int(text(KeyboardInterrupt()))


# ---- Subclasses with protocols of their own ----

def test_subclasses_with_a_protocol_of_their_own_are_refused(ops):
    class Quantity(np.ndarray):
        def __array_finalize__(self, other):
            self.unit = getattr(other, "unit", None)

        def __array_ufunc__(self, *args, **kwargs):
            return NotImplemented

    class Derived(Quantity):
        pass

    class Opted(np.ndarray):
        __array_ufunc__ = None

    class Functions(np.ndarray):
        def __array_function__(self, *args):
            return NotImplemented

    for kind, protocol in ((Quantity, "ufunc"), (Derived, "ufunc"), (Opted, "ufunc"), (Functions, "function")):
        y = f32(3).view(kind)
        said = rf"subclass .*{kind.__name__}.* own __array_{protocol}__ .*\.view\(numpy\.ndarray\)"
        for call in (lambda: ops.scale(y), lambda: ops.scale(x=y), lambda: ops.scale(f32(3), out=y), lambda: ops.scale(f32(3), 1.0, y),
                     lambda: ops.add_(y, f32(3)), lambda: ops.add_(f32(3), y), lambda: ops.echo_tensors([f32(1), y]),
                     lambda: ops.fill(y, 2.0)):
            with pytest.raises(TypeError, match=said):
                call()
        assert (y.view(np.ndarray) == f32(3)).all()
        assert (ops.scale(y.view(np.ndarray)) == 2 * f32(3)).all()


def test_other_subclasses_are_taken(ops, tmp_path):
    class Named(np.ndarray):
        def __array_finalize__(self, other):
            self.name = getattr(other, "name", None)

        def __array_wrap__(self, *args, **kwargs):
            return super().__array_wrap__(*args, **kwargs)

    np.save(tmp_path / "x.npy", f32(3))
    for x in (f32(3).view(Named), np.load(tmp_path / "x.npy", mmap_mode="r"), np.memmap(tmp_path / "x.npy", "f4", "r", 128, (3,)),
              f32(3).view(np.recarray)):
        assert type(ops.scale(x)) is np.ndarray and (ops.scale(x) == 2 * f32(3)).all()
