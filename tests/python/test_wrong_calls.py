"""Wrong calls: each message names the operator, the argument, what was expected and what was found. None harms the process."""
import numpy as np
import pytest

pytestmark = pytest.mark.quick

ml_dtypes = pytest.importorskip("ml_dtypes")

X = np.arange(6, dtype=np.float32).reshape(2, 3)
V = X.ravel()
READ_ONLY = X.copy()
READ_ONLY.flags.writeable = False
UNALIGNED = np.zeros(9, np.uint8)[1:].view(np.float32)
ODD = np.zeros(3, dtype=[("a", "c8"), ("b", "f4")])["a"]  # aligned for NumPy: its floats are


class NoIndex:
    pass


class BadIndex:
    def __index__(self):
        raise ZeroDivisionError("inside")


class BadDlpack:
    def __dlpack__(self, **kwargs):
        raise BufferError("no memory to show")

    def __dlpack_device__(self):
        return (1, 0)


def k(**kwargs):
    return kwargs


# (operator, arguments, keywords, exception, fragments of the message)
WRONG = [
    # binding, as Python says it
    ("echo_int", (), {}, TypeError, ["py_ops::echo_int() missing 1 required positional argument: 'x'"]),
    ("scale", (), {}, TypeError, ["scale() missing 1 required positional argument: 'x'"]),
    ("echo_lists", ([],), {}, TypeError, ["missing 4 required positional arguments: 'f', 'b', 's', and 'z'"]),
    ("echo_places", ("cpu",), {}, TypeError, ["missing 2 required positional arguments: 'layout' and 'format'"]),
    ("echo_int", (1, 2), {}, TypeError, ["takes 1 positional argument but 2 were given"]),
    ("echo_opt", (1, 2.0, True, "", 5), {}, TypeError, ["takes from 0 to 4 positional arguments but 5 were given"]),
    ("scale", (X, 1.0, X.copy(), 4), {}, TypeError, ["takes from 1 to 2 positional arguments (and 1 result to write to) but 4 were given"]),
    ("echo_int", (1,), k(z=2), TypeError, ["got an unexpected keyword argument 'z'"]),
    ("echo_int", (1,), k(x=2), TypeError, ["got multiple values for argument 'x'"]),
    ("keyed", (X, 2), {}, TypeError, ["takes 1 positional argument but 2 were given"]),
    ("keyed", (X,), {}, TypeError, ["missing 1 required keyword-only argument: 'k'"]),
    ("keyed", (X,), k(k=1, from__=2), TypeError, ["unexpected keyword argument 'from__'"]),
    ("scale", (X,), k(out=(X, X)), TypeError, ["got out= with a tuple of 2 for 1 result"]),
    ("minmax", (V,), k(out=np.empty((), "f4")), TypeError, ["got out= with no tuple for 2 results: expected a tuple of 2"]),
    ("scale", (X, 1.0, X.copy()), k(out=X.copy()), TypeError, ["got multiple values for result 'out'"]),
    ("fill", (X.copy(), 1.0), k(result=X), TypeError, ["unexpected keyword argument 'result'"]),
    ("echo_int", (1,), k(y=2), TypeError, ["cannot write result 'y'"]),
    ("echo_int", (1,), k(out=2), TypeError, ["cannot write result 'y'"]),
    # numbers
    ("echo_int", (3.0,), {}, TypeError, ["py_ops::echo_int", "'x'", "expected int", "found float 3.0"]),
    ("echo_int", (2**63,), {}, TypeError, ["'x'", "64 bits", "9223372036854775808"]),
    ("echo_int", (np.uint64(2**63),), {}, TypeError, ["'x'", "64 bits"]),
    ("echo_int", ("3",), {}, TypeError, ["expected int", "found str '3'"]),
    ("echo_int", (None,), {}, TypeError, ["expected int", "found None"]),
    ("echo_int", (np.float32(3),), {}, TypeError, ["expected int", "found numpy.float32"]),
    ("echo_int", (X,), {}, TypeError, ["expected int", "found an array of float32 with shape (2, 3)"]),
    ("echo_int", (NoIndex(),), {}, TypeError, ["expected int", "NoIndex"]),
    ("echo_int", (BadIndex(),), {}, ZeroDivisionError, ["inside"]),
    ("echo_int", ([1],), {}, TypeError, ["expected int", "found list"]),
    ("echo_float", ("1.5",), {}, TypeError, ["expected float", "found str '1.5'"]),
    ("echo_float", (b"1.5",), {}, TypeError, ["expected float", "found bytes"]),
    ("echo_float", (1j,), {}, TypeError, ["expected float", "found complex 1j"]),
    ("echo_float", (np.complex64(1),), {}, TypeError, ["expected float", "found numpy.complex64"]),
    ("echo_float", (None,), {}, TypeError, ["expected float", "found None"]),
    ("echo_float", (V,), {}, TypeError, ["expected float", "an array of float32 with shape (6,)"]),
    ("echo_float", (10**400,), {}, TypeError, ["argument 'x': expected float, found int 1000", "which is too large for float"]),
    ("echo_complex", (10**400,), {}, TypeError, ["argument 'x': expected complex, found int 1000", "which is too large for complex"]),
    ("echo_lists", ([], [1.0, -10**400], [], [], []), {}, TypeError, ["argument 'f[1]': expected float, found int -1000", "which is too large for float"]),
    ("echo_bool", (1,), {}, TypeError, ["expected bool", "found int 1"]),
    ("echo_bool", ("",), {}, TypeError, ["expected bool", "found str ''"]),
    ("echo_bool", (np.int8(1),), {}, TypeError, ["expected bool", "found numpy.int8"]),
    ("echo_str", (b"x",), {}, TypeError, ["expected str", "found bytes"]),
    ("echo_str", (3,), {}, TypeError, ["expected str", "found int 3"]),
    ("echo_str", ("\ud800",), {}, TypeError, ["py_ops::echo_str: argument 'x': expected str (text that UTF-8 encodes), found str '\\ud800'"]),
    ("echo_dtype", ("\ud800",), {}, TypeError, ["py_ops::echo_dtype: argument 'x'", "found str '\\ud800'"]),
    ("echo_scalar", ("1",), {}, TypeError, ["expected Scalar (a number)", "found str '1'"]),
    ("echo_scalar", (X,), {}, TypeError, ["expected Scalar (a number)", "an array"]),
    ("echo_scalar", (2**64,), {}, TypeError, ["64 bits", "18446744073709551616"]),
    ("echo_scalar", (np.longdouble(1),), {}, TypeError, ["expected Scalar (a number)", "numpy.longdouble"]),
    ("echo_complex", ("1j",), {}, TypeError, ["expected complex", "found str '1j'"]),
    ("echo_complex", (None,), {}, TypeError, ["expected complex", "found None"]),
    # names of things
    ("echo_dtype", (object,), {}, TypeError, ["expected ScalarType", "found type"]),
    ("echo_dtype", ("f99",), {}, TypeError, ["expected ScalarType", "found str 'f99'"]),
    ("echo_dtype", (None,), {}, TypeError, ["expected ScalarType", "found None"]),
    ("echo_dtype", (np.dtype(">f4"),), {}, TypeError, ["expected ScalarType"]),
    ("echo_dtype", (3,), {}, TypeError, ["expected ScalarType", "found int 3"]),
    ("echo_places", ("gpu", "strided", "channels_last"), {}, TypeError, ["'device'", "expected Device", "found str 'gpu'"]),
    ("echo_places", (0, "strided", "channels_last"), {}, TypeError, ["'device'", "found int 0"]),
    ("echo_places", ("cpu", "dense", "channels_last"), {}, TypeError, ["'layout'", "expected Layout", "found str 'dense'"]),
    ("echo_places", ("cpu", "strided", "nhwc"), {}, TypeError, ["'format'", "expected MemoryFormat", "found str 'nhwc'"]),
    ("echo_opt", ("1",), {}, TypeError, ["'i'", "expected int?", "found str '1'"]),
    ("echo_opt", (1, 1.0, 0), {}, TypeError, ["'b'", "expected bool?", "found int 0"]),
    ("echo_random", (5,), {}, TypeError, ["'generator'", "expected Generator?", "found int"]),
    # lists
    ("echo_lists", (1, [], [], [], []), {}, TypeError, ["'i'", "expected int[] (a list of int)", "found int 1"]),
    ("echo_lists", ("12", [], [], [], []), {}, TypeError, ["'i'", "a list of int", "found str '12'"]),
    ("echo_lists", ({1, 2}, [], [], [], []), {}, TypeError, ["'i'", "a list of int", "found set"]),
    ("echo_lists", ([1, "x"], [], [], [], []), {}, TypeError, ["'i[1]'", "expected int", "found str 'x'"]),
    ("echo_lists", ([], [None], [], [], []), {}, TypeError, ["'f[0]'", "expected float", "found None"]),
    ("echo_lists", ([], [], [True, 1], [], []), {}, TypeError, ["'b[1]'", "expected bool", "found int 1"]),
    ("echo_lists", ([], [], [], "ab", []), {}, TypeError, ["'s'", "a list of str", "found str 'ab'"]),
    ("echo_lists", ([], [], [], ["a", b"b"], []), {}, TypeError, ["'s[1]'", "expected str", "found bytes"]),
    ("echo_lists", ([], [], [], [], [1, []]), {}, TypeError, ["'z[1]'", "expected a number", "found list"]),
    ("echo_lists", (X, [], [], [], []), {}, TypeError, ["'i'", "a list of int", "an array of float32 with shape (2, 3)"]),
    ("echo_lists", (np.ones(2), [], [], [], []), {}, TypeError, ["'i[0]'", "expected int", "found float 1.0"]),
    ("echo_pair", ([1, 2, 3],), {}, TypeError, ["echo_pair", "'x'", "2 elements", "found 3"]),
    ("echo_pair", ("ab",), {}, TypeError, ["'x'", "expected int[2]", "found str 'ab'"]),
    ("echo_tensors", (X,), {}, TypeError, ["'xs'", "expected Tensor?[] (a list of tensors)", "an array of float32"]),
    ("echo_tensors", ([X, 1],), {}, TypeError, ["'xs[1]'", "expected Tensor or None", "found int 1"]),
    ("echo_tensors", ([X, READ_ONLY, np.array("a")],), {}, TypeError, ["'xs[2]'", "dtype <U1"]),
    # arrays
    ("scale", ([1.0, 2.0],), {}, TypeError, ["py_ops::scale", "'x'", "expected Tensor", "numpy.asarray()", "found list"]),
    ("scale", (3.0,), {}, TypeError, ["'x'", "expected Tensor", "found float 3.0"]),
    ("scale", (None,), {}, TypeError, ["'x'", "expected Tensor", "found None"]),
    ("scale", (np.ndarray,), {}, TypeError, ["'x'", "expected Tensor", "found type"]),
    ("scale", (X.astype(">f4"),), {}, TypeError, ["'x'", "byte-swapped dtype >f4"]),
    ("scale", (X.astype(object),), {}, TypeError, ["'x'", "dtype object"]),
    ("scale", (np.array(["a"]),), {}, TypeError, ["'x'", "dtype <U1"]),
    ("scale", (np.zeros(2, "M8[s]"),), {}, TypeError, ["'x'", "datetime64[s]"]),
    ("scale", (np.zeros(2, [("a", "f4")]),), {}, TypeError, ["'x'", "no tensor can have"]),
    ("scale", (np.zeros(2, "g"),), {}, TypeError, ["'x'", "no tensor can have"]),
    ("scale", (np.zeros(2, ml_dtypes.int4),), {}, TypeError, ["'x'", "dtype int4"]),
    ("scale", (np.ma.array([1.0]),), {}, TypeError, ["'x'", "masked array", "filled()"]),
    ("copy_of", (ODD,), {}, TypeError, ["'x'", "stride of dim 0, 12 bytes", "8 bytes"]),
    ("scale", (np.zeros(3, dtype=[("a", "f4"), ("b", "i1")])["a"],), {}, TypeError, ["'x'", "not aligned"]),
    ("scale", (UNALIGNED,), {}, TypeError, ["'x'", "not aligned"]),
    ("scale", (BadDlpack(),), {}, BufferError, ["no memory to show"]),
    ("scale", (X.astype("i4"),), {}, ValueError, ["py_ops::scale", "'x'", "f32", "i32"]),
    ("scale", (X,), k(out=X[:1].copy()), ValueError, ["'out'", "[2, 3]", "[1, 3]"]),
    ("scale", (X,), k(out=X.astype("f8")), ValueError, ["'out'", "f32", "f64"]),
    ("scale", (X,), k(out=READ_ONLY), TypeError, ["result 'out'", "an array to write to", "read-only"]),
    ("scale", (X,), k(out=[1.0]), TypeError, ["result 'out'", "found list"]),
    ("scale", (X,), k(out=X), ValueError, ["'out'", "overlaps argument 'x'"]),
    ("scale", (X[:1],), k(out=X[:1]), ValueError, ["overlaps"]),
    ("minmax", (X,), {}, ValueError, ["'x'", "[n]", "[2, 3]"]),
    ("minmax", (V[:0],), {}, ValueError, ["minmax", "n > 0"]),
    ("minmax", (V,), k(lo=np.empty((), "f4"), hi=3), TypeError, ["result 'hi'", "found int 3"]),
    ("add_", (READ_ONLY, X), {}, TypeError, ["argument 'self'", "an array to write to", "read-only"]),
    ("add_", (np.broadcast_to(np.float32(1), (2, 3)), X), {}, TypeError, ["argument 'self'", "read-only"]),
    ("add_", (np.float32(1), X), {}, TypeError, ["argument 'self'", "found numpy.float32"]),
    ("add_", (X, X), {}, ValueError, ["'self'", "overlaps argument 'other'"]),
    ("add_", (X.copy(), V), {}, ValueError, ["add_", "'other'"]),
    ("fill", (np.lib.stride_tricks.as_strided(X.copy(), (3, 3), (4, 4)), 1.0), {}, ValueError, ["fill", "'out'"]),
    # overloads, failing kernels
    ("pick", ("a",), {}, TypeError, ["py_ops::pick", "no overload takes these arguments", "pick.int: argument 'x': expected int, found str 'a'",
                                     "pick.tensor: argument 'x'", "pick.two() missing"]),
    ("pick", (), {}, TypeError, ["no overload", "missing 1 required positional argument: 'x'"]),
    ("fails", (X,), {}, RuntimeError, ["py_ops::fails", "asked to fail with -17"]),
    ("fails", (X, -7), {}, ValueError, ["asked to fail with -7"]),
    ("fails", (X, -6), {}, TypeError, ["asked to fail with -6"]),
    ("fails", (X, -2), {}, MemoryError, ["asked to fail with -2"]),
    ("copy_of", (np.broadcast_to(np.float32(1), (1 << 20, 1 << 22)),), {}, MemoryError,
     ["py_ops::copy_of: result 'out': out of memory: an array of 17592186044416 bytes"]),
    ("fails", (X, -18), {}, NotImplementedError, ["asked to fail with -18"]),
    ("fails", (X, -19), {}, OSError, ["asked to fail with -19"]),
]


@pytest.mark.parametrize("name, args, kwargs, exception, fragments", WRONG, ids=[f"{i}-{w[0]}" for i, w in enumerate(WRONG)])
def test_wrong(ops, name, args, kwargs, exception, fragments):
    with pytest.raises(exception) as caught:
        ops[name](*args, **kwargs)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_there_are_enough():
    assert len(WRONG) >= 100


def test_library_errors_have_a_status(ops):
    import dovetail
    with pytest.raises(dovetail.DovetailError) as caught:
        ops.scale(X.astype("i4"))
    assert caught.value.status == "EDTYPE" and isinstance(caught.value, ValueError)
    with pytest.raises(LookupError, match="echo_int") as caught:
        dovetail.find("py_ops::echo_imt")
    assert caught.value.status == "ENOENT"


def test_every_status_has_an_exception():
    import re
    from conftest import ROOT
    from dovetail import _errors
    text = (ROOT / "include" / "dovetail_op.h").read_text()
    names = re.findall(r"^    X\((E\w+), -\d+,", text, re.M)
    assert len(names) > 15 and set(names) == set(_errors.BY_STATUS)


def test_after_a_failure_nothing_of_it_stays(ops):
    out = X.copy()
    with pytest.raises(RuntimeError):
        ops.fails(X, out=out)
    assert (out == X).all()
    assert (ops.scale(X) == 2 * X).all()
