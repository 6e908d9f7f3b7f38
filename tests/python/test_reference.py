"""Against NumPy on arrays of random shape, strides and dtype (hypothesis)."""
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

SETTINGS = settings(max_examples=150, deadline=None, derandomize=True)


@st.composite
def views(draw, dtypes=("f4", "f8")):
    """An array that is a view of a random kind."""
    dtype = draw(st.sampled_from(dtypes))
    base = draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=6),
                           elements=st.floats(-100, 100, width=32)))
    x = base.transpose(draw(st.permutations(range(base.ndim)))) if base.ndim else base
    index = tuple(slice(draw(st.integers(-7, 7)), draw(st.integers(-7, 7)), draw(st.sampled_from([1, 1, 2, -1, -2, 3]))) for _ in range(x.ndim))
    if draw(st.booleans()):
        x = x[index]
    if draw(st.booleans()):
        x = np.expand_dims(x, draw(st.integers(0, x.ndim)))
    if draw(st.integers(0, 3)) == 0:
        x = np.broadcast_to(x, (draw(st.integers(0, 3)), *x.shape))
    return x


@SETTINGS
@given(x=views(), factor=st.floats(-8, 8, width=16))
def test_scale(ops, x, factor):
    result = ops.scale(x, factor)
    expected = (np.float64(factor) * x.astype("f8")).astype(x.dtype)
    assert result.dtype == x.dtype and result.shape == x.shape
    np.testing.assert_array_equal(result, expected)


@SETTINGS
@given(x=views(("f4",)), data=st.data())
def test_written_through_any_view(ops, x, data):
    """What an in-place operator writes to a view lands where NumPy would write, and nowhere else."""
    shape = tuple(2 * n + 1 for n in x.shape)
    whole, expected = np.zeros(shape, "f4"), np.zeros(shape, "f4")
    index = tuple(slice(1, 1 + 2 * n, 2) if data.draw(st.booleans()) else slice(0, n) for n in x.shape)
    ops.add_(whole[(..., *index)], x)
    expected[(..., *index)] += x
    np.testing.assert_array_equal(whole, expected)


@SETTINGS
@given(x=hnp.arrays("f4", st.integers(0, 50), elements=st.sampled_from([0.0, 1.0, -2.0])))
def test_nonzero(ops, x):
    np.testing.assert_array_equal(ops.nonzero(x), np.flatnonzero(x))


@SETTINGS
@given(x=hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(max_dims=3, max_side=4)))
def test_any_dtype_is_taken_or_refused(ops, x):
    try:
        y = ops.copy_of(x)
    except TypeError as error:
        assert "expected Tensor" in str(error)
        assert x.dtype.kind in "gGmMSUOV" or not x.dtype.isnative or x.dtype.itemsize in (16, 32)
    else:
        assert y.dtype == x.dtype and y.tobytes() == x.tobytes()
