/* Dispatch tables and keys. The entry for a key is the first that exists, in PyTorch's order (c10's OperatorEntry.cpp,
 * computeDispatchTableEntryWithDebug()):
 * - a kernel registered for the key itself;
 * - CompositeExplicitAutograd, for backends;
 * - CompositeImplicitAutograd, for an autograd key only if nothing is registered for its backend;
 * - Autograd, for autograd keys;
 * - the backend's fallback, which for autograd keys is a fallthrough;
 * - missing.
 *
 * Of several registrations for one key the newest is used. A declaration registers with the definition of its operator: kernels
 * for their device's backend, a contract for Meta, a decomposition for CompositeImplicitAutograd. If the operator declares a
 * gradient, the decomposition is registered for CompositeExplicitAutograd, since autograd must not differentiate it. */
#include "registry/registry_internal.h"

static _Thread_local dv_guard thread_guards;
dv_guard *dv__guards(void) { return &thread_guards; }

dv_guard dv_guard_push(uint32_t include_keys, uint32_t exclude_keys)
{
    const dv_guard previous = *dv__guards();
    dv__guards()->included |= include_keys;
    dv__guards()->excluded |= exclude_keys;
    return previous;
}

void dv_guard_pop(dv_guard previous) { *dv__guards() = previous; }

static const char *const key_names[DV_KEY_COUNT] = {
    [DV_KEY_CPU] = "CPU",
    [DV_KEY_CUDA] = "CUDA",
    [DV_KEY_PRIVATEUSE1] = "PrivateUse1",
    [DV_KEY_META] = "Meta",
    [DV_KEY_AUTOGRAD_CPU] = "AutogradCPU",
    [DV_KEY_AUTOGRAD_CUDA] = "AutogradCUDA",
    [DV_KEY_AUTOGRAD_PRIVATEUSE1] = "AutogradPrivateUse1",
    [DV_KEY_AUTOGRAD] = "Autograd",
    [DV_KEY_COMPOSITE_IMPLICIT_AUTOGRAD] = "CompositeImplicitAutograd",
    [DV_KEY_COMPOSITE_EXPLICIT_AUTOGRAD] = "CompositeExplicitAutograd",
};

const char *dv_key_name(int key) { return key >= 0 && key < DV_KEY_COUNT ? key_names[key] : "no key"; }

int dv_key_parse(const char *name, int *key)
{
    if (!name || !key)
        return dv_fail(DV_EINVAL, "dv_key_parse: no %s given: found NULL", name ? "pointer for the key" : "name");
    *key = DV_KEY_NONE;
    for (int i = 0; i < DV_KEY_COUNT; i++)
        if (!strcmp(name, key_names[i])) {
            *key = i;
            return DV_OK;
        }
    if (!strcmp(name, "NPU")) {
        *key = DV_KEY_PRIVATEUSE1;
        return DV_OK;
    }
    dv__strbuf all = { 0 };
    for (int i = 0; i < DV_KEY_COUNT; i++)
        dv__strbuf_printf(&all, "%s%s", i ? ", " : "", key_names[i]);
    dv_fail(DV_ENOENT, "unknown dispatch key '%s'; there are %s", name, all.data ? all.data : "");
    dv__strbuf_deinit(&all);
    return DV_ENOENT;
}

int dv__backend_key_of_device(int32_t device_type)
{
    switch (device_type) {
    case DV_CPU:
    case DV_CUDA_HOST: return DV_KEY_CPU; /* pinned memory belongs to the CPU, as in PyTorch */
    case DV_CUDA:
    case DV_CUDA_MANAGED:
    case DV_ROCM: return DV_KEY_CUDA; /* PyTorch calls ROCm devices CUDA */
    case DV_NPU: return DV_KEY_PRIVATEUSE1;
    case DV_META: return DV_KEY_META;
    default: return DV_KEY_NONE;
    }
}

uint32_t dv__dispatch_keys_of_device(int32_t device_type)
{
    const int backend = dv__backend_key_of_device(device_type);
    if (backend == DV_KEY_NONE)
        return 0;
    const uint32_t autograd = backend == DV_KEY_META ? 0 : 1u << (backend + DV_KEY_AUTOGRAD_CPU);
    return 1u << backend | autograd;
}

enum { BACKEND_KEYS = (1 << (DV_KEY_META + 1)) - 1 };

uint32_t dv__dispatch_keys_of_call(uint32_t tensor_keys, dv_guard guards)
{
    const uint32_t dense = tensor_keys & BACKEND_KEYS;
    if (!(guards.included | guards.excluded) && !(dense & (dense - 1)))
        return tensor_keys;
    tensor_keys |= guards.included;
    const bool computes = (tensor_keys & BACKEND_KEYS) && !(guards.excluded & BACKEND_KEYS);
    const bool autograd = tensor_keys >> DV_KEY_AUTOGRAD_CPU && !(guards.excluded >> DV_KEY_AUTOGRAD_CPU);
    const uint32_t backends = (tensor_keys & BACKEND_KEYS) | tensor_keys >> DV_KEY_AUTOGRAD_CPU;
    uint32_t highest = 0;
    for (uint32_t bit = 1; bit <= 1u << DV_KEY_META; bit <<= 1)
        if (backends & bit)
            highest = bit;
    const uint32_t of_autograd = highest & ~(1u << DV_KEY_META); /* enum dv_key has no AutogradMeta */
    return (computes ? highest : 0) | (autograd ? of_autograd << DV_KEY_AUTOGRAD_CPU : 0);
}

static bool dispatch_is_autograd_key(int key) { return key >= DV_KEY_AUTOGRAD_CPU && key <= DV_KEY_AUTOGRAD_PRIVATEUSE1; }

/* True if one of the attachment's kernels is for a device of this backend key. */
static bool dispatch_has_kernel_for_key(const dv__attachment *a, int key)
{
    for (size_t i = 0; i < a->kernels.nkernels; i++)
        if (dv__backend_key_of_device(a->kernels.kernels[i]->device_type) == key)
            return true;
    return false;
}

/* Returns the newest attachment that registers exactly this key; NULL: none. */
static const dv__attachment *dispatch_find_attachment(const dv_operator *op, int key)
{
    for (const dv__attachment *a = op->registry_record->attached; a; a = a->next)
        if (a->kind == DV__ATTACH_KERNELS ? dispatch_has_kernel_for_key(a, key) : a->key == key)
            return a;
    return NULL;
}

/* True if the operator's declaration registers this key, by a contract, shape function or decomposition. */
static bool dispatch_declaration_registers_key(const dv_operator *op, int key)
{
    switch (key) {
    case DV_KEY_META: return op->contract || op->shape;
    case DV_KEY_COMPOSITE_IMPLICIT_AUTOGRAD: return op->decomposition && !op->gradient;
    case DV_KEY_COMPOSITE_EXPLICIT_AUTOGRAD: return op->decomposition && op->gradient;
    default: return false;
    }
}

static bool dispatch_is_key_registered(const dv_operator *op, int key)
{
    return dispatch_find_attachment(op, key) || dispatch_declaration_registers_key(op, key);
}

/* True if kernel a is tried before kernel b. Reference kernels come last. Then the higher priority comes first, then a
 * vendor's kernel before the operator's own. False for equal ones. */
static bool dispatch_is_tried_before(const dv__kernel *a, const dv__kernel *b)
{
    const uint32_t reference_a = a->flags & DV_KERNEL_REFERENCE, reference_b = b->flags & DV_KERNEL_REFERENCE;
    if (reference_a != reference_b)
        return !reference_a;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->is_from_vendor && !b->is_from_vendor;
}

/* Collects all kernels for the backend key, in the order in which they are tried. Returns their number. The insertion is
 * stable and attachments are visited newest first. So the newer of two vendors comes first, and each vendor's kernels keep
 * their order. */
static size_t dispatch_collect_and_count_kernels(const dv_operator *op, int key, const dv__kernel **kernels)
{
    size_t n = 0;
    for (const dv__attachment *a = op->registry_record->attached; a; a = a->next)
        for (size_t i = 0; i < a->kernels.nkernels; i++) {
            const dv__kernel *kernel = a->kernels.kernels[i];
            if (dv__backend_key_of_device(kernel->device_type) != key)
                continue;
            size_t at = n++;
            for (; at > 0 && dispatch_is_tried_before(kernel, kernels[at - 1]); at--)
                kernels[at] = kernels[at - 1];
            kernels[at] = kernel;
        }
    return n;
}

typedef struct table_builder {
    dv__spare_table *table;
    const dv_operator *op;
    size_t used;
} table_builder;

/* Fills the entry of runtime_key from what is registered for registered_key, which may be an alias key such as Autograd: the
 * newest function or fallthrough, or the kernels of all attachments, newest first. origin_text: names the registration in the
 * table's printed form. */
static void dispatch_fill_from_registration(table_builder *builder, int registered_key, int runtime_key, const char *origin_text)
{
    dv__dispatch_entry *e = &builder->table->table.entries[runtime_key];
    e->from = origin_text;
    const dv__attachment *a = dispatch_find_attachment(builder->op, registered_key);
    if (!a) {
        e->kind = registered_key == DV_KEY_META ? DV__ENTRY_CONTRACT : DV__ENTRY_DECOMPOSITION;
    } else if (a->kind == DV__ATTACH_BOXED) {
        e->kind = DV__ENTRY_BOXED;
        e->fn = a->fn;
        e->user = a->user;
    } else if (a->kind == DV__ATTACH_FALLTHROUGH) {
        e->kind = DV__ENTRY_FALLTHROUGH;
    } else {
        const dv__kernel **kernels = builder->table->kernels + builder->used;
        e->kind = DV__ENTRY_KERNELS;
        e->nkernels = dispatch_collect_and_count_kernels(builder->op, registered_key, kernels);
        e->kernels = kernels;
        builder->used += e->nkernels;
    }
}

/* Fills the entry of a key from the newest library that has a fallback for it; else an autograd key is a fallthrough, and
 * another key is missing. */
static void dispatch_fill_fallback(table_builder *builder, int key)
{
    dv__dispatch_entry *e = &builder->table->table.entries[key];
    e->from = "backend fallback";
    for (const dv_library *lib = dv__registry_find_newest_library(); lib; lib = lib->next)
        if (lib->fallbacks[key].is_set) {
            e->kind = lib->fallbacks[key].fn ? DV__ENTRY_BOXED : DV__ENTRY_FALLTHROUGH;
            e->fn = lib->fallbacks[key].fn;
            e->user = lib->fallbacks[key].user;
            return;
        }
    e->kind = dispatch_is_autograd_key(key) ? DV__ENTRY_FALLTHROUGH : DV__ENTRY_MISSING;
    if (!dispatch_is_autograd_key(key))
        e->from = "missing";
}

static void dispatch_fill_entry(table_builder *builder, int key)
{
    const dv_operator *op = builder->op;
    const bool autograd = dispatch_is_autograd_key(key);
    if (dispatch_is_key_registered(op, key)) {
        dispatch_fill_from_registration(builder, key, key, "kernel");
        return;
    }
    const bool explicit_kernel = dispatch_is_key_registered(op, DV_KEY_COMPOSITE_EXPLICIT_AUTOGRAD);
    if (!autograd && explicit_kernel) {
        dispatch_fill_from_registration(builder, DV_KEY_COMPOSITE_EXPLICIT_AUTOGRAD, key, "default backend kernel");
        return;
    }
    const bool backend_kernel = explicit_kernel || (autograd && dispatch_is_key_registered(op, key - DV_KEY_AUTOGRAD_CPU));
    if (dispatch_is_key_registered(op, DV_KEY_COMPOSITE_IMPLICIT_AUTOGRAD) && !backend_kernel) {
        dispatch_fill_from_registration(builder, DV_KEY_COMPOSITE_IMPLICIT_AUTOGRAD, key, "math kernel");
        return;
    }
    if (autograd && dispatch_is_key_registered(op, DV_KEY_AUTOGRAD)) {
        dispatch_fill_from_registration(builder, DV_KEY_AUTOGRAD, key, "autograd kernel");
        return;
    }
    dispatch_fill_fallback(builder, key);
}

void dv__dispatch_table_fill(dv__spare_table *table, const dv_operator *op)
{
    table_builder f = { table, op, 0 };
    memset(&table->table, 0, sizeof table->table);
    for (int key = 0; key < DV_KEY_RUNTIME_COUNT; key++) {
        dispatch_fill_entry(&f, key);
        if (table->table.entries[key].kind != DV__ENTRY_FALLTHROUGH)
            table->table.handled_keys |= 1u << key;
    }
}
