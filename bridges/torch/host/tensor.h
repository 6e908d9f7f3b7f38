/* torch's tensors as Python objects, without torch's headers. All functions need the GIL.
 *
 * A Python tensor object holds an at::Tensor; the address of this at::Tensor is the handle that libtorch's C shims take.
 * dvt_try_setup() finds the offset of the at::Tensor, and the offsets that the guard (guard.h) needs, and tests them on samples
 * that dovetail.torch.probe makes.
 */
#ifndef DOVETAIL_TORCH_TENSOR_H
#define DOVETAIL_TORCH_TENSOR_H

#include "../functions.h"
#include "extension.h"

extern const struct dv__torch_functions *dvt; /* the functions of libdovetail_torch; NULL until dvt_set_functions_once() */
extern const struct dv__torch_shims *dvt_shims;

/* Sets dvt and dvt_shims. torch must be imported. Later calls have no effect. Returns 0, or -1 with an exception. */
int dvt_set_functions_once(const struct dv__torch_functions *functions);

/* Returns true if the fast path is on in this process: the fields of tensor objects were found, and the guard (guard.h) uses
 * them. Modes of the calling thread are not tested. The first call outside a dispatch mode finds the fields on sample tensors. If
 * that fails, the fast path stays off, and dvt_get_fast_path_off_reason() returns the reason. After false an exception may be
 * set, such as KeyboardInterrupt, which the caller must propagate. */
bool dvt_try_setup(void);
const char *dvt_get_fast_path_off_reason(void); /* returns why the fast path is off; "": the set-up has not failed */

/* Finds the layout of tensors and turns the guard on. probe_result: the tuple from probe.run(), with the sample tensors, the size
 * of a tensor object in words, the thread's keys in inference mode, the keys excluded in kernels, and the key sets of plain
 * tensors. Returns 0, or -1 with an exception. */
int dvt_find_layout(PyObject *probe_result);

bool dvt_is_tensor(PyObject *o); /* true for torch.Tensor and its subclasses; false for all before dvt_set_functions_once() */
bool dvt_is_exact_tensor(PyObject *o); /* true for exactly torch.Tensor and torch.nn.Parameter */

/* Returns EXT_KIND_TENSOR for torch.Tensor, its subclasses and types with __torch_function__, else EXT_KIND_NONE. May be called
 * before dvt_set_functions_once(), unlike dvt_is_tensor(). */
enum ext_kind dvt_classify_type(PyTypeObject *type);

/* Returns the handle inside a tensor object, borrowed while the object lives. Requires that dvt_try_setup() returned true. */
void *dvt_get_handle(PyObject *tensor);

/* Returns a new reference to the Python object of a handle's tensor; a tensor without an object gets one. The caller keeps the
 * handle. NULL with an exception. */
PyObject *dvt_wrap_handle(const void *handle);

PyObject *dvt_wrap_and_take_handle(
    void *take_handle); /* as dvt_wrap_handle(), and takes ownership of the handle, also on failure */

/* Returns the fastest path that a call with this object as an argument may take. is_written: the call writes the tensor.
 * DV__TORCH_PATH_DISPATCHER: o is not plain, no tensor, or of a subclass. Modes of the thread are not tested:
 * dvt->is_python_thread_plain() does that. */
enum dv__torch_path dvt_choose_path(PyObject *o, bool is_written);

bool dvt_try_read_tensor(
    const void *handle, dv_tensor *out); /* as dv__torch_try_read_tensor(), without a call into libdovetail_torch */

/* Excludes dispatch keys from this thread as in a kernel below Autograd (level 0), or below ADInplaceOrView too (level 1).
 * thread_keys: dvt->get_thread_keys() of a plain thread. Returns the old thread_keys[1], which the caller restores later. */
uint64_t dvt_exclude_thread_keys_below(uint64_t *thread_keys, int level);

/* Throws the current Python exception as torch's own python_error, which arrives in Python with its type, value, traceback and
 * cause. May be called only in frames that torch's dispatcher called, compiled with -fexceptions: the process ends if the error
 * leaves a function that Python called. Needs the GIL. The caller's frame releases the GIL and its other resources by cleanup
 * attributes. Does not return. */
void dvt_throw_python_error(void);

/* Sets the Python function that makes a dtype, a device, a layout or a memory format from (kind, libtorch's number, ...). From
 * then on the Autograd kernel (autograd.h) calls Python. Defined in python.c. */
void dvt_set_from_number_function(PyObject *function);

/* dvt_make_python_kernel_type() makes the Python type PythonKernel, once for the process, and returns 0, or -1 with an exception.
 * dvt_new_python_kernel() is _core.torch.kernel(): returns a new PythonKernel; NULL with an exception. Both are in kernel.c. */
int dvt_make_python_kernel_type(void);
PyObject *dvt_new_python_kernel(PyObject *m, PyObject *args);

#endif
