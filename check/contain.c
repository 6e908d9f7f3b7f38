/* Containment: hostile code runs two processes away from the checker, and nothing of it outlives its job.
 *
 *   checker ── supervisor ── worker ── whatever a kernel starts
 *
 * A worker runs the code. Its supervisor is the parent that a kernel can kill or stop, and the subreaper that adopts what a
 * kernel leaves behind. The supervisor kills a worker that sleeps too long, uses more processor time than its limit, or starts
 * too many processes. When the worker has ended, the supervisor kills all descendants and sends one check_ending to the checker.
 * If the supervisor itself is killed or stopped, the checker, which is a subreaper too, kills the rest. If the checker dies, the
 * socket between them hangs up, and the supervisor kills its descendants. Descendants are found by their parents in /proc, so a
 * session or process group that they create does not hide them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { STOPPED_POLLS = 3, MAX_PROCESSES = 1 << 16, MAX_DESCRIPTORS = 4096, CROWD = 128, POLL_MS = 100 };
static const double KILL_SECONDS = 5, END_SECONDS = 0.7, SLACK_SECONDS = 0.2;

double check_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double check_used(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- Processes, as /proc lists them ---- */

/* Status of a process or thread, from its stat file in /proc. If the file cannot be read, `state` is 0. */
typedef struct process {
    pid_t pid, parent;
    char state;               /* as in proc(5): R runs or waits for a processor, S sleeps, T and t are stopped, Z has ended */
    bool descends;            /* true for a descendant of the calling process */
    unsigned long long ticks; /* clock ticks of processor time; for a process, of all its threads */
} process;

static process process_read(const char *path)
{
    process p = { 0 };
    char text[512];
    unsigned long long user = 0, system = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *after = strrchr(text, ')'); /* the name before it may hold anything */
    if (after &&
        sscanf(after + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &p.state, &p.parent, &user, &system) < 4)
        p.state = 0;
    p.ticks = user + system;
    return p;
}

static process process_of(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    process p = process_read(path);
    p.pid = pid;
    return p;
}

static bool is_stopped(char state) { return state == 'T' || state == 't'; }

/* Returns the most active state among the threads of a process: R, else D, else the state of the process itself. */
static char process_activity(const process *p)
{
    char path[300], most = p->state;
    snprintf(path, sizeof path, "/proc/%d/task", (int)p->pid);
    DIR *tasks = opendir(path);
    for (const struct dirent *e; tasks && most != 'R' && (e = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", (int)p->pid, e->d_name);
        const char state = *e->d_name == '.' ? 0 : process_read(path).state;
        most = state == 'R' || state == 'D' ? state : most;
    }
    if (tasks)
        closedir(tasks);
    return most;
}

static process processes[MAX_PROCESSES];

static int compare_pids(const void *a, const void *b)
{
    const pid_t x = ((const process *)a)->pid, y = ((const process *)b)->pid;
    return (x > y) - (x < y);
}

/* Lists all processes and marks the descendants of this one, except the subtrees of processes in `spared`. Returns the number of
 * listed processes. */
static size_t list_descendants(const pid_t *spared, size_t nspared)
{
    size_t n = 0;
    DIR *proc = opendir("/proc");
    for (const struct dirent *e; proc && n < MAX_PROCESSES && (e = readdir(proc));)
        if (*e->d_name >= '1' && *e->d_name <= '9') {
            processes[n] = process_of((pid_t)strtol(e->d_name, NULL, 10));
            n += processes[n].state != 0;
        }
    if (proc)
        closedir(proc);
    qsort(processes, n, sizeof *processes, compare_pids);
    const pid_t self = getpid();
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            process *p = &processes[i];
            const process key = { .pid = p->parent };
            const process *parent = p->descends ? NULL : bsearch(&key, processes, n, sizeof *processes, compare_pids);
            bool is_spared = false;
            for (size_t k = 0; k < nspared; k++)
                is_spared |= p->pid == spared[k];
            if (!is_spared && !p->descends && (p->parent == self || (parent && parent->descends)))
                p->descends = more = true;
        }
    }
    return n;
}

/* Returns the number of descendants that have not ended, without the subtrees of processes in `spared`. */
static uint32_t count_descendants(const pid_t *spared, size_t nspared)
{
    uint32_t alive = 0;
    const size_t n = list_descendants(spared, nspared);
    for (size_t i = 0; i < n; i++)
        alive += processes[i].descends && processes[i].state != 'Z' && processes[i].state != 'X';
    return alive;
}

/* Kills all descendants of this process except the subtrees of processes in `spared`, until none is left or `seconds` have
 * passed. */
static void kill_descendants(const pid_t *spared, size_t nspared, double seconds)
{
    const double end = check_now() + seconds;
    siginfo_t info = { .si_pid = 0 };
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && errno == ECHILD)
        return;
    for (bool any = true; any && check_now() < end;) {
        any = false;
        const size_t n = list_descendants(spared, nspared);
        for (size_t i = 0; i < n; i++)
            if (processes[i].descends && processes[i].state != 'Z')
                kill(processes[i].pid, SIGKILL);
        for (size_t i = 0; i < n; i++)
            if (processes[i].descends) {
                any = true;
                waitpid(processes[i].pid, NULL, WNOHANG); /* of a grandchild: ECHILD, until it is adopted */
            }
        if (any)
            nanosleep(&(struct timespec){ .tv_nsec = 2 * 1000 * 1000 }, NULL);
    }
}

/* ---- Descriptors ---- */

/* Descriptors that are closed in workers: those that the command inherited or opened itself. Descriptors that a library opened
 * when it was loaded are not included. */
static bool is_private[MAX_DESCRIPTORS];

void check_descriptor_private(int fd, bool is)
{
    if (fd > STDERR_FILENO && fd < MAX_DESCRIPTORS)
        is_private[fd] = is;
}

void check_contain_begin(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) /* or a file that is opened later would get this number */
        while (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) >= 0)
            ;
    for (int fd = STDERR_FILENO + 1; fd < MAX_DESCRIPTORS; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            is_private[fd] = true;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

static void close_private(int but)
{
    for (int fd = STDERR_FILENO + 1; fd < MAX_DESCRIPTORS; fd++)
        if (is_private[fd] && fd != but)
            close(fd);
}

/* ---- The supervisor ---- */

/* Progress of a worker at the supervisor's last poll: step, CPU ticks and idle seconds. */
typedef struct watch {
    pid_t pid; /* the worker, or the helper that it waits for */
    uint64_t step;
    unsigned long long ticks, begun; /* CPU ticks at the last poll; at the first poll of this step */
    double polled, idle;             /* seconds: time of the last poll; accumulated idle time */
} watch;

/* Polls a worker. Returns the cause for which it must be killed; CHECK_ENDED_ITSELF: it may continue. A poll is active if a
 * thread runs or has used a quarter of the time since the last poll. An active poll cancels three idle ones, so a loop of short
 * sleeps is idle, too. A wait that cannot be interrupted (D) may be for a disk, and counts a quarter. A gap of more than a second
 * between polls resets the idle time: the whole machine was stopped. */
static enum check_end_cause watch_poll(watch *w, const check_result *r, pid_t worker, double patience)
{
    const long rate = sysconf(_SC_CLK_TCK);
    const process helper = process_of(r->helper > 0 ? r->helper : worker);
    const process p = helper.parent == worker ? helper : process_of(worker); /* the worker may have written anything */
    const pid_t pid = p.pid;
    const char activity = process_activity(&p);
    const double time = check_now(), passed = time - w->polled;
    const bool moved = r->step != w->step || pid != w->pid || passed > 1 || !p.state;
    const bool active = activity == 'R' || (double)(p.ticks - w->ticks) > passed / 4 * (double)rate;
    if (moved) {
        w->begun = p.ticks;
        w->idle = 0;
    } else {
        w->idle = fmax(0, w->idle + (active ? -3 : activity == 'D' ? 0.25 : 1) * passed);
    }
    w->pid = pid;
    w->step = r->step;
    w->ticks = p.ticks;
    w->polled = time;
    const double limit = r->limit_ms / 1e3;
    if (r->limit_ms && (double)(p.ticks - w->begun) / (double)rate > limit + fmax(SLACK_SECONDS, limit / 16))
        return CHECK_ENDED_LOOPING;
    if (w->idle > patience)
        return is_stopped(p.state) ? CHECK_ENDED_STOPPED : CHECK_ENDED_WAITING;
    return CHECK_ENDED_ITSELF;
}

static unsigned count_threads(void)
{
    struct sysinfo info;
    return sysinfo(&info) ? 0 : info.procs;
}

/* Waits for the end of the worker. Kills it if watch_poll() returns a cause, or if it has started too many processes. Then kills
 * its descendants and sends a check_ending to the checker. If the checker ends first, kills all of them and sends nothing. */
static void supervise(pid_t worker, int checker, int signals, const check_result *r, double patience)
{
    check_ending e = { .cause = CHECK_ENDED_ITSELF };
    watch w = { .pid = worker, .step = r->step, .polled = check_now() };
    struct rusage used = { 0 };
    double killed = 0;
    unsigned threads = count_threads();
    for (;;) {
        struct pollfd fds[] = { { .fd = signals, .events = POLLIN }, { .fd = checker, .events = POLLIN } };
        struct signalfd_siginfo info;
        poll(fds, 2, POLL_MS);
        bool ended = false; /* by a signal that the worker sent */
        while (read(signals, &info, sizeof info) > 0)
            ended |= info.ssi_signo != SIGCHLD && info.ssi_pid == (uint32_t)worker;
        if (fds[1].revents) { /* the checker has ended, or wants this to end */
            kill_descendants(NULL, 0, KILL_SECONDS);
            return;
        }
        int status = 0;
        for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &used)) > 0;) /* a traced worker also reports stops */
            if (pid == worker && (WIFEXITED(status) || WIFSIGNALED(status))) {
                e.status = status;
                e.used = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                    (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
                worker = 0;
            }
        if (!worker || (killed > 0 && check_now() - killed > KILL_SECONDS))
            break;
        if (killed > 0)
            continue;
        e.cause = ended ? CHECK_ENDED_PARENT_KILLED : watch_poll(&w, r, worker, patience);
        if (e.cause == CHECK_ENDED_ITSELF && count_threads() > threads + CROWD) {
            const uint32_t alive = count_descendants(NULL, 0);
            e.left = alive > CROWD ? alive : 0;
            e.cause = alive > CROWD ? CHECK_ENDED_CROWDED : CHECK_ENDED_ITSELF;
            threads = count_threads();
        }
        if (e.cause != CHECK_ENDED_ITSELF) {
            killed = check_now();
            if (e.cause != CHECK_ENDED_CROWDED)
                kill(worker, SIGKILL);
            else
                kill_descendants(&worker, 1, KILL_SECONDS), kill(worker, SIGKILL);
        }
    }
    siginfo_t any = { .si_pid = 0 };
    if (e.cause != CHECK_ENDED_CROWDED && !waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT)) /* else there are no children */
        e.left = count_descendants((const pid_t[]){ r->helper }, 1);
    kill_descendants(NULL, 0, KILL_SECONDS);
    if (write(checker, &e, sizeof e) < 0)
        return;
}

/* Runs the supervisor, the process between the checker and a worker: forks the worker, which calls fn(user), and supervises it.
 * Does not return. */
_Noreturn static void run_supervisor(int checker, const check_result *r, double patience, check_contained_fn *fn, void *user)
{
    sigset_t all;
    setsid(); /* no terminal, and no group that a kernel could reach */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGCONT); /* a kernel may have stopped it when the checker dies */
    close_private(checker);
    fcntl(checker, F_SETFL, O_NONBLOCK);
    static const int ends[] = { SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGUSR1, SIGSEGV, SIGUSR2,
        SIGPIPE, SIGALRM, SIGTERM, SIGSYS }; /* those that would end it, if it did not block them */
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        sigaddset(&awaited, ends[i]);
    signal(SIGCHLD, SIG_DFL);
    const pid_t supervisor = getpid(), worker = fork();
    if (!worker) {
        sigset_t none;
        sigemptyset(&none);
        close(checker);
        setsid();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != supervisor)
            _exit(0);
        sigprocmask(SIG_SETMASK, &none, NULL);
        fn(user);
        _exit(0);
    }
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* the worker cannot trace it */
    const int signals = signalfd(-1, &awaited, SFD_NONBLOCK | SFD_CLOEXEC);
    if (worker > 0) {
        supervise(worker, checker, signals, r, patience);
    } else {
        const check_ending e = { .cause = CHECK_ENDED_UNSTARTED, .status = errno };
        fn = write(checker, &e, sizeof e) < 0 ? NULL : fn;
    }
    _exit(0);
}

/* ---- In the checker ---- */

static pid_t supervisors[CHECK_CONTAINED]; /* pids of running supervisors; 0: free */

static void note_supervisor(pid_t from, pid_t to)
{
    for (size_t i = 0; i < CHECK_CONTAINED; i++)
        if (supervisors[i] == from) {
            supervisors[i] = to;
            return;
        }
}

/* Releases the checker's entry and descriptor of a contained process. */
static void forget(const check_contained *c)
{
    note_supervisor(c->pid, 0);
    check_descriptor_private(c->fd, false);
    close(c->fd);
}

bool check_contain(check_contained *c, const check_result *r, double patience, check_contained_fn *fn, void *user)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
        return false;
    fflush(NULL);
    check_descriptor_private(fds[0], true);
    c->fd = fds[0];
    c->stopped = 0;
    c->pid = fork();
    if (c->pid == 0)
        run_supervisor(fds[1], r, patience, fn, user);
    const int error = errno;
    close(fds[1]);
    if (c->pid > 0)
        note_supervisor(0, c->pid);
    else
        forget(c);
    errno = error;
    return c->pid > 0;
}

bool check_contained_ended(check_contained *c, check_ending *e)
{
    struct pollfd p = { .fd = c->fd, .events = POLLIN };
    const bool heard = poll(&p, 1, 0) > 0;
    c->stopped = !heard && is_stopped(process_of(c->pid).state) ? c->stopped + 1 : 0;
    const bool stopped = c->stopped >= STOPPED_POLLS; /* strace(1) stops a process now and then */
    if (!heard && !stopped)
        return false;
    const bool whole = heard && read(c->fd, e, sizeof *e) == sizeof *e;
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    forget(c);
    if (!whole) {
        *e = (check_ending){ .cause = stopped ? CHECK_ENDED_PARENT_STOPPED : CHECK_ENDED_PARENT_KILLED };
        kill_descendants(supervisors, CHECK_CONTAINED, KILL_SECONDS);
    }
    return true;
}

void check_contained_end_all(void)
{
    kill_descendants(NULL, 0, END_SECONDS);
    memset(supervisors, 0, sizeof supervisors);
}
