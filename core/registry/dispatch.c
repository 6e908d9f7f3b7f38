/* Dispatch tables and keys. The order in which an entry is looked for is PyTorch's (OperatorEntry's computation of its table):
 * a kernel for the key itself; CompositeExplicitAutograd for backends; CompositeImplicitAutograd, but on an autograd key only
 * when nothing is registered for its backend; Autograd; the backend's fallback, which is a fallthrough for autograd keys;
 * missing.
 *
 * Of several registrations for one key the newest is used. A declaration counts as registered when the operator is defined: rows
 * as a kernel for their device's backend; a contract as one for Meta; a native form as CompositeImplicitAutograd, or, when there
 * is a gradient, CompositeExplicitAutograd (its gradient is not that of the form, then). */
#include "registry/internal.h"

static _Thread_local dv_guard guards_of_thread;
dv_guard *dv__guards(void) { return &guards_of_thread; }

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
        return dv_fail(DV_EINVAL, "dv_key_parse: no %s given: found NULL", name ? "place for the key" : "name");
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
    dv__text all = { 0 };
    for (int i = 0; i < DV_KEY_COUNT; i++)
        dv__text_add(&all, "%s%s", i ? ", " : "", key_names[i]);
    dv_fail(DV_ENOENT, "unknown dispatch key '%s'; there are %s", name, all.data ? all.data : "");
    dv__text_deinit(&all);
    return DV_ENOENT;
}

int dv__backend_of(int32_t device_type)
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

uint32_t dv__keys_of_device(int32_t device_type)
{
    const int backend = dv__backend_of(device_type);
    if (backend == DV_KEY_NONE)
        return 0;
    const uint32_t autograd = backend == DV_KEY_META ? 0 : 1u << (backend + DV_KEY_AUTOGRAD_CPU);
    return 1u << backend | autograd;
}

enum { BACKENDS = (1 << (DV_KEY_META + 1)) - 1 };

uint32_t dv__keys_of_call(uint32_t keys, dv_guard guards)
{
    const uint32_t dense = keys & BACKENDS;
    if (!(guards.included | guards.excluded) && !(dense & (dense - 1)))
        return keys;
    keys |= guards.included;
    const bool computes = (keys & BACKENDS) && !(guards.excluded & BACKENDS);
    const bool autograd = keys >> DV_KEY_AUTOGRAD_CPU && !(guards.excluded >> DV_KEY_AUTOGRAD_CPU);
    const uint32_t backends = (keys & BACKENDS) | keys >> DV_KEY_AUTOGRAD_CPU;
    uint32_t highest = 0;
    for (uint32_t bit = 1; bit <= 1u << DV_KEY_META; bit <<= 1)
        if (backends & bit)
            highest = bit;
    const uint32_t of_autograd = highest & ~(1u << DV_KEY_META); /* AutogradMeta is not a key here */
    return (computes ? highest : 0) | (autograd ? of_autograd << DV_KEY_AUTOGRAD_CPU : 0);
}

static bool is_autograd(int key) { return key >= DV_KEY_AUTOGRAD_CPU && key <= DV_KEY_AUTOGRAD_PRIVATEUSE1; }

static bool has_row_for(const dv__attachment *a, int key)
{
    for (size_t i = 0; i < a->rows.n; i++)
        if (dv__backend_of(a->rows.rows[i]->device_type) == key)
            return true;
    return false;
}

/* The newest attachment that registers exactly this key. */
static const dv__attachment *find_attachment(const dv_operator *op, int key)
{
    for (const dv__attachment *a = op->registration->attached; a; a = a->next)
        if (a->kind == DV__ATTACH_ROWS ? has_row_for(a, key) : a->key == key)
            return a;
    return NULL;
}

/* What the declaration itself registers. */
static bool declares(const dv_operator *op, int key)
{
    switch (key) {
    case DV_KEY_META: return op->contract || op->shape;
    case DV_KEY_COMPOSITE_IMPLICIT_AUTOGRAD: return op->native && !op->gradient;
    case DV_KEY_COMPOSITE_EXPLICIT_AUTOGRAD: return op->native && op->gradient;
    default: return false;
    }
}

static bool registers(const dv_operator *op, int key) { return find_attachment(op, key) || declares(op, key); }

/* Reference rows come last; then by priority; a vendor's rows before the operator's own. */
static bool goes_before(const dv__row *a, const dv__row *b)
{
    const uint32_t reference_a = a->flags & DV_KERNEL_REFERENCE, reference_b = b->flags & DV_KERNEL_REFERENCE;
    if (reference_a != reference_b)
        return !reference_a;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->vendor && !b->vendor;
}

/* All rows for the key. The insertion is stable and attachments are visited newest first, so the newer of two vendors comes
 * first, and each vendor's rows keep their order. */
static size_t collect_rows(const dv_operator *op, int key, const dv__row **rows)
{
    size_t n = 0;
    for (const dv__attachment *a = op->registration->attached; a; a = a->next)
        for (size_t i = 0; i < a->rows.n; i++) {
            const dv__row *row = a->rows.rows[i];
            if (dv__backend_of(row->device_type) != key)
                continue;
            size_t at = n++;
            for (; at > 0 && goes_before(row, rows[at - 1]); at--)
                rows[at] = rows[at - 1];
            rows[at] = row;
        }
    return n;
}

typedef struct filler {
    dv__spare_table *table;
    const dv_operator *op;
    size_t used;
} filler;

/* The entry for the runtime key `to`, from the registration for exactly this key, which may be an alias. */
static void fill_registered(filler *f, int key, int to, const char *from)
{
    dv__entry *e = &f->table->table.entries[to];
    e->from = from;
    const dv__attachment *a = find_attachment(f->op, key);
    if (!a) {
        e->kind = key == DV_KEY_META ? DV__ENTRY_CONTRACT : DV__ENTRY_NATIVE;
    } else if (a->kind == DV__ATTACH_BOXED) {
        e->kind = DV__ENTRY_BOXED;
        e->fn = a->fn;
        e->user = a->user;
    } else if (a->kind == DV__ATTACH_FALLTHROUGH) {
        e->kind = DV__ENTRY_FALLTHROUGH;
    } else {
        const dv__row **rows = f->table->rows + f->used;
        e->kind = DV__ENTRY_ROWS;
        e->nrows = collect_rows(f->op, key, rows);
        e->rows = rows;
        f->used += e->nrows;
    }
}

static void fill_fallback(filler *f, int key)
{
    dv__entry *e = &f->table->table.entries[key];
    e->from = "backend fallback";
    for (const dv_library *lib = dv__registry_libraries(); lib; lib = lib->next)
        if (lib->fallbacks[key].set) {
            e->kind = lib->fallbacks[key].fn ? DV__ENTRY_BOXED : DV__ENTRY_FALLTHROUGH;
            e->fn = lib->fallbacks[key].fn;
            e->user = lib->fallbacks[key].user;
            return;
        }
    e->kind = is_autograd(key) ? DV__ENTRY_FALLTHROUGH : DV__ENTRY_MISSING;
    if (!is_autograd(key))
        e->from = "missing";
}

static void fill_entry(filler *f, int key)
{
    const dv_operator *op = f->op;
    const bool autograd = is_autograd(key);
    if (registers(op, key)) {
        fill_registered(f, key, key, "kernel");
        return;
    }
    const bool explicit_kernel = registers(op, DV_KEY_COMPOSITE_EXPLICIT_AUTOGRAD);
    if (!autograd && explicit_kernel) {
        fill_registered(f, DV_KEY_COMPOSITE_EXPLICIT_AUTOGRAD, key, "default backend kernel");
        return;
    }
    const bool backend_kernel = explicit_kernel || (autograd && registers(op, key - DV_KEY_AUTOGRAD_CPU));
    if (registers(op, DV_KEY_COMPOSITE_IMPLICIT_AUTOGRAD) && !backend_kernel) {
        fill_registered(f, DV_KEY_COMPOSITE_IMPLICIT_AUTOGRAD, key, "math kernel");
        return;
    }
    if (autograd && registers(op, DV_KEY_AUTOGRAD)) {
        fill_registered(f, DV_KEY_AUTOGRAD, key, "autograd kernel");
        return;
    }
    fill_fallback(f, key);
}

void dv__table_fill(dv__spare_table *t, const dv_operator *op)
{
    filler f = { t, op, 0 };
    memset(&t->table, 0, sizeof t->table);
    for (int key = 0; key < DV_KEY_RUNTIME_COUNT; key++) {
        fill_entry(&f, key);
        if (t->table.entries[key].kind != DV__ENTRY_FALLTHROUGH)
            t->table.handled |= 1u << key;
    }
}
