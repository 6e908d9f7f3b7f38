/* A call: values are bound, a table entry is chosen by keys and guards, and the entry does the rest. */
#include "call/call.h"

#include <assert.h>

#include "base/error.h"
#include "base/memory.h"
#include "call/again.h"
#include "call/fail.h"
#include "call/frame.h"
#include "call/functional.h"
#include "call/host.h"
#include "call/memory.h"
#include "call/native.h"
#include "call/nesting.h"
#include "call/results.h"
#include "call/rows.h"
#include "call/values.h"

int dv__call_init(dv__call *c, dv_operator *op, dv_value *results, size_t nresults, const dv_host *host, uint32_t inner)
{
    if (!atomic_load_explicit(&op->alive, memory_order_acquire))
        return dv_fail(DV_EUNLOADED, "%s: the operator's library was unloaded", op->name);
    dv__call_begin(c, op, results, host, inner);
    c->enter = dv__call_values;
    if (nresults != c->plan->nreturns)
        return dv_fail(DV_EINVAL, "%s: expected %u results (one for each return of the schema), found %zu", op->name,
            c->plan->nreturns, nresults);
    if (nresults && !results)
        return dv_fail(DV_EINVAL, "%s: %zu results, but the array is NULL", op->name, nresults);
    if (host && host->size < offsetof(dv_host, new_tensor))
        return dv_fail(DV_EINVAL, "%s: the host's size is not set: found %u", op->name, host->size);
    return DV_OK;
}

int dv__call_end(dv__call *c, int status)
{
    assert(!c->in_kernel);
    dv__end_results(c, !status);
    if (c->temps)
        dv__free_temps(c);
    if (c->arena.blocks)
        dv__arena_deinit(&c->arena);
    return status;
}

static int highest(uint32_t keys) { return keys ? 31 - __builtin_clz(keys) : DV_KEY_NONE; }

enum { BACKENDS = (1 << (DV_KEY_META + 1)) - 1 };

/* The host has dispatched already: only the backends are left, and guards do not count. */
static bool is_dispatched(const dv__call *c)
{
    return dv__host_flags(c->host) & DV_HOST_NO_DISPATCH && !(c->inner & DV__INNER_KERNEL);
}

/* Why there is no kernel for this backend, where it is not for want of one. */
static const char *hidden_by(dv_guard guards, uint32_t keys, int backend, int below)
{
    if (backend >= below)
        return ", below which dv_redispatch() looks";
    if (guards.excluded & BACKENDS)
        return guards.excluded & 1u << backend ? ", which a guard of this thread excludes (dv_guard_push)"
                                               : ": a guard of this thread excludes kernels of devices (dv_guard_push)";
    return keys & 1u << backend ? "" : ", which a guard of this thread includes (dv_guard_push)";
}

static int no_entry(const dv__call *c, uint32_t keys, int below)
{
    const dv_guard none = { 0, 0 }, guards = is_dispatched(c) ? none : *dv__guards();
    const int backend = highest((keys | guards.included) & BACKENDS);
    const dv__table *table = atomic_load_explicit(&c->op->table, memory_order_acquire);
    dv__text have = { 0 };
    for (int key = 0; key < DV_KEY_RUNTIME_COUNT; key++)
        if (table->entries[key].kind != DV__ENTRY_MISSING && table->entries[key].kind != DV__ENTRY_FALLTHROUGH)
            dv__text_add(&have, "%s%s", have.size ? ", " : "", dv_key_name(key));
    const int status = dv_fail(DV_ENOKERNEL, "%s: no kernel for %s%s; there are kernels for: %s", c->op->name,
        backend == DV_KEY_NONE ? "the device of these tensors" : dv_key_name(backend),
        backend == DV_KEY_NONE ? "" : hidden_by(guards, keys, backend, below), have.size ? have.data : "nothing");
    dv__text_deinit(&have);
    return status;
}

int dv__call_entry(const dv__call *c, uint32_t keys, int below, const dv__entry **out)
{
    const dv__table *table = atomic_load_explicit(&c->op->table, memory_order_acquire);
    uint32_t now = is_dispatched(c) ? keys & BACKENDS : dv__keys_of_call(keys, *dv__guards());
    now &= (1u << below) - 1;
    if (table)
        now &= table->handled;
    *out = now && table ? &table->entries[highest(now)] : NULL;
    assert(!*out || (*out)->kind != DV__ENTRY_FALLTHROUGH);
    return *out ? DV_OK : no_entry(c, keys, below);
}

/* What a boxed kernel leaves: of each result's type, or None for a tensor that is absent with these arguments. */
static int check_boxed(const dv__call *c, const dv_value *results)
{
    int status = DV_OK;
    for (size_t r = 0; r < c->plan->nreturns && !status; r++) {
        const size_t slot = c->plan->nargs + r;
        const dv__slot *s = &c->plan->slots[slot];
        const dv_value *v = &results[r];
        if (v->type == DV_VALUE_TENSOR && s->value == DV_VALUE_TENSOR)
            status = dv__check_tensor(c, slot, DV__WHOLE, v->as.tensor);
        else if (s->flags & DV__SLOT_SCALAR ? !dv__is_number(v->type) : v->type != s->value)
            if (v->type != DV_VALUE_NONE || !(s->flags & DV__SLOT_OPTIONAL || s->value == DV_VALUE_TENSOR))
                status = dv__fail_type(c, DV_EKERNEL, slot, v, " from the boxed kernel");
    }
    return status;
}

static bool is_passed(const dv__call *c, size_t r, const dv_tensor *t)
{
    bool passed = c->results[r].type == DV_VALUE_TENSOR && c->results[r].as.tensor == t;
    for (size_t i = 0; i < c->plan->nargs && !passed; i++)
        passed = c->args[i].type == DV_VALUE_TENSOR && c->args[i].as.tensor == t;
    return passed;
}

/* Free the new tensors among results that the caller does not get. */
static void free_boxed(const dv__call *c, const dv_value *results)
{
    for (size_t r = 0; r < c->plan->nreturns; r++)
        if (results[r].type == DV_VALUE_TENSOR && results[r].as.tensor && !is_passed(c, r, results[r].as.tensor))
            dv__free_tensor(c, (dv_tensor *)(uintptr_t)results[r].as.tensor);
}

/* A boxed kernel sets its results one by one; they are passed to the caller only when it succeeds. */
static int run_boxed(dv__call *c, const dv__entry *entry)
{
    int status;
    dv_value few[16], *results = few;
    const size_t n = c->plan->nreturns;
    if (n > sizeof few / sizeof *few && !(results = DV__ARENA_ARRAY(&c->arena, dv_value, n)))
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++)
        results[i] = c->results[i];
    const unsigned long errors = dv__errors();
    if ((status = entry->fn(entry->user, c->op, c->args, c->plan->nargs, results, n, c->host)))
        return dv__errors() == errors ? dv__report(c, status, "the boxed kernel") : status;
    if ((status = check_boxed(c, results)))
        free_boxed(c, results);
    for (size_t i = 0; i < n && !status; i++)
        c->results[i] = results[i];
    return status;
}

int dv__too_many(const dv__call *c)
{
    if (c->plan->nargs + c->plan->nreturns <= DV__MAX_SLOTS && c->plan->nreturns <= DV__MAX_RETURNS)
        return DV_OK;
    return dv_fail(DV_ELIMIT, "%s: an operator with kernels has at most %d arguments and results, and %d results", c->op->name,
        DV__MAX_SLOTS, DV__MAX_RETURNS);
}

static int run_entry(dv__call *c, const dv__entry *entry, uint32_t keys, int below)
{
    assert(entry);
    if (entry->kind == DV__ENTRY_BOXED)
        return run_boxed(c, entry);
    bool views;
    int status = dv__too_many(c);
    if (status)
        return status;
    switch (entry->kind) {
    case DV__ENTRY_ROWS: return dv__run_rows(c, entry);
    case DV__ENTRY_CONTRACT: return dv__run_contract(c);
    case DV__ENTRY_NATIVE: return (status = dv__solve(c)) ? status : dv__run_native(c);
    case DV__ENTRY_MISSING:
        if (c->op->contract && (status = dv__solve(c)))
            return status; /* says more: tensors on different devices */
        status = dv__run_views(c, &views);
        return status || views ? status : no_entry(c, keys, below);
    case DV__ENTRY_FALLTHROUGH:
    case DV__ENTRY_BOXED: break;
    }
    return no_entry(c, keys, below);
}

static inline int call_nested(dv_operator *op, int below, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const dv_host *host, uint32_t inner)
{
    dv__call c;
    uint32_t keys;
    const dv__entry *entry;
    int status;
    c.decision = -1;
    c.place = NULL;
    c.enter = dv__call_values;
    if (below == DV_KEY_RUNTIME_COUNT && !inner && dv__call_again(&c, op, args, nargs, results, nresults, host, &status))
        return dv__call_end(&c, status);
    if ((status = dv__call_init(&c, op, results, nresults, host, inner)))
        return status;
    c.passed = args;
    c.npassed = nargs;
    status = dv__bind_values(&c, args, nargs, &keys);
    if (!status && op->functional)
        status = (status = dv__too_many(&c)) ? status : dv__run_functional(&c);
    else if (!status && !(status = dv__call_entry(&c, keys, below, &entry)))
        status = run_entry(&c, entry, keys, below);
    return dv__call_end(&c, status);
}

static int call_below(dv_operator *op, int below, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const dv_host *host, uint32_t inner)
{
    int status = dv__nesting_begin(op);
    if (status)
        return status;
    status = call_nested(op, below, args, nargs, results, nresults, host, inner);
    dv__nesting_end();
    return status;
}

int dv__call_values(
    dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host, uint32_t inner)
{
    return call_below(op, DV_KEY_RUNTIME_COUNT, args, nargs, results, nresults, host, inner);
}

int dv_call(dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host)
{
    if (!op)
        return dv_fail(DV_EINVAL, "dv_call: no operator given: found NULL");
    return call_below(op, DV_KEY_RUNTIME_COUNT, args, nargs, results, nresults, host, 0);
}

int dv_redispatch(
    dv_operator *op, int key, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host)
{
    if (!op || key < 0 || key >= DV_KEY_RUNTIME_COUNT)
        return dv_fail(DV_EINVAL, "dv_redispatch: expected an operator and a key that calls have, found %s",
            op ? dv_key_name(key) : "no operator");
    return call_below(op, key, args, nargs, results, nresults, host, 0);
}

int dv_call_frame(dv_operator *op, void *frame, size_t frame_size, const dv_field_decl *const *fields, const dv_host *host)
{
    if (!op)
        return dv_fail(DV_EINVAL, "dv_call_frame: no operator given: found NULL");
    return dv__call_frame(op, frame, frame_size, fields, host, 0, dv__call_values);
}
