/* NumPy arrays as tensors, without NumPy's headers and without calling NumPy during a call.
 *
 * An ndarray's fields are read directly from memory: data, nd, dimensions, strides, descr and flags have had the same offsets
 * from NumPy 1.0 to 2.x. dvnp_setup_or_raise() tests these offsets on a known array of the running NumPy before any other array
 * is read. New arrays are made by functions of NumPy's C-API table, at indices that never change. All functions need the GIL.
 * These files are compiled into the Python extension (python/src), for the stable ABI abi3.
 */
#ifndef DOVETAIL_NUMPY_ARRAY_H
#define DOVETAIL_NUMPY_ARRAY_H

#include "extension.h"

enum dvnp_setup {
    DVNP_RAISED = -1,  /* with an exception: this NumPy cannot be used */
    DVNP_NOT_IMPORTED, /* NumPy is not imported yet, so no object can be an array */
    DVNP_READY
};
/* Sets up the access to NumPy's arrays; returns at once after the first time. may_import: NumPy is imported if necessary. */
enum dvnp_setup dvnp_setup_or_raise(bool may_import);

extern PyTypeObject *dvnp_ndarray,
    *dvnp_generic; /* the types numpy.ndarray and numpy.generic; NULL until dvnp_setup_or_raise() has returned DVNP_READY */

/* The greatest number of dims that an array can have. */
enum { DVNP_MAX_NDIM = 64 };

/* Describes an ndarray (dvnp_is_array() is true) in *out, without copying elements; the array must outlive *out. dims: memory for
 * twice nd numbers, at least one, which receives a copy of the shape and of the strides in elements, since Python code that runs
 * later may change the array's. is_written: the call will write the array. Returns NULL; or the reason why the array cannot be a
 * tensor, as the end of "expected Tensor, found ...": "a read-only array". The text is valid until the next call. */
const char *dvnp_describe_or_get_reason(PyObject *array, bool is_written, int64_t *dims, dv_tensor *out);
/* Checks that *t still describes memory of the array, after Python code ran that may have changed the array. Returns NULL, or the
 * reason why *t is no longer valid, as the end of "expected Tensor, found ...". */
const char *dvnp_recheck_or_get_reason(PyObject *array, bool is_written, const dv_tensor *t);
int dvnp_get_ndim(PyObject *array);
bool dvnp_is_writeable(PyObject *array);
bool dvnp_is_array(PyObject
        *o); /* true for numpy.ndarray and its subclasses; false for all until dvnp_setup_or_raise() has returned DVNP_READY */

/* Returns a new uninitialised array. strides are in elements; NULL: contiguous in C order. NULL with an exception. */
PyObject *dvnp_new_array(dv_dtype dtype, int ndim, const int64_t *shape, const int64_t *strides);
/* Returns a new array over the memory of t, which keeps the object `base` alive. NULL with an exception. */
PyObject *dvnp_new_array_over(const dv_tensor *t, PyObject *base, bool writeable);

/* Return numpy.asarray(o) and numpy.from_dlpack(o); NULL with an exception. */
PyObject *dvnp_asarray(PyObject *o);
PyObject *dvnp_from_dlpack(PyObject *o);

/* Converts an object that numpy.dtype() accepts to a dv_dtype. Returns 0; -1 with an exception: no tensor can have elements of
 * this type. */
int dvnp_read_dtype(PyObject *dtype_like, dv_dtype *out);
PyObject *dvnp_make_dtype_object(dv_dtype dtype); /* returns a new numpy.dtype; NULL with an exception */

#endif
