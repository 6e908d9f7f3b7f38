/* Table of libtorch's C functions and numbers, looked up once in the process (shims.def, tags.def). */
#ifndef DV_TORCH_SHIMS_H
#define DV_TORCH_SHIMS_H

#include "dovetail_torch.h"

/* A boxed kernel takes its arguments from the cells of `stack`, 8 bytes each, and leaves its results in the first cells. The
 * kernel owns every handle among the arguments, and its caller every handle among the results. */
typedef void (*dv_torch_boxed)(uint64_t *stack, uint64_t nargs, uint64_t nresults);

#define DV_TORCH_ABI 0x020a000000000000u /* the libtorch version whose conventions are used: 2.10 */

enum { DV_TORCH_MAX_DTYPE = 64 };

struct dv__torch_shims {
#define SHIM(since, need, ret, name, params) ret(*name) params;
#include "shims.def"
#undef SHIM
    /* C++ functions, found by mangled name; NULL: this torch lacks the symbol. A tensor handle is an at::Tensor *, which holds
     * one TensorImpl *. */
    void (*bump_version)(void *tensor);             /* torch::autograd::impl::bump_version */
    bool (*requires_grad)(const void *tensor_impl); /* c10::TensorImpl::requires_grad() const */
    bool (*is_leaf)(const void *tensor);            /* at::TensorBase::is_leaf() const */
    const void *(*fw_grad)(const void *tensor_impl, uint64_t level, const void *tensor); /* c10::TensorImpl::_fw_grad */
    int64_t (*function_modes)(void); /* at::impl::PythonTorchFunctionTLS::stack_len() */
    bool (*has_callbacks)(void);     /* at::hasCallbacks() */
    bool (*resize_output)(
        const void *tensor, const int64_t *shape, size_t ndim); /* at::native::resize_output(Tensor, IntArrayRef) */
    const void *context; /* the one at::Context of the process, from at::globalContext(); NULL: not found */
    bool (*deterministic)(const void *context);  /* at::Context::deterministicAlgorithms() const */
    bool (*key_excluded)(uint16_t key);          /* c10::impl::tls_is_dispatch_key_excluded */
    void (*exclude_key)(uint16_t key, bool yes); /* c10::impl::tls_set_dispatch_key_excluded */
    const char *(*key_name)(uint16_t key);       /* c10::toString(DispatchKey) */
    void *(*operator_new)(size_t size);
    void (*operator_delete)(void *p);
    int32_t (*current_cuda_stream)(int32_t device_index, void **out); /* in libtorch_cuda */
    int (*stream_is_capturing)(
        void *stream, int *status); /* cudaStreamIsCapturing(): *status 0 means that no capture is going on */
    int32_t (*cuda_randint_generator)(int64_t high, const int64_t *size, int64_t ndim, void **generator, int32_t *dtype,
        int32_t *layout, int32_t *device, int32_t index, int32_t *pin, void **out);

    uint32_t dtype_key[DV_TORCH_MAX_DTYPE];     /* dv_dtype_key() by torch's number of a dtype; 0: Dovetail has no such dtype */
    int32_t cpu, cuda, privateuse1, meta;       /* torch's device numbers */
    uint16_t autograd_key, inplace_or_view_key; /* torch's numbers of the dispatch keys AutogradCPU and ADInplaceOrView; not set
                                                   if key_name is NULL */
    int32_t strided_layout;                     /* torch's number of the layout torch.strided */
    int32_t contiguous_format, preserve_format, channels_last, channels_last_3d;
};

/* Returns the table, which the first call fills; NULL with the error set if libtorch is missing or too old. The pointer stays
 * valid until the process ends. */
const struct dv__torch_shims *dv__torch_get_shims(void);

/* Returns libtorch's message of the last failed shim call on this thread, never NULL. */
const char *dv__torch_get_last_error(const struct dv__torch_shims *t);

/* Returns torch's number of a tag, such as "pointwise"; -1: the tag is unknown, or this torch takes no tags from C. name is not
 * NUL-terminated. */
int32_t dv__torch_find_tag_number(const char *name, size_t name_size);

int32_t dv__torch_get_dtype_number(
    const struct dv__torch_shims *t, dv_dtype dtype); /* returns torch's number of a dtype; -1: torch has no such dtype */
bool dv__torch_try_find_dtype_by_number(const struct dv__torch_shims *t, int32_t torch_number, dv_dtype *out);
int32_t dv__torch_get_device_type_number(const struct dv__torch_shims *t,
    int32_t dovetail_device_type); /* returns torch's number of an enum dv_device_type; -1: torch has no such device */
int32_t dv__torch_find_device_type_by_number(
    const struct dv__torch_shims *t, int32_t torch_number); /* returns the enum dv_device_type; 0: Dovetail has no such device */

#endif
