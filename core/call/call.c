/* Calls: binds the values, finds the dispatch entry by keys and guards, and runs the entry. */
#include "call/call.h"

#include <assert.h>

#include "base/error.h"
#include "base/memory.h"
#include "call/call_cache.h"
#include "call/call_error.h"
#include "call/frame.h"
#include "call/functional_call.h"
#include "call/host_tensor.h"
#include "call/memory.h"
#include "call/decomposition.h"
#include "call/nesting.h"
#include "call/results.h"
#include "call/kernel_select.h"
#include "call/bind.h"

int dv__call_init(dv__call *c, dv_operator *op, dv_value *results, size_t nresults, const dv_host *host, uint32_t nested_flags)
{
    if (!atomic_load_explicit(&op->alive, memory_order_acquire))
        return dv_fail(DV_EUNLOADED, "%s: the operator's library was unloaded", op->name);
    dv__call_set_initial_state(c, op, results, host, nested_flags);
    c->nested_call = dv__call_with_nested_flags;
    if (nresults != c->signature->nreturns)
        return dv_fail(DV_EINVAL, "%s: expected %u results (one for each return of the schema), found %zu", op->name,
            c->signature->nreturns, nresults);
    if (nresults && !results)
        return dv_fail(DV_EINVAL, "%s: %zu results, but the array is NULL", op->name, nresults);
    if (host && host->size < offsetof(dv_host, new_tensor))
        return dv_fail(DV_EINVAL, "%s: the host's size is not set: found %u", op->name, host->size);
    return DV_OK;
}

int dv__call_end(dv__call *c, int status)
{
    assert(!c->in_kernel);
    dv__transfer_or_free_results(c, !status);
    if (c->staging_copies)
        dv__staging_free_copies(c);
    if (c->arena.blocks)
        dv__arena_deinit(&c->arena);
    return status;
}

static int call_highest_key(uint32_t keys) { return keys ? 31 - __builtin_clz(keys) : DV_KEY_NONE; }

enum { BACKEND_KEYS = (1 << (DV_KEY_META + 1)) - 1 };

/* True if the host has chosen the dispatch key itself. In such a call only backend keys are used, and the thread's guards
 * are ignored. */
static bool call_is_host_dispatched(const dv__call *c)
{
    return dv__host_flags(c->host) & DV_HOST_NO_DISPATCH && !(c->nested_flags & DV__NESTED_IN_KERNEL);
}

/* Returns the end of the message "no kernel for <backend>": the guard or dv_redispatch() that chose or excluded the backend;
 * "" if neither did. */
static const char *call_explain_missing_backend(dv_guard guards, uint32_t keys, int backend_key, int below_key)
{
    if (backend_key >= below_key)
        return ", below which dv_redispatch() looks";
    if (guards.excluded & BACKEND_KEYS)
        return guards.excluded & 1u << backend_key ? ", which a guard of this thread excludes (dv_guard_push)"
                                                   : ": a guard of this thread excludes kernels of devices (dv_guard_push)";
    return keys & 1u << backend_key ? "" : ", which a guard of this thread includes (dv_guard_push)";
}

/* Fails with DV_ENOKERNEL: no key of the call has a kernel. The message lists the keys that have one. */
static int call_fail_no_dispatch_entry(const dv__call *c, uint32_t keys, int below_key)
{
    const dv_guard none = { 0, 0 }, guards = call_is_host_dispatched(c) ? none : *dv__guards();
    const int backend = call_highest_key((keys | guards.included) & BACKEND_KEYS);
    const dv__dispatch_table *table = atomic_load_explicit(&c->op->table, memory_order_acquire);
    dv__strbuf have = { 0 };
    for (int key = 0; key < DV_KEY_RUNTIME_COUNT; key++)
        if (table->entries[key].kind != DV__ENTRY_MISSING && table->entries[key].kind != DV__ENTRY_FALLTHROUGH)
            dv__strbuf_printf(&have, "%s%s", have.size ? ", " : "", dv_key_name(key));
    const int status = dv_fail(DV_ENOKERNEL, "%s: no kernel for %s%s; there are kernels for: %s", c->op->name,
        backend == DV_KEY_NONE ? "the device of these tensors" : dv_key_name(backend),
        backend == DV_KEY_NONE ? "" : call_explain_missing_backend(guards, keys, backend, below_key),
        have.size ? have.data : "nothing");
    dv__strbuf_deinit(&have);
    return status;
}

int dv__call_find_dispatch_entry(const dv__call *c, uint32_t keys, int below_key, const dv__dispatch_entry **out)
{
    const dv__dispatch_table *table = atomic_load_explicit(&c->op->table, memory_order_acquire);
    uint32_t active_keys = call_is_host_dispatched(c) ? keys & BACKEND_KEYS : dv__dispatch_keys_of_call(keys, *dv__guards());
    active_keys &= (1u << below_key) - 1;
    if (table)
        active_keys &= table->handled_keys;
    *out = active_keys && table ? &table->entries[call_highest_key(active_keys)] : NULL;
    assert(!*out || (*out)->kind != DV__ENTRY_FALLTHROUGH);
    return *out ? DV_OK : call_fail_no_dispatch_entry(c, keys, below_key);
}

/* Fails unless each result of a boxed kernel has the type of the schema, or is None for an absent tensor. */
static int call_check_boxed_results(const dv__call *c, const dv_value *results)
{
    int status = DV_OK;
    for (size_t r = 0; r < c->signature->nreturns && !status; r++) {
        const size_t slot = c->signature->nargs + r;
        const dv__slot *s = &c->signature->slots[slot];
        const dv_value *v = &results[r];
        if (v->type == DV_VALUE_TENSOR && s->value == DV_VALUE_TENSOR)
            status = dv__check_slot_tensor(c, slot, DV__NO_ELEMENT, v->as.tensor);
        else if (s->flags & DV__SLOT_SCALAR ? !dv__is_number_type(v->type) : v->type != s->value)
            if (v->type != DV_VALUE_NONE || !(s->flags & DV__SLOT_OPTIONAL || s->value == DV_VALUE_TENSOR))
                status = dv__fail_slot_type(c, DV_EKERNEL, slot, v, " from the boxed kernel");
    }
    return status;
}

/* True if the caller passed the tensor: for this result, or as an argument. */
static bool call_tensor_belongs_to_caller(const dv__call *c, size_t result_index, const dv_tensor *t)
{
    bool passed = c->results[result_index].type == DV_VALUE_TENSOR && c->results[result_index].as.tensor == t;
    for (size_t i = 0; i < c->signature->nargs && !passed; i++)
        passed = c->args[i].type == DV_VALUE_TENSOR && c->args[i].as.tensor == t;
    return passed;
}

/* Frees the new tensors among a boxed kernel's results after a failure. The caller's own tensors stay. */
static void call_free_new_boxed_results(const dv__call *c, const dv_value *results)
{
    for (size_t r = 0; r < c->signature->nreturns; r++)
        if (results[r].type == DV_VALUE_TENSOR && results[r].as.tensor &&
            !call_tensor_belongs_to_caller(c, r, results[r].as.tensor))
            dv__free_host_tensor(c, (dv_tensor *)(uintptr_t)results[r].as.tensor);
}

/* Runs a boxed kernel. Its results are passed to the caller only if it succeeds. Returns a status. */
static int call_run_boxed(dv__call *c, const dv__dispatch_entry *entry)
{
    int status;
    dv_value stack_results[16], *results = stack_results;
    const size_t n = c->signature->nreturns;
    if (n > sizeof stack_results / sizeof *stack_results && !(results = DV__ARENA_ARRAY(&c->arena, dv_value, n)))
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++)
        results[i] = c->results[i];
    const unsigned long errors = dv__error_count();
    if ((status = entry->fn(entry->user, c->op, c->args, c->signature->nargs, results, n, c->host)))
        return dv__error_count() == errors ? dv__call_report_recorded_error(c, status, "the boxed kernel") : status;
    if ((status = call_check_boxed_results(c, results)))
        call_free_new_boxed_results(c, results);
    for (size_t i = 0; i < n && !status; i++)
        c->results[i] = results[i];
    return status;
}

int dv__call_check_slot_count(const dv__call *c)
{
    if (c->signature->nargs + c->signature->nreturns <= DV__MAX_SLOTS && c->signature->nreturns <= DV__MAX_RETURNS)
        return DV_OK;
    return dv_fail(DV_ELIMIT, "%s: an operator with kernels has at most %d arguments and results, and %d results", c->op->name,
        DV__MAX_SLOTS, DV__MAX_RETURNS);
}

/* Runs what the dispatch entry selects: kernels, a boxed function, the decomposition, or the contract alone. Returns a
 * status. */
static int call_run_dispatch_entry(dv__call *c, const dv__dispatch_entry *entry, uint32_t keys, int below_key)
{
    assert(entry);
    if (entry->kind == DV__ENTRY_BOXED)
        return call_run_boxed(c, entry);
    bool views;
    int status = dv__call_check_slot_count(c);
    if (status)
        return status;
    switch (entry->kind) {
    case DV__ENTRY_KERNELS: return dv__select_and_run_kernel(c, entry);
    case DV__ENTRY_CONTRACT: return dv__make_results_without_kernel(c);
    case DV__ENTRY_DECOMPOSITION: return (status = dv__call_solve_contract(c)) ? status : dv__decomposition_run(c);
    case DV__ENTRY_MISSING:
        if (c->op->contract && (status = dv__call_solve_contract(c)))
            return status; /* solving the contract first gives a better message where tensors are on different devices */
        status = dv__make_results_if_all_views(c, &views);
        return status || views ? status : call_fail_no_dispatch_entry(c, keys, below_key);
    case DV__ENTRY_FALLTHROUGH:
    case DV__ENTRY_BOXED: break;
    }
    return call_fail_no_dispatch_entry(c, keys, below_key);
}

static inline int call_dispatch(dv_operator *op, int below_key, const dv_value *args, size_t nargs, dv_value *results,
    size_t nresults, const dv_host *host, uint32_t nested_flags)
{
    dv__call c;
    uint32_t keys;
    const dv__dispatch_entry *entry;
    int status;
    c.policy_decision = -1;
    c.cache_slot = NULL;
    c.nested_call = dv__call_with_nested_flags;
    if (below_key == DV_KEY_RUNTIME_COUNT && !nested_flags &&
        dv__call_cache_try_run(&c, op, args, nargs, results, nresults, host, &status))
        return dv__call_end(&c, status);
    if ((status = dv__call_init(&c, op, results, nresults, host, nested_flags)))
        return status;
    c.passed_args = args;
    c.npassed_args = nargs;
    status = dv__bind_values(&c, args, nargs, &keys);
    if (!status && op->functional_form_of)
        status = (status = dv__call_check_slot_count(&c)) ? status : dv__functional_run(&c);
    else if (!status && !(status = dv__call_find_dispatch_entry(&c, keys, below_key, &entry)))
        status = call_run_dispatch_entry(&c, entry, keys, below_key);
    return dv__call_end(&c, status);
}

static int call_with_keys_below(dv_operator *op, int below_key, const dv_value *args, size_t nargs, dv_value *results,
    size_t nresults, const dv_host *host, uint32_t nested_flags)
{
    int status = dv__nesting_begin(op);
    if (status)
        return status;
    status = call_dispatch(op, below_key, args, nargs, results, nresults, host, nested_flags);
    dv__nesting_end();
    return status;
}

int dv__call_with_nested_flags(dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const dv_host *host, uint32_t nested_flags)
{
    return call_with_keys_below(op, DV_KEY_RUNTIME_COUNT, args, nargs, results, nresults, host, nested_flags);
}

int dv_call(dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host)
{
    if (!op)
        return dv_fail(DV_EINVAL, "dv_call: no operator given: found NULL");
    return call_with_keys_below(op, DV_KEY_RUNTIME_COUNT, args, nargs, results, nresults, host, 0);
}

int dv_redispatch(
    dv_operator *op, int key, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host)
{
    if (!op || key < 0 || key >= DV_KEY_RUNTIME_COUNT)
        return dv_fail(DV_EINVAL, "dv_redispatch: expected an operator and a key that calls have, found %s",
            op ? dv_key_name(key) : "no operator");
    return call_with_keys_below(op, key, args, nargs, results, nresults, host, 0);
}

int dv_call_frame(dv_operator *op, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host)
{
    if (!op)
        return dv_fail(DV_EINVAL, "dv_call_frame: no operator given: found NULL");
    return dv__frame_call(op, frame, frame_size, fields, host, 0, dv__call_with_nested_flags);
}
