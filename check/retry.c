/* Repeating a case in a new worker. */
#include <string.h>

#include "worker.h"

const double check_retry_idle_seconds = 0.5;

bool check_case_fails_again_within(
    int limit_ms, double max_idle_seconds, const check_job *job, const check_case *c, check_result *shared)
{
    check_job retry_job = *job;
    check_running_job one;
    size_t n = 1;
    memset(shared, 0, offsetof(check_result, current_case));
    shared->worker_completed = false;
    shared->has_case = true;
    shared->current_case = *c;
    retry_job.result = shared;
    check_case_limit_ms = limit_ms;
    if (check_is_interrupted() || !check_worker_try_start(&one, &retry_job, max_idle_seconds, check_task_run_repeated_case))
        return false;
    const bool ended = check_worker_wait_for_ended_job(&one, &n) != NULL;
    if (shared->outcome == CHECK_OUTCOME_UNCHECKED && shared->fault_kind)
        check_fault_restore_as_failure(shared);
    return ended && shared->outcome == CHECK_OUTCOME_FAIL && !strcmp(shared->kind, job->result->kind);
}

/* The failure must have the same kind and fault condition. On a busy machine a process may seem to wait before it has begun. */
bool check_case_fails_again(const check_job *job, const check_case *c, check_result *shared)
{
    const check_result *r = job->result;
    return check_case_fails_again_within(
               job->retry_ms ? job->retry_ms : check_current_case_ms / 8, check_retry_idle_seconds, job, c, shared) &&
        !(r->also_reported_faults & r->fault_kind) == !(shared->also_reported_faults & shared->fault_kind);
}
