#include "guard.h"

#include <dlfcn.h>

static struct dv__torch_layout guard_layout;
static const struct dv__torch_shims *guard_shims; /* NULL: the guard is off */

void dv__torch_set_guard_layout(const struct dv__torch_layout *found)
{
    guard_shims = NULL;
    if (!found)
        return;
    guard_layout = *found;
    guard_shims = dv__torch_get_shims();
}

uint64_t *dv__torch_get_thread_keys(void)
{
    static _Thread_local uint64_t *keys; /* dlsym() gives the address for the calling thread */
    if (!keys) {
        void *c10 = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
        keys = c10 ? dlsym(c10, "_ZN3c104impl26raw_local_dispatch_key_setE") : NULL;
    }
    return keys;
}

bool dv__torch_is_thread_plain(void)
{
    const uint64_t *keys = guard_shims ? dv__torch_get_thread_keys() : NULL;
    if (!keys)
        return false;
    if (!keys[0])
        return !keys[1] || keys[1] == guard_layout.excluded_below[0] || keys[1] == guard_layout.excluded_below[1];
    return keys[0] == guard_layout.inference_mode[0] && keys[1] == guard_layout.inference_mode[1];
}

bool dv__torch_is_python_thread_plain(void)
{
    return dv__torch_is_thread_plain() && !guard_shims->function_modes() && !guard_shims->has_callbacks();
}

/* Returns the path of a call with a tensor that has autograd data: a parameter, a view or a result. In a kernel below Autograd
 * the data do not matter. Only level 0 of forward-mode derivatives is tested; torch uses no other. */
static enum dv__torch_path guard_choose_autograd_path(const void *handle, bool is_written)
{
    const void *impl = *(const void *const *)handle;
    bool tangent = true;
    if (dv__torch_get_thread_keys()[1])
        return DV__TORCH_PATH_KERNEL;
    if (!guard_shims->fw_grad ||
        guard_shims->aoti_torch_is_defined((void *)(uintptr_t)guard_shims->fw_grad(impl, 0, handle), &tangent) || tangent)
        return DV__TORCH_PATH_DISPATCHER;
    if (!guard_shims->aoti_torch_grad_mode_is_enabled() || !guard_shims->requires_grad(impl))
        return DV__TORCH_PATH_KERNEL;
    return is_written ? DV__TORCH_PATH_DISPATCHER : DV__TORCH_PATH_AUTOGRAD;
}

enum dv__torch_path dv__torch_choose_path(const void *handle, bool is_written)
{
    if (!guard_shims)
        return DV__TORCH_PATH_DISPATCHER;
    const void *impl = *(const void *const *)handle;
    const uint64_t keys = dv__torch_load_word(impl, guard_layout.key_set);
    for (int d = 0; d < DV__TORCH_DEVICES; d++) {
        if (keys == guard_layout.plain_keys[d])
            return dv__torch_load_word(impl, guard_layout.autograd_meta) ? guard_choose_autograd_path(handle, is_written)
                                                                         : DV__TORCH_PATH_KERNEL;
        if (keys == guard_layout.inference_keys[d])
            return !is_written || dv__torch_get_thread_keys()[0] ? DV__TORCH_PATH_KERNEL : DV__TORCH_PATH_DISPATCHER;
    }
    return DV__TORCH_PATH_DISPATCHER;
}

int dv__torch_get_device_kind(const void *handle)
{
    const uint64_t keys = dv__torch_load_word(*(const void *const *)handle, guard_layout.key_set);
    int d = 0;
    while (d + 1 < DV__TORCH_DEVICES && keys != guard_layout.plain_keys[d] && keys != guard_layout.inference_keys[d])
        d++;
    return d;
}

const void *dv__torch_get_storage(const void *handle)
{
    return (const void *)(uintptr_t)dv__torch_load_word(*(const void *const *)handle, guard_layout.storage);
}

bool dv__torch_try_read_tensor(const void *handle, dv_tensor *out)
{
    return guard_shims && dv__torch_try_read_tensor_with(&guard_layout, handle, out);
}

/* Raises the version counter, except for a tensor made in inference mode: such a tensor has none, and torch's bump_version()
 * throws for it outside that mode. */
void dv__torch_bump_version(void *handle)
{
    const uint64_t keys = dv__torch_load_word(*(const void *const *)handle, guard_layout.key_set);
    if (keys == guard_layout.plain_keys[dv__torch_get_device_kind(handle)])
        guard_shims->bump_version(handle);
}
