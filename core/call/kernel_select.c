/* The steps from bound values to a kernel that has run: contract, kernel, results, staging copies, frame, kernel function,
 * copying back. */
#include "call/kernel_select.h"

#include <stdio.h>

#include "base/memory.h"
#include "call/call_cache.h"
#include "call/call_error.h"
#include "call/frame.h"
#include "call/memory.h"
#include "call/decomposition.h"
#include "call/results.h"
#include "call/split.h"
#include "call/bind.h"

/* ---- Choosing a kernel --------------------------------------------------------------------------------------------------- */

static bool kernel_is_for_device(const dv__kernel *kernel, int32_t device_type)
{
    return kernel->device_type == device_type || (kernel->device_type == DV_CPU && dv__is_cpu_memory(device_type)) ||
        (kernel->device_type == DV_CUDA && device_type == DV_CUDA_MANAGED);
}

/* Returns kernel number kernel_number of the entry, counted from 1, which the test hooks request. Returns NULL with *status
 * if it does not exist or does not match the call. */
static const dv__kernel *kernel_find_requested(dv__call *c, const dv__dispatch_entry *entry, size_t kernel_number, int *status)
{
    char reason[512];
    if (kernel_number > entry->nkernels) {
        *status = dv_fail(
            DV_ENOKERNEL, "%s: the host requests kernel %zu, and there are %zu", c->op->name, kernel_number, entry->nkernels);
        return NULL;
    }
    const dv__kernel *kernel = entry->kernels[kernel_number - 1];
    const char *mismatch = dv__kernel_print_mismatch_reason(c, kernel, reason, sizeof reason);
    if (mismatch)
        *status = dv_fail(DV_ENOKERNEL, "%s: the host requests kernel %s, but %s", c->op->name, kernel->name, mismatch);
    return mismatch ? NULL : kernel;
}

const dv__kernel *dv__kernel_select(dv__call *c, const dv__dispatch_entry *entry, int *status)
{
    *status = DV_OK;
    if (dv__requested_kernel_number(c) > 0)
        return kernel_find_requested(c, entry, (size_t)dv__requested_kernel_number(c), status);
    for (size_t i = 0; i < entry->nkernels; i++) {
        const dv__kernel *kernel = entry->kernels[i];
        if (kernel->dtypes && !dv__dtype_sets_match(kernel->dtypes, &c->solution))
            continue;
        if (!dv__isa_is_available(kernel->isas) || !kernel_is_for_device(kernel, c->device.type))
            continue;
        if (kernel->when) {
            bool holds;
            if ((*status = dv__predicate_eval(c->op->contract, kernel->when, c->args, &c->solution, &holds)))
                return NULL;
            if (!holds)
                continue;
        }
        return kernel;
    }
    return NULL;
}

const char *dv__kernel_print_mismatch_reason(dv__call *c, const dv__kernel *kernel, char *buffer, size_t size)
{
    char found[200];
    bool holds = true;
    if (!kernel_is_for_device(kernel, c->device.type))
        snprintf(buffer, size, "it is for %s, and the tensors are on %s", kernel->device, dv_device_name(c->device.type));
    else if (kernel->dtypes && !dv__dtype_sets_match(kernel->dtypes, &c->solution))
        snprintf(buffer, size, "it is for %s, and %s", kernel->dtypes_text,
            dv__dtype_sets_print_mismatch(kernel->dtypes, c->op->contract, c->args, &c->solution, found, sizeof found));
    else if (kernel->isas >> DV__ISA_UNKNOWN)
        snprintf(buffer, size, "this runtime does not know the instruction set %s", kernel->isa_text);
    else if (!dv__isa_is_available(kernel->isas))
        snprintf(buffer, size, "this processor has no %s, or DOVETAIL_ISA or dv_set_isa() hides it", kernel->isa_text);
    else if (kernel->when && dv__predicate_eval(c->op->contract, kernel->when, c->args, &c->solution, &holds))
        snprintf(buffer, size, "its condition %s cannot be evaluated: %s", kernel->when_text, dv_last_error());
    else if (!holds)
        snprintf(buffer, size, "its condition %s does not hold", kernel->when_text);
    else
        return NULL;
    return buffer;
}

int dv__fail_no_kernel(dv__call *c, const dv__dispatch_entry *entry)
{
    dv__strbuf all = { 0 };
    char reason[512];
    for (size_t i = 0; i < entry->nkernels; i++) {
        const dv__kernel *kernel = entry->kernels[i];
        const char *mismatch = dv__kernel_print_mismatch_reason(c, kernel, reason, sizeof reason);
        dv__strbuf_printf(&all, "\n    %s: %s", kernel->name, mismatch ? mismatch : "it fits");
    }
    const int status = dv_fail(
        DV_ENOKERNEL, "%s: no kernel fits this call; there are:%s", c->op->name, all.data ? all.data : " none");
    dv__strbuf_deinit(&all);
    return status;
}

/* ---- Running ------------------------------------------------------------------------------------------------------------- */

/* Fails if the kernel did not call dv_set_output() for a result whose size depends on data. */
static int kernel_check_outputs_were_set(const dv__call *c)
{
    for (size_t r = 0; r < c->signature->nreturns; r++)
        if (c->outs[r].origin == DV__RESULT_PENDING && !c->outs[r].output_was_set)
            return dv__fail_slot(c, DV_EKERNEL, c->signature->nargs + r,
                "the kernel did not make it: its size depends on data, so it must call dv_set_output()");
    return DV_OK;
}

/* Sets c->tensors of each result that is an argument itself to the tensor that the kernel gets for that argument. */
static void kernel_set_alias_tensors(dv__call *c)
{
    assert(c->nouts == c->signature->nreturns);
    for (size_t r = 0; r < c->nouts; r++)
        if (c->outs[r].origin == DV__RESULT_ALIAS)
            c->tensors[c->signature->nargs + r] = c->tensors[c->signature->slots[c->signature->nargs + r].alias];
}

/* Lets a test replace the struct that the kernel function gets. Returns what the test hook watch() returns; `frame` without
 * a hook, or if the struct has no field for the slot watched_slot. */
static char *kernel_apply_watch_hook(const dv__call *c, const dv__binding *b, char *frame)
{
    const dv_test_hooks *test = dv__test_hooks(c->host);
    for (uint32_t i = 0; test && test->watch && i < b->n; i++)
        if (b->fields[i].slot == test->watched_slot)
            return test->watch(c->host, frame, b->frame_size, b->fields[i].offset, dv_field_at(b->fields[i].type)->size);
    return frame;
}

/* Fills the kernel's struct `frame` and runs the kernel, with staging copies and the hooks of host and tests. Returns a
 * status. */
static int kernel_fill_frame_and_run(dv__call *c, const dv__kernel *kernel, char *frame)
{
    const bool hooks = !(c->nested_flags & DV__NESTED_IN_KERNEL);
    void *stream = NULL;
    int status;
    c->workspace = 0;
    if (c->op->contract && (status = dv__contract_eval_workspace(c->op->contract, c->args, &c->solution, &c->workspace)))
        return status;
    if (!dv__is_cpu_memory(c->device.type) && DV__HOST_HAS(c->host, stream) &&
        (status = c->host->stream(c->host, c->device, &stream)))
        return status;
    kernel_set_alias_tensors(c);
    dv__frame_fill(c, kernel->binding, frame);
    if (hooks)
        frame = kernel_apply_watch_hook(c, kernel->binding, frame);
    if (hooks && DV__HOST_HAS(c->host, before_kernel))
        c->host->before_kernel(c->host);
    c->in_kernel = true;
    if (!(status = dv__staging_copy_in(c))) {
        status = dv__call_report_recorded_error(
            c, dv__run_kernel_in_slices_if_possible(c, kernel, frame, c->workspace, stream), kernel->name);
        if (!status)
            status = kernel_check_outputs_were_set(c);
        if (!status)
            status = dv__staging_copy_back(c);
    }
    c->in_kernel = false;
    if (hooks && DV__HOST_HAS(c->host, after_kernel))
        c->host->after_kernel(c->host);
    return status;
}

/* Makes the results and the staging copies, checks overlaps, then fills the struct and runs the kernel. Returns a status. */
static int kernel_make_results_and_run(dv__call *c, const dv__kernel *kernel)
{
    _Alignas(16) char stack[DV__MAX_STACK_FRAME_SIZE], *frame = stack;
    int status = dv__make_results(c);
    if (status || (status = dv__gather_results(c)) || (status = dv__check_overlaps(c)) ||
        (status = dv__staging_make_copies(c, kernel)))
        return status;
    if (kernel->binding->frame_size > sizeof stack && !(frame = dv__arena_alloc(&c->arena, kernel->binding->frame_size)))
        return DV_ENOMEM;
    return kernel_fill_frame_and_run(c, kernel, frame);
}

int dv__select_and_run_kernel(dv__call *c, const dv__dispatch_entry *entry)
{
    int status = dv__call_solve_contract(c);
    if (status)
        return status;
    if (dv__requested_kernel_number(c))
        c->policy_decision = dv__requested_kernel_number(c) > 0;
    if (c->policy_decision < 0)
        c->policy_decision = dv__policy_decide_if_enabled(c->op, dv__host_flags(c->host) & DV_HOST_FUSES);
    if (!c->policy_decision && c->op->decomposition)
        return dv__decomposition_run(c);
    const dv__kernel *kernel = dv__kernel_select(c, entry, &status);
    if (!kernel)
        return status ? status : c->op->decomposition ? dv__decomposition_run(c) : dv__fail_no_kernel(c, entry);
    if (!dv__is_cpu_memory(c->device.type) && !c->host)
        return dv_fail(DV_EHOST, "%s: the tensors are on %s, which needs a host framework; the embedded default has only the cpu",
            c->op->name, dv_device_name(c->device.type));
    if ((status = dv__gather_args(c)))
        return status;
    status = kernel_make_results_and_run(c, kernel);
    if (!status && c->ran_unsplit && !dv__has_kernel_test_override(c->host))
        dv__call_cache_store(c, entry, kernel);
    return status;
}

int dv__make_results_without_kernel(dv__call *c)
{
    int status = dv__call_solve_contract(c);
    if (status || (status = dv__gather_args(c)))
        return status;
    if (!(status = dv__make_results(c)) && !(status = dv__gather_results(c)))
        status = dv__check_overlaps(c);
    if (!status) /* sizes that depend on data are unknown without the kernel */
        for (size_t r = 0; r < c->signature->nreturns && !status; r++)
            if (c->outs[r].origin == DV__RESULT_PENDING)
                status = dv__fail_slot(c, DV_ENOTSUP, c->signature->nargs + r,
                    "its size depends on data, and the arguments have none (%s)", dv_device_name(c->device.type));
    return status;
}

int dv__make_results_if_all_views(dv__call *c, bool *all_views)
{
    *all_views = false;
    if (!c->op->contract || !c->signature->nreturns || c->signature->writes_arguments)
        return DV_OK;
    for (size_t r = 0; r < c->signature->nreturns; r++)
        if (c->signature->slots[c->signature->nargs + r].alias < 0)
            return DV_OK;
    for (size_t r = 0; r < c->signature->nreturns; r++) /* the contract is solved, so the selected case is known */
        if (!dv__contract_is_view(c->op->contract, &c->solution, r))
            return DV_OK;
    *all_views = true;
    return dv__make_results(c);
}
