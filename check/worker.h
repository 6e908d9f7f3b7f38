/* Workers: the forked processes that run jobs, from the schedule down to the task of one worker. Declarations shared by
 * schedule.c, shared_plan.c, slow_case.c, retry.c, load.c, worker.c, task.c, fault.c and shared_map.c. Each file needs only files
 * behind it in this list. */
#ifndef DV_CHECK_WORKER_H
#define DV_CHECK_WORKER_H

#include "check.h"

/* ---- Plans that jobs share (shared_plan.c) ---- */

enum { CHECK_MAX_PLANS = 256 };
typedef struct check_shared_plan {
    const check_op *op;
    const check_kernel *kernel;
    check_plan *plan;
    check_result *result; /* result of the worker that made the plan: a shape function may have failed */
    size_t jobs;          /* number of jobs that still need the plan */
} check_shared_plan;

/* True if the property of a job tries the cases of a plan. */
bool check_job_needs_plan(const check_job *job);
/* True if the plans of two kernels would be the same. NULL stands for the plan of properties of the whole operator. */
bool check_kernels_have_same_plan(const check_op *op, const check_kernel *a, const check_kernel *b);
/* Returns the plan for a job: an existing one, a copy of an equal one, or a new one, which a worker makes. plans: an array of
 * CHECK_MAX_PLANS, which owns all plans. jobs: all njobs jobs, to count those that need the plan. Returns NULL, with errno, if
 * memory or processes are out, or the check is interrupted. */
check_shared_plan *check_shared_plan_find_or_make(
    check_shared_plan *plans, const check_job *job, const check_job *jobs, size_t njobs);
/* Releases a job's reference to its plan, and unmaps the plan after the last job that needs it. */
void check_shared_plan_release(check_shared_plan *plans, const check_job *job);

/* ---- Slow and endless cases (slow_case.c) ---- */

/* If the current case timed out because it is slow, drops it and similar ones for all properties of this kernel, and resets the
 * result. Returns true if so, and the job goes on. Returns false if the case is endless, which is a failure, or did not time out.
 * shared: receives results of repeated calls; in shared memory (NULL: returns false). */
bool check_slow_case_try_drop(check_job *job, check_result *shared);

/* ---- Repeating a case (retry.c) ---- */

extern const double check_retry_idle_seconds; /* a repeated case that sleeps for so many seconds counts as endless */
/* Tries a case once in a new worker, with a limit of limit_ms of processor time and max_idle_seconds of sleep. shared: receives
 * the result, in shared memory. Returns true if the case fails with the same kind as the job. */
bool check_case_fails_again_within(
    int limit_ms, double max_idle_seconds, const check_job *job, const check_case *c, check_result *shared);

/* ---- Processes (worker.c) ---- */

enum { CHECK_LOAD_MS = 5000 }; /* processor time in ms that a worker may use before its job sets a limit */
/* A job whose worker runs. check_worker_wait_for_ended_job() ends it; nothing is freed. */
typedef struct check_running_job {
    check_contained contained;
    check_job *job;
} check_running_job;
/* check_options.progress with its argument, the number of finished jobs, and that of all jobs. */
extern struct check_progress_state {
    check_progress *fn;
    void *user;
    size_t done, all;
} check_progress_state;
extern bool (*check_is_interrupted_fn)(void); /* check_options.interrupted; NULL: nothing interrupts the check */
bool check_is_interrupted(void);              /* true if the check must end now: check_is_interrupted_fn() returns true */
/* Returns for how many seconds a worker may sleep before it is killed. */
double check_worker_get_sleep_limit(void);
/* Starts fn(job) in a worker, which may sleep for max_idle_seconds. Returns false, with errno, if no process could be started. */
bool check_worker_try_start(check_running_job *child, check_job *job, double max_idle_seconds, void (*fn)(check_job *));
/* Waits until some worker ends, completes its job's result, removes it from `children`, and returns the job. Returns NULL, after
 * ending all workers, if the check is interrupted. */
check_job *check_worker_wait_for_ended_job(check_running_job *children, size_t *nchildren);
/* Sets "not checked" with the reason that no process could be started, and not_started. error: the errno. */
void check_worker_report_not_started(check_job *job, int error);
/* Counts the job if it is finished, and calls check_options.progress. */
void check_worker_report_progress(const check_job *job);

/* ---- Tasks (task.c): they run in a worker ---- */

/* Runs a job in this process: its given case, else the property's check without cases, else the cases of the plan. */
void check_task_run_job(check_job *job);
/* Fills job->plan, as the task of a worker. If the plan has no case, writes the reason to its last_refusal. */
void check_task_make_plan(check_job *job);
/* Tries the result's current case once, after the preceding call, if there is one, and records the time. Sets "not checked" if
 * the contract or kernel refuses the case. */
void check_task_run_repeated_case(check_job *job);
/* True if the job repeats one given case (--case KEY). */
bool check_task_has_given_case(const check_job *job);

/* ---- Faults (fault.c) ---- */

/* Installs the signal handlers that record a fault in the result of the current job and end this process. stack_bytes: limit of
 * this thread's stack. */
void check_fault_install_handlers(uintptr_t stack_bytes);
/* Writes a fault's enum check_fault_kind, its kind in words and its message into a result. */
DV__PRINTF(4, 5) void check_fault_record(check_result *r, uint32_t fault, const char *kind, const char *format, ...);
/* Records as a fault how a worker ended, if it did not end by itself after its job or a recorded fault. Returns false, without a
 * record, if it did, could not start, or was ended by the OOM killer. */
bool check_fault_try_record_abnormal_end(check_result *r, const check_contained_end *end);
/* Turns a passed job into a failure if the kernel left processes running, or forked and returned in both processes. If the job
 * has failed already, appends the number of processes to its message. */
void check_fault_record_left_processes(check_job *job, const check_contained_end *end);
/* If another property reports faults of this kind, turns the job's failure into "not checked" with "(see PROPERTY)". If
 * also_reported_faults has the kind, appends the condition to the message instead. */
void check_fault_refer_to_reporting_property(check_job *job);
/* Turns a result that check_fault_refer_to_reporting_property() made "not checked" into a failure of this property again. */
void check_fault_restore_as_failure(check_result *r);
/* Returns the name of the property that reports faults of the result's fault kind: "memory", "fake" or "runs". */
const char *check_fault_get_reporting_property_name(const check_result *r);

/* ---- Shared memory (shared_map.c): blocks that are mapped before workers are forked ---- */

/* Result of a job, padded to whole pages, so that results of other jobs can be protected. */
typedef union check_result_slot {
    check_result result;
    char pages[(sizeof(check_result) + 4095) / 4096 * 4096];
} check_result_slot;
/* Maps zeroed memory that is shared with child processes, and which check_shared_map_protect() will protect. The caller frees it
 * by check_shared_map_free(). Returns NULL, with errno, if that fails. */
void *check_shared_map_new_zeroed(size_t bytes);
/* Unmaps a block of check_shared_map_new_zeroed() and frees its entry. Does nothing for other addresses. */
void check_shared_map_free(const void *memory);
/* Makes all shared memory inaccessible in a worker, except the result of its own job. The plan of the job is readable; it is
 * writable only for the job that makes it. */
void check_shared_map_protect(const check_job *job);

#endif
