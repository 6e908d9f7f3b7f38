/* The kernel on torch's Autograd keys, and how it calls Python. */
#ifndef DV_TORCH_AUTOGRAD_H
#define DV_TORCH_AUTOGRAD_H

#include "call.h"
#include "guard.h"

/* As dv__torch_call(): takes the stack's arguments and leaves its results, or throws. */
void dv__torch_autograd(const struct dv__torch_op *op, uint64_t *stack);

/* Calls Python. Takes the stack's nargs arguments and leaves the results there, or throws the Python exception. way:
 * GRADIENT, OTHER or NATIVE. */
typedef void (*dv__torch_python)(const struct dv__torch_op *op, enum dv__torch_way way, uint64_t *stack, size_t nargs);

/* The function that calls Python; NULL: this process has no Python. */
dv__torch_python dv__torch_into_python(void);

/* The functions of this library that python.c, linked into dovetail._core, calls. */
struct dv__torch_exchange {
    void (*set_python)(dv__torch_python python);
    void (*release)(const struct dv__torch_op *op, size_t slot, uint64_t cell);
    void (*release_arguments)(const struct dv__torch_op *op, const uint64_t *stack, size_t nargs);
    int (*box)(const struct dv__torch_op *op, uint64_t *cell);
};
DV_API const struct dv__torch_exchange *dv_torch_exchange(void);

/* Does this operator have our kernel on the Autograd keys? */
DV_API bool dv_torch_has_autograd(const dv_torch_library *reg, const char *name);

/* Set the Python objects of one operator (described in struct dv__torch_op). The caller keeps owning them. Needs the GIL. */
DV_API void dv_torch_set_autograd(dv_torch_library *reg, const char *name, void *python, void *gradient);

/* Set the function that runs its native form, with all arguments by position (those of out= follow); NULL: none. This also
 * registers kernels for all devices: the native form runs where the operator has no rows, or where policy and dtypes exclude all
 * rows. */
DV_API int dv_torch_set_native(dv_torch_library *reg, const char *name, void *python);

/* Has the program registered kernels for the operator? Then no call bypasses the dispatcher. */
DV_API void dv_torch_set_overridden(dv_torch_library *reg, const char *name, bool yes);

#endif
