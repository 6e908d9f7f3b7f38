/* Calls of the kernel for property parallel, and predicates that are called in a forked process. */
#include <errno.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "parallel.h"

struct parallel_calls check_parallel_calls = { .random_seed = 1 };

bool check_parallel_has_failed(const check_job *job) { return job->result->outcome != CHECK_OUTCOME_PASS; }

int check_parallel_run_loop_as_one_chunk(
    const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    (void)host;
    (void)grain;
    check_parallel_calls.max_loop_steps = end - begin > check_parallel_calls.max_loop_steps ? end - begin
                                                                                            : check_parallel_calls.max_loop_steps;
    check_parallel_calls.result->ran_loop_in_chunks |= check_parallel_calls.max_loop_steps > 1;
    return fn(arg, begin, end);
}

bool check_parallel_loop_has_several_chunks(const check_loop *loop)
{
    return loop->steps / (loop->grain > 1 ? loop->grain : 1) > 1;
}

/* Records a loop of the kernel in the job's result: its steps and grain, and whether the case ran it in several chunks. The hook
 * of a guarded call for each loop of dv_parallel_for(). */
static void parallel_call_record_loop(const dv_host *host, int64_t begin, int64_t end, int64_t grain, void (*fn)(void))
{
    (void)host;
    for (check_loop *l = check_parallel_calls.result->loops;
        l < check_parallel_calls.result->loops + CHECK_MAX_LOOPS && end > begin; l++) {
        if (l->fn && l->fn != fn)
            continue;
        l->never_had_two_steps = (!l->fn || l->never_had_two_steps) && end - begin == 1;
        l->fn = fn;
        l->steps = end - begin;
        l->grain = grain;
        l->last_case = check_parallel_calls.result->tried_cases;
        l->split_cases += check_parallel_loop_has_several_chunks(l) && l->last_split_case != l->last_case;
        l->last_split_case = check_parallel_loop_has_several_chunks(l) ? l->last_case : l->last_split_case;
        return;
    }
}

bool check_parallel_try_call_kernel(const check_job *job, const check_case *c, enum check_guard_side guard_side,
    parallel_for_fn parallel_for, bool no_split, check_outputs *outputs)
{
    static check_guarded_call call;
    if (job->op->is_nondeterministic && !check_parallel_calls.continue_random)
        dv_set_seed(check_parallel_calls.random_seed);
    call = (check_guarded_call){ .op = job->op,
        .kernel = job->kernel,
        .guard_side = guard_side,
        .poison_byte = POISON_BYTE,
        .initial_errno = check_parallel_calls.initial_errno,
        .parallel_for = parallel_for,
        .loop = parallel_call_record_loop,
        .ignore_split = no_split,
        .keep_scratch_contents = check_parallel_calls.reuse_scratch };
    check_parallel_calls.result = job->result;
    check_guarded_call_run(&call, c);
    check_parallel_calls.allocated_scratch = call.allocated_scratch;
    if (call.status)
        return false;
    check_outputs_copy(outputs, job->op, c, call.results, check_get_last_argument_tensors());
    return true;
}

void check_parallel_report_faults_here(check_job *job)
{
    job->result->also_reported_faults = CHECK_FAULT_CRASH | CHECK_FAULT_MEMORY | CHECK_FAULT_TIMEOUT;
}

void check_parallel_report_timeouts_here(check_job *job, const char *condition)
{
    job->result->also_reported_faults = CHECK_FAULT_TIMEOUT;
    snprintf(job->result->fault_condition, sizeof job->result->fault_condition, "%s", condition);
}

bool check_parallel_is_true_in_fork(check_job *job, const check_case *c, bool (*predicate)(const check_job *, const check_case *))
{
    int status = 0;
    struct itimerval remaining;
    getitimer(ITIMER_PROF, &remaining);
    job->result->forked_after_call = check_parallel_calls.has_called_kernel;
    const pid_t pid = check_fork();
    if (!pid) {
        setitimer(ITIMER_PROF, &remaining, NULL);
        _exit(predicate(job, c));
    }
    job->result->helper_pid = (int32_t)(pid > 0 ? pid : 0);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    job->result->helper_pid = 0;
    job->result->forked_after_call = false;
    if (WIFEXITED(status) && WEXITSTATUS(status) > 1) /* an exit status above 1: a fault was reported in the forked process */
        _exit(WEXITSTATUS(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

double check_parallel_get_forks_cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
        1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

bool check_parallel_has_no_special_values(const check_case *c)
{
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_SPECIAL_VALUES)
            return false;
    return true;
}
