/* Plans of kernels, each kept while a job needs it. */
#include <errno.h>
#include <string.h>

#include "worker.h"

bool check_job_needs_plan(const check_job *job) { return !job->property->check_without_cases; }

/* Returns the plan of a job's operator and kernel; NULL if it is not made yet, or was released. */
static check_shared_plan *shared_plan_find(check_shared_plan *plans, const check_job *job)
{
    for (size_t i = 0; i < CHECK_MAX_PLANS; i++)
        if (plans[i].plan && plans[i].op == job->op && plans[i].kernel == job->kernel)
            return &plans[i];
    return NULL;
}

/* True if two strings are equal, or both are NULL. */
static bool shared_plan_is_same_or_both_null(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* True if the plan for properties of the whole operator takes dtypes from a kernel: some kernel lists dtypes for a variable that
 * the contract leaves open, by name or as the first variable. */
static bool shared_plan_uses_kernel_dtypes(const check_op *op)
{
    const check_json *dtypes = check_json_find_member(op->contract, "dtypes"), *first = dtypes ? dtypes->child : NULL;
    bool any = !op->contract;
    for (const check_json *d = first; d; d = d->next) {
        const check_json *in = check_json_find_member(d, "in");
        for (size_t k = 0; k < op->nkernels && in && in->kind == CHECK_JSON_NULL; k++)
            any |= op->kernels[k].dtypes && (d == first || strchr(op->kernels[k].dtypes, '='));
    }
    return any;
}

bool check_kernels_have_same_plan(const check_op *op, const check_kernel *a, const check_kernel *b)
{
    const check_kernel none = { 0 }, *x = a ? a : &none, *y = b ? b : &none;
    return shared_plan_is_same_or_both_null(x->dtypes, y->dtypes) && shared_plan_is_same_or_both_null(x->when, y->when) &&
        (!a == !b || !shared_plan_uses_kernel_dtypes(op));
}

/* Returns a plan of the same operator that would equal the job's plan; NULL if there is none. */
static const check_shared_plan *shared_plan_find_equal(const check_shared_plan *plans, const check_job *job)
{
    for (size_t i = 0; i < CHECK_MAX_PLANS; i++)
        if (plans[i].plan && plans[i].op == job->op && check_kernels_have_same_plan(job->op, plans[i].kernel, job->kernel))
            return &plans[i];
    return NULL;
}

void check_shared_plan_release(check_shared_plan *plans, const check_job *job)
{
    check_shared_plan *p = shared_plan_find(plans, job);
    if (!p || !check_job_needs_plan(job) || --p->jobs)
        return;
    check_shared_map_free(p->plan);
    *p = (check_shared_plan){ .result = p->result };
}

check_shared_plan *check_shared_plan_find_or_make(
    check_shared_plan *plans, const check_job *job, const check_job *jobs, size_t njobs)
{
    static const check_property planning = { .name = "plan", .check_without_cases = check_task_make_plan };
    check_shared_plan *p = shared_plan_find(plans, job);
    const check_shared_plan *same = shared_plan_find_equal(plans, job);
    check_running_job one;
    size_t running = 1;
    if (p)
        return p;
    for (p = plans; p->plan; p++)
        if (p + 1 == plans + CHECK_MAX_PLANS)
            return errno = ENOMEM, NULL;
    void *memory = check_shared_map_new_zeroed(sizeof *p->plan);
    if (!memory || (!p->result && !(p->result = check_map_shared_result())))
        return NULL;
    *p = (check_shared_plan){ job->op, job->kernel, memory, p->result, 0 };
    for (size_t i = 0; i < njobs; i++)
        p->jobs += jobs[i].op == job->op && jobs[i].kernel == job->kernel && check_job_needs_plan(&jobs[i]);
    if (same) {
        *p->result = *same->result;
        *p->plan = *same->plan;
        memset((void *)(uintptr_t)p->plan->dropped, 0, sizeof p->plan->dropped);
        return p;
    }
    check_job making = *job;
    making.property = &planning;
    making.repeat = NULL;
    making.result = p->result;
    making.plan = p->plan;
    memset(p->result, 0, sizeof *p->result);
    return check_worker_try_start(&one, &making, check_worker_get_sleep_limit(), check_task_run_job) &&
            check_worker_wait_for_ended_job(&one, &running)
        ? p
        : NULL;
}
