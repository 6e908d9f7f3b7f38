/* runs: what the contract accepts runs to its end. A kernel may refuse a case with a message (what is inside tensors is the
 * kernel's to check); it may not crash, end the process or loop, fail without a message, or because it does
 * not do what its declaration says about its results. */
#include <string.h>
#include <time.h>

#include "check.h"

enum { DEEP = 1 << 20, MUCH = 24 << 10, FROM = 4096, SLOW = CLOCKS_PER_SEC / 20 };

/* given: the current case before it and behind it. */
static size_t depth_of(check_job *job, const check_case *c, const check_case *given)
{
    static check_call call;
    check_in_hand_with_results(job, c);
    call = (check_call){ .op = job->op, .row = job->row, .end = CHECK_AT_END, .poison = 0xa5, .deep = DEEP };
    check_call_run(&call, c);
    check_in_hand_with_results(job, given);
    return call.status || !call.kernel_ran ? 0 : call.depth;
}

/* The size of a name, of a run its largest; NULL: it has none. */
static int64_t *size_of(const check_name *name, check_case *c)
{
    int64_t *size = check_name_size(name, c);
    const int32_t n = name->kind == CHECK_NAME_RUN ? c->names.runs[name->at].n : 1;
    int32_t at = 0;
    for (int32_t d = 1; d < n; d++)
        at = size[d] > size[at] ? d : at;
    return size && n ? size + at : NULL;
}

/* How deep it is with `times` / 2 of this size; 0: there is no such call. */
static size_t depth_with(check_job *job, const check_case *c, const check_case *given, const check_name *name, int64_t times)
{
    static check_case other;
    other = *c;
    int64_t *const size = size_of(name, &other), wanted = *size * times / 2;
    *size = wanted;
    const bool fits = check_fit(job->op, &other, c, NULL) && *size == wanted;
    const bool short_too = check_work_with_numbers(job->op, &other) <= 8 * check_work_with_numbers(job->op, c);
    return fits && short_too && check_accepts(job->op, &other) ? depth_of(job, &other, given) : 0;
}

/* The stack that a call takes is bounded: half of a large size does not take half of it, nor twice the size more. For each name
 * until its size is the largest: less than what the call fills before does not show. */
static void check_stack(check_job *job, const check_case *given)
{
    static check_case c;
    static int64_t looked[CHECK_NAMES + 2 * CHECK_RUNS]; /* at which size */
    size_t depth = 0, less, more;
    if (check_case_largest(given) < FROM)
        return;
    c = *given;
    for (size_t k = 0; k < job->op->nnames && job->result->outcome == CHECK_PASS; k++) {
        const check_name *name = &job->op->names[k];
        const int64_t *size = c.names.bound[k] ? size_of(name, &c) : NULL;
        if (!size || *size < FROM || (*size <= looked[k] && job->result->cases))
            continue;
        depth = depth ? depth : depth_of(job, &c, given);
        less = depth < MUCH ? 0 : depth_with(job, &c, given, name, 1);
        more = less ? depth_with(job, &c, given, name, 4) : 0;
        looked[k] = depth < MUCH || more ? *size
                                         : looked[k]; /* else twice the size was too large, and is not with another case */
        if (!more || 4 * less > 3 * depth || (more < DEEP && 2 * more < 3 * depth))
            continue;
        job->how.show = CHECK_SHOW_NOTHING;
        check_fail(job, "stack by size",
            "the kernel takes stack by a size, and for a larger one there is none: %zu bytes with %s%s = %lld, %zu with %lld",
            less, name->kind == CHECK_NAME_RUN ? "a dim of *" : "", name->text, (long long)(*size / 2), depth, (long long)*size);
    }
}

/* A call that leaves out all that it may; the report says so if none succeeds. */
static void look_at_defaults(check_job *job, const check_case *c, bool refused)
{
    enum { FEW = 3 };
    static uint32_t n;
    static bool taken;
    bool any = false, all = true;
    for (size_t i = 0; i < c->nargs; i++) {
        const bool has = job->op->slots[i].default_value.type != DV_VALUE_DEFAULT;
        any |= has;
        all &= !has || c->args[i].type == DV_VALUE_DEFAULT;
    }
    if (!any || !all || taken)
        return;
    n++;
    taken = !refused;
    check_left_out(job, taken || n < FEW ? NULL : "a call with all defaults: the kernel refuses each");
}

static void attempt(check_job *job, const check_case *c)
{
    static check_call call;
    call = (check_call){ .op = job->op, .row = job->row, .end = CHECK_AT_END, .poison = 0xa5 };
    const clock_t begin = clock();
    check_call_run(&call, c);
    const bool slow = clock() - begin > SLOW;
    if (call.not_this_row) {
        job->result->cases--;
        return;
    }
    look_at_defaults(job, c, call.status != 0);
    if (!call.status) {
        if (!slow)
            check_stack(job, c);
        return;
    }
    check_refused(job);
    job->how.show = CHECK_SHOW_ACCEPT;
    if (call.kernel_ran && (strstr(dv_last_error(), "dv_set_output") || strstr(dv_last_error(), "dv_alloc: the alignment")))
        check_fail(job, "against its declaration", "the kernel does not keep to what it declares: %s", dv_last_error());
    else if (call.kernel_ran && strstr(dv_last_error(), "and no message"))
        check_fail(job, "no message", "the kernel fails without a message: %s", dv_last_error());
    else if (call.kernel_ran && strstr(dv_last_error(), "which is not a status"))
        check_fail(job, "no status", "%s", dv_last_error());
}

const check_property check_property_runs = {
    .name = "runs",
    .promise = "what the contract accepts runs to its end: no crash, no endless loop, no error without a message",
    .each_row = true,
    .faults = CHECK_FAULT_CRASH | CHECK_FAULT_TIME,
    .attempt = attempt,
};
