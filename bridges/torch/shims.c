/* Looks up libtorch's functions. libtorch_cpu.so must already be in the process: a dlopen() of the file could load a second
 * torch. */
#include "shims.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { OPTIONAL, REQUIRED };

static struct dv__torch_shims shims_table;
static pthread_mutex_t shims_lock = PTHREAD_MUTEX_INITIALIZER;
static bool shims_ready;

/* Stores the address of libtorch's function `name` in the function pointer at symbol_out; NULL: libtorch lacks it. Returns
 * DV_EABI, with the torch version that first had it, if it is missing and REQUIRED. */
static int shims_find_symbol(void *lib, const char *name, const char *since_version, int need, void *symbol_out)
{
    void *symbol = dlsym(lib, name);
    memcpy(symbol_out, &symbol, sizeof symbol);
    if (symbol || need == OPTIONAL)
        return DV_OK;
    return dv_fail(DV_EABI, "this torch is too old: Dovetail needs 2.10 or later (libtorch has no %s, which came with torch %s)",
        name, since_version);
}

/* Stores torch's number of a dtype, device or layout, which the libtorch function getter_name returns; -1: libtorch has no such
 * function. Returns a status. */
static int shims_find_number_by_getter(void *lib, const char *getter_name, int need, int32_t *number_out)
{
    int32_t (*get)(void);
    const int status = shims_find_symbol(lib, getter_name, "2.10", need, &get);
    *number_out = get ? get() : -1;
    return status;
}

/* Fills t->dtype_key. torch's numbers are looked up, never assumed: this torch has no dtype whose number no function returns. */
static void shims_set_dtype_keys(void *lib, struct dv__torch_shims *t)
{
    static const char *const getters[] = { "aoti_torch_dtype_%s", "torch_dtype_%s" };
    const dv_dtype_row *row;
    char name[80];
    for (size_t i = 0; (row = dv_dtype_at(i)); i++)
        for (size_t k = 0; k < 2; k++) {
            int32_t n;
            snprintf(name, sizeof name, getters[k], dv_dtype_long_name(row->dtype));
            if (!shims_find_number_by_getter(lib, name, OPTIONAL, &n) && n >= 0 && n < DV_TORCH_MAX_DTYPE)
                t->dtype_key[n] = dv_dtype_key(row->dtype);
        }
}

/* Sets torch's numbers of devices, layout and memory formats. Returns a status. */
static int shims_set_numbers(void *lib, struct dv__torch_shims *t)
{
    const struct {
        const char *name;
        int32_t *to;
    } numbers[] = {
        { "aoti_torch_device_type_cpu", &t->cpu },
        { "aoti_torch_device_type_cuda", &t->cuda },
        { "aoti_torch_device_type_privateuse1", &t->privateuse1 },
        { "aoti_torch_device_type_meta", &t->meta },
        { "aoti_torch_layout_strided", &t->strided_layout },
        { "aoti_torch_memory_format_contiguous_format", &t->contiguous_format },
        { "aoti_torch_memory_format_preserve_format", &t->preserve_format },
        { "aoti_torch_memory_format_channels_last", &t->channels_last },
        { "aoti_torch_memory_format_channels_last_3d", &t->channels_last_3d },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const int status = shims_find_number_by_getter(lib, numbers[i].name, REQUIRED, numbers[i].to);
        if (status)
            return status;
    }
    return DV_OK;
}

/* Finds the numbers of two dispatch keys, which differ between versions of torch, by their names. If a name or function is
 * missing, all three functions for keys become NULL. */
static void shims_set_dispatch_keys(struct dv__torch_shims *t)
{
    enum { KEYS = 160 }; /* more than torch has keys; a number without a key has a special name */
    for (uint16_t k = 1; t->key_name && k < KEYS; k++) {
        const char *name = t->key_name(k);
        if (!strcmp(name, "AutogradCPU"))
            t->autograd_key = k;
        else if (!strcmp(name, "ADInplaceOrView"))
            t->inplace_or_view_key = k;
    }
    if (!t->autograd_key || !t->inplace_or_view_key || !t->key_excluded || !t->exclude_key) {
        t->key_excluded = NULL;
        t->exclude_key = NULL;
        t->key_name = NULL;
    }
}

/* Looks up C++ functions by their mangled names. A symbol that this torch lacks leaves its pointer in *t NULL. */
static void shims_set_cpp_functions(void *lib, struct dv__torch_shims *t)
{
    void *c10 = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD), *cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    const void *(*context)(void) = NULL;
    const struct {
        void *lib;
        const char *name;
        void *to;
    } symbols[] = {
        { lib, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", &t->bump_version },
        { lib, "_ZNK2at10TensorBase7is_leafEv", &t->is_leaf },
        { lib, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", &t->function_modes },
        { lib, "_ZN2at13globalContextEv", &context },
        { lib, "_ZNK2at7Context23deterministicAlgorithmsEv", &t->deterministic },
        { lib, "_ZN2at12hasCallbacksEv", &t->has_callbacks },
        { c10, "_ZNK3c1010TensorImpl13requires_gradEv", &t->requires_grad },
        { c10, "_ZNK3c1010TensorImpl8_fw_gradEmRKN2at10TensorBaseE", &t->fw_grad },
        { lib, "_ZN2at6native13resize_outputERKNS_6TensorEN3c108ArrayRefIlEE", &t->resize_output },
        { c10, "_ZN3c104impl28tls_is_dispatch_key_excludedENS_11DispatchKeyE", &t->key_excluded },
        { c10, "_ZN3c104impl29tls_set_dispatch_key_excludedENS_11DispatchKeyEb", &t->exclude_key },
        { c10, "_ZN3c108toStringENS_11DispatchKeyE", &t->key_name },
        { lib, "_Znwm", &t->operator_new }, /* from libstdc++: dlsym also searches libtorch's dependencies */
        { lib, "_ZdlPv", &t->operator_delete },
        { cuda, "aoti_torch_get_current_cuda_stream", &t->current_cuda_stream },
        { cuda, "cudaStreamIsCapturing", &t->stream_is_capturing }, /* from libcudart, a dependency of libtorch_cuda */
        { cuda, "aoti_torch_cuda_randint_generator", &t->cuda_randint_generator },
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (symbols[i].lib)
            (void)shims_find_symbol(symbols[i].lib, symbols[i].name, "", OPTIONAL, symbols[i].to);
    if (context && t->deterministic)
        t->context = context();
    shims_set_dispatch_keys(t);
}

/* Fills the whole table from the libtorch in this process. Returns a status: DV_ENOENT without libtorch, DV_EABI if a required
 * function is missing. */
static int shims_set_all(struct dv__torch_shims *t)
{
    void *lib = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!lib)
        return dv_fail(DV_ENOENT, "no libtorch in this process: import torch (or link it) first");
    int status = DV_OK;
#define SHIM(since, need, ret, name, params) \
    if (!status)                             \
        status = shims_find_symbol(lib, #name, since, need, &t->name);
#include "shims.def"
#undef SHIM
    if (!status)
        status = shims_set_numbers(lib, t);
    if (!status)
        shims_set_dtype_keys(lib, t);
    shims_set_cpp_functions(lib, t);
    if (!status && !t->torch_delete_stable_ivalue && !(t->operator_new && t->operator_delete))
        status = dv_fail(
            DV_EABI, "libtorch has no torch_delete_stable_ivalue (needs torch 2.13), and C++'s new and delete were not found");
    return status;
}

const struct dv__torch_shims *dv__torch_get_shims(void)
{
    int status = DV_OK;
    pthread_mutex_lock(&shims_lock);
    if (!shims_ready) {
        memset(&shims_table, 0, sizeof shims_table);
        status = shims_set_all(&shims_table);
        shims_ready = status == DV_OK;
    }
    pthread_mutex_unlock(&shims_lock);
    return status ? NULL : &shims_table;
}

int dv_torch_available(void)
{
    if (dv__torch_get_shims())
        return DV_OK;
    return dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD) ? DV_EABI : DV_ENOENT;
}

const char *dv__torch_get_last_error(const struct dv__torch_shims *t)
{
    const char *what = t->torch_exception_get_what_without_backtrace ? t->torch_exception_get_what_without_backtrace() : NULL;
    return what && *what ? what : "libtorch gave no reason";
}

int32_t dv__torch_find_tag_number(const char *name, size_t name_size)
{
    static const char *const tag_names[] = {
#define TAG(tag) #tag,
#include "tags.def"
#undef TAG
    };
    char symbol[64];
    int32_t n = -1;
    void *lib = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    for (size_t i = 0; lib && i < sizeof tag_names / sizeof *tag_names; i++)
        if (strlen(tag_names[i]) == name_size && !memcmp(tag_names[i], name, name_size)) {
            snprintf(symbol, sizeof symbol, "torch_tag_%s", tag_names[i]);
            (void)shims_find_number_by_getter(lib, symbol, OPTIONAL, &n);
        }
    return n;
}

int32_t dv__torch_get_dtype_number(const struct dv__torch_shims *t, dv_dtype dtype)
{
    const uint32_t key = dv_dtype_key(dtype);
    for (int32_t i = 0; i < DV_TORCH_MAX_DTYPE; i++)
        if (t->dtype_key[i] == key)
            return i;
    return -1;
}

bool dv__torch_try_find_dtype_by_number(const struct dv__torch_shims *t, int32_t torch_number, dv_dtype *out)
{
    if (torch_number < 0 || torch_number >= DV_TORCH_MAX_DTYPE || !t->dtype_key[torch_number])
        return false;
    *out = dv_dtype_from_key(t->dtype_key[torch_number]);
    return true;
}

int32_t dv__torch_get_device_type_number(const struct dv__torch_shims *t, int32_t dovetail_device_type)
{
    switch (dovetail_device_type) {
    case DV_CPU: return t->cpu;
    case DV_CUDA: return t->cuda;
    case DV_NPU: return t->privateuse1;
    case DV_META: return t->meta;
    default: return -1;
    }
}

int32_t dv__torch_find_device_type_by_number(const struct dv__torch_shims *t, int32_t torch_number)
{
    return torch_number == t->cpu        ? DV_CPU
        : torch_number == t->cuda        ? DV_CUDA
        : torch_number == t->privateuse1 ? DV_NPU
        : torch_number == t->meta        ? DV_META
                                         : 0;
}
