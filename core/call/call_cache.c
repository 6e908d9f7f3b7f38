/* Call cache: a per-thread memo of validated calls.
 *
 * A contract depends on the tensors' dtypes, shapes, strides and devices and on the other values, not on addresses. A call
 * is stored when two calls in a row with the same key each ran one kernel over contiguous tensors. A later call with equal
 * values skips the contract and the selection of the kernel. Properties of addresses are tested in each call: overlaps,
 * missing memory, read-only results. The dispatch table, the policy and the instruction sets are compared with those of the
 * stored call.
 *
 * Each thread has its own entries, so that no lock is needed. */
#include "call/call_cache.h"

#include "call/call_error.h"
#include "call/frame.h"
#include "call/host_tensor.h"
#include "call/memory.h"
#include "call/results.h"
#include "call/split.h"

enum { CACHE_ENTRIES = 16, CACHE_MAX_SLOTS = 8, CACHE_MAX_DIMS = 5 };

/* Metadata of one tensor. `device`, and ndim with dtype, are words of 8 bytes copied from dv_tensor, so that one comparison
 * tests each. */
typedef struct cached_tensor {
    uint64_t device, ndim_dtype;
    int64_t shape[CACHE_MAX_DIMS], strides[CACHE_MAX_DIMS];
    uint64_t bytes;
} cached_tensor;

struct dv__call_cache_entry {
    uint64_t last_key;         /* key of the latest call that could be stored in this entry */
    uint64_t signature_serial; /* serial of the operator's signature; 0: the entry is empty */
    int nreaders; /* number of running calls that use the entry; while it is not 0 the entry is not replaced, because a host's
                   * allocator may call operators */
    const dv__dispatch_table *table;
    const dv__kernel *kernel;
    dv__isas isas; /* the value of dv__isa_limit() when the call was stored */
    uint32_t host_flags;
    dv_device device;
    int64_t workspace;
    bool exceeds_cache;
    uint32_t nargs;                        /* number of passed arguments; further ones had their defaults */
    uint8_t value_types[CACHE_MAX_SLOTS];  /* by slot: enum dv_value_type of the value that the caller passed */
    dv_value passed_args[CACHE_MAX_SLOTS]; /* by slot: the passed value, if it is no tensor */
    dv_value values[CACHE_MAX_SLOTS];      /* by argument: the value after defaults and conversions, if it is no tensor */
    bool is_alias[CACHE_MAX_SLOTS];        /* by result: the result is an argument itself */
    cached_tensor tensors[CACHE_MAX_SLOTS];
};
typedef struct dv__call_cache_entry cache_entry;

static _Thread_local cache_entry thread_entries[CACHE_ENTRIES];
DV__TLS_ACCESSOR static cache_entry *call_cache_entries(void) { return thread_entries; }

static uint64_t call_cache_load_word(const void *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* Returns the key of a call: a hash of the operator and the first argument's sizes. The key's highest bits select an entry, and
 * every value of the call is compared with that entry. */
static uint64_t call_cache_compute_key(const dv_operator *op, const dv_value *args, size_t nargs)
{
    static const uint64_t hash_multiplier = 0x9e3779b97f4a7c15u;
    const dv_tensor *t = nargs && args[0].type == DV_VALUE_TENSOR ? args[0].as.tensor : NULL;
    uint64_t h = op->signature->serial * hash_multiplier;
    const int32_t n = t && t->shape && t->ndim <= CACHE_MAX_DIMS ? t->ndim : 0;
    for (int32_t i = 0; i < n; i++)
        h = (h ^ (uint64_t)t->shape[i]) * hash_multiplier;
    return h;
}

static bool call_cache_tensor_metadata_equals(const cached_tensor *stored, const dv_tensor *t)
{
    if (call_cache_load_word(&t->device) != stored->device || call_cache_load_word(&t->ndim) != stored->ndim_dtype ||
        (t->ndim && (!t->shape || !t->strides)))
        return false;
    for (int32_t i = 0; i < t->ndim; i++)
        if (t->shape[i] != stored->shape[i] || t->strides[i] != stored->strides[i])
            return false;
    return true;
}

/* True if two values of one type are equal; numbers are compared by bits. False for types that are never stored. */
static bool call_cache_values_are_equal(const dv_value *a, const dv_value *b)
{
    switch (a->type) {
    case DV_VALUE_INT:
    case DV_VALUE_FLOAT: return call_cache_load_word(&a->as) == call_cache_load_word(&b->as); /* by bits: -0.0 and NaN too */
    case DV_VALUE_BOOL: return a->as.b == b->as.b;
    case DV_VALUE_DEFAULT:
    case DV_VALUE_NONE: return true;
    case DV_VALUE_DTYPE: return dv_dtype_key(a->as.dtype) == dv_dtype_key(b->as.dtype);
    default: return false; /* values of other types are never stored */
    }
}

/* Sets c->tensors and c->spans of the slot. Returns true if the slot's value v equals that of the stored call in all but
 * addresses. */
static bool call_cache_try_match_slot(dv__call *c, const cache_entry *e, size_t slot, const dv_value *v)
{
    c->tensors[slot] = NULL;
    if (v->type != e->value_types[slot])
        return false;
    if (v->type != DV_VALUE_TENSOR)
        return call_cache_values_are_equal(v, &e->passed_args[slot]);
    const dv_tensor *t = v->as.tensor;
    const uint64_t bytes = e->tensors[slot].bytes;
    if (!t || !call_cache_tensor_metadata_equals(&e->tensors[slot], t) || (!t->data && bytes))
        return false;
    c->tensors[slot] = t;
    c->spans[slot] = (dv__span){ (uintptr_t)t->data, (uintptr_t)t->data + bytes };
    return true;
}

/* Sets c->tensors and c->spans of all slots; the tensor of a new result is NULL. Returns true if the call equals the stored call
 * in all but addresses. */
static bool call_cache_try_match_call(dv__call *c, const cache_entry *e, const dv_value *args, const dv_value *results)
{
    const size_t n = c->signature->nargs;
    for (size_t i = 0; i < e->nargs; i++)
        if (!call_cache_try_match_slot(c, e, i, &args[i]))
            return false;
    for (size_t i = e->nargs; i < n; i++)
        c->tensors[i] = NULL;
    for (size_t r = 0; r < c->signature->nreturns; r++)
        if (!call_cache_try_match_slot(c, e, n + r, &results[r]))
            return false;
    return true;
}

/* Completes a call that matches an entry: allocates new results, fills the frame and runs the kernel. Returns a status. */
static int call_cache_run_matching_entry(dv__call *c, cache_entry *e)
{
    _Alignas(16) char frame[DV__MAX_STACK_FRAME_SIZE];
    const dv__kernel *kernel = e->kernel;
    const int64_t workspace = e->workspace;
    c->exceeds_cache = e->exceeds_cache;
    int status = DV_OK;
    e->nreaders++;
    dv__mark_results_absent(c);
    for (size_t r = 0; r < c->nouts && !status; r++) {
        const size_t slot = c->signature->nargs + r;
        const cached_tensor *s = &e->tensors[slot];
        if (c->tensors[slot]) {
            c->outs[r].origin = DV__RESULT_GIVEN;
            continue;
        }
        if (e->is_alias[r]) {
            c->outs[r].origin = DV__RESULT_ALIAS;
            c->tensors[slot] = c->tensors[c->signature->slots[slot].alias];
            c->outs[r].tensor = (dv_tensor *)(uintptr_t)c->tensors[slot];
            continue;
        }
        dv_dtype dtype;
        int32_t ndim;
        memcpy(&ndim, &s->ndim_dtype, sizeof ndim);
        memcpy(&dtype, (const char *)&s->ndim_dtype + sizeof ndim, sizeof dtype);
        if (!(status = dv__new_result_tensor(c, (int)r, dtype, c->device, ndim, s->shape, s->strides, &c->outs[r].made))) {
            c->outs[r].origin = DV__RESULT_ALLOCATED;
            c->tensors[slot] = c->outs[r].made;
        }
    }
    if (!status)
        dv__frame_fill(c, kernel->binding, frame);
    e->nreaders--; /* a nested call may now replace the entry */
    if (!status) {
        if (DV__HOST_HAS(c->host, before_kernel))
            c->host->before_kernel(c->host);
        c->in_kernel = true;
        status = dv__call_report_recorded_error(c, dv__run_kernel_unsplit(c, kernel, frame, workspace, NULL), kernel->name);
        c->in_kernel = false;
        if (DV__HOST_HAS(c->host, after_kernel))
            c->host->after_kernel(c->host);
    }
    return status;
}

bool dv__call_cache_try_run(dv__call *c, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const dv_host *host, int *status)
{
    const dv__signature *signature = op->signature;
    if ((nargs && !args) || dv__has_kernel_test_override(host))
        return false;
    c->call_key = call_cache_compute_key(op, args, nargs);
    cache_entry *e = c->cache_slot = &call_cache_entries()[c->call_key / (UINT64_MAX / CACHE_ENTRIES + 1)];
    if (e->signature_serial != signature->serial || nargs != e->nargs || nresults != signature->nreturns ||
        e->host_flags != dv__host_flags(host) || (nresults && !results))
        return false;
    if (e->table != atomic_load_explicit(&op->table, memory_order_acquire) ||
        !atomic_load_explicit(&op->alive, memory_order_acquire) || e->isas != dv__isa_limit() ||
        dv__guards()->included | dv__guards()->excluded)
        return false;
    c->signature = signature;
    c->all_contiguous = true;
    if (!call_cache_try_match_call(c, e, args, results) || !dv__spans_prove_disjoint(c))
        return false;
    c->policy_decision = dv__policy_decide_if_enabled(op, e->host_flags & DV_HOST_FUSES);
    if (!c->policy_decision && op->decomposition)
        return false;
    dv__call_set_initial_state(c, op, results, host, 0);
    c->args = e->values; /* tensors come from c->tensors; arguments with strings or lists are never stored */
    c->device = e->device;
    *status = call_cache_run_matching_entry(c, e);
    return true;
}

/* ---- Storing ---- */

/* Stores a tensor's metadata. Returns false if it has too many dims. */
static bool call_cache_try_store_tensor(cached_tensor *stored, const dv_tensor *t)
{
    if (t->ndim > CACHE_MAX_DIMS)
        return false;
    stored->device = call_cache_load_word(&t->device);
    stored->ndim_dtype = call_cache_load_word(&t->ndim);
    for (int32_t i = 0; i < t->ndim; i++) {
        stored->shape[i] = t->shape[i];
        stored->strides[i] = t->strides[i];
    }
    stored->bytes = (uint64_t)dv_dtype_bytes(t->dtype, dv_numel(t));
    return true;
}

static bool call_cache_is_storable_type(uint32_t type)
{
    return type == DV_VALUE_INT || type == DV_VALUE_FLOAT || type == DV_VALUE_BOOL || type == DV_VALUE_NONE ||
        type == DV_VALUE_DTYPE;
}

/* Stores an argument as it was passed and as it was bound. Returns false if a call with it cannot be cached. */
static bool call_cache_try_store_argument(
    cache_entry *e, const dv__call *c, const dv_value *args, size_t nargs, size_t argument_index)
{
    const dv_value missing = { .type = DV_VALUE_DEFAULT }, *v = argument_index < nargs ? &args[argument_index] : &missing;
    e->value_types[argument_index] = (uint8_t)v->type;
    if (v->type == DV_VALUE_TENSOR)
        return call_cache_try_store_tensor(&e->tensors[argument_index], v->as.tensor);
    e->passed_args[argument_index] = *v;
    e->values[argument_index] = c->args[argument_index];
    return (call_cache_is_storable_type(v->type) || v->type == DV_VALUE_DEFAULT) &&
        call_cache_is_storable_type(c->args[argument_index].type) && !(c->signature->slots[argument_index].flags & DV__SLOT_LIST);
}

/* Stores how a result was made. Returns false if a call with such a result cannot be cached. */
static bool call_cache_try_store_result(cache_entry *e, const dv__call *c, size_t result_index)
{
    const size_t slot = c->signature->nargs + result_index;
    const dv__result *out = &c->outs[result_index];
    e->value_types[slot] = (uint8_t)c->results[result_index].type;
    e->passed_args[slot] = c->results[result_index];
    e->is_alias[result_index] = out->origin == DV__RESULT_ALIAS;
    if (e->is_alias[result_index])
        return c->results[result_index].type == DV_VALUE_DEFAULT;
    if (out->is_view ||
        (out->origin != DV__RESULT_GIVEN &&
            (out->origin != DV__RESULT_ALLOCATED || c->results[result_index].type != DV_VALUE_DEFAULT)))
        return false;
    return call_cache_try_store_tensor(&e->tensors[slot], out->tensor);
}

void dv__call_cache_store(dv__call *c, const dv__dispatch_entry *table_entry, const dv__kernel *kernel)
{
    const dv__signature *signature = c->signature;
    cache_entry *e = c->cache_slot;
    if (!e || c->staging_copies || !c->all_contiguous || !kernel->takes_all_contiguous || !c->op->contract ||
        dv__needs_shape_function(c->op))
        return;
    const bool seen_before = e->last_key == c->call_key;
    e->last_key = c->call_key;
    if (!seen_before)
        return; /* a call is stored when it comes twice in a row, so that sizes that never recur replace no entry */
    const dv__dispatch_table *table = atomic_load_explicit(&c->op->table, memory_order_acquire);
    if (e->nreaders || signature->nargs + signature->nreturns > CACHE_MAX_SLOTS || !dv__is_cpu_memory(c->device.type) ||
        kernel->binding->frame_size > DV__MAX_STACK_FRAME_SIZE || dv__guards()->included | dv__guards()->excluded ||
        dv__host_flags(c->host) & DV_HOST_CHECK)
        return;
    if (table_entry < table->entries || table_entry >= table->entries + DV_KEY_RUNTIME_COUNT)
        return; /* the operator's table was replaced while the kernel ran */
    e->signature_serial = 0;
    for (size_t i = 0; i < signature->nargs; i++)
        if (!call_cache_try_store_argument(e, c, c->passed_args, c->npassed_args, i))
            return;
    for (size_t r = 0; r < signature->nreturns; r++)
        if (!call_cache_try_store_result(e, c, r))
            return;
    e->table = table;
    e->kernel = kernel;
    e->isas = dv__isa_limit();
    e->device = c->device;
    e->workspace = c->workspace;
    e->exceeds_cache = c->exceeds_cache;
    e->host_flags = dv__host_flags(c->host);
    e->nargs = (uint32_t)c->npassed_args;
    e->signature_serial = signature->serial;
}
