/* dovetail_torch.h: Dovetail's operators as PyTorch operators, from C.
 *
 * No torch headers, no C++, one binary for every torch from 2.10 on: libtorch's C shims are looked up in the libtorch_cpu.so that
 * the process has already loaded. Works in a C++ program without Python. Fake functions and gradients need Python: the package
 * dovetail.torch adds them.
 */
#ifndef DOVETAIL_TORCH_H
#define DOVETAIL_TORCH_H

#include "dovetail.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dv_torch_library dv_torch_library; /* one library's operators in torch.ops */

/* Does this process have a usable libtorch? DV_ENOENT: none is loaded. DV_EABI: it lacks a symbol (the message names the symbol
 * and the first torch that has it). Looked up once. */
DV_API int dv_torch_available(void);

enum dv_torch_flags {
    DV_TORCH_SKIP_UNSUPPORTED = 1, /* leave out operators that the shims cannot carry or torch refuses */
    DV_TORCH_TWIN_UNSUPPORTED = 2, /* define a twin (below) for them instead, as dovetail.torch does */
    DV_TORCH_NO_AUTOGRAD = 4,      /* no kernels on the Autograd keys: the caller registers kernels there */
};

/* A twin is "_dovetail_ns::name.overload": the operator with a list of numbers in place of each argument that the shims do not
 * carry. dovetail.torch registers the operator itself, with a Python kernel that packs its arguments and calls the twin. */
#define DV_TORCH_TWINS "_dovetail_"

/* Define every operator of lib as torch.ops.<namespace>.<name>, with kernels for the devices that it has rows for. lib is
 * borrowed: call dv_torch_unregister before dv_library_free (if the library is freed first, calls fail with a message until
 * then). DV_ENOTSUP: the shims cannot carry an argument's type (Scalar, complex, Generator...); the message names operator and
 * argument. DV_EEXIST, DV_EHOST: libtorch refused; the message includes libtorch's. DV_ELIMIT: the pool of trampolines is used
 * up. On failure nothing is registered. */
DV_API int dv_torch_register(dv_library *lib, uint32_t flags, dv_torch_library **out);

/* Remove the operators from torch. Running calls finish; later calls through a kept torch operator fail with an error. NULL is
 * fine. */
DV_API void dv_torch_unregister(dv_torch_library *reg);

/* Why this operator ("ns::name.overload") was left out: a message that reg owns. NULL: it was registered. */
DV_API const char *dv_torch_why_not(const dv_torch_library *reg, const char *name);

DV_API bool dv_torch_has_twin(const dv_torch_library *reg, const char *name);

/* How many operators can be registered at the same time in one process. */
DV_API size_t dv_torch_capacity(void);

#ifdef __cplusplus
}
#endif
#endif
