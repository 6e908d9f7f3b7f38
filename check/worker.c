/* Workers: forked processes that run jobs, from their start and limits to the result that they leave.
 *
 * Nothing that a kernel does can end the checker. A case may use --case-ms of processor time, and four times as much when it is
 * repeated to be sure. A worker that sleeps for two seconds is killed. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "worker.h"

enum { MAX_HEAP_BYTES = 64 << 20 };
static const rlim_t MAX_FILE_BYTES = 1 << 24, EXTRA_STACK_BYTES = 256 << 10;

double check_worker_get_sleep_limit(void) { return fmax(2, check_current_case_ms / 1e3); }

/* ---- In a worker ---- */

/* Lowers a resource limit to max_value. A limit that is lower already stays. */
static void worker_lower_limit(int resource, rlim_t max_value)
{
    struct rlimit limit;
    if (getrlimit((unsigned)resource, &limit) || (limit.rlim_max != RLIM_INFINITY && limit.rlim_max <= max_value))
        return;
    limit.rlim_cur = limit.rlim_max = max_value;
    setrlimit((unsigned)resource, &limit);
}

/* Returns the limit of private memory in bytes (RLIMIT_DATA): 6 GB for the checker and the kernel, and more for tensors of
 * check_max_elements. The result is at most half of the machine's memory, but at least 6 GB. */
static rlim_t worker_get_memory_limit(void)
{
    enum { TENSORS_PER_CALL = 16, BYTES_PER_ELEMENT = 16 };
    const rlim_t half = (rlim_t)sysconf(_SC_PHYS_PAGES) / 2 * (rlim_t)sysconf(_SC_PAGESIZE), min_limit = (rlim_t)6 << 30;
    const rlim_t most = min_limit + (rlim_t)check_max_elements * TENSORS_PER_CALL * BYTES_PER_ELEMENT;
    return half < min_limit ? min_limit : most < half ? most : half;
}

/* Returns the limit of processor time in seconds (RLIMIT_CPU) for a job. A job reaches it only if its own limits fail. */
static rlim_t worker_get_cpu_limit(const check_job *job)
{
    enum { SPARE_SECONDS = 120, CASE_TIMES = 16 };
    const double seeds = (double)(job->last_seed - job->seed + 1);
    return (rlim_t)(job->cpu_seconds_per_seed * seeds + CASE_TIMES * check_current_case_ms / 1e3) + SPARE_SECONDS;
}

/* Makes this worker the first process that the system's OOM killer ends, so that no process of the user is. */
static void worker_become_first_oom_victim(void)
{
    const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "1000", 4) < 0)
        errno = 0;
    if (fd >= 0)
        close(fd);
}

/* Prepares a worker before code of an operator runs: limits of memory and time, signal handlers, and redirected descriptors. */
static void worker_set_limits_and_handlers(const check_job *job)
{
    struct rlimit limit = { 0, 0 };
    mallopt(M_TRIM_THRESHOLD, MAX_HEAP_BYTES); /* keeps the heap from shrinking between calls */
    mallopt(M_MMAP_THRESHOLD, MAX_HEAP_BYTES / 2);
    setrlimit(RLIMIT_CORE, &limit);
    worker_lower_limit(RLIMIT_FSIZE, MAX_FILE_BYTES);
    worker_lower_limit(RLIMIT_DATA, worker_get_memory_limit());
    worker_lower_limit(RLIMIT_CPU, worker_get_cpu_limit(job));
    worker_become_first_oom_victim();
    if (!getrlimit(RLIMIT_AS, &limit)) { /* makes allocations of absurd size fail; 72 GB are for guarded memory */
        const rlim_t most = (rlim_t)96 << 30;
        limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > most
            ? most
            : limit.rlim_max; /* allocation of sparse memory raises the limit */
        setrlimit(RLIMIT_AS, &limit);
    }
    getrlimit(RLIMIT_STACK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_max - limit.rlim_cur >= EXTRA_STACK_BYTES) {
        limit.rlim_cur += EXTRA_STACK_BYTES; /* room for the checker's own frames, so that a stack that overflows here overflows
                                                with --in-process, too */
        setrlimit(RLIMIT_STACK, &limit);
    }
    check_redirect_output();
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    check_fault_install_handlers(limit.rlim_cur == RLIM_INFINITY ? (uintptr_t)1 << 30 : (uintptr_t)limit.rlim_cur);
    dv_set_threads(1);
}

/* Task of a worker: a function, and the job to call it for. */
typedef struct worker_task {
    check_job *job;
    void (*fn)(check_job *);
} worker_task;

/* Runs a worker_task in a new worker: prepares the process, protects shared memory, calls the function, and sets
 * worker_completed. */
static void worker_run_task(void *user)
{
    const worker_task *t = user;
    check_job_begin(t->job, false);
    worker_set_limits_and_handlers(t->job);
    check_shared_map_protect(t->job);
    t->fn(t->job);
    t->job->result->worker_completed = true;
}

/* ---- In the checker ---- */

bool check_worker_try_start(check_running_job *child, check_job *job, double max_idle_seconds, void (*fn)(check_job *))
{
    worker_task t = { job, fn };
    job->result->forked_after_call = job->result->left_child = false;
    job->result->helper_pid = 0;
    job->result->cpu_limit_ms =
        CHECK_LOAD_MS; /* limit until the job sets its own, since handlers of pthread_atfork() run before */
    job->result->timer_was_blocked = false;
    child->job = job;
    return check_contained_try_start(&child->contained, job->result, max_idle_seconds, worker_run_task, &t);
}

void check_worker_report_not_started(check_job *job, int error)
{
    check_report_unchecked(job, "no process could be started: %s", strerror(error));
    job->result->nothing_checked = job->result->not_started = true;
}

/* True if a buffer of this size holds a string ended by a 0 byte. */
static bool worker_is_terminated_string(const char *buffer, size_t size) { return memchr(buffer, 0, size) != NULL; }

/* True if a case that a worker left in shared memory has valid counts, ranks, layouts and strings. */
static bool worker_is_valid_case(const check_case *c)
{
    bool sane = c->nargs <= CHECK_MAX_ARGS && c->ntensors <= CHECK_MAX_TENSORS;
    for (size_t i = 0; sane && i < c->nargs; i++)
        sane = c->args[i].count <= CHECK_MAX_TENSORS && c->args[i].first_tensor <= CHECK_MAX_TENSORS &&
            worker_is_terminated_string(c->args[i].string, CHECK_MAX_STRING);
    for (size_t i = 0; sane && i < c->ntensors; i++)
        sane = c->tensors[i].layout < CHECK_LAYOUT_COUNT && c->tensors[i].layout_variant < CHECK_LAYOUT_VARIANTS &&
            c->tensors[i].ndim >= 0 && c->tensors[i].ndim <= CHECK_MAX_DIMS;
    for (size_t i = 0; sane && i < CHECK_MAX_VARIADICS; i++)
        sane = c->names.variadics[i].ndim >= 0 && c->names.variadics[i].ndim <= CHECK_MAX_DIMS;
    return sane;
}

/* True if the result, and the plan if the worker made it, that a worker left in shared memory hold valid values. A kernel may
 * have written there. */
static bool worker_has_valid_result(const check_job *job)
{
    const check_result *r = job->result;
    bool sane = (unsigned)r->outcome <= CHECK_OUTCOME_UNCHECKED && r->fault_kind < 2 * CHECK_FAULT_FAKE_READ &&
        worker_is_terminated_string(r->kind, sizeof r->kind) && worker_is_terminated_string(r->message, sizeof r->message) &&
        worker_is_terminated_string(r->fault_condition, sizeof r->fault_condition) &&
        worker_is_terminated_string(r->last_refusal, sizeof r->last_refusal) &&
        worker_is_terminated_string(r->omitted, sizeof r->omitted) &&
        worker_is_terminated_string(r->uncovered_example, sizeof r->uncovered_example) &&
        worker_is_terminated_string(r->dropped_cases, sizeof r->dropped_cases) && worker_is_valid_case(&r->current_case) &&
        (!r->has_preceding_case || worker_is_valid_case(&r->preceding_case));
    if (job->plan && job->property->check_without_cases) { /* this is the job that made the plan */
        sane &= job->plan->ncases <= CHECK_MAX_CASES &&
            worker_is_terminated_string(job->plan->uncovered_example, sizeof job->plan->uncovered_example) &&
            worker_is_terminated_string(job->plan->last_refusal, sizeof job->plan->last_refusal);
        for (size_t i = 0; i < job->plan->ncases && sane; i++)
            sane = worker_is_valid_case(&job->plan->cases[i]);
    }
    return sane && r->plan_index < CHECK_MAX_CASES;
}

/* Completes the result of a job from the way in which its worker ended, as a failure, "not checked" or as the worker left it. */
static void worker_complete_result(check_running_job *child, const check_contained_end *end)
{
    check_result *r = child->job->result;
    if (!worker_has_valid_result(child->job)) {
        memset(r, 0, sizeof *r);
        r->outcome = CHECK_OUTCOME_FAIL;
        check_fault_record(r, CHECK_FAULT_CRASH, "checker's memory",
            "the kernel writes to memory of the checker, which none of its arguments has");
        check_fault_refer_to_reporting_property(child->job);
        return;
    }
    if (end->cause == CHECK_ENDED_NOT_STARTED) {
        check_worker_report_not_started(child->job, end->status);
        return;
    }
    if (end->cause == CHECK_ENDED_BY_OOM_KILLER) {
        check_report_unchecked(child->job, "the system had too little memory, and its OOM killer ended the process");
        return;
    }
    r->cpu_seconds += end->cpu_seconds;
    r->timer_was_blocked = end->cause == CHECK_ENDED_CPU_LIMIT;
    if (check_fault_try_record_abnormal_end(r, end))
        r->outcome = CHECK_OUTCOME_FAIL;
    check_fault_record_left_processes(child->job, end);
    check_fault_refer_to_reporting_property(child->job);
}

bool (*check_is_interrupted_fn)(void);

bool check_is_interrupted(void) { return check_is_interrupted_fn && check_is_interrupted_fn(); }

struct check_progress_state check_progress_state;

void check_worker_report_progress(const check_job *job)
{
    check_progress_state.done += job->finished;
    if (check_progress_state.fn)
        check_progress_state.fn(check_progress_state.user, check_progress_state.done, check_progress_state.all, job);
}

check_job *check_worker_wait_for_ended_job(check_running_job *children, size_t *nchildren)
{
    struct pollfd fds[CHECK_MAX_CONTAINED];
    check_contained_end e;
    for (;;) {
        if (check_is_interrupted()) {
            check_kill_all_descendants();
            for (size_t i = 0; i < *nchildren; i++)
                close(children[i].contained.fd);
            *nchildren = 0;
            return NULL;
        }
        for (size_t i = 0; i < *nchildren; i++)
            fds[i] = (struct pollfd){ .fd = children[i].contained.fd, .events = POLLIN };
        poll(fds, *nchildren, 100);
        if (*nchildren)
            check_worker_report_progress(children[0].job);
        for (size_t i = 0; i < *nchildren; i++) {
            check_running_job *c = &children[i];
            if (!check_contained_has_ended(&c->contained, &e))
                continue;
            check_job *job = c->job;
            worker_complete_result(c, &e);
            *c = children[--*nchildren];
            return job;
        }
    }
}
