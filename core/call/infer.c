/* Information about a call without running it: its results' shapes, its cost, and which row it would take and why. */
#include <stdio.h>

#include "call/call.h"
#include "call/fail.h"
#include "call/memory.h"
#include "call/nesting.h"
#include "call/results.h"
#include "call/rows.h"
#include "call/values.h"

static int end(dv__call *c, int status)
{
    status = dv__call_end(c, status);
    dv__nesting_end();
    return status;
}

/* On success the caller ends the call. */
static int begin(dv__call *c, dv_operator *op, const dv_value *args, size_t nargs, uint32_t *keys)
{
    static dv_value no_results[DV__MAX_RETURNS]; /* read only to test whether results are given: they are not */
    if (!op)
        return dv_fail(DV_EINVAL, "no operator given: found NULL");
    int status = dv__nesting_begin(op); /* a shape function may ask again */
    if (status)
        return status;
    if ((status = dv__call_init(c, op, no_results, op->plan->nreturns, NULL, 0)))
        return dv__nesting_end(), status;
    c->infers = true;
    if (!(status = dv__too_many(c)) && !(status = dv__bind_values(c, args, nargs, keys)))
        status = dv__solve(c);
    return status ? end(c, status) : DV_OK;
}

/* ---- Shapes ---- */

static void set_spec(
    dv_result_spec *s, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    s->dtype = dtype;
    s->device = device;
    s->ndim = ndim;
    s->flags = 0;
    for (int32_t i = 0; i < ndim; i++) {
        s->shape[i] = shape[i];
        s->strides[i] = strides[i];
    }
}

static void set_described(dv_result_spec *s, const dv__output *o)
{
    set_spec(s, o->dtype, o->device, o->ndim, o->shape, o->strides);
    s->flags = (o->unbacked ? DV_SPEC_UNBACKED : 0) | (o->view_of >= 0 ? DV_SPEC_VIEW : 0);
}

/* The number of tensors of a list, and the first `room` of them. specs: NULL if they are only checked. */
static int infer_elements(dv__call *c, size_t r, dv_result_spec *specs, size_t room, size_t *n)
{
    const int32_t used = c->solution.pool_used;
    int64_t count = -1;
    int status = dv__contract_count(c->op->contract, c->args, &c->solution, r, &count);
    *n = count < 0 ? 0 : (size_t)count;
    for (size_t k = 0; k < *n && k < room && !status; k++) {
        dv__output o;
        status = dv__describe_result(c, r, (int64_t)k, &o);
        c->solution.pool_used = used;
        if (!status && specs)
            set_described(&specs[k], &o);
    }
    return status;
}

enum { MOST_LOOKED_AT = 1 << 20 }; /* tensors of a list */

static int infer_one(dv__call *c, size_t r, dv_result_spec *spec)
{
    const dv__slot *slot = &c->plan->slots[c->plan->nargs + r];
    size_t n;
    spec->ndim = -1;
    spec->flags = slot->flags & DV__SLOT_TENSORS ? DV_SPEC_LIST : 0;
    if (spec->flags && c->op->contract && !(slot->alias >= 0 && (slot->flags & DV__SLOT_WRITES)))
        return infer_elements(c, r, NULL, MOST_LOOKED_AT, &n);
    if (slot->value != DV_VALUE_TENSOR)
        return DV_OK;
    if (slot->alias >= 0 && (slot->flags & DV__SLOT_WRITES)) {
        const dv_value *v = &c->args[slot->alias];
        if (v->type == DV_VALUE_TENSOR) {
            set_spec(
                spec, v->as.tensor->dtype, v->as.tensor->device, v->as.tensor->ndim, v->as.tensor->shape, v->as.tensor->strides);
            spec->flags = DV_SPEC_VIEW;
        }
        return DV_OK;
    }
    if (!c->op->contract || dv__uses_shape(c->op)) {
        const dv_tensor *t = &c->outs[r].header;
        set_spec(spec, t->dtype, c->device, t->ndim, t->shape, t->strides);
        return DV_OK;
    }
    dv__output o;
    const int status = dv__describe_result(c, r, DV__WHOLE, &o);
    if (status || o.ndim < 0)
        return status;
    set_described(spec, &o);
    return DV_OK;
}

static int expect_room(const dv__call *c, size_t n)
{
    return n == c->plan->nreturns ? DV_OK
                                  : dv_fail(DV_EINVAL, "%s: expected %u results (one for each return of the schema), found %zu",
                                        c->op->name, c->plan->nreturns, n);
}

/* A functional form without a contract: the operator's shape function gives its own results; new values are like their arguments.
 */
static int infer_functional(dv__call *c, dv_result_spec *specs)
{
    dv_operator *op = c->op->functional;
    dv_result_spec all[DV__MAX_RETURNS];
    size_t n = 0;
    int status = dv_infer(op, c->args, c->plan->nargs, all, op->plan->nreturns);
    if (status)
        return status;
    for (size_t r = 0; r < op->plan->nreturns; r++)
        if (!(op->plan->slots[op->plan->nargs + r].flags & DV__SLOT_WRITES))
            specs[n++] = all[r];
    for (size_t i = 0; i < c->plan->nargs && !status; i++) {
        if (!(op->plan->slots[i].flags & DV__SLOT_WRITES))
            continue;
        dv_result_spec *spec = &specs[n++];
        const dv_tensor *t = c->args[i].type == DV_VALUE_TENSOR ? c->args[i].as.tensor : NULL;
        spec->ndim = -1;
        spec->flags = 0;
        if (t && !(status = dv__shape_check(t->dtype, t->ndim, t->shape, spec->strides)))
            set_spec(spec, t->dtype, t->device, t->ndim, t->shape, spec->strides);
    }
    return status;
}

static int infer(dv__call *c, dv_result_spec *specs, size_t nspecs)
{
    int status = expect_room(c, nspecs);
    if (status)
        return status;
    if (c->op->functional && !c->op->contract)
        return infer_functional(c, specs);
    if (dv__uses_shape(c->op) && !(status = dv__gather_args(c)))
        status = dv__run_shape(c);
    for (size_t r = 0; r < nspecs && !status && !c->op->contract && !c->op->shape; r++)
        if (c->plan->slots[c->plan->nargs + r].value == DV_VALUE_TENSOR &&
            !(c->plan->slots[c->plan->nargs + r].flags & DV__SLOT_WRITES))
            status = dv_fail(DV_ENOTSUP, "%s: neither a contract nor a shape function describes its results", c->op->name);
    for (size_t r = 0; r < nspecs && !status; r++)
        status = infer_one(c, r, &specs[r]);
    return status;
}

int dv_infer(dv_operator *op, const dv_value *args, size_t nargs, dv_result_spec *specs, size_t nspecs)
{
    dv__call c;
    uint32_t keys;
    if (nspecs && !specs)
        return dv_fail(DV_EINVAL, "dv_infer: room for %zu results, but the array is NULL", nspecs);
    const int status = begin(&c, op, args, nargs, &keys);
    return status ? status : end(&c, infer(&c, specs, nspecs));
}

static int infer_list(dv__call *c, size_t r, dv_result_spec *specs, size_t room, size_t *n)
{
    if (r >= c->plan->nreturns || !(c->plan->slots[c->plan->nargs + r].flags & DV__SLOT_TENSORS))
        return dv_fail(DV_EINVAL, "%s: dv_infer_list: result %zu is not a list of tensors", c->op->name, r);
    if (!c->op->contract)
        return dv_fail(DV_ENOTSUP, "%s: no contract describes the list that it returns", c->op->name);
    return infer_elements(c, r, specs, room, n);
}

int dv_infer_list(
    dv_operator *op, const dv_value *args, size_t nargs, size_t result, dv_result_spec *specs, size_t room, size_t *n)
{
    dv__call c;
    uint32_t keys;
    if (!n || (room && !specs))
        return dv_fail(DV_EINVAL, "dv_infer_list: no room for the specs or their number: found NULL");
    const int status = begin(&c, op, args, nargs, &keys);
    return status ? status : end(&c, infer_list(&c, result, specs, room, n));
}

/* ---- Cost ---- */

int dv_cost(dv_operator *op, const dv_value *args, size_t nargs, double *flops, double *bytes)
{
    dv__call c;
    uint32_t keys;
    if (!flops || !bytes)
        return dv_fail(DV_EINVAL, "dv_cost: no room for the two numbers: found NULL");
    if (op && !op->contract)
        return dv_fail(DV_ENOTSUP, "%s: no contract says what a call costs", op->name);
    int status = begin(&c, op, args, nargs, &keys);
    if (status)
        return status;
    status = dv__contract_flops(op->contract, c.args, &c.solution, flops);
    if (!status)
        status = dv__contract_bytes(op->contract, c.args, &c.solution, bytes);
    return end(&c, status);
}

/* ---- Explaining ---- */

typedef struct explainer {
    dv__call *c;
    void (*fn)(void *user, const dv_row_report *row);
    void *user;
    bool taken; /* something was */
} explainer;

static bool is_number(uint32_t type)
{
    return type == DV_FIELD_INT || type == DV_FIELD_FLOAT || type == DV_FIELD_BOOL || type == DV_FIELD_DTYPE;
}

/* "taken", or what the row's list makes of this call: there is no number for None. */
static const char *taken(const dv__call *c, const dv__row *row, char *buffer, size_t size)
{
    for (size_t i = 0; row->list && i < row->list->n; i++) {
        const dv_row_item *item = &row->list->items[i];
        const bool argument = item->slot >= 0 && (size_t)item->slot < c->plan->nargs;
        if (!argument || !is_number(item->type) || item->constant.type != DV_VALUE_DEFAULT ||
            c->args[item->slot].type != DV_VALUE_NONE)
            continue;
        snprintf(buffer, size, "taken, but the call fails: '%s' is None, and the row's list has no 'or' for it", item->name);
        return buffer;
    }
    return "taken";
}

static void tell(explainer *x, const dv__row *row, const char *reason)
{
    char buffer[256];
    const dv_row_report r = { row->name, row->provider, row->device, row->dtypes_text, row->isa_text, row->when_text, !reason,
        reason ? reason : taken(x->c, row, buffer, sizeof buffer) };
    x->taken |= !reason;
    x->fn(x->user, &r);
}

/* Something that runs in place of a row. */
static void tell_other(explainer *x, const char *name, const char *reason, bool taken)
{
    const dv_row_report r = { name, "", "", "", "", "", taken, reason };
    x->taken |= taken;
    x->fn(x->user, &r);
}

static void explain_rows(explainer *x, const dv__entry *entry, bool here, bool off)
{
    char buffer[512];
    for (size_t i = 0; i < entry->nrows; i++) {
        const dv__row *row = entry->rows[i];
        const char *why = dv__row_reason(x->c, row, buffer, sizeof buffer);
        if (!why && !here)
            why = "another entry of the dispatch table takes this call";
        else if (!why && off)
            why = "the policy turns this operator's kernels off";
        else if (!why && x->taken)
            why = "a row before it was taken";
        tell(x, row, why);
    }
}

static const char *where(const dv__entry *e, char *buffer, size_t size)
{
    if (e->kind == DV__ENTRY_BOXED)
        snprintf(buffer, size, "a kernel registered by hand (%s)", e->from ? e->from : "kernel");
    else
        snprintf(buffer, size, "%s", e->kind == DV__ENTRY_NATIVE ? "native form" : "contract");
    return buffer;
}

/* What a call evaluates before it runs a row. */
static int workspace(dv__call *c)
{
    int64_t bytes;
    return c->op->contract ? dv__contract_workspace(c->op->contract, c->args, &c->solution, &bytes) : DV_OK;
}

static int explain(explainer *x, uint32_t keys)
{
    dv_operator *op = x->c->op;
    const dv__table *table = atomic_load_explicit(&op->table, memory_order_acquire);
    const dv__entry *entry = NULL;
    char buffer[256];
    const bool found = !dv__call_entry(x->c, keys, DV_KEY_RUNTIME_COUNT, &entry);
    const bool rows = found && entry->kind == DV__ENTRY_ROWS;
    const bool off = rows && op->native && !dv_policy_enabled(op, false);
    if (found && !rows && entry->kind != DV__ENTRY_MISSING)
        tell_other(x, where(entry, buffer, sizeof buffer), "taken: the dispatch table has it for this call's keys", true);
    if (rows)
        explain_rows(x, entry, true, off);
    const int status = rows && x->taken ? workspace(x->c) : DV_OK;
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++)
        if (&table->entries[key] != entry && table->entries[key].kind == DV__ENTRY_ROWS)
            explain_rows(x, &table->entries[key], false, false);
    if (rows && op->native)
        tell_other(x, "native form",
            off ? "taken: the policy turns the kernels off"
                : x->taken ? "a kernel was taken"
                           : "taken: no kernel fits",
            off || !x->taken);
    return status;
}

int dv_explain(dv_operator *op, const dv_value *args, size_t nargs, void (*fn)(void *user, const dv_row_report *row), void *user)
{
    dv__call c;
    uint32_t keys = 0;
    if (op && op->functional)
        op = op->functional; /* its calls are the operator's */
    if (!fn)
        return dv_fail(DV_EINVAL, "dv_explain: no function to call for each row: found NULL");
    const int status = begin(&c, op, args, nargs, &keys);
    explainer x = { &c, fn, user, false };
    return status ? status : end(&c, explain(&x, keys));
}
