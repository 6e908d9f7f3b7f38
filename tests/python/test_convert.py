"""What every schema type takes from Python, as a table, and that what it takes arrives."""
import dovetail
import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.quick

INT, FLOAT, BOOL, COMPLEX = 1, 2, 3, 4  # enum dv_scalar_kind
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def key(code, bits):
    return code | bits << 8 | 1 << 16


# (operator, arguments, what it gives back)
GOOD = [
    ("echo_int", (3,), 3),
    ("echo_int", (-2**63,), -2**63),
    ("echo_int", (2**63 - 1,), 2**63 - 1),
    ("echo_int", (True,), 1),
    ("echo_int", (np.int8(-4),), -4),
    ("echo_int", (np.uint64(5),), 5),
    ("echo_int", (np.array(6),), 6),
    ("echo_float", (1.5,), 1.5),
    ("echo_float", (2,), 2.0),
    ("echo_float", (np.float16(2.5),), 2.5),
    ("echo_float", (np.float64(2.5),), 2.5),
    ("echo_float", (np.int32(7),), 7.0),
    ("echo_float", (np.array(0.25, np.float32),), 0.25),
    ("echo_float", (float("inf"),), float("inf")),
    ("echo_bool", (True,), True),
    ("echo_bool", (np.False_,), False),
    ("echo_bool", (np.array(True),), True),
    ("echo_str", ("",), (0, 0)),
    ("echo_str", ("abc",), (3, 294)),
    ("echo_str", ("a\0b",), (3, 195)),
    ("echo_str", ("\N{SNOWMAN}",), (3, sum("\N{SNOWMAN}".encode()))),
    ("echo_str", (np.str_("ab"),), (2, 195)),
    ("echo_scalar", (1,), (INT, 1.0, 0.0)),
    ("echo_scalar", (1.5,), (FLOAT, 1.5, 0.0)),
    ("echo_scalar", (True,), (BOOL, 1.0, 0.0)),
    ("echo_scalar", (2 - 3j,), (COMPLEX, 2.0, -3.0)),
    ("echo_scalar", (np.float32(0.5),), (FLOAT, 0.5, 0.0)),
    ("echo_scalar", (np.int16(-3),), (INT, -3.0, 0.0)),
    ("echo_scalar", (np.True_,), (BOOL, 1.0, 0.0)),
    ("echo_scalar", (np.complex64(1j),), (COMPLEX, 0.0, 1.0)),
    ("echo_scalar", (np.array(4),), (INT, 4.0, 0.0)),
    ("echo_complex", (1 + 2j,), (1.0, 2.0)),
    ("echo_complex", (3,), (3.0, 0.0)),
    ("echo_complex", (np.complex64(2j),), (0.0, 2.0)),
    ("echo_dtype", (np.float32,), key(2, 32)),
    ("echo_dtype", (np.dtype("int8"),), key(0, 8)),
    ("echo_dtype", ("bf16",), key(4, 16)),
    ("echo_dtype", ("float64",), key(2, 64)),
    ("echo_dtype", ("torch.int32",), key(0, 32)),
    ("echo_dtype", (float,), key(2, 64)),
    ("echo_dtype", (bool,), key(6, 8)),
    ("echo_dtype", (ml_dtypes.bfloat16,), key(4, 16)),
    ("echo_dtype", (np.dtype(ml_dtypes.float8_e5m2),), key(12, 8)),
    ("echo_places", ("cpu", "strided", "contiguous_format"), (1, 0, 0, 0)),
    ("echo_places", ("cpu", "torch.sparse_coo", "torch.channels_last"), (1, 0, 1, 2)),
    ("echo_opt", (), (0, 0.0)),
    ("echo_opt", (None, None, None, None), (0, 0.0)),
    ("echo_opt", (1, 2.5, True, "abc"), (15, 7.5)),
    ("echo_opt", (np.int64(1), None, np.True_), (5, 2.0)),
    ("echo_lists", ([1, 2], (1.5,), [True], ["a", "bc"], [1, 2.5]), (22112, 12.0)),
    ("echo_lists", (range(3), [], [], [], []), (3, 3.0)),
    ("echo_lists", (np.arange(4), np.ones(2, np.float32), np.ones(1, bool), (), []), (124, 9.0)),
    ("echo_lists", ((), (), (), (), ()), (0, 0.0)),
    ("echo_lists", (list(range(2000)), [], [], [], []), (2000, 1999000.0)),
    ("echo_pair", ([5, 6],), (5, 6)),
    ("echo_pair", (7,), (7, 7)),
    ("echo_tensors", ([X, None, X],), (3, 1, 12)),
    ("echo_tensors", ((),), (0, 0, 0)),
    ("echo_tensors", ([X] * 300,), (300, 0, 1800)),
    ("optional_sum", (None,), -1.0),
    ("optional_sum", (X, X), 606.0),
]


@pytest.mark.parametrize("name, args, result", GOOD, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(GOOD)])
def test_what_is_given_arrives(ops, name, args, result):
    found = ops[name](*args)
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize("dtype", ["bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "longlong", "ulonglong", "f2", "f4", "f8", "c8", "c16",
                                   ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz,
                                   ml_dtypes.float8_e8m0fnu])
def test_every_dtype_goes_in_and_out(ops, dtype):
    x = np.array([0, 1, 2, 1], "f4").astype(dtype).reshape(2, 2)
    y = ops.copy_of(x)
    assert y.dtype == x.dtype and y.tobytes() == x.tobytes() and y is not x


def test_dtypes_of_results_need_no_such_argument(python):
    out = python("""
import dovetail, numpy as np
lib = dovetail.load(BINARY)
x = np.zeros(2, np.float32)
print(lib.scale(x).dtype, type(lib.nonzero(np.ones(3, 'f4'))).__name__, lib.nonzero(np.array([0, 1, 1], 'f4')))
""")
    assert out.split() == ["float32", "ndarray", "[1", "2]"]


def test_numpy_scalars_and_0d_arrays_are_arrays(ops):
    for x in (np.float32(3), np.array(3, np.float32)):
        y = ops.scale(x)
        assert isinstance(y, np.ndarray) and y.shape == () and y == 6


def test_subclasses_of_arrays_are_taken(ops):
    m = np.matrix([[1.0, 2.0]], dtype=np.float32)
    assert type(ops.scale(m)) is np.ndarray and (ops.scale(m) == 2 * np.asarray(m)).all()
    path_less = np.array([(1.0, 2)], dtype=[("a", "f8"), ("b", "i8")]).view(np.recarray)
    assert (ops.scale(path_less.a.copy()) == [2.0]).all()


def test_objects_with_dlpack_are_taken(ops):
    class Other:
        def __dlpack__(self, **kwargs):
            return X.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return X.__dlpack_device__()

    assert (ops.scale(Other()) == 2 * X).all()
    assert ops.echo_tensors([Other(), X]) == (2, 0, 12)


def test_strides_of_any_kind(ops):
    big = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    views = [big[::-1], big.T, big[:, ::2, 1:3, ::-2], big[0:0], big[:, :, 1:1], np.broadcast_to(np.float32(3), (3, 4)),
             np.broadcast_to(big[0, 0, 0], (2, 5)), big.reshape(-1)[::7], big[:, None], np.asfortranarray(big), big[1, 2, 3, 4:5][:, None]]
    for v in views:
        np.testing.assert_array_equal(ops.scale(v), 2 * v)


def test_an_odd_stride_of_a_dim_of_one_is_harmless(ops):
    record = np.zeros(1, dtype=[("a", "f4"), ("b", "i1")])
    record["a"] = 3
    assert record["a"].strides == (5,)
    assert (ops.scale(record["a"]) == [6]).all()


def test_random_states(ops):
    g = dovetail.Generator(7)
    assert ops.echo_random(g) == (3, 0) and ops.echo_random(g, 10) == (3, 4) and ops.echo_random(g) == (3, 16)  # whole blocks of four
    assert repr(g) == "<dovetail.Generator seed=7 used=20>"
    dovetail.seed(20)
    assert ops.echo_random() == (10, 0) and ops.echo_random() == (10, 4)
    a, b = np.random.default_rng(5), np.random.default_rng(5)
    assert ops.echo_random(a) == ops.echo_random(b) != ops.echo_random(a)


def test_lists_may_change_while_they_are_read(ops):
    """An element's __index__ that empties the list must not matter."""
    class Evil:
        def __index__(self):
            items.clear()
            return 5

    items = [Evil(), 2, 3]
    assert ops.echo_lists(items, [], [], [], []) == (3, 10.0)


# An empty list as default of int[2], as ATen's pooling has it: what is passed, the result's size, the elements that the kernel gets. None: refused.
WINDOWS = [((), 3, 0), (([],), 3, 0), (([2, 5],), 6, 2), (([2],), 6, 2), ((2,), 6, 2), (([1, 2, 3],), None, None)]


def windows(ops, make):
    for args, size, n in WINDOWS:
        for call in (ops.repeated, lambda x, *a: ops.repeated(x, **dict(zip(["by"], a)))):
            if size is None:
                with pytest.raises(TypeError, match="argument 'by': expected a list of 2 elements, found 3"):
                    call(make(3), *args)
            else:
                y = call(make(3), *args)
                assert y.shape == (size,) and (y == n).all()
    with pytest.raises(ValueError, match="argument 'by': expected at least 2 elements .*found 0"):
        ops.repeated_sometimes(make(3))


def test_an_empty_list_as_default(ops):
    windows(ops, lambda n: np.ones(n, "f4"))
    with pytest.raises(TypeError, match="expected a list of 2 elements, found 0"):  # only where it is the default
        ops.echo_pair([])
    f, args = dovetail.site("py_ops::repeated(f32[3], [])")
    assert args["by"] == [] and f(**args).shape == (3,)
    f, args = dovetail.site("py_ops::repeated(f32[3])")
    assert args["by"] == [] and f(**args).shape == (3,)


def test_an_empty_list_as_default_in_torch(python):
    pytest.importorskip("torch")
    python("""
import dovetail, torch
ops = dovetail.load(BINARY)
for args, size, n in [((), 3, 0), (([],), 3, 0), (([2, 5],), 6, 2), ((2,), 6, 2)]:
    def call(x):
        return torch.ops.py_ops.repeated(x, *args)
    compiled = [torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=dynamic) for dynamic in (False, True)]
    for f in (lambda x: ops.repeated(x, *args), call, *compiled):
        torch._dynamo.reset()
        y = f(torch.ones(3))
        assert y.shape == (size,) and (y == n).all(), (args, y)
    assert torch.ops.py_ops.repeated(torch.ones(3, device="meta"), *args).shape == (size,)
""")
