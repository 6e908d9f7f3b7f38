/* The schedule of all jobs: which are run, in which order, and what their results mean together. */
#include <errno.h>
#include <execinfo.h>
#include <stdlib.h>
#include <string.h>

#include "worker.h"

/* ---- The list of jobs ---- */

bool check_is_selected_property(const check_options *options, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = options->only_properties; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (!strncmp(p, name, n) && (p[n] == ',' || !p[n]))
            return true;
    return !options->only_properties;
}

/* Appends a job to `jobs`, unless --case KEY asks for another one. jobs NULL: only counts it in *njobs. */
static void schedule_add_job(check_job *jobs, size_t *njobs, const check_op *op, const check_kernel *kernel,
    const check_property *property, const check_options *options)
{
    const check_repeat *given = options->repeat;
    if (given &&
        ((!options->properties && given->property != property) || (given->op && given->op != op) ||
            (given->kernel && given->kernel != kernel)))
        return;
    if (jobs)
        jobs[*njobs] = (check_job){ .op = op,
            .kernel = kernel,
            .property = property,
            .seed = options->seed,
            .last_seed = options->last_seed > options->seed ? options->last_seed : options->seed,
            .max_cases = options->max_cases,
            .cpu_seconds_per_seed = 1,
            .case_ms = options->case_ms,
            .preceding_case = given && given->has_preceding_case ? &given->preceding_case : NULL,
            .preceding_guard_side = given ? given->preceding_guard_side : CHECK_GUARD_AFTER,
            .repeat = given };
    ++*njobs;
}

/* Writes all jobs to `jobs` in the order of a report, and returns their number. jobs NULL: only counts them. */
static size_t schedule_list_all_jobs(const check_op *ops, size_t nops, const check_options *options, check_job *jobs)
{
    size_t n = 0;
    for (size_t i = 0; i < nops; i++)
        for (const check_property *const *p = options->properties ? options->properties : check_properties; *p; p++) {
            if ((*p)->runs_in_python || (!options->properties && !check_is_selected_property(options, (*p)->name)))
                continue;
            if (!(*p)->per_kernel)
                schedule_add_job(jobs, &n, &ops[i], NULL, *p, options);
            for (size_t k = 0; (*p)->per_kernel && k < ops[i].nkernels; k++)
                schedule_add_job(jobs, &n, &ops[i], &ops[i].kernels[k], *p, options);
        }
    return n;
}

/* Returns the reason for which a job is "not checked" without being started; NULL if it must be started. */
static const char *schedule_find_reason_not_to_run(const check_job *job)
{
    if (job->op->unsupported_reason)
        return job->op->unsupported_reason;
    if (job->op->load_error && !job->property->check_without_cases)
        return "its binary is refused (see binding)";
    if (!job->property->check_without_cases && !job->op->nkernels && !job->op->is_torch_operator)
        return "it has no kernel for the cpu and no decomposition: nothing can be run";
    if (job->kernel && !job->kernel->is_available)
        return "this processor does not have its instruction set";
    return job->property->find_inapplicable_reason ? job->property->find_inapplicable_reason(job->op, job->kernel) : NULL;
}

/* ---- Results of several jobs ---- */

/* Shrinks the failing case of a job and sets its key. Does nothing if the result has no case. */
static void schedule_shrink_and_set_key(check_job *job)
{
    if (!job->result->has_case)
        return;
    check_try_shrink_case_fully(job);
    check_job_set_key(job);
}

/* True if a failed job shows that its kernel is unsound: its results depend on more than its arguments, or it fails runs or
 * memory. */
static bool schedule_shows_unsound_kernel(const check_job *job)
{
    static const char *const kinds[] = { "not deterministic", "keeps state", "depends on addresses" };
    bool unsound = job->property->reported_faults != 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        unsound |= !strcmp(job->result->kind, kinds[i]);
    return unsound && job->result->outcome == CHECK_OUTCOME_FAIL;
}

/* True if a failure of property `parallel` only repeats that of property `values`: the results of slices are as wrong as those of
 * the whole call. The scheduler then drops the second failure. */
static bool schedule_is_same_wrong_value_in_slices(const check_job *values, const check_job *job)
{
    return values->property == &check_property_values && values->result->outcome == CHECK_OUTCOME_FAIL &&
        job->property == &check_property_parallel &&
        (!strcmp(job->result->kind, "not parallel") || !strcmp(job->result->kind, "not a sum"));
}

/* True if property shapes only reports that a kernel writes before it refuses a call, and the kernel fails property memory
 * anyway. */
static bool schedule_is_late_refusal_of_failed_kernel(const check_job *memory, const check_job *job)
{
    return memory->op == job->op && memory->property == &check_property_memory && memory->result->outcome == CHECK_OUTCOME_FAIL &&
        job->property == &check_property_shapes && job->result->outcome == CHECK_OUTCOME_FAIL &&
        !strcmp(job->result->kind, "written before it was refused");
}

/* True if some job of an operator failed. */
static bool schedule_operator_has_failure(const check_job *jobs, size_t njobs, const check_op *op)
{
    bool any = false;
    for (size_t i = 0; i < njobs; i++)
        any |= jobs[i].op == op && jobs[i].result->outcome == CHECK_OUTCOME_FAIL;
    return any;
}

/* Makes a referred fault a failure of this job again, and shrinks its case. */
static void schedule_restore_fault_and_shrink(check_job *job)
{
    check_fault_restore_as_failure(job->result);
    schedule_shrink_and_set_key(job);
}

/* Moves each fault that a job could not report to the job of the kernel whose property reports its kind; if there is no such job,
 * the fault stays as a failure where it was found. Nothing is moved for an operator that has another failure, since that may be
 * the same fault. */
static void schedule_move_faults_to_reporting_property(check_job *jobs, size_t njobs)
{
    for (size_t i = 0; i < njobs; i++)
        for (size_t k = 0;
            k < njobs && jobs[i].result->outcome == CHECK_OUTCOME_UNCHECKED && jobs[i].result->fault_kind && jobs[i].kernel;
            k++) {
            check_result *from = jobs[i].result, *to = jobs[k].result;
            if (jobs[k].kernel != jobs[i].kernel ||
                strcmp(jobs[k].property->name, check_fault_get_reporting_property_name(from)) ||
                schedule_operator_has_failure(jobs, njobs, jobs[i].op))
                continue;
            *to = *from;
            jobs[k].found_by = jobs[i].property;
            schedule_restore_fault_and_shrink(&jobs[k]);
        }
    for (size_t i = 0; i < njobs;
        i++) /* the reporting property was not selected, or the call was not a kernel's: the fault stays with this job */
        if (jobs[i].result->outcome == CHECK_OUTCOME_UNCHECKED && jobs[i].result->fault_kind &&
            !schedule_operator_has_failure(jobs, njobs, jobs[i].op))
            schedule_restore_fault_and_shrink(&jobs[i]);
}

/* Turns failures that only follow from another failure of the kernel into "not checked, because this kernel fails ...". */
static void schedule_withdraw_dependent_failures(check_job *jobs, size_t njobs)
{
    for (size_t i = 0; i < njobs; i++)
        for (size_t k = 0; k < njobs; k++)
            if (schedule_is_late_refusal_of_failed_kernel(&jobs[k], &jobs[i])) {
                jobs[i].result->outcome = CHECK_OUTCOME_UNCHECKED;
                snprintf(jobs[i].result->message, sizeof jobs[i].result->message, "kernel %s fails memory", jobs[k].kernel->name);
            }
    for (size_t i = 0; i < njobs; i++)
        for (size_t k = 0;
            k < njobs && jobs[i].property->is_unchecked_if_kernel_unsound && jobs[i].result->outcome == CHECK_OUTCOME_FAIL; k++)
            if (k != i && jobs[k].kernel == jobs[i].kernel && jobs[k].kernel &&
                (schedule_shows_unsound_kernel(&jobs[k]) || schedule_is_same_wrong_value_in_slices(&jobs[k], &jobs[i]))) {
                jobs[i].result->outcome = CHECK_OUTCOME_UNCHECKED;
                snprintf(jobs[i].result->message, sizeof jobs[i].result->message, "this kernel fails %s", jobs[k].property->name);
            }
}

/* ---- All of it ---- */

/* Decides what follows the end of a job: a slow case is dropped, a failing one is shrunk, and a given one (--case) keeps its
 * fault. Returns true if a slow case was dropped, so that the job goes on with the next. */
static bool schedule_try_drop_slow_case_or_shrink(check_job *job)
{
    static check_result *shared;
    if (check_task_has_given_case(job)) {
        if (job->result->outcome == CHECK_OUTCOME_UNCHECKED && job->result->fault_kind)
            check_fault_restore_as_failure(job->result);
        return false;
    }
    if (!shared)
        shared = check_map_shared_result();
    if (check_slow_case_try_drop(job, shared))
        return true;
    if (job->result->outcome == CHECK_OUTCOME_FAIL)
        schedule_shrink_and_set_key(job);
    return false;
}

/* Starts a worker for a job, after its plan is made. Returns false if the job has ended at once: its plan failed, or no process
 * could be started. The result then says so. */
static bool schedule_try_start_job(
    check_job *job, check_running_job *child, check_shared_plan *plans, const check_job *jobs, size_t njobs)
{
    check_case_limit_ms = check_task_has_given_case(job) ? 4 * check_current_case_ms : check_current_case_ms;
    if (check_job_needs_plan(job) && !job->plan) {
        const check_shared_plan *p = check_shared_plan_find_or_make(plans, job, jobs, njobs);
        if (!p) {
            check_worker_report_not_started(job, errno);
            return false;
        }
        job->plan = p->plan;
        job->result->cpu_seconds += p->result->cpu_seconds; /* the first job that needs the plan gets its processor time */
        p->result->cpu_seconds = 0;
        if (p->result->outcome != CHECK_OUTCOME_PASS) { /* the shape function failed while the plan was made */
            *job->result = *p->result;
            if (!*p->result->kind) /* there was no fault: no process could make the plan, or the system ended it */
                return false;
            job->result->current_case = p->plan->cases[p->plan->ncases < CHECK_MAX_CASES ? p->plan->ncases : 0];
            job->result->has_case = true;
            job->result->outcome = CHECK_OUTCOME_FAIL;
            check_fault_refer_to_reporting_property(job);
            schedule_try_drop_slow_case_or_shrink(job);
            return false;
        }
    }
    if (check_worker_try_start(child, job, check_worker_get_sleep_limit(), check_task_run_job))
        return true;
    check_worker_report_not_started(job, errno);
    return false;
}

/* Releases a finished job's reference to its plan, sets job->finished and reports progress. The job and its result stay. */
static void schedule_mark_job_finished(check_shared_plan *plans, check_job *job)
{
    check_shared_plan_release(plans, job);
    job->plan = NULL;
    job->finished = true;
    check_worker_report_progress(job);
}

int check_run_jobs(const check_op *ops, size_t nops, const check_options *options, check_job **jobs_out, size_t *njobs_out)
{
    const size_t n = schedule_list_all_jobs(ops, nops, options, NULL);
    check_job *jobs = calloc(n + 1, sizeof *jobs);
    check_result_slot *slots = check_shared_map_new_zeroed((n + 1) * sizeof *slots);
    const double end = check_get_monotonic_seconds() + options->max_seconds;
    static check_shared_plan plans[CHECK_MAX_PLANS];
    check_running_job children[CHECK_MAX_CONTAINED];
    size_t running = 0;
    *jobs_out = NULL;
    *njobs_out = 0;
    check_current_case_ms = options->case_ms;
    backtrace((void *[1]){ NULL }, 1); /* the first call of backtrace() loads a library, which a signal handler must not do */
    check_is_interrupted_fn = options->interrupted;
    check_progress_state.fn = options->progress;
    check_progress_state.user = options->user_data;
    check_progress_state.done = 0;
    check_progress_state.all = n;
    if (!jobs || !slots) {
        free(jobs);
        return -1;
    }
    schedule_list_all_jobs(ops, nops, options, jobs);
    for (size_t next = 0; check_progress_state.done < n && !check_is_interrupted();) {
        while (next < n && running < options->max_workers && !check_is_interrupted()) {
            check_job *job = &jobs[next++];
            job->result = &slots[job - jobs].result;
            const char *why = schedule_find_reason_not_to_run(job);
            if (!why && options->max_seconds > 0 && check_get_monotonic_seconds() > end)
                why = "the time was up";
            if (why)
                check_report_unchecked(job, "%s", why);
            else if (schedule_try_start_job(job, &children[running], plans, jobs, n) && ++running)
                continue;
            schedule_mark_job_finished(plans, job);
        }
        if (running) {
            check_job *job = check_worker_wait_for_ended_job(children, &running);
            if (job && schedule_try_drop_slow_case_or_shrink(job) && !check_is_interrupted() &&
                schedule_try_start_job(job, &children[running], plans, jobs, n) && ++running)
                continue;
            if (!job)
                break;
            schedule_mark_job_finished(plans, job);
        }
    }
    if (check_progress_state.done < n) {
        check_kill_all_descendants();
        for (size_t i = 0; i < n; i++)
            if (!jobs[i].finished) {
                jobs[i].result = &slots[i].result;
                memset(jobs[i].result, 0, offsetof(check_result, current_case));
                check_report_unchecked(&jobs[i], "interrupted");
                check_shared_plan_release(plans, &jobs[i]);
            }
    }
    schedule_move_faults_to_reporting_property(jobs, n);
    schedule_withdraw_dependent_failures(jobs, n);
    *jobs_out = jobs;
    *njobs_out = n;
    return 0;
}

/* Returns an earlier job of `jobs` whose plan, made in this process, would equal the job's plan; NULL if there is none. */
static const check_job *schedule_find_earlier_job_with_equal_plan(const check_job *jobs, const check_job *job)
{
    for (const check_job *earlier = jobs; earlier < job; earlier++)
        if (earlier->op == job->op && check_job_needs_plan(earlier) && !schedule_find_reason_not_to_run(earlier) &&
            check_kernels_have_same_plan(job->op, earlier->kernel, job->kernel))
            return earlier;
    return NULL;
}

int check_run_jobs_in_process(
    const check_op *ops, size_t nops, const check_options *options, check_job **jobs_out, size_t *njobs_out)
{
    const size_t n = schedule_list_all_jobs(ops, nops, options, NULL);
    check_job *jobs = calloc(n + 1, sizeof *jobs);
    *jobs_out = jobs;
    *njobs_out = 0;
    check_current_case_ms = options->case_ms;
    dv_set_threads(1);
    if (jobs)
        schedule_list_all_jobs(ops, nops, options, jobs);
    for (check_job *job = jobs; jobs && job < jobs + n; job++, ++*njobs_out) {
        check_job_begin(job, true);
        const check_job *same = schedule_find_earlier_job_with_equal_plan(jobs, job);
        if (!(job->result = calloc(1, sizeof *job->result)) || !(job->plan = same ? same->plan : calloc(1, sizeof *job->plan)))
            return -1;
        const char *why = schedule_find_reason_not_to_run(job);
        if (why)
            check_report_unchecked(job, "%s", why);
        else if (check_job_needs_plan(job) && !same)
            check_task_make_plan(job);
        if (!why)
            check_task_run_job(job);
    }
    return jobs ? 0 : -1;
}
