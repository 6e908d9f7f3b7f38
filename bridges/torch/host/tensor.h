/* torch's tensors as Python objects, without torch's headers. Everything needs the GIL.
 *
 * A tensor object holds an at::Tensor; its address inside the object is the handle that libtorch's C shims take. Where it lies is
 * found and proved by dvt_setup(), on samples that dovetail.torch.probe makes, together with what the guard reads (guard.h).
 */
#ifndef DOVETAIL_TORCH_TENSOR_H
#define DOVETAIL_TORCH_TENSOR_H

#include "../guard.h"
#include "extension.h"

extern const struct dv__torch_inside *dvt; /* NULL until dvt_attach() */
extern const struct dv__torch_shims *dvt_shims;

/* dovetail.torch gives the address of dv_torch_inside(). torch is imported by then. 0, or -1 with an exception. */
int dvt_attach(const struct dv__torch_inside *inside);

/* True if tensor objects can be read and the guard is on. Cheap, but the first call makes samples, unless a mode is on. If
 * that fails, the fast path stays off, and dvt_why() tells why. False with an exception: KeyboardInterrupt and the like,
 * which must not be swallowed. */
bool dvt_setup(void);
const char *dvt_why(void); /* "": nothing failed */

/* The result of probe.run(): samples, words of a tensor object, the thread's keys in inference mode, the keys excluded in
 * kernels. */
int dvt_learn(PyObject *probed);

bool dvt_is_tensor(PyObject *o); /* torch.Tensor or a subclass; false before dvt_attach() */
bool dvt_is_exact(PyObject *o);  /* torch.Tensor or torch.nn.Parameter themselves */

/* Returns EXT_TENSOR for torch.Tensor, its subclasses and types with __torch_function__, else EXT_NOTHING. Works before
 * dvt_attach(), which dvt_is_tensor() does not. */
enum ext_kind dvt_kind(PyTypeObject *type);

/* The handle inside a tensor object: borrowed, good while the object lives. Only after dvt_setup(). */
void *dvt_handle(PyObject *tensor);

/* A tensor object for a handle, which stays the caller's: the existing object, or a new one. A new reference; NULL with an
 * exception. */
PyObject *dvt_wrap(const void *handle);

PyObject *dvt_wrap_taken(void *take); /* the same; takes ownership of the handle */

/* How a call with this tensor may go. OTHER for an object that is not a tensor of an exact type. The thread is not
 * considered: dvt->python_is_plain() does that. */
enum dv__torch_way dvt_way_of(PyObject *o, bool written);

bool dvt_read(const void *handle, dv_tensor *t); /* dv__torch_read() */

/* Set this thread's keys as in a kernel: below Autograd (0), or below ADInplaceOrView too (1). keys: dvt->thread_keys() of a
 * plain thread. Returns the old keys[1], which the caller restores. */
uint64_t dvt_below(uint64_t *keys, int which);

/* Throw the current Python exception as torch's own python_error, which arrives in Python with its type, value, traceback and
 * cause. Call it only in frames that torch's dispatcher called, compiled with -fexceptions: the process ends if the error
 * leaves a function that Python called. Needs the GIL. The caller's frame releases the GIL and everything else that it holds
 * by cleanup attributes. Does not return. */
void dvt_rethrow(void);

/* python.c: lets the Autograd kernel (autograd.h) call Python. numbers: a function (kind, libtorch's number, ...) that
 * returns a dtype, a device, a layout or a memory format. */
struct dv__torch_exchange;
void dvt_set_exchange(const struct dv__torch_exchange *to, PyObject *numbers);

/* kernel.c describes its arguments. */
int dvt_python_kernel_setup(void);
PyObject *dvt_python_kernel(PyObject *m, PyObject *args);

#endif
