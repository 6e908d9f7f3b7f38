/* The state of this process that code of an operator must leave unchanged: read, compared, saved and restored. */
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process_state.h"

/* Returns the number of this thread's filters of system calls, to which the worker's own belongs; -1 if the system does not tell.
 */
static int process_state_count_filters(void)
{
    static const char name[] = "\nSeccomp_filters:";
    char text[4096] = "";
    const int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof text - 1) < 0)
        *text = 0;
    if (fd >= 0)
        close(fd);
    const char *at = strstr(text, name);
    return at ? atoi(at + sizeof name - 1) : -1;
}

void check_process_state_read(check_process_state *state)
{
    memset(state, 0, sizeof *state);
    fegetenv(&state->floats);
    state->rounding = fegetround();
#if defined(__x86_64__)
    state->control = __builtin_ia32_stmxcsr() & 0xffc0u;
#endif
    pthread_sigmask(SIG_BLOCK, NULL, &state->mask);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &state->handlers[i]);
    for (char **v = environ; v && *v; v++)
        for (const char *p = *v; *p; p++)
            state->environment_hash = state->environment_hash * 31 + (unsigned char)*p;
    if (!getcwd(state->directory, sizeof state->directory))
        *state->directory = 0;
    snprintf(state->locale, sizeof state->locale, "%s", setlocale(LC_ALL, NULL));
    sched_getaffinity(0, sizeof state->cpus, &state->cpus);
    state->has_child = !waitid(P_ALL, 0, &(siginfo_t){ .si_pid = 0 }, WEXITED | WNOHANG | WNOWAIT);
    fflush(stdout);
    state->stdout_bytes = check_get_stdout_bytes();
    state->has_intact_descriptors = check_has_intact_descriptors();
    const int one = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    state->has_descriptor = one >= 0 || errno != EMFILE;
    if (one >= 0)
        close(one);
    struct itimerval remaining = { .it_value = { 0, 0 } };
    getitimer(ITIMER_REAL, &remaining);
    state->has_timer = remaining.it_value.tv_sec || remaining.it_value.tv_usec;
    umask(state->umask_bits = umask(0));
    for (int i = 0; i < RLIM_NLIMITS; i++)
        getrlimit((unsigned)i, &state->limits[i]);
    const int modes[] = { personality(0xffffffff), prctl(PR_GET_DUMPABLE), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        prctl(PR_GET_SECCOMP), process_state_count_filters() };
    memcpy(state->modes, modes, sizeof modes);
}

/* Returns the name of the first resource limit in which two process states differ; "another one" for a rare limit. NULL: all
 * limits are equal. */
static const char *process_state_find_changed_limit_name(const check_process_state *before, const check_process_state *after)
{
    static const char *const names[RLIM_NLIMITS] = { [RLIMIT_CPU] = "RLIMIT_CPU",
        [RLIMIT_FSIZE] = "RLIMIT_FSIZE",
        [RLIMIT_DATA] = "RLIMIT_DATA",
        [RLIMIT_STACK] = "RLIMIT_STACK",
        [RLIMIT_CORE] = "RLIMIT_CORE",
        [RLIMIT_NPROC] = "RLIMIT_NPROC",
        [RLIMIT_NOFILE] = "RLIMIT_NOFILE",
        [RLIMIT_MEMLOCK] = "RLIMIT_MEMLOCK",
        [RLIMIT_AS] = "RLIMIT_AS" };
    for (int i = 0; i < RLIM_NLIMITS; i++)
        if (before->limits[i].rlim_cur != after->limits[i].rlim_cur || before->limits[i].rlim_max != after->limits[i].rlim_max)
            return names[i] ? names[i] : "another one";
    return NULL;
}

bool check_process_state_try_verify(check_job *job, const check_process_state *before, const check_process_state *after)
{
    fesetenv(&before->floats);
    pthread_sigmask(SIG_SETMASK, &before->mask, NULL);
    if (after->rounding != before->rounding || after->control != before->control)
        check_fail(job, "environment", "the kernel leaves the floating-point environment changed: %s",
            after->rounding != before->rounding ? "another rounding mode"
                                                : "control bits, such as those that flush denormals to zero");
    if (strcmp(after->locale, before->locale))
        check_fail(
            job, "locale", "the kernel changes the locale of the process, from \"%s\" to \"%s\"", before->locale, after->locale);
    if (after->environment_hash != before->environment_hash)
        check_fail(job, "environment variables", "the kernel changes the environment variables of the process");
    if (strcmp(after->directory, before->directory))
        check_fail(job, "folder", "the kernel changes the current folder of the process");
    if (!CPU_EQUAL(&after->cpus, &before->cpus))
        check_fail(job, "processors", "the kernel leaves the thread bound to other processors: %d instead of %d",
            CPU_COUNT(&after->cpus), CPU_COUNT(&before->cpus));
    if (after->stdout_bytes > before->stdout_bytes)
        check_fail(job, "output", "the kernel writes to stdout, which belongs to the program (stderr is for messages)");
    if (before->has_intact_descriptors && !after->has_intact_descriptors)
        check_fail(job, "descriptors", "the kernel closes or replaces descriptors that it has not opened");
    if (before->has_descriptor && !after->has_descriptor)
        check_fail(job, "descriptors", "the kernel opens all descriptors that the process may have, and leaves them open");
    if (after->has_timer && !before->has_timer)
        check_fail(job, "timer", "the kernel leaves a timer running that will send SIGALRM");
    if (after->umask_bits != before->umask_bits)
        check_fail(job, "umask", "the kernel changes the umask of the process");
    if (process_state_find_changed_limit_name(before, after))
        check_fail(
            job, "limits", "the kernel changes a limit of the process: %s", process_state_find_changed_limit_name(before, after));
    if (memcmp(after->modes, before->modes, sizeof after->modes))
        check_fail(job, "modes", "the kernel changes how the process runs: its personality, or by prctl()");
    if (after->has_child && !before->has_child)
        check_fail(job, "child process", "the kernel starts a process and does not wait for it: it stays as a zombie");
    for (int i = 1; i < NSIG; i++)
        if (after->handlers[i].sa_handler != before->handlers[i].sa_handler)
            check_fail(job, "signal handler", "the kernel leaves another handler for signal %d (%s)", i, strsignal(i));
    for (int i = 1; i < NSIG; i++)
        if (sigismember(&after->mask, i) != sigismember(&before->mask, i))
            check_fail(job, "signal mask", "the kernel leaves the thread's signal mask changed: signal %d (%s) is %sblocked", i,
                strsignal(i), sigismember(&after->mask, i) ? "" : "no longer ");
    return job->result->outcome == CHECK_OUTCOME_PASS;
}

/* ---- The state of the checker around dv_load() ---- */

void check_process_state_save(check_saved_process *state)
{
    enum { MIN_COPY_DESCRIPTOR = 900 };
    sigprocmask(SIG_BLOCK, NULL, &state->mask);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &state->actions[i]);
    for (int fd = 0; fd < 3; fd++)
        state->standard[fd] = fcntl(fd, F_DUPFD_CLOEXEC, MIN_COPY_DESCRIPTOR);
}

void check_process_state_restore(const check_saved_process *state)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &state->actions[numbers[i]], NULL);
    sigprocmask(SIG_SETMASK, &state->mask, NULL);
    alarm(0);
    for (int fd = 0; fd < 3; fd++)
        if (state->standard[fd] >= 0) {
            dup2(state->standard[fd], fd);
            close(state->standard[fd]);
        }
}
