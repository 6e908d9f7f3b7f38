/* libtorch's C functions, looked up once in the process (shims.def, tags.def). */
#ifndef DV_TORCH_SHIMS_H
#define DV_TORCH_SHIMS_H

#include "dovetail_torch.h"

/* A boxed kernel: arguments in, results out, in the same 8-byte cells. The kernel owns every handle among the arguments. */
typedef void (*dv_torch_boxed)(uint64_t *stack, uint64_t nargs, uint64_t nresults);

#define DV_TORCH_ABI 0x020a000000000000u /* the libtorch version whose conventions are used: 2.10 */

enum { DV_TORCH_MAX_DTYPE = 64 };

struct dv__torch_shims {
#define SHIM(since, need, ret, name, params) ret(*name) params;
#include "shims.def"
#undef SHIM
    /* C++ symbols by mangled name; NULL when absent. A tensor handle is an at::Tensor *, which holds one TensorImpl *. */
    void (*bump_version)(void *tensor);             /* torch::autograd::impl::bump_version */
    bool (*requires_grad)(const void *tensor_impl); /* c10::TensorImpl::requires_grad() const */
    bool (*is_leaf)(const void *tensor);            /* at::TensorBase::is_leaf() const */
    const void *(*fw_grad)(const void *tensor_impl, uint64_t level, const void *tensor); /* c10::TensorImpl::_fw_grad */
    int64_t (*function_modes)(void); /* at::impl::PythonTorchFunctionTLS::stack_len() */
    bool (*has_callbacks)(void);     /* at::hasCallbacks() */
    bool (*resize_output)(
        const void *tensor, const int64_t *shape, size_t ndim); /* at::native::resize_output(Tensor, IntArrayRef) */
    const void *context;                                        /* at::globalContext(): it is always the same; NULL: not found */
    bool (*deterministic)(const void *context);                 /* at::Context::deterministicAlgorithms() const */
    bool (*key_excluded)(uint16_t key);                         /* c10::impl::tls_is_dispatch_key_excluded */
    void (*exclude_key)(uint16_t key, bool yes);                /* c10::impl::tls_set_dispatch_key_excluded */
    const char *(*key_name)(uint16_t key);                      /* c10::toString(DispatchKey) */
    void *(*operator_new)(size_t size);
    void (*operator_delete)(void *p);
    int32_t (*current_cuda_stream)(int32_t device_index, void **out); /* in libtorch_cuda */
    int (*stream_is_capturing)(void *stream, int *status);            /* cudaStreamIsCapturing: 0 is "none" */
    int32_t (*cuda_randint_generator)(int64_t high, const int64_t *size, int64_t ndim, void **generator, int32_t *dtype,
        int32_t *layout, int32_t *device, int32_t index, int32_t *pin, void **out);

    uint32_t dtype_key[DV_TORCH_MAX_DTYPE];     /* torch's number -> dv_dtype_key(); 0: none of ours */
    int32_t cpu, cuda, privateuse1, meta;       /* torch's device numbers */
    uint16_t autograd_key, inplace_or_view_key; /* AutogradCPU, ADInplaceOrView; unused if key_name is NULL */
    int32_t strided;                            /* torch's layout number */
    int32_t contiguous_format, preserve_format, channels_last, channels_last_3d;
};

/* The table, or NULL with the error set. The pointer stays valid until the process ends. */
const struct dv__torch_shims *dv__torch_shims(void);

/* libtorch's message of the last failed shim call on this thread. */
const char *dv__torch_what(const struct dv__torch_shims *t);

/* torch's number of a tag; -1: unknown, or this torch takes no tags from C. */
int32_t dv__torch_tag(const char *name, size_t size);

int32_t dv__torch_dtype(const struct dv__torch_shims *t, dv_dtype dtype); /* -1: torch has no such dtype */
bool dv__torch_dtype_from(const struct dv__torch_shims *t, int32_t number, dv_dtype *out);
int32_t dv__torch_device_type(const struct dv__torch_shims *t, int32_t dv_type);     /* -1: none */
int32_t dv__torch_device_type_from(const struct dv__torch_shims *t, int32_t number); /* enum dv_device_type; 0: none of ours */

#endif
