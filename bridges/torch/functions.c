#include "functions.h"

const struct dv__torch_functions *dv_torch_get_functions(void)
{
    static const struct dv__torch_functions functions = {
        .get_shims = dv__torch_get_shims,
        .get_thread_keys = dv__torch_get_thread_keys,
        .is_python_thread_plain = dv__torch_is_python_thread_plain,
        .choose_path = dv__torch_choose_path,
        .get_device_kind = dv__torch_get_device_kind,
        .get_storage = dv__torch_get_storage,
        .bump_version = dv__torch_bump_version,
        .set_guard_layout = dv__torch_set_guard_layout,
        .call_begin = dv__torch_call_begin,
        .describe_tensor = dv__torch_describe_tensor,
        .call_end = dv__torch_call_free_memory,
        .set_python_fn = dv__torch_set_python_fn,
        .release_cell = dv__torch_release_cell,
        .release_arguments = dv__torch_release_arguments,
        .box_optional = dv__torch_box_optional,
    };
    return &functions;
}
