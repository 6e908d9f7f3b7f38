#include "guard.h"

#include <dlfcn.h>

static struct dv__torch_layout layout;
static dv_dtype dtypes[DV_TORCH_MAX_DTYPE]; /* by torch's number; bits 0: none of ours */
static const struct dv__torch_shims *shims; /* NULL: the guard is off */

static uint64_t word_at(const void *base, size_t offset)
{
    uint64_t w;
    memcpy(&w, (const char *)base + offset, sizeof w);
    return w;
}

void dv__torch_guard_set(const struct dv__torch_layout *found)
{
    shims = NULL;
    if (!found)
        return;
    layout = *found;
    const struct dv__torch_shims *t = dv__torch_shims();
    for (int32_t i = 0; t && i < DV_TORCH_MAX_DTYPE; i++)
        (void)dv__torch_dtype_from(t, i, &dtypes[i]);
    shims = t;
}

uint64_t *dv__torch_thread_keys(void)
{
    static _Thread_local uint64_t *keys; /* dlsym gives the calling thread's own */
    if (!keys) {
        void *c10 = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
        keys = c10 ? dlsym(c10, "_ZN3c104impl26raw_local_dispatch_key_setE") : NULL;
    }
    return keys;
}

bool dv__torch_thread_is_plain(void)
{
    const uint64_t *keys = shims ? dv__torch_thread_keys() : NULL;
    if (!keys)
        return false;
    if (!keys[0])
        return !keys[1] || keys[1] == layout.below[0] || keys[1] == layout.below[1];
    return keys[0] == layout.inference_mode[0] && keys[1] == layout.inference_mode[1];
}

bool dv__torch_python_is_plain(void) { return dv__torch_thread_is_plain() && !shims->function_modes() && !shims->has_callbacks(); }

/* Autograd knows something of it: a parameter, a view, a result. Below autograd that is nothing to us. Only level 0 of forward-mode
 * derivatives is in use. */
static enum dv__torch_way way_with_autograd(const void *handle, bool written)
{
    const void *impl = *(const void *const *)handle;
    bool tangent = true;
    if (dv__torch_thread_keys()[1])
        return DV__TORCH_PLAIN;
    if (!shims->fw_grad || shims->aoti_torch_is_defined((void *)(uintptr_t)shims->fw_grad(impl, 0, handle), &tangent) || tangent)
        return DV__TORCH_OTHER;
    if (!shims->aoti_torch_grad_mode_is_enabled() || !shims->requires_grad(impl))
        return DV__TORCH_PLAIN;
    return written ? DV__TORCH_OTHER : DV__TORCH_GRADIENT;
}

enum dv__torch_way dv__torch_way_of(const void *handle, bool written)
{
    if (!shims)
        return DV__TORCH_OTHER;
    const void *impl = *(const void *const *)handle;
    const uint64_t keys = word_at(impl, layout.key_set);
    for (int d = 0; keys && d < DV__TORCH_DEVICES; d++) {
        if (keys == layout.ordinary[d])
            return word_at(impl, layout.autograd_meta) ? way_with_autograd(handle, written) : DV__TORCH_PLAIN;
        if (keys == layout.inference[d])
            return !written || dv__torch_thread_keys()[0] ? DV__TORCH_PLAIN : DV__TORCH_OTHER;
    }
    return DV__TORCH_OTHER;
}

int dv__torch_device_of(const void *handle)
{
    const uint64_t keys = word_at(*(const void *const *)handle, layout.key_set);
    return keys == layout.ordinary[0] || keys == layout.inference[0] ? 0 : 1;
}

const void *dv__torch_storage_of(const void *handle) { return (const void *)(uintptr_t)word_at(*(const void *const *)handle, layout.storage); }

/* c10::impl::SizesAndStrides: the number of dims, then sizes and strides, of five dims each, or a pointer to both. */
bool dv__torch_read(const void *handle, dv_tensor *t)
{
    enum { INLINE_DIMS = 5 };
    const char *impl = *(const char *const *)handle;
    const uint64_t keys = word_at(impl, layout.key_set);
    if (!shims || !layout.ndim || !keys || (keys != layout.ordinary[0] && keys != layout.inference[0]))
        return false;
    const char *storage = (const char *)(uintptr_t)word_at(impl, layout.storage);
    uint16_t number;
    memcpy(&number, impl + layout.dtype, sizeof number);
    if (!storage || storage[layout.checked] || number >= DV_TORCH_MAX_DTYPE || !dtypes[number].bits)
        return false;
    const size_t ndim = word_at(impl, layout.ndim);
    int64_t *sizes = (int64_t *)(uintptr_t)(impl + layout.ndim + 8);
    if (ndim > INLINE_DIMS)
        sizes = (int64_t *)(uintptr_t)word_at(sizes, 0);
    t->ndim = (int32_t)ndim;
    t->shape = sizes;
    t->strides = sizes + (ndim > INLINE_DIMS ? ndim : INLINE_DIMS);
    t->byte_offset = 0;
    t->dtype = dtypes[number];
    t->device.type = DV_CPU;
    t->device.id = 0;
    t->data = (char *)(uintptr_t)word_at(storage, layout.data) + word_at(impl, layout.offset) * (uint64_t)(t->dtype.bits / 8 * t->dtype.lanes);
    for (size_t i = 0; i < ndim; i++)
        if (!sizes[i])
            t->data = NULL; /* as torch says it of empty ones */
    return true;
}

/* Tensors made in inference mode have no counter, and counting throws outside of it. */
void dv__torch_count_write(void *handle)
{
    const uint64_t keys = word_at(*(const void *const *)handle, layout.key_set);
    if (keys == layout.ordinary[0] || keys == layout.ordinary[1])
        shims->bump_version(handle);
}

const struct dv__torch_inside *dv_torch_inside(void)
{
    static const struct dv__torch_inside inside = { dv__torch_shims, dv__torch_thread_keys, dv__torch_python_is_plain, dv__torch_way_of,
        dv__torch_device_of, dv__torch_storage_of, dv__torch_count_write, dv__torch_guard_set,
        dv__torch_call_begin, dv__torch_view, dv__torch_call_end };
    return &inside;
}
