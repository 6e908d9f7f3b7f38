#include "guard.h"

#include <dlfcn.h>

static struct dv__torch_layout layout;
static const struct dv__torch_shims *shims; /* NULL: the guard is off */

void dv__torch_guard_set(const struct dv__torch_layout *found)
{
    shims = NULL;
    if (!found)
        return;
    layout = *found;
    shims = dv__torch_shims();
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

bool dv__torch_python_is_plain(void)
{
    return dv__torch_thread_is_plain() && !shims->function_modes() && !shims->has_callbacks();
}

/* The tensor has autograd data: a parameter, a view or a result. Below autograd this does not matter. Only level 0 of
 * forward-mode derivatives is used by torch. */
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
    const uint64_t keys = dv__torch_word(impl, layout.key_set);
    for (int d = 0; d < DV__TORCH_DEVICES; d++) {
        if (keys == layout.ordinary[d])
            return dv__torch_word(impl, layout.autograd_meta) ? way_with_autograd(handle, written) : DV__TORCH_PLAIN;
        if (keys == layout.inference[d])
            return !written || dv__torch_thread_keys()[0] ? DV__TORCH_PLAIN : DV__TORCH_OTHER;
    }
    return DV__TORCH_OTHER;
}

int dv__torch_device_of(const void *handle)
{
    const uint64_t keys = dv__torch_word(*(const void *const *)handle, layout.key_set);
    int d = 0;
    while (d + 1 < DV__TORCH_DEVICES && keys != layout.ordinary[d] && keys != layout.inference[d])
        d++;
    return d;
}

const void *dv__torch_storage_of(const void *handle)
{
    return (const void *)(uintptr_t)dv__torch_word(*(const void *const *)handle, layout.storage);
}

bool dv__torch_read(const void *handle, dv_tensor *t) { return shims && dv__torch_read_at(&layout, handle, t); }

/* Tensors made in inference mode have no counter, and counting throws outside of it. */
void dv__torch_count_write(void *handle)
{
    const uint64_t keys = dv__torch_word(*(const void *const *)handle, layout.key_set);
    if (keys == layout.ordinary[dv__torch_device_of(handle)])
        shims->bump_version(handle);
}

const struct dv__torch_inside *dv_torch_inside(void)
{
    static const struct dv__torch_inside inside = { dv__torch_shims, dv__torch_thread_keys, dv__torch_python_is_plain,
        dv__torch_way_of, dv__torch_device_of, dv__torch_storage_of, dv__torch_count_write, dv__torch_guard_set,
        dv__torch_call_begin, dv__torch_view, dv__torch_call_end };
    return &inside;
}
