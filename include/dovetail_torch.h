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

typedef struct dv_torch_library dv_torch_library; /* one library's operators, registered in torch.ops */

/* Checks whether this process has a usable libtorch. Returns DV_OK if it does. DV_ENOENT: no libtorch is loaded. DV_EABI: it
 * lacks a symbol (the message names the symbol and the first torch that has it). The answer of the first call is kept. */
DV_API int dv_torch_available(void);

enum dv_torch_flags {
    DV_TORCH_SKIP_UNSUPPORTED = 1, /* leave out operators that the shims cannot carry or torch refuses */
    DV_TORCH_PACK_UNSUPPORTED = 2, /* define a packed operator (below) for them instead, as dovetail.torch does */
    DV_TORCH_NO_AUTOGRAD = 4,      /* no kernels on the Autograd keys: the caller registers kernels there */
};

/* A packed operator is "_dovetail_ns::name.overload": the operator with a list of numbers in place of each argument that the
 * shims do not carry. dovetail.torch registers the operator itself, with a Python kernel that packs its arguments and calls
 * the packed operator. */
#define DV_TORCH_PACKED_PREFIX "_dovetail_"

/* Defines every operator of lib as torch.ops.<namespace>.<name>, for each device that the operator has kernels for. lib is
 * borrowed: call dv_torch_unregister() before dv_library_free() (if the library is freed first, calls fail with a message
 * until then). DV_ENOTSUP: the shims cannot carry an argument's type (Scalar, complex, Generator...); the message names
 * operator and argument. DV_EEXIST, DV_EHOST: libtorch refused; the message includes libtorch's. DV_ELIMIT: all trampolines
 * are in use. On failure nothing is registered. */
DV_API int dv_torch_register(dv_library *lib, uint32_t flags, dv_torch_library **out);

/* Removes the operators from torch. Running calls finish; later calls through a torch operator that a program still has fail
 * with an error. NULL is allowed. */
DV_API void dv_torch_unregister(dv_torch_library *reg);

/* Returns why the operator "ns::name.overload" was left out: a message that reg owns. NULL: the operator was registered. */
DV_API const char *dv_torch_skip_reason(const dv_torch_library *reg, const char *name);

/* True if a packed operator was defined for the operator "ns::name.overload". */
DV_API bool dv_torch_has_packed(const dv_torch_library *reg, const char *name);

/* Returns the largest number of operators that can be registered at the same time in one process. */
DV_API size_t dv_torch_capacity(void);

#ifdef __cplusplus
}
#endif
#endif
