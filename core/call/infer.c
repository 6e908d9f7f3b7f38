/* Information about a call that is not run: the results' shapes, the cost, the kernel that would be selected, and why. */
#include <stdio.h>

#include "call/call.h"
#include "call/call_error.h"
#include "call/memory.h"
#include "call/nesting.h"
#include "call/results.h"
#include "call/kernel_select.h"
#include "call/bind.h"

static int infer_end_call(dv__call *c, int status)
{
    status = dv__call_end(c, status);
    dv__nesting_end();
    return status;
}

/* Begins a call that runs no kernel: validates the arguments and solves the contract. *keys: the call's dispatch keys. On
 * success the caller must call infer_end_call(); on failure the call is ended already. */
static int infer_begin_call(dv__call *c, dv_operator *op, const dv_value *args, size_t nargs, uint32_t *keys)
{
    static dv_value no_results[DV__MAX_RETURNS]; /* DV_VALUE_DEFAULT for each result: the caller passed none */
    if (!op)
        return dv_fail(DV_EINVAL, "no operator given: found NULL");
    int status = dv__nesting_begin(op); /* a shape function may be called twice */
    if (status)
        return status;
    if ((status = dv__call_init(c, op, no_results, op->signature->nreturns, NULL, 0)))
        return dv__nesting_end(), status;
    c->shapes_only = true;
    if (!(status = dv__call_check_slot_count(c)) && !(status = dv__bind_values(c, args, nargs, keys)))
        status = dv__call_solve_contract(c);
    return status ? infer_end_call(c, status) : DV_OK;
}

/* ---- Shapes ---- */

static void infer_set_spec(
    dv_result_spec *spec, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    spec->dtype = dtype;
    spec->device = device;
    spec->ndim = ndim;
    spec->flags = 0;
    for (int32_t i = 0; i < ndim; i++) {
        spec->shape[i] = shape[i];
        spec->strides[i] = strides[i];
    }
}

static void infer_set_spec_from_metadata(dv_result_spec *spec, const dv__result_metadata *metadata)
{
    infer_set_spec(spec, metadata->dtype, metadata->device, metadata->ndim, metadata->shape, metadata->strides);
    spec->flags = (metadata->is_unbacked ? DV_SPEC_UNBACKED : 0) | (metadata->viewed_slot >= 0 ? DV_SPEC_VIEW : 0);
}

/* Describes a result that is a list of tensors. *length: the length of the list. specs: receives the first `capacity`
 * tensors; NULL: these are only checked. Returns a status. */
static int infer_describe_list(dv__call *c, size_t result_index, dv_result_spec *specs, size_t capacity, size_t *length)
{
    const int32_t used = c->solution.pool_count;
    int64_t count = -1;
    int status = dv__contract_eval_list_length(c->op->contract, c->args, &c->solution, result_index, &count);
    *length = count < 0 ? 0 : (size_t)count;
    for (size_t k = 0; k < *length && k < capacity && !status; k++) {
        dv__result_metadata o;
        status = dv__describe_result(c, result_index, (int64_t)k, &o);
        c->solution.pool_count = used;
        if (!status && specs)
            infer_set_spec_from_metadata(&specs[k], &o);
    }
    return status;
}

enum { MAX_CHECKED_TENSORS = 1 << 20 }; /* largest number of tensors of one list that dv_infer() checks */

/* Describes one result. spec->ndim -1: the result is absent or no single tensor. A list is only checked. Returns a status. */
static int infer_describe_result(dv__call *c, size_t result_index, dv_result_spec *spec)
{
    const dv__slot *slot = &c->signature->slots[c->signature->nargs + result_index];
    size_t n;
    spec->ndim = -1;
    spec->flags = slot->flags & DV__SLOT_TENSORS ? DV_SPEC_LIST : 0;
    if (spec->flags && c->op->contract && !(slot->alias >= 0 && (slot->flags & DV__SLOT_WRITES)))
        return infer_describe_list(c, result_index, NULL, MAX_CHECKED_TENSORS, &n);
    if (slot->value != DV_VALUE_TENSOR)
        return DV_OK;
    if (slot->alias >= 0 && (slot->flags & DV__SLOT_WRITES)) {
        const dv_value *v = &c->args[slot->alias];
        if (v->type == DV_VALUE_TENSOR) {
            infer_set_spec(
                spec, v->as.tensor->dtype, v->as.tensor->device, v->as.tensor->ndim, v->as.tensor->shape, v->as.tensor->strides);
            spec->flags = DV_SPEC_VIEW;
        }
        return DV_OK;
    }
    if (!c->op->contract || dv__needs_shape_function(c->op)) {
        const dv_tensor *t = &c->outs[result_index].descriptor;
        infer_set_spec(spec, t->dtype, c->device, t->ndim, t->shape, t->strides);
        return DV_OK;
    }
    dv__result_metadata o;
    const int status = dv__describe_result(c, result_index, DV__NO_ELEMENT, &o);
    if (status || o.ndim < 0)
        return status;
    infer_set_spec_from_metadata(spec, &o);
    return DV_OK;
}

static int infer_check_result_count(const dv__call *c, size_t nresults)
{
    return nresults == c->signature->nreturns
        ? DV_OK
        : dv_fail(DV_EINVAL, "%s: expected %u results (one for each return of the schema), found %zu", c->op->name,
              c->signature->nreturns, nresults);
}

/* Describes the results of a functional form without a contract. The operator's shape function describes the operator's own
 * results, and each new value has its argument's shape, dtype and device, and contiguous strides. Returns a status. */
static int infer_describe_functional_form(dv__call *c, dv_result_spec *specs)
{
    dv_operator *op = c->op->functional_form_of;
    dv_result_spec all[DV__MAX_RETURNS];
    size_t n = 0;
    int status = dv_infer(op, c->args, c->signature->nargs, all, op->signature->nreturns);
    if (status)
        return status;
    for (size_t r = 0; r < op->signature->nreturns; r++)
        if (!(op->signature->slots[op->signature->nargs + r].flags & DV__SLOT_WRITES))
            specs[n++] = all[r];
    for (size_t i = 0; i < c->signature->nargs && !status; i++) {
        if (!(op->signature->slots[i].flags & DV__SLOT_WRITES))
            continue;
        dv_result_spec *spec = &specs[n++];
        const dv_tensor *t = c->args[i].type == DV_VALUE_TENSOR ? c->args[i].as.tensor : NULL;
        spec->ndim = -1;
        spec->flags = 0;
        if (t && !(status = dv__shape_check(t->dtype, t->ndim, t->shape, spec->strides)))
            infer_set_spec(spec, t->dtype, t->device, t->ndim, t->shape, spec->strides);
    }
    return status;
}

/* Describes all results of a call without running a kernel. nspecs: must be the number of the schema's returns. Returns a
 * status. */
static int infer_describe_all_results(dv__call *c, dv_result_spec *specs, size_t nspecs)
{
    int status = infer_check_result_count(c, nspecs);
    if (status)
        return status;
    if (c->op->functional_form_of && !c->op->contract)
        return infer_describe_functional_form(c, specs);
    if (dv__needs_shape_function(c->op) && !(status = dv__gather_args(c)))
        status = dv__run_shape_function(c);
    for (size_t r = 0; r < nspecs && !status && !c->op->contract && !c->op->shape; r++)
        if (c->signature->slots[c->signature->nargs + r].value == DV_VALUE_TENSOR &&
            !(c->signature->slots[c->signature->nargs + r].flags & DV__SLOT_WRITES))
            status = dv_fail(DV_ENOTSUP, "%s: neither a contract nor a shape function describes its results", c->op->name);
    for (size_t r = 0; r < nspecs && !status; r++)
        status = infer_describe_result(c, r, &specs[r]);
    return status;
}

int dv_infer(dv_operator *op, const dv_value *args, size_t nargs, dv_result_spec *specs, size_t nspecs)
{
    dv__call c;
    uint32_t keys;
    if (nspecs && !specs)
        return dv_fail(DV_EINVAL, "dv_infer: room for %zu results, but the array is NULL", nspecs);
    const int status = infer_begin_call(&c, op, args, nargs, &keys);
    return status ? status : infer_end_call(&c, infer_describe_all_results(&c, specs, nspecs));
}

static int infer_check_and_describe_list(dv__call *c, size_t result_index, dv_result_spec *specs, size_t capacity, size_t *length)
{
    if (result_index >= c->signature->nreturns ||
        !(c->signature->slots[c->signature->nargs + result_index].flags & DV__SLOT_TENSORS))
        return dv_fail(DV_EINVAL, "%s: dv_infer_list: result %zu is not a list of tensors", c->op->name, result_index);
    if (!c->op->contract)
        return dv_fail(DV_ENOTSUP, "%s: no contract describes the list that it returns", c->op->name);
    return infer_describe_list(c, result_index, specs, capacity, length);
}

int dv_infer_list(
    dv_operator *op, const dv_value *args, size_t nargs, size_t result, dv_result_spec *specs, size_t capacity, size_t *n)
{
    dv__call c;
    uint32_t keys;
    if (!n || (capacity && !specs))
        return dv_fail(DV_EINVAL, "dv_infer_list: no room for the specs or their number: found NULL");
    const int status = infer_begin_call(&c, op, args, nargs, &keys);
    return status ? status : infer_end_call(&c, infer_check_and_describe_list(&c, result, specs, capacity, n));
}

/* ---- Cost ---- */

int dv_cost(dv_operator *op, const dv_value *args, size_t nargs, double *flops, double *bytes)
{
    dv__call c;
    uint32_t keys;
    if (!flops || !bytes)
        return dv_fail(DV_EINVAL, "dv_cost: no pointer for the two numbers: found NULL");
    if (op && !op->contract)
        return dv_fail(DV_ENOTSUP, "%s: no contract says what a call costs", op->name);
    int status = infer_begin_call(&c, op, args, nargs, &keys);
    if (status)
        return status;
    status = dv__contract_eval_flops(op->contract, c.args, &c.solution, flops);
    if (!status)
        status = dv__contract_eval_bytes(op->contract, c.args, &c.solution, bytes);
    return infer_end_call(&c, status);
}

/* ---- Explaining ---- */

typedef struct explainer {
    dv__call *c;
    void (*fn)(void *user, const dv_kernel_report *kernel);
    void *user;
    bool was_selected; /* a kernel or another alternative was reported as selected */
} explainer;

static bool explain_is_number_field(uint32_t field_type)
{
    return field_type == DV_FIELD_INT || field_type == DV_FIELD_FLOAT || field_type == DV_FIELD_BOOL ||
        field_type == DV_FIELD_DTYPE;
}

/* Returns "selected", or prints to buffer why the argument list of a foreign function fails: an argument is None and has no
 * number. */
static const char *explain_print_selected_reason(const dv__call *c, const dv__kernel *kernel, char *buffer, size_t size)
{
    for (size_t i = 0; kernel->foreign_call && i < kernel->foreign_call->n; i++) {
        const dv_foreign_arg *item = &kernel->foreign_call->items[i];
        const bool argument = item->slot >= 0 && (size_t)item->slot < c->signature->nargs;
        if (!argument || !explain_is_number_field(item->type) || item->constant.type != DV_VALUE_DEFAULT ||
            c->args[item->slot].type != DV_VALUE_NONE)
            continue;
        snprintf(buffer, size, "selected, but the call fails: '%s' is None, and the kernel's argument list has no 'or' for it",
            item->name);
        return buffer;
    }
    return "selected";
}

/* Reports one kernel. mismatch_reason: why the kernel is not selected; NULL: it is selected. */
static void explain_report_kernel(explainer *x, const dv__kernel *kernel, const char *mismatch_reason)
{
    char buffer[256];
    const dv_kernel_report r = { kernel->name, kernel->provider, kernel->device, kernel->dtypes_text, kernel->isa_text,
        kernel->when_text, !mismatch_reason,
        mismatch_reason ? mismatch_reason : explain_print_selected_reason(x->c, kernel, buffer, sizeof buffer) };
    x->was_selected |= !mismatch_reason;
    x->fn(x->user, &r);
}

/* Reports an alternative to kernels, with this name: a kernel registered by hand, the decomposition or the contract. */
static void explain_report_alternative(explainer *x, const char *name, const char *reason, bool was_selected)
{
    const dv_kernel_report r = { name, "", "", "", "", "", was_selected, reason };
    x->was_selected |= was_selected;
    x->fn(x->user, &r);
}

/* Reports all kernels of a dispatch entry. is_calls_entry: the entry handles this call; is_disabled: the policy turns the
 * operator's kernels off. */
static void explain_entry_kernels(explainer *x, const dv__dispatch_entry *entry, bool is_calls_entry, bool is_disabled)
{
    char buffer[512];
    for (size_t i = 0; i < entry->nkernels; i++) {
        const dv__kernel *kernel = entry->kernels[i];
        const char *reason = dv__kernel_print_mismatch_reason(x->c, kernel, buffer, sizeof buffer);
        if (!reason && !is_calls_entry)
            reason = "another entry of the dispatch table handles this call";
        else if (!reason && is_disabled)
            reason = "the policy turns this operator's kernels off";
        else if (!reason && x->was_selected)
            reason = "an earlier kernel is selected";
        explain_report_kernel(x, kernel, reason);
    }
}

static const char *explain_print_entry_name(const dv__dispatch_entry *e, char *buffer, size_t size)
{
    if (e->kind == DV__ENTRY_BOXED)
        snprintf(buffer, size, "a kernel registered by hand (%s)", e->from ? e->from : "kernel");
    else
        snprintf(buffer, size, "%s", e->kind == DV__ENTRY_DECOMPOSITION ? "decomposition" : "contract");
    return buffer;
}

/* Evaluates the workspace, as a call does before its kernel runs, since that may fail. Returns a status. */
static int explain_eval_workspace(dv__call *c)
{
    int64_t bytes;
    return c->op->contract ? dv__contract_eval_workspace(c->op->contract, c->args, &c->solution, &bytes) : DV_OK;
}

/* Reports all kernels of the operator, and what else the call could run. Returns a status: the workspace of a selected
 * kernel may fail. */
static int explain_call(explainer *x, uint32_t keys)
{
    dv_operator *op = x->c->op;
    const dv__dispatch_table *table = atomic_load_explicit(&op->table, memory_order_acquire);
    const dv__dispatch_entry *entry = NULL;
    char buffer[256];
    const bool found = !dv__call_find_dispatch_entry(x->c, keys, DV_KEY_RUNTIME_COUNT, &entry);
    const bool has_kernels = found && entry->kind == DV__ENTRY_KERNELS;
    const bool is_disabled = has_kernels && op->decomposition && !dv_policy_is_enabled(op, false);
    if (found && !has_kernels && entry->kind != DV__ENTRY_MISSING)
        explain_report_alternative(x, explain_print_entry_name(entry, buffer, sizeof buffer),
            "selected: the dispatch table has it for this call's keys", true);
    if (has_kernels)
        explain_entry_kernels(x, entry, true, is_disabled);
    const int status = has_kernels && x->was_selected ? explain_eval_workspace(x->c) : DV_OK;
    for (int key = 0; table && key < DV_KEY_RUNTIME_COUNT; key++)
        if (&table->entries[key] != entry && table->entries[key].kind == DV__ENTRY_KERNELS)
            explain_entry_kernels(x, &table->entries[key], false, false);
    if (has_kernels && op->decomposition)
        explain_report_alternative(x, "decomposition",
            is_disabled           ? "selected: the policy turns the kernels off"
                : x->was_selected ? "a kernel is selected"
                                  : "selected: no kernel fits",
            is_disabled || !x->was_selected);
    return status;
}

int dv_explain(
    dv_operator *op, const dv_value *args, size_t nargs, void (*fn)(void *user, const dv_kernel_report *kernel), void *user)
{
    dv__call c;
    uint32_t keys = 0;
    if (op && op->functional_form_of)
        op = op->functional_form_of; /* a call of a functional form calls this operator */
    if (!fn)
        return dv_fail(DV_EINVAL, "dv_explain: no function to call for each kernel: found NULL");
    const int status = infer_begin_call(&c, op, args, nargs, &keys);
    explainer x = { &c, fn, user, false };
    return status ? status : infer_end_call(&c, explain_call(&x, keys));
}
