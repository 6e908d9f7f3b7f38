/* Property runs: what the contract accepts runs to its end. A kernel may refuse a case with a message, since the contents of
 * tensors are its own to check. It must not crash, end the process, loop, fail without a message, or fail because its results
 * differ from its declaration. */
#include <string.h>
#include <time.h>

#include "check.h"

enum { STACK_PROBE_BYTES = 1 << 20, MIN_LARGE_DEPTH = 24 << 10, MIN_STACK_SIZE = 4096, SLOW_CLOCKS = CLOCKS_PER_SEC / 20 };

/* Returns the bytes of stack that a call of case c uses, at most STACK_PROBE_BYTES; 0: the call was refused. current_case: the
 * job's current case before and after this call. */
static size_t runs_measure_stack_depth(check_job *job, const check_case *c, const check_case *current_case)
{
    static check_guarded_call call;
    check_set_current_case(job, c);
    call = (check_guarded_call){ .op = job->op,
        .kernel = job->kernel,
        .guard_side = CHECK_GUARD_AFTER,
        .poison_byte = 0xa5,
        .poisoned_stack_bytes = STACK_PROBE_BYTES };
    check_guarded_call_run(&call, c);
    check_set_current_case(job, current_case);
    return call.status || !call.kernel_ran ? 0 : call.used_stack_bytes;
}

/* Returns the address of the size that a name has in the case; of variadic dims the largest size. NULL: the name has no size. */
static int64_t *runs_find_largest_size(const check_name *name, check_case *c)
{
    int64_t *size = check_name_find_sizes(name, c);
    const int32_t n = name->kind == CHECK_NAME_VARIADIC ? c->names.variadics[name->value_index].ndim : 1;
    int32_t largest = 0;
    for (int32_t d = 1; d < n; d++)
        largest = size[d] > size[largest] ? d : largest;
    return size && n ? size + largest : NULL;
}

/* Returns the bytes of stack that a call of case c uses when the size of a name is multiplied by twice_factor / 2. 0: no such
 * case is accepted, or it takes too long. */
static size_t runs_measure_stack_depth_with_scaled_size(
    check_job *job, const check_case *c, const check_case *current_case, const check_name *name, int64_t twice_factor)
{
    static check_case other;
    other = *c;
    int64_t *const size = runs_find_largest_size(name, &other), wanted_size = *size * twice_factor / 2;
    *size = wanted_size;
    const bool fits = check_try_fit_case(job->op, &other, c, NULL) && *size == wanted_size;
    const bool is_quick_enough = check_estimate_work_with_ints(job->op, &other) <= 8 * check_estimate_work_with_ints(job->op, c);
    return fits && is_quick_enough && check_is_accepted(job->op, &other) ? runs_measure_stack_depth(job, &other, current_case)
                                                                         : 0;
}

/* Checks that the stack of a call does not grow with a size: half of a large size must not halve it, nor twice the size double
 * it. Tests each name until its size is the largest, because a depth below what the call fills does not show. */
static void runs_check_stack(check_job *job, const check_case *current_case)
{
    static check_case c;
    /* for each name of the contract: the largest size that was tested */
    static int64_t checked_sizes[CHECK_MAX_NAMES + 2 * CHECK_MAX_VARIADICS];
    size_t depth = 0, less, more;
    if (check_case_max_numel(current_case) < MIN_STACK_SIZE)
        return;
    c = *current_case;
    for (size_t k = 0; k < job->op->nnames && job->result->outcome == CHECK_OUTCOME_PASS; k++) {
        const check_name *name = &job->op->names[k];
        const int64_t *size = c.names.is_bound[k] ? runs_find_largest_size(name, &c) : NULL;
        if (!size || *size < MIN_STACK_SIZE || (*size <= checked_sizes[k] && job->result->tried_cases))
            continue;
        depth = depth ? depth : runs_measure_stack_depth(job, &c, current_case);
        less = depth < MIN_LARGE_DEPTH ? 0 : runs_measure_stack_depth_with_scaled_size(job, &c, current_case, name, 1);
        more = less ? runs_measure_stack_depth_with_scaled_size(job, &c, current_case, name, 4) : 0;
        checked_sizes[k] = depth < MIN_LARGE_DEPTH || more
            ? *size
            : checked_sizes[k]; /* if a case of twice the size cannot be made, another case is tried for this name */
        if (!more || 4 * less > 3 * depth || (more < STACK_PROBE_BYTES && 2 * more < 3 * depth))
            continue;
        check_fail(job, "stack by size",
            "the kernel takes stack by a size, and for a larger one there is none: %zu bytes with %s%s = %lld, %zu with %lld",
            less, name->kind == CHECK_NAME_VARIADIC ? "a dim of *" : "", name->text, (long long)(*size / 2), depth,
            (long long)*size);
    }
}

/* Records in the report if the kernel has refused each case, of at least 3, in which all arguments with a default have it.
 * Ignores all other cases. */
static void runs_check_defaults(check_job *job, const check_case *c, bool is_refused)
{
    enum { MIN_DEFAULT_CALLS = 3 };
    static uint32_t ndefault_cases;
    static bool was_accepted;
    bool has_defaults = false, is_at_defaults = true;
    for (size_t i = 0; i < c->nargs; i++) {
        const bool has = job->op->slots[i].default_value.type != DV_VALUE_DEFAULT;
        has_defaults |= has;
        is_at_defaults &= !has || c->args[i].type == DV_VALUE_DEFAULT;
    }
    if (!has_defaults || !is_at_defaults || was_accepted)
        return;
    ndefault_cases++;
    was_accepted = !is_refused;
    check_set_omitted(
        job, was_accepted || ndefault_cases < MIN_DEFAULT_CALLS ? NULL : "a call with all defaults: the kernel refuses each");
}

/* Checks one case: the call ends, its stack does not grow with a size, and a refusal has a message and a valid status. */
static void runs_test_case(check_job *job, const check_case *c)
{
    static check_guarded_call call;
    call = (check_guarded_call){ .op = job->op, .kernel = job->kernel, .guard_side = CHECK_GUARD_AFTER, .poison_byte = 0xa5 };
    const clock_t begin = clock();
    check_guarded_call_run(&call, c);
    const bool is_slow = clock() - begin > SLOW_CLOCKS;
    if (call.kernel_declined) {
        job->result->tried_cases--;
        return;
    }
    runs_check_defaults(job, c, call.status != 0);
    if (!call.status) {
        if (!is_slow)
            runs_check_stack(job, c);
        return;
    }
    check_count_refusal(job);
    if (call.kernel_ran && (strstr(dv_last_error(), "dv_set_output") || strstr(dv_last_error(), "dv_alloc: the alignment")))
        check_fail(job, "against its declaration", "the kernel does not keep to what it declares: %s", dv_last_error());
    else if (call.kernel_ran && strstr(dv_last_error(), "and no message"))
        check_fail(job, "no message", "the kernel fails without a message: %s", dv_last_error());
    else if (call.kernel_ran && strstr(dv_last_error(), "which is not a status"))
        check_fail(job, "no status", "%s", dv_last_error());
}

const check_property check_property_runs = {
    .name = "runs",
    .description = "what the contract accepts runs to its end: no crash, no endless loop, no error without a message",
    .per_kernel = true,
    .reported_faults = CHECK_FAULT_CRASH | CHECK_FAULT_TIMEOUT,
    .test_case = runs_test_case,
};
