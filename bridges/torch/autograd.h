/* The kernel on torch's Autograd keys, and the way from there into Python. */
#ifndef DV_TORCH_AUTOGRAD_H
#define DV_TORCH_AUTOGRAD_H

#include "call.h"
#include "guard.h"

/* As dv__torch_call(): takes the stack's arguments and leaves its results, or throws. */
void dv__torch_autograd(const struct dv__torch_op *op, uint64_t *stack);

/* Goes into Python: takes the stack's nargs arguments and leaves its results, or throws what Python raised. way: GRADIENT, OTHER
 * or NATIVE. */
typedef void (*dv__torch_python)(const struct dv__torch_op *op, enum dv__torch_way way, uint64_t *stack, size_t nargs);

/* The way into Python; NULL: there is no Python in this process. */
dv__torch_python dv__torch_into_python(void);

/* What python.c, which is linked into dovetail._core, uses of this library. */
struct dv__torch_exchange {
    void (*set_python)(dv__torch_python python);
    void (*release)(const struct dv__torch_op *op, size_t slot, uint64_t cell);
    void (*release_arguments)(const struct dv__torch_op *op, const uint64_t *stack, size_t nargs);
    int (*box)(const struct dv__torch_op *op, uint64_t *cell);
};
DV_API const struct dv__torch_exchange *dv_torch_exchange(void);

/* Has this operator our kernel on the Autograd keys? */
DV_API bool dv_torch_has_autograd(const dv_torch_library *reg, const char *name);

/* The Python objects of one operator: struct dv__torch_op has what they are. They stay the caller's. Needs the GIL. */
DV_API void dv_torch_set_autograd(dv_torch_library *reg, const char *name, void *python, void *gradient);

/* The function that runs its native form, with all arguments by position (those of out= follow); NULL: none. It makes kernels for
 * all devices: where there are no rows, and where the policy or the dtypes leave none, the native form runs. */
DV_API int dv_torch_set_native(dv_torch_library *reg, const char *name, void *python);

/* Has a program given the operator kernels of its own? Then no call goes straight on to ours. */
DV_API void dv_torch_set_overridden(dv_torch_library *reg, const char *name, bool yes);

#endif
