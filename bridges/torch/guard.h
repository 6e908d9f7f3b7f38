/* The guard decides whether a call is plain: nothing but its kernel would run, whichever way the call took.
 *
 * A tensor or thread that is not known to be plain is not plain. The guard reads three fields of c10::TensorImpl at their place
 * in memory. The key set has a bit for conj, neg, zero tensors, sparse, meta, functorch's wrappers and subclasses with Python
 * keys. The second field points to autograd's data, the third to the storage. tensor.c finds the offsets of these fields and
 * proves them on samples, which needs Python; until then no tensor is plain. The fields for sizes, dtype and memory are found in
 * the same way: six shims for each tensor would cost more than most of a call.
 */
#ifndef DV_TORCH_GUARD_H
#define DV_TORCH_GUARD_H

#include "call.h"

#include <string.h>

enum { DV__TORCH_DEVICES = 3 }; /* CPU, CUDA, PrivateUse1 */

struct dv__torch_layout {
    size_t key_set, autograd_meta, storage; /* offsets in TensorImpl, in bytes */
    size_t ndim, offset, dtype;             /* also there: the fields that dv__torch_read() reads. ndim 0: not known */
    size_t data, checked;                   /* in StorageImpl: its memory; the flag that only torch may read the address */
    dv_dtype dtypes[DV_TORCH_MAX_DTYPE];    /* by torch's number; bits 0: none of ours */
    uint64_t ordinary[DV__TORCH_DEVICES];   /* key sets */
    uint64_t inference[DV__TORCH_DEVICES];  /* of tensors made in inference mode */
    uint64_t inference_mode[2];             /* the thread's two words in inference mode */
    uint64_t below[2]; /* its second word in kernels: below Autograd, below ADInplaceOrView; the first is 0 */
};

enum dv__torch_way {
    DV__TORCH_PLAIN,    /* straight to the kernel */
    DV__TORCH_GRADIENT, /* plain, except that a gradient is needed */
    DV__TORCH_OTHER,    /* by PyTorch's dispatcher */
    DV__TORCH_NATIVE    /* its native form, run by torch's own operators */
};

/* The thread's own dispatch keys, included and excluded, as c10::impl::raw_local_dispatch_key_set has them: 0, 0 when nothing is
 * on. NULL: this libc10 does not have them. */
uint64_t *dv__torch_thread_keys(void);

/* True if this thread has no dispatch mode, transform, autocast or tracing on: its keys are the default ones, those of
 * inference mode, or those of a kernel below autograd. */
bool dv__torch_thread_is_plain(void);

/* True if also nothing above the dispatcher is on: no function mode and no profiler. For calls from Python. */
bool dv__torch_python_is_plain(void);

/* How a call with this tensor may go. handle: holds the tensor. written: the call will write it. */
enum dv__torch_way dv__torch_way_of(const void *handle, bool written);

/* The device, a number below DV__TORCH_DEVICES, of a tensor for which way_of() does not return OTHER. 0 is the CPU. */
int dv__torch_device_of(const void *handle);

/* The storage (c10::StorageImpl *) of such a tensor. Tensors that share memory have the same storage. */
const void *dv__torch_storage_of(const void *handle);

/* Describe a plain tensor on the CPU without calling libtorch; its memory may be read and written. False: the shims must be
 * called, as for a lazy copy, or while the layout is unknown. */
bool dv__torch_read(const void *handle, dv_tensor *t);

static inline uint64_t dv__torch_word(const void *base, size_t at)
{
    uint64_t w;
    memcpy(&w, (const char *)base + at, sizeof w);
    return w;
}

/* The same, with a known layout. c10::impl::SizesAndStrides: the number of dims, then sizes and strides, of five dims each,
 * or a pointer to both. */
static inline bool dv__torch_read_at(const struct dv__torch_layout *l, const void *handle, dv_tensor *t)
{
    enum { INLINE_DIMS = 5 };
    const char *impl = *(const char *const *)handle;
    const uint64_t keys = dv__torch_word(impl, l->key_set);
    if (!l->ndim || (keys != l->ordinary[0] && keys != l->inference[0]))
        return false;
    const char *storage = (const char *)(uintptr_t)dv__torch_word(impl, l->storage);
    uint16_t number;
    memcpy(&number, impl + l->dtype, sizeof number);
    if (!storage || storage[l->checked] || number >= DV_TORCH_MAX_DTYPE || !l->dtypes[number].bits)
        return false;
    const size_t ndim = dv__torch_word(impl, l->ndim);
    int64_t *sizes = (int64_t *)(uintptr_t)(impl + l->ndim + 8);
    if (ndim > INLINE_DIMS)
        sizes = (int64_t *)(uintptr_t)dv__torch_word(sizes, 0);
    t->ndim = (int32_t)ndim;
    t->shape = sizes;
    t->strides = sizes + (ndim > INLINE_DIMS ? ndim : INLINE_DIMS);
    t->byte_offset = 0;
    t->dtype = l->dtypes[number];
    t->device.type = DV_CPU;
    t->device.id = 0;
    t->data = (char *)(uintptr_t)dv__torch_word(storage, l->data) +
        dv__torch_word(impl, l->offset) * (uint64_t)(t->dtype.bits / 8);
    for (size_t i = 0; i < ndim; i++)
        if (!sizes[i])
            t->data = NULL; /* as torch reports for empty tensors */
    return true;
}

/* Raise the version counter of a written tensor, as autograd requires. Only for tensors that the guard calls plain. Never throws.
 */
void dv__torch_count_write(void *handle);

/* Turn the guard on with the layout found on samples, if libtorch has all functions that the guard calls. It may be called again
 * with more known fields. NULL: off. */
void dv__torch_guard_set(const struct dv__torch_layout *found);

/* The functions of this library that dovetail._core calls. _core links neither this library nor torch, so dovetail.torch
 * passes it this pointer. */
struct dv__torch_inside {
    const struct dv__torch_shims *(*shims)(void);
    uint64_t *(*thread_keys)(void);
    bool (*python_is_plain)(void);
    enum dv__torch_way (*way_of)(const void *handle, bool written);
    int (*device_of)(const void *handle);
    const void *(*storage_of)(const void *handle);
    void (*count_write)(void *handle);
    void (*guard_set)(const struct dv__torch_layout *found);
    void (*call_begin)(struct dv__torch_call *c, const struct dv__torch_op *op, char *room, size_t size);
    int (*view)(struct dv__torch_call *c, struct dv__torch_tensor *x, bool writes, const struct dv__torch_slot *s);
    void (*call_end)(struct dv__torch_call *c);
};
DV_API const struct dv__torch_inside *dv_torch_inside(void);

#endif
