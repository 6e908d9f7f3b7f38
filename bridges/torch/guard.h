/* The guard decides whether a call is plain: PyTorch's dispatcher would run the operator's kernel and nothing else.
 *
 * A tensor or thread that is not known to be plain is not plain. The guard reads three fields of c10::TensorImpl directly from
 * memory. The key set has a bit for conj, neg, zero tensors, sparse, meta, functorch's wrappers and subclasses with Python keys.
 * The second field points to autograd's data, the third to the storage. host/tensor.c finds the offsets of these fields and tests
 * them on sample tensors, which needs Python; until then no tensor is plain. The fields for sizes, dtype and memory are found in
 * the same way: to call six shims for each tensor would cost more than most of a call.
 */
#ifndef DV_TORCH_GUARD_H
#define DV_TORCH_GUARD_H

#include "shims.h"

#include <string.h>

enum { DV__TORCH_DEVICES = 3 }; /* CPU, CUDA, PrivateUse1 */

struct dv__torch_layout {
    size_t key_set, autograd_meta, storage; /* offsets of these fields in TensorImpl, in bytes */
    size_t ndim, offset, dtype; /* offsets in TensorImpl, for dv__torch_try_read_tensor(). ndim 0: none of them is known */
    size_t data,
        is_checked; /* offsets in StorageImpl: of the memory's address, and of the flag that only torch may read this address */
    dv_dtype dtypes[DV_TORCH_MAX_DTYPE];        /* by torch's number; an entry with bits 0: Dovetail has no such dtype */
    uint64_t plain_keys[DV__TORCH_DEVICES];     /* the key set of plain tensors of each device */
    uint64_t inference_keys[DV__TORCH_DEVICES]; /* the key set of plain tensors of each device that were made in inference mode */
    uint64_t inference_mode[2];                 /* the thread's included and excluded keys in inference mode */
    uint64_t excluded_below[2]; /* the thread's excluded keys in a kernel below Autograd, and in one below ADInplaceOrView too */
};

enum dv__torch_path {
    DV__TORCH_PATH_KERNEL,       /* the kernel is called directly */
    DV__TORCH_PATH_AUTOGRAD,     /* the call is plain, except that a gradient is needed: the autograd function runs */
    DV__TORCH_PATH_DISPATCHER,   /* PyTorch's dispatcher runs the call */
    DV__TORCH_PATH_DECOMPOSITION /* torch's own operators run the operator's decomposition */
};

/* Returns the two words of the thread's dispatch keys, included and excluded, as in c10::impl::raw_local_dispatch_key_set: 0
 * and 0 outside modes. NULL: this libc10 lacks the symbol. */
uint64_t *dv__torch_get_thread_keys(void);

/* True if this thread has no dispatch mode, transform, autocast or tracing on: the thread's keys are the default ones, those of
 * inference mode, or those of a kernel below autograd. */
bool dv__torch_is_thread_plain(void);

/* True if this thread is plain, and also no __torch_function__ mode and no profiler is on. For calls from Python. */
bool dv__torch_is_python_thread_plain(void);

/* Returns the fastest path that a call with this tensor may take. is_written: the call writes the tensor. DISPATCHER: the tensor
 * is not plain, or the guard is off. */
enum dv__torch_path dv__torch_choose_path(const void *handle, bool is_written);

/* Returns the kind of device that a tensor is on: 0 CPU, 1 CUDA, 2 PrivateUse1. May be called only for a tensor for which
 * dv__torch_choose_path() does not return DV__TORCH_PATH_DISPATCHER. */
int dv__torch_get_device_kind(const void *handle);

/* Returns the storage (c10::StorageImpl *) of a tensor that is plain or needs a gradient, as for dv__torch_get_device_kind().
 * Tensors that share memory have the same storage. */
const void *dv__torch_get_storage(const void *handle);

/* Describes a plain CPU tensor, whose memory may be read and written, in *out without a call of libtorch. Returns false if the
 * shims must be called instead: for other tensors, for a lazy copy, or while the offsets of TensorImpl's fields are unknown. */
bool dv__torch_try_read_tensor(const void *handle, dv_tensor *out);

/* Returns the 8 bytes at base + byte_offset. */
static inline uint64_t dv__torch_load_word(const void *base, size_t byte_offset)
{
    uint64_t w;
    memcpy(&w, (const char *)base + byte_offset, sizeof w);
    return w;
}

/* Describes a plain CPU tensor as dv__torch_try_read_tensor() does, with the offsets in `layout`. c10::impl::SizesAndStrides
 * holds the number of dims, then five sizes and five strides, or for more dims a pointer to all sizes and strides. Returns false
 * for any other tensor, or if the offsets are unknown. */
static inline bool dv__torch_try_read_tensor_with(const struct dv__torch_layout *layout, const void *handle, dv_tensor *out)
{
    enum { INLINE_DIMS = 5 };
    const char *impl = *(const char *const *)handle;
    const uint64_t keys = dv__torch_load_word(impl, layout->key_set);
    if (!layout->ndim || (keys != layout->plain_keys[0] && keys != layout->inference_keys[0]))
        return false;
    const char *storage = (const char *)(uintptr_t)dv__torch_load_word(impl, layout->storage);
    uint16_t number;
    memcpy(&number, impl + layout->dtype, sizeof number);
    if (!storage || storage[layout->is_checked] || number >= DV_TORCH_MAX_DTYPE || !layout->dtypes[number].bits)
        return false;
    const size_t ndim = dv__torch_load_word(impl, layout->ndim);
    int64_t *sizes = (int64_t *)(uintptr_t)(impl + layout->ndim + 8);
    if (ndim > INLINE_DIMS)
        sizes = (int64_t *)(uintptr_t)dv__torch_load_word(sizes, 0);
    out->ndim = (int32_t)ndim;
    out->shape = sizes;
    out->strides = sizes + (ndim > INLINE_DIMS ? ndim : INLINE_DIMS);
    out->byte_offset = 0;
    out->dtype = layout->dtypes[number];
    out->device.type = DV_CPU;
    out->device.id = 0;
    out->data = (char *)(uintptr_t)dv__torch_load_word(storage, layout->data) +
        dv__torch_load_word(impl, layout->offset) * (uint64_t)(out->dtype.bits / 8);
    for (size_t i = 0; i < ndim; i++)
        if (!sizes[i])
            out->data = NULL; /* torch reports the address NULL for tensors without elements, too */
    return true;
}

/* Raises the version counter of a written tensor, as autograd requires; a tensor made in inference mode has none. May be called
 * only for plain tensors. Never throws. */
void dv__torch_bump_version(void *handle);

/* Turns the guard on, with the offsets and key sets that were found on sample tensors. found NULL: turns the guard off. */
void dv__torch_set_guard_layout(const struct dv__torch_layout *found);

#endif
