/* Loading a library: in a worker first, then in the checker. */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process_state.h"
#include "worker.h"

enum { LOAD_SECONDS = 10, EXIT_FORKED = 78 };

static const char *loaded_path;

/* Forks two processes in turn, each of which forks two more while `generations` is above 0, as the checker will. Returns false if
 * fork() does not return in one of them: a handler of pthread_atfork() may wait, loop, exit, or keep a lock that blocks the
 * second fork. */
static bool load_can_fork_twice(int generations)
{
    for (int i = 0; i < 2; i++) {
        int status = 0;
        const pid_t pid = check_fork();
        if (!pid)
            _exit(!generations || load_can_fork_twice(generations - 1) ? EXIT_FORKED : 0);
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (pid > 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FORKED))
            return false;
    }
    return true;
}

/* Loads the library of loaded_path in a worker and forks there, so that its constructors and fork handlers run outside the
 * checker first. Reports their faults in the job's result. */
static void load_library_in_worker(check_job *job)
{
    dv_library *lib;
    check_set_cpu_limit(CHECK_LOAD_MS);
    if (dv_load(loaded_path, &lib))
        check_report_unchecked(job, "%s", dv_last_error());
    else if (!check_has_intact_descriptors())
        check_fail(job, "descriptors", "the kernel closes or replaces descriptors that it has not opened");
    if (job->result->outcome == CHECK_OUTCOME_PASS) {
        snprintf(job->result->fault_condition, sizeof job->result->fault_condition,
            "when the process forks (a handler of pthread_atfork())");
        if (!load_can_fork_twice(1))
            check_fail(job, "fork", "the kernel ends the new process");
    }
    check_set_cpu_limit(0);
}

/* Writes the message of a fault in code that runs while a library is loaded, or in its handlers of fork(). */
static void load_format_fault_message(const char *path, const check_result *r, char *out, size_t size)
{
    static const char before[] = "the kernel ";
    const char *at = strstr(r->message, before), *when = *r->fault_condition ? r->fault_condition : "while it is loaded";
    if (at)
        snprintf(out, size, "%s: %s, its code is at fault: %.*sit %s", path, when, (int)(at - r->message), r->message,
            at + sizeof before - 1);
    else
        snprintf(out, size, "%s: %s, its code is at fault: %s", path, when, r->message);
}

/* Loads a library in this process by dv_load(), and undoes its changes of signals and standard descriptors. Returns a status. */
static int load_library_in_checker(const char *path, dv_library **lib)
{
    static check_saved_process state;
    check_process_state_save(&state);
    const int status = dv_load(path, lib);
    check_process_state_restore(&state);
    return status;
}

int check_load(const char *path, bool (*is_interrupted)(void), dv_library **lib)
{
    static const check_property loading = { .name = "load", .reported_faults = ~0u };
    static const check_op none;
    static check_result *shared;
    check_running_job one;
    size_t n = 1;
    check_job job = { .op = &none, .property = &loading };
    *lib = NULL;
    if (!shared && !(shared = check_map_shared_result()))
        return dv_fail(DV_ENOMEM, "out of memory");
    memset(shared, 0, sizeof *shared);
    job.result = shared;
    loaded_path = path;
    check_is_interrupted_fn = is_interrupted;
    check_current_case_ms = CHECK_LOAD_MS; /* check_run_jobs() sets check_current_case_ms again */
    if (!check_worker_try_start(&one, &job, LOAD_SECONDS, load_library_in_worker))
        return dv_fail(DV_ENOMEM, "no process could be started: %s", strerror(errno));
    if (!check_worker_wait_for_ended_job(&one, &n))
        return dv_fail(DV_EBINARY, "interrupted");
    if (shared->outcome == CHECK_OUTCOME_FAIL) {
        char message[sizeof shared->message + 4096];
        load_format_fault_message(path, shared, message, sizeof message);
        return dv_fail(DV_EBINARY, "%s", message);
    }
    return shared->outcome == CHECK_OUTCOME_PASS ? load_library_in_checker(path, lib)
                                                 : dv_fail(DV_EBINARY, "%s", shared->message);
}
