/* NumPy arrays as tensors, without NumPy's headers and without calling NumPy during a call.
 *
 * An ndarray's fields are read at their place in memory: data, nd, dimensions, strides, descr and flags have kept their places
 * from NumPy 1.0 to 2.x. dvnp_setup() proves that for the NumPy that is running, on a known array, before anything is read. New
 * arrays come from NumPy's C-API table, at indices that never change. Everything needs the GIL. Compiled into python/'s
 * extension: abi3.
 */
#ifndef DOVETAIL_NUMPY_ARRAY_H
#define DOVETAIL_NUMPY_ARRAY_H

#include "extension.h"

/* 1: ready to use. 0: NumPy is not imported yet, so no object can be an array. -1 with an exception: this NumPy cannot be used.
 * import: import NumPy if necessary. Fast once it has returned 1. */
int dvnp_setup(bool import);

extern PyTypeObject *dvnp_ndarray, *dvnp_generic; /* numpy.ndarray, numpy.generic; NULL before setup */

/* Maximum number of dims of an array. */
enum { DVNP_MAX_NDIM = 64 };

/* Fills *t from an ndarray (checked by dvnp_is_array), whose memory must outlive *t. dims: space for twice nd numbers, at least
 * one. It receives a copy of the shape and of the strides in elements, since code that runs later may change those of the array.
 * write: true if the array will be written. Returns NULL on success, else the reason, as the end of "expected Tensor, found ...":
 * "a read-only array". The text is valid until the next call. */
const char *dvnp_view(PyObject *array, bool write, int64_t *dims, dv_tensor *t);
/* Checks that *t still describes memory of the array, after Python code ran. Returns NULL, or the reason as dvnp_view() does. */
const char *dvnp_recheck(PyObject *array, bool write, const dv_tensor *t);
int dvnp_ndim(PyObject *array);
bool dvnp_is_writeable(PyObject *array);
bool dvnp_is_array(PyObject *o); /* ndarray or a subclass of it; false before setup */

/* A new array on the CPU, uninitialised. strides are in elements; NULL or C order: a plain array. NULL with an exception. */
PyObject *dvnp_new(dv_dtype dtype, int ndim, const int64_t *shape, const int64_t *strides);
/* An array over the memory of t that keeps base alive. */
PyObject *dvnp_wrap(const dv_tensor *t, PyObject *base, bool writeable);

/* numpy.asarray(o), numpy.from_dlpack(o). NULL with an exception. */
PyObject *dvnp_asarray(PyObject *o);
PyObject *dvnp_from_dlpack(PyObject *o);

/* Convert anything that numpy.dtype() takes. 0; -1: not an element type of tensors (an exception is set). */
int dvnp_dtype(PyObject *o, dv_dtype *out);
PyObject *dvnp_dtype_object(dv_dtype dtype); /* a numpy.dtype; NULL with an exception */

#endif
