/* Cases that exceed their time: a slow case is dropped from the plan, an endless one is a failure. */
#include <math.h>
#include <string.h>

#include "worker.h"

enum { MAX_GROWTH_POWER = 3, MAX_ROUNDS = 8, MAX_SLOW_CASES = 3 };

static const double NO_PROGRESS_STEP = 1e-7; /* seconds of one loop iteration; a loop that needs more makes no progress */
static const double INSTANT_FRACTION =
    1e-6; /* a call ends at once if its seconds are at most this fraction of --case-ms, in ms */

/* operator for which an endless case was found last, in any plan */
static const check_op *last_endless_op;

/* Calls check_try_shrink_case_fully() until no step helps, at most MAX_ROUNDS times. Then every smaller case takes less than an
 * eighth of --case-ms. Returns false if some step still helped in the last round. */
static bool slow_case_try_shrink_until_minimal(check_job *once)
{
    bool done = false;
    for (int round = 0; round < MAX_ROUNDS && !done; round++)
        done = check_try_shrink_case_fully(once);
    return done;
}

/* True if the current case, which sleeps, is endless: one call also sleeps four times as long, or one call ends at once, so that
 * another call waited for a lock or a thread. False: the call only sleeps for a while, and so is slow. */
static bool slow_case_is_endless_wait(const check_job *job, check_result *shared)
{
    check_job once = *job;
    once.property = &check_property_runs;
    if (job->result->forked_after_call)
        return false;
    return job->plan->has_seen_endless_case || job->op == last_endless_op ||
        check_case_fails_again_within(
            4 * check_current_case_ms, 4 * check_worker_get_sleep_limit(), &once, &job->result->current_case, shared) ||
        shared->elapsed_seconds < check_worker_get_sleep_limit() / 8;
}

/* True if the job's current case, which exceeded its time, is endless; false if it is slow.
 *
 * The case is run as one call with a limit of twice --case-ms. If that call does not end, the case is shrunk while it takes more
 * than an eighth of --case-ms. If the smallest case does not end in 32 times as long, no growth of work explains that: it is
 * endless. If it ends, the larger case is slow, unless its time is more than the third power of the work explains.
 *
 * If one call ends at once, but the calls of this property do not end in four times --case-ms, the case is endless, too. For an
 * endless call, the smallest case becomes the failing one. retry_ms is set to more than slow cases of that size need. */
static bool slow_case_is_endless(check_job *job, check_result *shared)
{
    static check_result smaller;
    check_result *r = job->result;
    if (check_has_endless_int(job->op, &r->current_case))
        return false;
    if (!strcmp(r->kind, "endless wait"))
        return slow_case_is_endless_wait(job, shared);
    if (r->timer_was_blocked) /* a kernel that is only slow does not block SIGPROF */
        return true;
    const bool one_call = job->property->reported_faults & CHECK_FAULT_TIMEOUT;
    const double work = check_estimate_work_with_ints(job->op, &r->current_case);
    if (job->plan->min_slow_work > 0 && work >= job->plan->min_slow_work)
        return false;
    if (!one_call && (job->plan->has_seen_endless_case || job->op == last_endless_op))
        return true;
    check_job once = *job;
    once.property = &check_property_runs;
    once.result = &smaller;
    smaller = *r;
    smaller.also_reported_faults = 0;
    if (!check_case_fails_again_within(2 * check_current_case_ms, check_retry_idle_seconds, &once, &r->current_case, shared))
        return !one_call && shared->outcome == CHECK_OUTCOME_PASS &&
            shared->repeat_seconds < check_current_case_ms * INSTANT_FRACTION &&
            check_case_fails_again_within(4 * check_current_case_ms, check_retry_idle_seconds, job, &r->current_case, shared);
    const bool smallest = slow_case_try_shrink_until_minimal(&once);
    if (check_case_fails_again_within(
            4 * check_current_case_ms, check_retry_idle_seconds, &once, &smaller.current_case, shared)) {
        if (check_estimate_work_with_ints(job->op, &smaller.current_case) * NO_PROGRESS_STEP >
            4 * check_current_case_ms / 1e3) { /* shrinking found no small case */
            job->plan->min_slow_work = work;
            return false;
        }
        if (one_call) {
            smaller.also_reported_faults = r->also_reported_faults;
            *r = smaller; /* the result replaces the old one together with its case */
        }
        job->retry_ms = check_current_case_ms;
        return smallest;
    }
    const double more = work / check_estimate_work_with_ints(job->op, &smaller.current_case);
    const double repeat_ms = fmax(shared->repeat_seconds * 1e3,
        check_current_case_ms / 8.0); /* shrinking showed that the smallest case takes at least an eighth of --case-ms */
    job->retry_ms = check_current_case_ms;
    if (repeat_ms * pow(fmax(more, 1), MAX_GROWTH_POWER) < check_current_case_ms / 2.0)
        return true;
    job->plan->min_slow_work = work; /* min_slow_work only decreases */
    return false;
}

bool check_slow_case_try_drop(check_job *job, check_result *shared)
{
    check_result *r = job->result;
    check_plan *plan = job->plan;
    if (r->fault_kind != CHECK_FAULT_TIMEOUT || !r->has_case || !plan || !shared)
        return false;
    if (slow_case_is_endless(job, shared)) {
        plan->has_seen_endless_case = true;
        last_endless_op = job->op;
        return false;
    }
    job->retry_ms = 0;
    const bool huge = check_has_endless_int(job->op, &r->current_case), waits = !strcmp(r->kind, "endless wait");
    uint32_t slow = 0;
    double min_work = INFINITY;
    for (uint32_t i = 0; i < plan->ncases; i++) {
        if (i == r->plan_index || (huge && check_has_endless_int(job->op, &plan->cases[i])))
            plan->dropped[i] = CHECK_DROPPED_SLOW;
        if (i == r->plan_index &&
            check_estimate_work_with_ints(job->op, &r->current_case) >
                2 * check_estimate_work_with_ints(job->op, &plan->cases[i]))
            plan->dropped[i] = CHECK_DROPPED_SLOW_LARGER;
        if (plan->dropped[i] == CHECK_DROPPED_SLOW && !check_has_endless_int(job->op, &plan->cases[i])) {
            slow++;
            min_work = fmin(min_work, check_estimate_work_with_ints(job->op, &plan->cases[i]));
        }
    }
    for (uint32_t i = r->plan_index + 1; i < plan->ncases && slow >= MAX_SLOW_CASES;
        i++) /* later cases with as much work are also slow */
        if (!plan->dropped[i] && (waits || check_estimate_work_with_ints(job->op, &plan->cases[i]) >= min_work / 2))
            plan->dropped[i] = CHECK_DROPPED_AS_SLOW;
    r->outcome = CHECK_OUTCOME_PASS;
    r->fault_kind = 0;
    *r->kind = *r->message = 0;
    r->tried_cases -= r->tried_cases > 0;
    return true;
}
