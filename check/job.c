/* The current job of this process: functions with which properties report, set limits, and run code in forked processes. task.c
 * runs jobs. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

int check_case_limit_ms, check_current_case_ms = CHECK_CASE_MS;
static check_job *current_job;
static bool is_in_process; /* true: this process is the checker's own (check_run_jobs_in_process()) */

/* ---- Reports ---- */

/* Removes the first bytes of a UTF-8 character from the end of a text that was cut there. */
static void job_remove_cut_character(char *text)
{
    size_t n = strlen(text), tail = 0; /* tail: number of continuation bytes at the end */
    while (tail < 3 && tail < n && ((unsigned char)text[n - 1 - tail] & 0xc0) == 0x80)
        tail++;
    const unsigned first = tail < n ? (unsigned char)text[n - 1 - tail] : 0;
    if (first >= 0xc0 && tail < (first >= 0xf0 ? 3u : first >= 0xe0 ? 2u : 1u))
        text[n - 1 - tail] = 0;
}

/* Sets outcome, kind and message of a job. Does nothing if its outcome is no longer pass. */
static void job_set_outcome_if_passing(
    check_job *job, enum check_outcome outcome, const char *kind, const char *format, va_list args)
{
    check_result *r = job->result;
    if (r->outcome != CHECK_OUTCOME_PASS)
        return;
    r->outcome = outcome;
    snprintf(r->kind, sizeof r->kind, "%s", kind);
    vsnprintf(r->message, sizeof r->message, format, args);
    job_remove_cut_character(r->message);
}

void check_fail(check_job *job, const char *kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    job_set_outcome_if_passing(job, CHECK_OUTCOME_FAIL, kind, format, args);
    va_end(args);
}

void check_report_unchecked(check_job *job, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    job_set_outcome_if_passing(job, CHECK_OUTCOME_UNCHECKED, "", format, args);
    va_end(args);
}

void check_set_omitted(check_job *job, const char *text)
{
    snprintf(job->result->omitted, sizeof job->result->omitted, "%s", text ? text : "");
}

void check_count_refusal(check_job *job)
{
    job->result->refused_cases++;
    snprintf(job->result->last_refusal, sizeof job->result->last_refusal, "%s", dv_last_error());
}

void check_set_current_case(check_job *job, const check_case *c)
{
    if (c != &job->result->current_case)
        job->result->current_case = *c;
    job->result->progress_count++;
}

/* ---- Limits ---- */

void check_set_cpu_limit(int ms)
{
    const struct itimerval t = { .it_value = { ms / 1000, ms % 1000 * 1000 } };
    sigset_t none;
    current_job->result->progress_count++;
    if (is_in_process)
        return;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); /* a signal that one call blocked must not delay the end of the next */
    current_job->result->cpu_limit_ms = ms;
    setitimer(ITIMER_PROF, &t, NULL);
}

void check_count_plan_progress(void)
{
    current_job->result->progress_count++;
    check_set_cpu_limit(4 * check_case_limit_ms); /* a shape function may loop */
}

/* ---- Descriptors and processes ---- */

static int stdout_pipe = -1; /* read end of the pipe to which stdout is connected */

int check_get_stdout_bytes(void)
{
    int n = 0;
    return ioctl(stdout_pipe, FIONREAD, &n) ? 0 : n;
}

/* Files behind the four descriptors that a worker begins with: stdin, stdout, stderr and the pipe that holds its output. */
static struct stat initial_files[4];

/* Returns the descriptor whose file is initial_files[i]. */
static int job_get_watched_descriptor(size_t i) { return i < 3 ? (int)i : stdout_pipe; }

bool check_has_intact_descriptors(void)
{
    bool is_intact = true;
    for (size_t i = 0; !is_in_process && i < sizeof initial_files / sizeof *initial_files; i++) {
        struct stat s;
        is_intact &= !fstat(job_get_watched_descriptor(i), &s) && s.st_ino == initial_files[i].st_ino &&
            s.st_dev == initial_files[i].st_dev;
    }
    return is_intact;
}

void check_redirect_output(void)
{
    int ends[2];
    const int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2 && null >= 0; fd++)
        dup2(null, fd);
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC))
        return;
    stdout_pipe = ends[0];
    dup2(ends[1], 1);
    close(ends[1]);
    for (size_t i = 0; i < sizeof initial_files / sizeof *initial_files; i++)
        fstat(job_get_watched_descriptor(i), &initial_files[i]);
}

static pid_t
    checker_pid_of_child; /* pid of this process, set when the checker made it; a process that a kernel forked has another pid */

void check_job_begin(check_job *job, bool in_process)
{
    current_job = job;
    is_in_process = in_process;
    checker_pid_of_child = getpid();
}

check_job *check_job_get_current(void) { return current_job; }

void *check_map_shared_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

int check_fork(void)
{
    const pid_t parent = getpid(), pid = fork();
    if (!pid) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        checker_pid_of_child = getpid();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* the parent died before: a kernel that kills its parent would reach the command */
            _exit(0);
    }
    return pid;
}

/* True if a child of this process still runs after MAX_CHILD_END_MS, more than a child needs that only calls _exit(). Misses a
 * running child if an earlier one has ended and nobody has waited for that, since the system reports it first. The property
 * "values" reports such an ended child. */
static bool job_has_running_child(void)
{
    enum { MAX_CHILD_END_MS = 100 };
    siginfo_t child;
    for (int ms = 0; ms < MAX_CHILD_END_MS; ms++) {
        child.si_pid = 0;
        if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) || child.si_pid)
            return false;
        poll(NULL, 0, 1);
    }
    return true;
}

void check_exit_if_kernel_left_process(void)
{
    if (!checker_pid_of_child)
        return;
    const bool is_forked = getpid() != checker_pid_of_child;
    check_result *r = current_job->result;
    r->forked_in_call |= is_forked;
    r->left_child |= !is_in_process && !is_forked && job_has_running_child();
    if (is_forked || r->left_child)
        _exit(0);
}

bool check_try_run_forked(check_job *job, const check_case *c, check_case_fn *fn)
{
    int status = 0;
    static const struct itimerval second = { .it_value = { .tv_sec = 1 } };
    const pid_t pid = check_fork();
    if (!pid) {
        for (int i = 1; i < NSIG; i++)
            signal(i, SIG_DFL);
        setitimer(ITIMER_REAL, &second, NULL);
        fn(job, c);
        _exit(0);
    }
    job->result->helper_pid = (int32_t)(pid > 0 ? pid : 0);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    job->result->helper_pid = 0;
    return pid > 0 && WIFEXITED(status);
}

bool check_try_run_isolated(check_job *job, const check_case *c, check_case_fn *fn)
{
    return is_in_process ? fn(job, c), true : check_try_run_forked(job, c, fn);
}
