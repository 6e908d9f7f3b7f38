/* The functions of libdovetail_torch that the Python extension dovetail._core calls. */
#ifndef DV_TORCH_FUNCTIONS_H
#define DV_TORCH_FUNCTIONS_H

#include "autograd.h"

/* Each member NAME is the function dv__torch_NAME(), which call.h, guard.h or shims.h describes. */
struct dv__torch_functions {
    const struct dv__torch_shims *(*get_shims)(void);
    uint64_t *(*get_thread_keys)(void);
    bool (*is_python_thread_plain)(void);
    enum dv__torch_path (*choose_path)(const void *handle, bool is_written);
    int (*get_device_kind)(const void *handle);
    const void *(*get_storage)(const void *handle);
    void (*bump_version)(void *handle);
    void (*set_guard_layout)(const struct dv__torch_layout *found);
    void (*call_begin)(struct dv__torch_call *c, const struct dv__torch_op *op, char *buffer, size_t buffer_size);
    int (*describe_tensor)(
        struct dv__torch_call *c, struct dv__torch_tensor *x, bool is_written, const struct dv__torch_slot *slot_for_message);
    void (*call_end)(struct dv__torch_call *c);
    void (*set_python_fn)(dv__torch_python_fn fn);
    void (*release_cell)(const struct dv__torch_op *op, size_t slot_index, uint64_t cell);
    void (*release_arguments)(const struct dv__torch_op *op, const uint64_t *stack, size_t nargs);
    int (*box_optional)(const struct dv__torch_op *op, uint64_t *cell);
};

/* Returns the table of functions, which is valid until the process ends. dovetail._core links neither libdovetail_torch nor
 * torch, so dovetail.torch passes this pointer to the extension. */
DV_API const struct dv__torch_functions *dv_torch_get_functions(void);

#endif
