/* Dovetail's kernel on torch's Autograd keys, and the Python objects that this kernel calls. */
#ifndef DV_TORCH_AUTOGRAD_H
#define DV_TORCH_AUTOGRAD_H

#include "call.h"

/* Runs a call that torch's dispatcher made on an Autograd key, by the path that the call allows. Takes the stack's arguments and
 * leaves the results on the stack, or throws. */
void dv__torch_call_on_autograd_key(const struct dv__torch_op *op, uint64_t *stack);

/* True if dovetail has registered a kernel on the Autograd keys for the operator `name`. */
DV_API bool dv_torch_has_autograd_kernel(const dv_torch_library *reg, const char *name);

/* Sets the Python objects `python` and `gradient` of one operator (struct dv__torch_op). The caller keeps them alive. Needs the
 * GIL. An unknown name has no effect. */
DV_API void dv_torch_set_autograd(dv_torch_library *reg, const char *name, void *python, void *gradient);

/* Sets the Python function that runs the decomposition of the operator `name`; NULL: none. The function gets all arguments by
 * position, then those of out=. The first such call for an operator also registers kernels for all devices: the decomposition
 * runs where the operator has no kernels, or where policy and dtypes exclude all kernels. Returns a status. */
DV_API int dv_torch_set_decomposition(dv_torch_library *reg, const char *name, void *python);

/* Tells whether the program has registered kernels of its own for the operator `name`. While it has, no call bypasses torch's
 * dispatcher. */
DV_API void dv_torch_set_overridden(dv_torch_library *reg, const char *name, bool is_overridden);

#endif
