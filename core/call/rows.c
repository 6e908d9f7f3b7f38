/* From checked values to a kernel that has run: contract, row, results, stand-ins, frame, kernel, copying back. */
#include "call/rows.h"

#include <stdio.h>

#include "base/memory.h"
#include "call/again.h"
#include "call/fail.h"
#include "call/frame.h"
#include "call/memory.h"
#include "call/native.h"
#include "call/results.h"
#include "call/split.h"
#include "call/values.h"

/* ---- Rows ---- */

static bool runs_on(const dv__row *row, int32_t device_type)
{
    return row->device_type == device_type || (row->device_type == DV_CPU && dv__host_memory(device_type)) ||
        (row->device_type == DV_CUDA && device_type == DV_CUDA_MANAGED);
}

/* The host asks for one row. */
static const dv__row *asked_row(dv__call *c, const dv__entry *entry, size_t n, int *status)
{
    char reason[512];
    if (n > entry->nrows) {
        *status = dv_fail(DV_ENOKERNEL, "%s: the host asks for row %zu, and there are %zu", c->op->name, n, entry->nrows);
        return NULL;
    }
    const dv__row *row = entry->rows[n - 1];
    const char *why = dv__row_reason(c, row, reason, sizeof reason);
    if (why)
        *status = dv_fail(DV_ENOKERNEL, "%s: the host asks for row %s, but %s", c->op->name, row->name, why);
    return why ? NULL : row;
}

const dv__row *dv__choose_row(dv__call *c, const dv__entry *entry, int *status)
{
    *status = DV_OK;
    if (dv__asked_row(c) > 0)
        return asked_row(c, entry, (size_t)dv__asked_row(c), status);
    for (size_t i = 0; i < entry->nrows; i++) {
        const dv__row *row = entry->rows[i];
        if (row->dtypes && !dv__dtype_sets_match(row->dtypes, &c->solution))
            continue;
        if (!dv__isa_available(row->isas) || !runs_on(row, c->device.type))
            continue;
        if (row->when) {
            bool holds;
            if ((*status = dv__predicate_eval(c->op->contract, row->when, c->args, &c->solution, &holds)))
                return NULL;
            if (!holds)
                continue;
        }
        return row;
    }
    return NULL;
}

const char *dv__row_reason(dv__call *c, const dv__row *row, char *buffer, size_t size)
{
    char found[200];
    bool holds = true;
    if (!runs_on(row, c->device.type))
        snprintf(buffer, size, "it is for %s, and the tensors are on %s", row->device, dv_device_name(c->device.type));
    else if (row->dtypes && !dv__dtype_sets_match(row->dtypes, &c->solution))
        snprintf(buffer, size, "it takes %s, and %s", row->dtypes_text,
            dv__dtype_sets_reason(row->dtypes, c->op->contract, c->args, &c->solution, found, sizeof found));
    else if (row->isas >> DV__ISA_UNKNOWN)
        snprintf(buffer, size, "this runtime does not know the instruction set %s", row->isa_text);
    else if (!dv__isa_available(row->isas))
        snprintf(buffer, size, "this processor has no %s, or DOVETAIL_ISA or dv_set_isa() hides it", row->isa_text);
    else if (row->when && dv__predicate_eval(c->op->contract, row->when, c->args, &c->solution, &holds))
        snprintf(buffer, size, "its condition %s cannot be evaluated: %s", row->when_text, dv_last_error());
    else if (!holds)
        snprintf(buffer, size, "its condition %s does not hold", row->when_text);
    else
        return NULL;
    return buffer;
}

int dv__no_row(dv__call *c, const dv__entry *entry)
{
    dv__text all = { 0 };
    char reason[512];
    for (size_t i = 0; i < entry->nrows; i++) {
        const dv__row *row = entry->rows[i];
        const char *why = dv__row_reason(c, row, reason, sizeof reason);
        dv__text_add(&all, "\n    %s: %s", row->name, why ? why : "it fits");
    }
    const int status = dv_fail(
        DV_ENOKERNEL, "%s: no kernel fits this call; there are:%s", c->op->name, all.data ? all.data : " none");
    dv__text_deinit(&all);
    return status;
}

/* ---- Running ---- */

static int check_pending(const dv__call *c)
{
    for (size_t r = 0; r < c->plan->nreturns; r++)
        if (c->outs[r].origin == DV__RESULT_PENDING && !c->outs[r].set)
            return dv__fail_argument(c, DV_EKERNEL, c->plan->nargs + r,
                "the kernel did not make it: its size depends on data, so it must call dv_set_output()");
    return DV_OK;
}

static void set_aliases(dv__call *c)
{
    assert(c->nouts == c->plan->nreturns);
    for (size_t r = 0; r < c->nouts; r++)
        if (c->outs[r].origin == DV__RESULT_ALIAS)
            c->tensors[c->plan->nargs + r] = c->tensors[c->plan->slots[c->plan->nargs + r].alias];
}

static int run_row(dv__call *c, const dv__row *row, char *frame)
{
    const bool hooks = !(c->inner & DV__INNER_KERNEL);
    void *stream = NULL;
    int status;
    c->workspace = 0;
    if (c->op->contract && (status = dv__contract_workspace(c->op->contract, c->args, &c->solution, &c->workspace)))
        return status;
    if (!dv__host_memory(c->device.type) && DV__HOST(c->host, stream) && (status = c->host->stream(c->host, c->device, &stream)))
        return status;
    set_aliases(c);
    dv__fill_frame(c, row->binding, frame);
    if (hooks && DV__HOST(c->host, before_kernel))
        c->host->before_kernel(c->host);
    c->in_kernel = true;
    if (!(status = dv__copy_in(c))) {
        status = dv__report(c, dv__run_kernel(c, row, frame, c->workspace, stream), row->name);
        if (!status)
            status = check_pending(c);
        if (!status)
            status = dv__copy_back(c);
    }
    c->in_kernel = false;
    if (hooks && DV__HOST(c->host, after_kernel))
        c->host->after_kernel(c->host);
    return status;
}

static int prepare_and_run(dv__call *c, const dv__row *row)
{
    _Alignas(16) char stack[DV__STACK_FRAME], *frame = stack;
    int status = dv__make_results(c);
    if (status || (status = dv__gather_results(c)) || (status = dv__check_overlaps(c)) || (status = dv__make_temps(c, row)))
        return status;
    if (row->binding->frame_size > sizeof stack && !(frame = dv__arena_alloc(&c->arena, row->binding->frame_size)))
        return DV_ENOMEM;
    return run_row(c, row, frame);
}

int dv__run_rows(dv__call *c, const dv__entry *entry)
{
    int status = dv__solve(c);
    if (status)
        return status;
    if (dv__asked_row(c))
        c->decision = dv__asked_row(c) > 0;
    if (c->decision < 0)
        c->decision = dv__policy_decide(c->op, dv__host_flags(c->host) & DV_HOST_FUSES);
    if (!c->decision && c->op->native)
        return dv__run_native(c);
    const dv__row *row = dv__choose_row(c, entry, &status);
    if (!row)
        return status ? status : c->op->native ? dv__run_native(c) : dv__no_row(c, entry);
    if (!dv__host_memory(c->device.type) && !c->host)
        return dv_fail(DV_EHOST, "%s: the tensors are on %s, which needs a host framework; the embedded default has only the cpu",
            c->op->name, dv_device_name(c->device.type));
    if ((status = dv__gather_args(c)))
        return status;
    status = prepare_and_run(c, row);
    if (!status && c->whole && !dv__test_chooses(c->host))
        dv__remember(c, entry, row);
    return status;
}

int dv__run_contract(dv__call *c)
{
    int status = dv__solve(c);
    if (status || (status = dv__gather_args(c)))
        return status;
    if (!(status = dv__make_results(c)) && !(status = dv__gather_results(c)))
        status = dv__check_overlaps(c);
    if (!status) /* sizes that depend on data are unknown without the kernel */
        for (size_t r = 0; r < c->plan->nreturns && !status; r++)
            if (c->outs[r].origin == DV__RESULT_PENDING)
                status = dv__fail_argument(c, DV_ENOTSUP, c->plan->nargs + r,
                    "its size depends on data, and the arguments have none (%s)", dv_device_name(c->device.type));
    return status;
}

int dv__run_views(dv__call *c, bool *all_views)
{
    *all_views = false;
    if (!c->op->contract || !c->plan->nreturns || c->plan->writes)
        return DV_OK;
    for (size_t r = 0; r < c->plan->nreturns; r++)
        if (c->plan->slots[c->plan->nargs + r].alias < 0)
            return DV_OK;
    for (size_t r = 0; r < c->plan->nreturns; r++) /* it is solved */
        if (!dv__contract_gives_view(c->op->contract, &c->solution, r))
            return DV_OK;
    *all_views = true;
    return dv__make_results(c);
}
