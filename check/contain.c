/* Containment: hostile code runs two processes away from the checker, and nothing of it outlives its job.
 *
 *   checker ── supervisor ── worker ── whatever a kernel starts
 *
 * A worker runs the code. Its supervisor is the parent that a kernel can kill or stop, and the subreaper that adopts what a
 * kernel leaves behind. The supervisor kills a worker that sleeps too long, uses more processor time than its limit, or starts
 * too many processes. When the worker has ended, the supervisor kills all descendants and sends one check_contained_end to the
 * checker. If the supervisor itself is killed or stopped, the checker, which is a subreaper too, kills the rest; the worker can
 * send no signal to the checker. If the checker
 * dies, the socket between them hangs up, and the supervisor kills its descendants. Descendants are found by their parents in
 * /proc, so a session or process group that they create does not hide them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { STOPPED_POLLS = 3, MAX_PROCESSES = 1 << 16, MAX_DESCRIPTORS = 4096, MAX_STARTED_PROCESSES = 128, POLL_MS = 100 };
static const double MAX_KILL_SECONDS = 5, MAX_END_SECONDS = 0.7, SLACK_SECONDS = 0.2, BEGIN_SECONDS = 15, MAX_POLL_SECONDS = 0.5;

double check_get_monotonic_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double check_get_cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- Processes, as /proc lists them ---- */

/* Status of a process or thread, from its stat file in /proc. If the file cannot be read, `state` is 0. */
typedef struct process {
    pid_t pid, parent;
    char state;    /* state letter as in proc(5): R runs or waits for a processor, S sleeps, T and t are stopped, Z has ended; 0:
                      unknown */
    bool descends; /* true: the process is a descendant of the calling process */
    unsigned long long ticks; /* clock ticks of processor time used by the process with all its threads, or by the thread */
} process;

/* Reads a stat file of /proc: parent, state and processor time. `state` is 0 if the file cannot be read. */
static process process_read_stat_file(const char *path)
{
    process p = { 0 };
    char text[512];
    unsigned long long user = 0, system = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *after = strrchr(text, ')'); /* the process name in parentheses may contain any characters */
    if (after &&
        sscanf(after + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &p.state, &p.parent, &user, &system) < 4)
        p.state = 0;
    p.ticks = user + system;
    return p;
}

/* Reads the status of the process `pid` from /proc: parent, state and processor time. `state` is 0 if there is no such process.
 */
static process process_read_status(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    process p = process_read_stat_file(path);
    p.pid = pid;
    return p;
}

/* True if a state letter is that of a stopped or traced process. */
static bool process_is_stopped(char state) { return state == 'T' || state == 't'; }

/* Returns the most active state letter among the threads of a process: R, else D, else the state of the process itself. */
static char process_get_most_active_state(const process *p)
{
    char path[300], most = p->state;
    snprintf(path, sizeof path, "/proc/%d/task", (int)p->pid);
    DIR *tasks = opendir(path);
    for (const struct dirent *e; tasks && most != 'R' && (e = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", (int)p->pid, e->d_name);
        const char state = *e->d_name == '.' ? 0 : process_read_stat_file(path).state;
        most = state == 'R' || state == 'D' ? state : most;
    }
    if (tasks)
        closedir(tasks);
    return most;
}

static process processes[MAX_PROCESSES];

/* Compares two processes by pid, for qsort() and bsearch(). */
static int process_compare_pids(const void *a, const void *b)
{
    const pid_t x = ((const process *)a)->pid, y = ((const process *)b)->pid;
    return (x > y) - (x < y);
}

/* Fills `processes` with all processes, and sets `descends` for the descendants of this process, except the processes in `spared`
 * and their descendants. Returns the number of listed processes. */
static size_t process_list_and_mark_descendants(const pid_t *spared, size_t nspared)
{
    size_t n = 0;
    DIR *proc = opendir("/proc");
    for (const struct dirent *e; proc && n < MAX_PROCESSES && (e = readdir(proc));)
        if (*e->d_name >= '1' && *e->d_name <= '9') {
            processes[n] = process_read_status((pid_t)strtol(e->d_name, NULL, 10));
            n += processes[n].state != 0;
        }
    if (proc)
        closedir(proc);
    qsort(processes, n, sizeof *processes, process_compare_pids);
    const pid_t self = getpid();
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            process *p = &processes[i];
            const process key = { .pid = p->parent };
            const process *parent = p->descends ? NULL : bsearch(&key, processes, n, sizeof *processes, process_compare_pids);
            bool is_spared = false;
            for (size_t k = 0; k < nspared; k++)
                is_spared |= p->pid == spared[k];
            if (!is_spared && !p->descends && (p->parent == self || (parent && parent->descends)))
                p->descends = more = true;
        }
    }
    return n;
}

/* Returns the number of living descendants of this process, except the processes in `spared` and their descendants. */
static uint32_t process_count_descendants(const pid_t *spared, size_t nspared)
{
    uint32_t alive = 0;
    const size_t n = process_list_and_mark_descendants(spared, nspared);
    for (size_t i = 0; i < n; i++)
        alive += processes[i].descends && processes[i].state != 'Z' && processes[i].state != 'X';
    return alive;
}

/* Returns the number of processes that a worker left running, without spared_helper and its descendants. Waits up to
 * SLACK_SECONDS for those that wait for a processor: on a busy machine a process that only calls _exit() may not have run yet. */
static uint32_t contain_count_left_descendants(pid_t spared_helper)
{
    const double end = check_get_monotonic_seconds() + SLACK_SECONDS;
    for (uint32_t alive, running;; poll(NULL, 0, 1)) {
        alive = running = 0;
        const size_t n = process_list_and_mark_descendants(&spared_helper, 1);
        for (size_t i = 0; i < n; i++)
            if (processes[i].descends && processes[i].state != 'Z' && processes[i].state != 'X') {
                alive++;
                running += processes[i].state == 'R';
            }
        if (!running || check_get_monotonic_seconds() > end)
            return alive;
    }
}

/* Kills all descendants of this process, except the processes in `spared` and their descendants, again and again until none is
 * left or `seconds` have passed. */
static void process_kill_descendants(const pid_t *spared, size_t nspared, double seconds)
{
    const double end = check_get_monotonic_seconds() + seconds;
    siginfo_t info = { .si_pid = 0 };
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && errno == ECHILD)
        return;
    for (bool any = true; any && check_get_monotonic_seconds() < end;) {
        any = false;
        const size_t n = process_list_and_mark_descendants(spared, nspared);
        /* Children, which have higher pids, are killed first: a kernel that kills its parent would else meet this process in the
         * parent's place. */
        for (size_t i = n; i-- > 0;)
            if (processes[i].descends && processes[i].state != 'Z')
                kill(processes[i].pid, SIGKILL);
        for (size_t i = 0; i < n; i++)
            if (processes[i].descends) {
                any = true;
                waitpid(processes[i].pid, NULL,
                    WNOHANG); /* waitpid() fails with ECHILD for a grandchild until this process has adopted it */
            }
        if (any)
            nanosleep(&(struct timespec){ .tv_nsec = 2 * 1000 * 1000 }, NULL);
    }
}

/* Returns how many processes the system's OOM killer has ended since boot; 0 if the kernel does not count them. */
static unsigned long long contain_count_oom_kills(void)
{
    static const char name[] = "\noom_kill ";
    static char text[1 << 15];
    size_t size = 0;
    const int fd = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, text + size, sizeof text - 1 - size)) > 0;)
        size += (size_t)n;
    if (fd >= 0)
        close(fd);
    text[size] = 0;
    const char *at = strstr(text, name);
    return at ? strtoull(at + sizeof name - 1, NULL, 10) : 0;
}

/* ---- Descriptors ---- */

/* Descriptors that are closed in workers: those that the command inherited or opened itself. Descriptors that a library opened
 * when it was loaded are not included. */
static bool is_private_descriptor[MAX_DESCRIPTORS];

void check_mark_descriptor_private(int fd, bool is_private_now)
{
    if (fd > STDERR_FILENO && fd < MAX_DESCRIPTORS)
        is_private_descriptor[fd] = is_private_now;
}

void check_contain_init(void)
{
    for (int fd = 0; fd <= STDERR_FILENO;
        fd++) /* closed standard descriptors are opened, so that no later file gets their number */
        while (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) >= 0)
            ;
    for (int fd = STDERR_FILENO + 1; fd < MAX_DESCRIPTORS; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            is_private_descriptor[fd] = true;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

/* Closes all private descriptors of the checker in this process, except kept_descriptor. */
static void contain_close_private_descriptors(int kept_descriptor)
{
    for (int fd = STDERR_FILENO + 1; fd < MAX_DESCRIPTORS; fd++)
        if (is_private_descriptor[fd] && fd != kept_descriptor)
            close(fd);
}

/* ---- The supervisor ---- */

/* Progress of a worker at the supervisor's last poll: step, CPU ticks and idle seconds. */
typedef struct worker_watch {
    pid_t pid; /* pid of the worker, or of the helper process for which it waits */
    uint64_t step;
    unsigned long long ticks, step_begin_ticks; /* ticks: CPU ticks of the worker at the last poll; step_begin_ticks: at the first
                                                   poll of the current step */
    double last_poll_seconds, idle_seconds; /* last_poll_seconds: time of the last poll; idle_seconds: accumulated idle time */
} worker_watch;

/* Polls a worker and returns the cause for which it must be killed; CHECK_ENDED_ITSELF if it may continue. A poll finds the
 * worker active if a thread runs, or it has used a quarter of the time since the last poll; an active poll cancels three idle
 * ones. An uninterruptible wait (D), perhaps for a disk, counts a quarter. A long gap between polls counts as MAX_POLL_SECONDS,
 * since the whole machine may have been stopped. */
static enum check_end_cause worker_watch_poll_kill_cause(
    worker_watch *w, const check_result *r, pid_t worker, double max_idle_seconds)
{
    const long rate = sysconf(_SC_CLK_TCK);
    const process helper = process_read_status(r->helper_pid > 0 ? r->helper_pid : worker);
    const process p = helper.parent == worker
        ? helper
        : process_read_status(worker); /* the worker may have written any number into helper_pid, so its parent is tested */
    const pid_t pid = p.pid;
    const char activity = process_get_most_active_state(&p);
    const double time = check_get_monotonic_seconds(), passed = time - w->last_poll_seconds;
    const bool moved = r->progress_count != w->step || pid != w->pid || !p.state;
    const bool active = activity == 'R' || (double)(p.ticks - w->ticks) > passed / 4 * (double)rate;
    if (moved) {
        w->step_begin_ticks = p.ticks;
        w->idle_seconds = 0;
    } else {
        w->idle_seconds = fmax(0, w->idle_seconds + (active ? -3 : activity == 'D' ? 0.25 : 1) * fmin(passed, MAX_POLL_SECONDS));
    }
    w->pid = pid;
    w->step = r->progress_count;
    w->ticks = p.ticks;
    w->last_poll_seconds = time;
    const double limit = r->cpu_limit_ms / 1e3;
    if (r->cpu_limit_ms && (double)(p.ticks - w->step_begin_ticks) / (double)rate > limit + fmax(SLACK_SECONDS, limit / 16))
        return CHECK_ENDED_CPU_LIMIT;
    if (w->idle_seconds > max_idle_seconds)
        return process_is_stopped(p.state) ? CHECK_ENDED_STOPPED : CHECK_ENDED_IDLE_LIMIT;
    return CHECK_ENDED_ITSELF;
}

/* Returns the number of threads in the whole system; 0 if it is unknown. */
static unsigned contain_count_system_threads(void)
{
    struct sysinfo info;
    return sysinfo(&info) ? 0 : info.procs;
}

/* Waits for the end of the worker. Kills the worker if worker_watch_poll_kill_cause() returns a cause, or the worker has started
 * too many processes. Then kills all descendants and sends a check_contained_end to the checker. If the checker ends first, kills
 * all descendants and sends nothing. */
static void contain_supervise_worker(
    pid_t worker, int checker_socket, int signal_descriptor, const check_result *r, double max_idle_seconds)
{
    check_contained_end e = { .cause = CHECK_ENDED_ITSELF };
    worker_watch w = { .pid = worker, .step = r->progress_count, .last_poll_seconds = check_get_monotonic_seconds() };
    struct rusage used = { 0 };
    double killed_at_seconds = 0;
    unsigned threads = contain_count_system_threads();
    const unsigned long long oom_kills = contain_count_oom_kills();
    for (;;) {
        struct pollfd fds[] = { { .fd = signal_descriptor, .events = POLLIN }, { .fd = checker_socket, .events = POLLIN } };
        struct signalfd_siginfo info;
        poll(fds, 2, POLL_MS);
        bool ended = false; /* true if the worker tried to end the supervisor by a signal */
        while (read(signal_descriptor, &info, sizeof info) > 0)
            ended |= info.ssi_signo != SIGCHLD && info.ssi_pid == (uint32_t)worker;
        if (fds[1].revents) { /* the socket is readable or closed: the checker has ended, or ends the job */
            process_kill_descendants(NULL, 0, MAX_KILL_SECONDS);
            return;
        }
        int status = 0;
        for (pid_t pid;
            (pid = wait4(-1, &status, WNOHANG, &used)) > 0;) /* wait4() also reports a traced worker that only stops */
            if (pid == worker && (WIFEXITED(status) || WIFSIGNALED(status))) {
                e.status = status;
                e.cpu_seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                    (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
                worker = 0;
            }
        if (!worker || (killed_at_seconds > 0 && check_get_monotonic_seconds() - killed_at_seconds > MAX_KILL_SECONDS))
            break;
        if (killed_at_seconds > 0)
            continue;
        e.cause = ended ? CHECK_ENDED_SUPERVISOR_KILLED : worker_watch_poll_kill_cause(&w, r, worker, max_idle_seconds);
        if (e.cause == CHECK_ENDED_ITSELF && contain_count_system_threads() > threads + MAX_STARTED_PROCESSES) {
            const uint32_t alive = process_count_descendants(NULL, 0);
            e.processes_left = alive > MAX_STARTED_PROCESSES ? alive : 0;
            e.cause = alive > MAX_STARTED_PROCESSES ? CHECK_ENDED_PROCESS_LIMIT : CHECK_ENDED_ITSELF;
            threads = contain_count_system_threads();
        }
        if (e.cause != CHECK_ENDED_ITSELF) {
            killed_at_seconds = check_get_monotonic_seconds();
            if (e.cause != CHECK_ENDED_PROCESS_LIMIT)
                kill(worker, SIGKILL);
            else
                process_kill_descendants(&worker, 1, MAX_KILL_SECONDS), kill(worker, SIGKILL);
        }
    }
    /* A kernel may also send SIGKILL to itself; only the count of OOM kills tells the two apart. */
    if (e.cause == CHECK_ENDED_ITSELF && WIFSIGNALED(e.status) && WTERMSIG(e.status) == SIGKILL &&
        contain_count_oom_kills() > oom_kills)
        e.cause = CHECK_ENDED_BY_OOM_KILLER;
    siginfo_t any = { .si_pid = 0 };
    if (e.cause != CHECK_ENDED_PROCESS_LIMIT &&
        !waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT)) /* waitid() fails if there are no children */
        e.processes_left = contain_count_left_descendants(r->helper_pid);
    process_kill_descendants(NULL, 0, MAX_KILL_SECONDS);
    if (write(checker_socket, &e, sizeof e) < 0)
        return;
}

void check_deny_signals_to(pid_t pid)
{
#if defined __x86_64__ || defined __aarch64__
#ifdef __x86_64__
    enum { ARCH = AUDIT_ARCH_X86_64 };
#else
    enum { ARCH = AUDIT_ARCH_AARCH64 };
#endif
    enum { LOAD = BPF_LD | BPF_W | BPF_ABS, IF_EQUAL = BPF_JMP | BPF_JEQ | BPF_K, RETURN = BPF_RET | BPF_K };
    static const int calls[] = { SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo };
    enum { NCALLS = sizeof calls / sizeof *calls, FIRST = 5, ALLOW = FIRST + NCALLS, DENY, NINSTRUCTIONS };
    struct sock_filter code[NINSTRUCTIONS] = {
        BPF_STMT(LOAD, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(IF_EQUAL, (uint32_t)ARCH, 0, ALLOW - 2),
        BPF_STMT(
            LOAD, offsetof(struct seccomp_data, args)), /* lower half of the argument; both architectures are little-endian */
        BPF_JUMP(IF_EQUAL, (uint32_t)pid, 0, ALLOW - 4),
        BPF_STMT(LOAD, offsetof(struct seccomp_data, nr)),
        [ALLOW] = BPF_STMT(RETURN, SECCOMP_RET_ALLOW),
        [DENY] = BPF_STMT(RETURN, SECCOMP_RET_ERRNO | EPERM),
    };
    for (int i = 0; i < NCALLS; i++)
        code[FIRST + i] = (struct sock_filter)BPF_JUMP(IF_EQUAL, (uint32_t)calls[i], (uint8_t)(DENY - FIRST - i - 1), 0);
    struct sock_fprog program = { .len = NINSTRUCTIONS, .filter = code };
    /* Only a privileged process may set the filter alone. Any other first gives up the right to new privileges. The first way is
     * better: only then can the property "values" report a kernel that gives up this right. */
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
#else
    (void)pid;
#endif
}

/* Runs the supervisor, the process between the checker and a worker: forks the worker, which calls fn(user), and supervises it.
 * Does not return. */
_Noreturn static void contain_run_supervisor(
    int checker_socket, check_result *r, double max_idle_seconds, check_contained_fn *fn, void *user)
{
    sigset_t all;
    setsid(); /* the supervisor has no terminal, and a process group that a kernel cannot reach */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGCONT); /* SIGCONT, because a kernel may have stopped this process when the checker dies */
    contain_close_private_descriptors(checker_socket);
    fcntl(checker_socket, F_SETFL, O_NONBLOCK);
    static const int ends[] = { SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGUSR1, SIGSEGV, SIGUSR2,
        SIGPIPE, SIGALRM, SIGTERM, SIGSYS }; /* signals that would end the supervisor if they were not blocked */
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        sigaddset(&awaited, ends[i]);
    signal(SIGCHLD, SIG_DFL);
    const pid_t supervisor = getpid(), checker_pid = getppid(), worker = fork();
    if (!worker) {
        sigset_t none;
        sigemptyset(&none);
        close(checker_socket);
        setsid();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != supervisor)
            _exit(0);
        check_deny_signals_to(checker_pid);
        sigprocmask(SIG_SETMASK, &none, NULL);
        fn(user);
        _exit(0);
    }
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* keeps the worker from tracing this process */
    const int signals = signalfd(-1, &awaited, SFD_NONBLOCK | SFD_CLOEXEC);
    r->worker_started = true;
    if (worker > 0) {
        contain_supervise_worker(worker, checker_socket, signals, r, max_idle_seconds);
    } else {
        const check_contained_end e = { .cause = CHECK_ENDED_NOT_STARTED, .status = errno };
        fn = write(checker_socket, &e, sizeof e) < 0 ? NULL : fn;
    }
    _exit(0);
}

/* ---- In the checker ---- */

static pid_t supervisors[CHECK_MAX_CONTAINED]; /* pids of running supervisors; 0 in a free entry */

/* Replaces the first old_pid in `supervisors` by new_pid. Pid 0 stands for a free entry. */
static void contain_replace_pid_in_supervisors(pid_t old_pid, pid_t new_pid)
{
    for (size_t i = 0; i < CHECK_MAX_CONTAINED; i++)
        if (supervisors[i] == old_pid) {
            supervisors[i] = new_pid;
            return;
        }
}

/* Removes the supervisor of a contained process from `supervisors`, and closes the checker's end of its socket. */
static void contain_close_and_unlist(const check_contained *c)
{
    contain_replace_pid_in_supervisors(c->pid, 0);
    check_mark_descriptor_private(c->fd, false);
    close(c->fd);
}

bool check_contained_try_start(check_contained *c, check_result *r, double max_idle_seconds, check_contained_fn *fn, void *user)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
        return false;
    fflush(NULL);
    check_mark_descriptor_private(fds[0], true);
    c->fd = fds[0];
    c->stopped_polls = 0;
    c->result = r;
    c->start_seconds = check_get_monotonic_seconds();
    r->worker_started = false;
    c->pid = fork();
    if (c->pid == 0)
        contain_run_supervisor(fds[1], r, max_idle_seconds, fn, user);
    const int error = errno;
    close(fds[1]);
    if (c->pid > 0)
        contain_replace_pid_in_supervisors(0, c->pid);
    else
        contain_close_and_unlist(c);
    errno = error;
    return c->pid > 0;
}

bool check_contained_has_ended(check_contained *c, check_contained_end *e)
{
    struct pollfd p = { .fd = c->fd, .events = POLLIN };
    const bool is_readable = poll(&p, 1, 0) > 0;
    c->stopped_polls = !is_readable && process_is_stopped(process_read_status(c->pid).state) ? c->stopped_polls + 1 : 0;
    const bool stopped = c->stopped_polls >=
        STOPPED_POLLS; /* several polls are needed, since strace(1) stops a process for moments */
    const bool unbegun = !is_readable && !c->result->worker_started &&
        check_get_monotonic_seconds() - c->start_seconds > BEGIN_SECONDS;
    if (!is_readable && !stopped && !unbegun)
        return false;
    const bool has_message = is_readable && read(c->fd, e, sizeof *e) == sizeof *e;
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    contain_close_and_unlist(c);
    if (!has_message) {
        *e = (check_contained_end){ .cause = stopped ? CHECK_ENDED_SUPERVISOR_STOPPED
                : unbegun                            ? CHECK_ENDED_NOT_BEGUN
                                                     : CHECK_ENDED_SUPERVISOR_KILLED };
        process_kill_descendants(supervisors, CHECK_MAX_CONTAINED, MAX_KILL_SECONDS);
    }
    return true;
}

void check_kill_all_descendants(void)
{
    process_kill_descendants(NULL, 0, MAX_END_SECONDS);
    memset(supervisors, 0, sizeof supervisors);
}
