/* Jobs in forked children. Nothing that a kernel does can end the checker: a fault's handler writes what it knows into shared
 * memory and ends the child; a child that ends in any other way than at its own end has been ended by the kernel. A case may use
 * case_ms of processor time, and four times as much when it is tried again to be sure; a child that sleeps for two seconds is
 * killed. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { FULL = 8 /* cases without an empty tensor that the kernel must refuse before it is reported that it refused all */ };
enum { LOAD_MS = 5000, LOAD_SECONDS = 10 };
enum { STOPPED = 77, MAX_GROWTH = 3, MAX_ROUNDS = 8, MOST_SLOW = 3, MOST_PLANS = 256, MOST_KEPT = 64 << 20 };
static int case_ms = 2000;                        /* check_options.case_ms */
static const double stuck = 2, stuck_again = 0.5; /* seconds of sleep */
static const double AT_ONCE = 1e-6;               /* seconds of processor time for each millisecond that a case may take */
static const rlim_t MOST_FILE = 1 << 24, MORE_STACK = 256 << 10;

/* ---- In a child ---- */

static check_job *current; /* of this child */
static int cpu_ms;

static void vset(check_job *job, enum check_outcome outcome, const char *kind, const char *format, va_list args)
{
    check_result *r = job->result;
    if (r->outcome != CHECK_PASS)
        return;
    r->outcome = outcome;
    r->how = job->how;
    snprintf(r->kind, sizeof r->kind, "%s", kind);
    vsnprintf(r->message, sizeof r->message, format, args);
}

void check_fail(check_job *job, const char *kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vset(job, CHECK_FAIL, kind, format, args);
    va_end(args);
}

void check_not(check_job *job, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vset(job, CHECK_NOT, "", format, args);
    va_end(args);
}

void check_left_out(check_job *job, const char *what)
{
    snprintf(job->result->left_out, sizeof job->result->left_out, "%s", what ? what : "");
}

void check_refused(check_job *job)
{
    job->result->refused++;
    snprintf(job->result->note, sizeof job->result->note, "%s", dv_last_error());
}

void check_in_hand(check_job *job, const check_case *c)
{
    if (c != &job->result->failing)
        job->result->failing = *c;
    job->result->step++;
}

/* A fault, in words. */
DV__PRINTF(4, 5) static void say(check_result *r, uint32_t fault, const char *kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    r->fault = fault;
    snprintf(r->kind, sizeof r->kind, "%s", kind);
    vsnprintf(r->message, sizeof r->message, format, args);
    va_end(args);
}

/* An access to memory of ours. */
static void describe_place(check_result *r, const char *verb, const check_place *p)
{
    char kind[40];
    const long long at = (long long)p->offset, low = (long long)p->low, high = (long long)p->high;
    const char *where = p->offset < p->low ? "before the start" : "past the end";
    if (p->heap)
        r->how.show = CHECK_SHOW_HEAP;
    else if (p->far || p->header || p->in_list || p->freed)
        r->how.show = p->far ? CHECK_SHOW_FAR : CHECK_SHOW_LISTS;
    snprintf(kind, sizeof kind, "%s %s", verb, where);
    if (p->freed)
        say(r, CHECK_FAULT_MEMORY, "use after free", "the kernel %s %s: byte %lld of %lld", verb, p->what, at, high);
    else if (p->between)
        say(r, CHECK_FAULT_MEMORY, "between elements",
            "the kernel %s between the elements of %s, which lie 2^31 elements apart: byte %lld", verb, p->what, at);
    else if (p->inside && p->input)
        say(r, CHECK_FAULT_MEMORY, "undeclared write",
            "the kernel %s %s, which the schema does not declare to be written, at byte %lld of [%lld, %lld)", verb, p->what, at,
            low, high);
    else
        say(r, CHECK_FAULT_MEMORY, kind, "the kernel %s %s of %s: byte %lld, and its memory is [%lld, %lld)%s", verb, where,
            p->what, at, low, high, check_earlier(p->earlier));
}

static void describe_access(check_result *r, const siginfo_t *info, void *context)
{
    static const char kind[] = "segmentation fault";
    check_place place;
    const char *verb = "touches";
#if defined(__x86_64__)
    enum { WRITE = 2 };
    const ucontext_t *u = context;
    verb = u->uc_mcontext.gregs[REG_ERR] & WRITE ? "writes" : "reads";
#else
    (void)context;
#endif
    if (check_is_untouchable(info->si_addr) && !check_in_kernel()) {
        r->how.show = CHECK_SHOW_LOOK;
        say(r, CHECK_FAULT_LOOK, "looks at contents", "the shape function %s the contents of a tensor: a fake tensor has none",
            verb);
    } else if (check_memory_find(info->si_addr, &place)) {
        describe_place(r, verb, &place);
    } else if (info->si_code == SI_KERNEL) {
        say(r, CHECK_FAULT_CRASH, kind,
            "SIGSEGV: an instruction of the kernel that needs an aligned address got another one "
            "(without align(...) a tensor begins at any element), or an address that cannot be");
    } else {
        const bool null = (uintptr_t)info->si_addr < 65536;
        if (null && check_call_without_workspace()) {
            say(r, CHECK_FAULT_MEMORY, "no workspace",
                "the kernel %s the workspace, of which the contract says here that it has 0 bytes", verb);
            return;
        }
        say(r, CHECK_FAULT_CRASH, kind, "SIGSEGV: the kernel %s memory at address %p, %s", verb, info->si_addr,
            null ? "as of a null pointer" : "which is near none of its tensors");
    }
}

static void say_signal(check_result *r, int number)
{
    say(r, CHECK_FAULT_CRASH, "end of the process", "the kernel ended the process: signal %d (%s)", number, strsignal(number));
}

/* Is the stack pointer where no memory is, and the address in what a function has there? */
static bool is_below_stack(uintptr_t at, const void *context)
{
#if defined(__x86_64__)
    enum { LARGEST = 1 << 30, UNDER = 4096 };
    const ucontext_t *u = context;
    const uintptr_t top = (uintptr_t)u->uc_mcontext.gregs[REG_RSP];
    return at >= top - UNDER && at < top + LARGEST && syscall(SYS_rt_sigprocmask, -1, top, NULL, sizeof(uint64_t)) &&
        errno == EFAULT;
#else
    (void)at, (void)context;
    return false;
#endif
}

static uintptr_t stack_low, stack_high; /* of this thread, with what lies below */

/* True if an object holds code of an operator: it is not this program, the C library or the compiler's runtime. */
static bool is_operator_object(const Dl_info *object)
{
    static const char *const others[] = { "libc.", "libm.", "libgcc_s", "libpthread", "libdl.", "ld-linux", "linux-vdso",
        "libstdc++" };
    const char *slash = strrchr(object->dli_fname, '/'), *name = slash ? slash + 1 : object->dli_fname;
    Dl_info own;
    if (!dladdr((void *)(uintptr_t)is_operator_object, &own) || own.dli_fbase == object->dli_fbase)
        return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strncmp(name, others[i], strlen(others[i])))
            return false;
    return true;
}

/* Records the innermost instruction of the operator's binary: the one that raised the fault, or the call that led to it. Handlers
 * call this function last: if a broken stack ends the process here, the message exists already. */
static void note_origin(check_result *r, const void *context)
{
    enum { FRAMES = 32 };
    void *frames[FRAMES + 1] = { NULL };
    size_t n = 1;
#if defined(__x86_64__)
    frames[0] = (void *)(uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
    (void)context;
#endif
    Dl_info object;
    if (!frames[0] || !dladdr(frames[0], &object) || !is_operator_object(&object)) {
        const int more = backtrace(frames + 1, FRAMES);
        n += more > 0 ? (size_t)more : 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (!frames[i] || !dladdr(frames[i], &object) || !object.dli_fname || !is_operator_object(&object))
            continue;
        snprintf(r->origin.object, sizeof r->origin.object, "%s", object.dli_fname);
        r->origin.at = (uintptr_t)frames[i] - (uintptr_t)object.dli_fbase - (i > 0); /* of a call: not the return address */
        return;
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    static const struct {
        int number;
        const char *kind, *says;
    } names[] = {
        { SIGFPE, "arithmetic fault", "SIGFPE: the kernel divides an integer by zero, or the lowest one by -1" },
        { SIGABRT, "abort", "SIGABRT: the kernel calls abort()" },
        { SIGILL, "illegal instruction",
            "SIGILL: the kernel runs an illegal instruction: __builtin_trap(), or one that this processor does not have" },
        { SIGBUS, "bus error", "SIGBUS: the kernel touches memory that is not there" },
        { SIGSYS, "bad system call", "SIGSYS: the kernel makes a system call that does not exist" },
        { SIGTRAP, "trap", "SIGTRAP: the kernel runs into __builtin_trap() or a sanitizer's" },
    };
    check_result *r = current->result;
    const uintptr_t at = (uintptr_t)info->si_addr;
    const bool is_end = number == SIGTERM || number == SIGINT || number == SIGHUP;
    if (is_end && info->si_pid != getpid()) /* for all: the parent ends us */
        return;
    r->outcome = CHECK_FAIL;
    r->how = current->how;
    r->how.show = CHECK_SHOW_CRASH;
    if (is_end || (number == SIGPROF && info->si_code != SI_KERNEL)) {
        say_signal(r, number);
    } else if (number == SIGPROF) {
        say(r, CHECK_FAULT_TIME, "endless loop", "the kernel has not ended after %g s of processor time", 4 * case_ms / 1e3);
    } else if (number == SIGSEGV && ((at >= stack_low && at < stack_high) || is_below_stack(at, context))) {
        say(r, CHECK_FAULT_CRASH, "stack overflow", "SIGSEGV: the kernel uses more stack than there is");
    } else if (number == SIGSEGV) {
        describe_access(r, info, context);
    } else if (number == SIGABRT && check_heap_wrong_free()) {
        r->how.show = CHECK_SHOW_HEAP;
        say(r, CHECK_FAULT_MEMORY, "wrong free", "the kernel frees memory twice, or an address that malloc() did not give");
    } else {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (names[i].number == number)
                say(r, CHECK_FAULT_CRASH, names[i].kind, "%s", names[i].says);
    }
    if (!is_end)
        note_origin(r, context);
    _exit(STOPPED);
}

/* Limits the processor time of this process from now on to ms milliseconds; 0: no limit. Past the limit SIGPROF, or else the
 * supervisor, ends the process. */
static void arm(int ms)
{
    const struct itimerval t = { .it_value = { ms / 1000, ms % 1000 * 1000 } };
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); /* what a call blocked does not hold up the next */
    current->result->limit_ms = ms;
    current->result->step++;
    setitimer(ITIMER_PROF, &t, NULL);
}

static int printed = -1; /* the end of a pipe that stdout is written to */

int check_printed(void)
{
    int n = 0;
    return ioctl(printed, FIONREAD, &n) ? 0 : n;
}

/* Files behind the descriptors that a worker begins with: stdin, stdout, stderr and the pipe that holds its output. */
static struct stat files[4];

static int descriptor_at(size_t i) { return i < 3 ? (int)i : printed; }

bool check_descriptors_kept(void)
{
    bool kept = true;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct stat s;
        kept &= !fstat(descriptor_at(i), &s) && s.st_ino == files[i].st_ino && s.st_dev == files[i].st_dev;
    }
    return kept;
}

/* Redirects stdin and stderr to /dev/null, and stdout to a pipe that does not block. A kernel never waits for a reader; output
 * beyond the pipe's capacity is lost. */
static void keep_output(void)
{
    int ends[2];
    const int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2 && null >= 0; fd++)
        dup2(null, fd);
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC))
        return;
    printed = ends[0];
    dup2(ends[1], 1);
    close(ends[1]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        fstat(descriptor_at(i), &files[i]);
}

static pid_t self; /* pid of this process if the checker made it; a process that a kernel forked has another pid */

int check_fork(void)
{
    const pid_t pid = fork();
    if (!pid) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        self = getpid();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

void check_after_kernel(void)
{
    if (!self || getpid() == self)
        return;
    current->result->copied = true;
    _exit(0);
}

/* Lowers a resource limit to `most`; a limit that is lower already stays. */
static void limit_to(int resource, rlim_t most)
{
    struct rlimit limit;
    if (getrlimit((unsigned)resource, &limit) || (limit.rlim_max != RLIM_INFINITY && limit.rlim_max <= most))
        return;
    limit.rlim_cur = limit.rlim_max = most;
    setrlimit((unsigned)resource, &limit);
}

/* Returns the limit of private memory in bytes (RLIMIT_DATA): 6 GB for the checker and the kernel, and more for tensors. The
 * checker never touches most of its share. The limit is at most half of the machine's memory, but at least 6 GB. */
static rlim_t most_memory(void)
{
    enum { TENSORS = 16, BYTES = 16 };
    const rlim_t half = (rlim_t)sysconf(_SC_PHYS_PAGES) / 2 * (rlim_t)sysconf(_SC_PAGESIZE), least = (rlim_t)6 << 30;
    const rlim_t most = least + (rlim_t)check_most_elements * TENSORS * BYTES;
    return half < least ? least : most < half ? most : half;
}

/* Returns the limit of processor time in seconds (RLIMIT_CPU). A job reaches it only if the job's own limits do not end it. */
static rlim_t most_seconds(const check_job *job)
{
    enum { SPARE = 120, TIMES = 16 };
    const double seeds = (double)(job->last_seed - job->seed + 1);
    return (rlim_t)(job->seconds * seeds + TIMES * case_ms / 1e3) + SPARE;
}

/* Makes this worker the OOM killer's first choice, so that no process of the user is killed. */
static void offer_to_oom_killer(void)
{
    const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "1000", 4) < 0)
        errno = 0;
    if (fd >= 0)
        close(fd);
}

static void prepare_child(const check_job *job)
{
    static const int numbers[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP, SIGPROF, SIGTERM, SIGINT, SIGHUP };
    static char stack[64 << 10];
    const stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack };
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    struct rlimit limit = { 0, 0 };
    sigset_t caught;
    self = getpid();
    mallopt(M_TRIM_THRESHOLD, MOST_KEPT); /* blocks come and go: the heap's end stays */
    mallopt(M_MMAP_THRESHOLD, MOST_KEPT / 2);
    setrlimit(RLIMIT_CORE, &limit);
    limit_to(RLIMIT_FSIZE, MOST_FILE);
    limit_to(RLIMIT_DATA, most_memory());
    limit_to(RLIMIT_CPU, most_seconds(job));
    offer_to_oom_killer();
    if (!getrlimit(RLIMIT_AS, &limit)) { /* absurdly large allocations of a kernel fail; 72 GB are for guarded memory */
        const rlim_t most = (rlim_t)96 << 30;
        limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > most ? most
                                                                                  : limit.rlim_max; /* far memory raises it */
        setrlimit(RLIMIT_AS, &limit);
    }
    getrlimit(RLIMIT_STACK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_max - limit.rlim_cur >= MORE_STACK) {
        limit.rlim_cur += MORE_STACK; /* the smallest case that overflows here overflows in the program that shows it, too */
        setrlimit(RLIMIT_STACK, &limit);
    }
    const uintptr_t size = limit.rlim_cur == RLIM_INFINITY ? (uintptr_t)1 << 30 : (uintptr_t)limit.rlim_cur;
    stack_high = (uintptr_t)__builtin_frame_address(0);
    stack_low = stack_high - size - ((uintptr_t)1 << 20);
    keep_output();
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    sigaltstack(&alternate, NULL);
    sigemptyset(&caught);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        sigaction(numbers[i], &action, NULL);
        sigaddset(&caught, numbers[i]);
    }
    sigprocmask(SIG_UNBLOCK, &caught, NULL); /* whoever started this command may have blocked them */
    dv_set_threads(1);
}

bool check_apart(check_job *job, const check_case *c, check_case_fn *fn)
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
    job->result->helper = (int32_t)(pid > 0 ? pid : 0);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    job->result->helper = 0;
    return pid > 0 && WIFEXITED(status);
}

bool check_apart_forbidden(check_job *job, const check_case *c, check_case_fn *fn)
{
    static check_case forbidden;
    if (job->result->outcome != CHECK_PASS || !check_forbid(job->op, c, &forbidden))
        return false;
    check_in_hand(job, &forbidden);
    check_apart(job, &forbidden, fn);
    if (job->result->outcome == CHECK_PASS)
        check_in_hand(job, c);
    return true;
}

/* The expected results, for programs that show a failure. */
static void note_results(check_job *job, const check_case *c)
{
    static check_values v;
    static dv_result_spec specs[CHECK_RESULTS];
    memset(job->result->made, 0, sizeof job->result->made);
    check_values_make(&v, c, (dv_device){ DV_CPU, 0 });
    if (dv_infer(job->op->op, v.values, c->nargs, specs, job->op->nresults))
        return;
    for (size_t r = 0; r < job->op->nresults && r < CHECK_MADE; r++) {
        check_made *m = &job->result->made[r];
        m->present = specs[r].ndim >= 0 && specs[r].ndim <= CHECK_DIMS && !specs[r].flags;
        m->dtype = specs[r].dtype;
        m->ndim = specs[r].ndim;
        for (int32_t d = 0; d < m->ndim && m->present; d++)
            m->shape[d] = specs[r].shape[d];
    }
}

void check_in_hand_with_results(check_job *job, const check_case *c)
{
    check_in_hand(job, c);
    note_results(job, c);
}

static void attempt(check_job *job, const check_case *c)
{
    check_in_hand_with_results(job, c);
    arm(cpu_ms);
    job->property->attempt(job, c);
    arm(0);
}

/* Contents that a kernel refuses may be its right to refuse: log() of a negative number, bounds that are not sorted. */
enum { TAMED = 4 };
static void tame(check_case *c, uint32_t how)
{
    static const enum check_fill fills[TAMED] = { CHECK_RANDOM, CHECK_RANDOM, CHECK_RISING, CHECK_ASCENDING };
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && !check_is_integer(c->tensors[i].dtype)) {
            c->tensors[i].fill = (uint8_t)fills[how];
            c->tensors[i].low = how == 1 ? 0 : 0.25;
            c->tensors[i].high = how == 1 ? 1 : 2;
        }
}

static bool has_wrong_index(const check_case *c)
{
    bool wrong = false;
    for (size_t i = 0; i < c->ntensors; i++)
        wrong |= c->tensors[i].present && c->tensors[i].fill == CHECK_LAST && check_is_integer(c->tensors[i].dtype);
    return wrong;
}

/* True if the case has tensors and each tensor that is given has elements. For an empty case a kernel may compute nothing and
 * accept other arguments. */
static bool is_full(const check_case *c)
{
    bool full = c->ntensors;
    for (size_t i = 0; i < c->ntensors; i++)
        full &= !c->tensors[i].present || check_numel(&c->tensors[i]);
    return full;
}

/* Runs case i of the plan. While the kernel refuses it, runs it again with other contents. */
static void try_contents(check_job *job, uint32_t i, uint64_t seed)
{
    static check_case tried;
    check_result *r = job->result;
    const uint32_t refused = r->refused;
    check_seeded(&job->plan->cases[i], seed, &r->failing);
    r->has_case = true;
    arm(4 * cpu_ms); /* a shape function may loop */
    if (job->op->looks_inside && !check_accepts(job->op, &r->failing))
        return;
    tried = r->failing;
    r->cases++;
    attempt(job, &r->failing);
    for (uint32_t how = 0; how < TAMED && r->outcome == CHECK_PASS && r->refused > refused && !has_wrong_index(&tried); how++) {
        tame(&tried, how);
        if (!check_accepts(job->op, &tried))
            break;
        r->refused = refused;
        r->failing = tried;
        attempt(job, &r->failing);
    }
    check_seeded(&job->plan->cases[i], seed, &tried);
    for (uint32_t k = 0; r->outcome == CHECK_PASS && r->refused > refused && !has_wrong_index(&tried); k++) {
        static check_case other;
        if (!check_contents_try(job->op, &tried, k, &other))
            return;
        if (k % 2)
            tame(&other, k / 2 % TAMED);
        if (!check_accepts(job->op, &other))
            continue;
        r->refused = refused;
        r->failing = other;
        attempt(job, &r->failing);
        if (r->refused == refused)
            check_contents_accepted();
    }
}

static void try_case(check_job *job, uint32_t i, uint64_t seed)
{
    check_result *r = job->result;
    const uint32_t cases = r->cases, refused = r->refused;
    try_contents(job, i, seed);
    if (r->cases == cases || !is_full(&r->failing) || has_wrong_index(&r->failing))
        return;
    r->full++;
    r->full_accepted += r->refused == refused;
}

/* True: all were. */
static bool tell_dropped(check_job *job, uint32_t untried)
{
    check_result *r = job->result;
    uint32_t n = 0, slow = 0, first = 0;
    for (uint32_t i = job->plan->n; i-- > 0;) {
        n += job->plan->dropped[i] != CHECK_KEPT;
        slow += job->plan->dropped[i] == CHECK_SLOW;
        first = job->plan->dropped[i] == CHECK_SLOW ? i : first;
    }
    FILE *to = fmemopen(r->dropped, sizeof r->dropped, "w");
    if (to && n) {
        fprintf(to, "%u of %u cases", n, job->plan->n);
        if (n > slow)
            fprintf(to, ": %u that have as much work as %u that take longer than %g s (--case-ms), as does ", n - slow, slow,
                case_ms / 1e3);
        else
            fprintf(to, ", which take longer than %g s (--case-ms), as does ", case_ms / 1e3);
        check_case_print(job->op, &job->plan->cases[first], to);
    } else if (to && untried && r->outcome == CHECK_PASS) {
        fprintf(to, "the last %u of %u cases: the others took %g s of processor time", untried, job->cases, job->seconds);
    }
    if (to)
        fclose(to);
    r->dropped[sizeof r->dropped - 1] = 0;
    return n && n == job->plan->n;
}

static void go_through_cases(check_job *job)
{
    check_result *r = job->result;
    const check_plan *plan = job->plan;
    const uint32_t each = job->cases && job->cases < plan->n ? job->cases : plan->n;
    const uint64_t seeds = job->last_seed - job->seed + 1;
    const double end = check_used() + job->seconds * (double)seeds;
    job->cases = each * (uint32_t)seeds;
    for (; r->next < job->cases && r->outcome == CHECK_PASS && check_used() < end;) {
        r->at = r->next++ % each;
        r->seed = job->seed + (r->next - 1) / each;
        r->step++;
        if (!plan->dropped[r->at])
            try_case(job, r->at, r->seed);
    }
    for (uint32_t i = each; i < plan->n && r->outcome == CHECK_PASS && r->cases && r->refused == r->cases && check_used() < end;
        i++)
        if (!plan->dropped[i]) /* all were refused: others */
            try_case(job, r->at = i, job->seed);
    arm(0);
    r->infeasible = plan->infeasible, r->cut = plan->cut, r->not_met = plan->not_met;
    for (uint32_t i = 0; i < plan->n; i++)
        *(i < each && i < r->next && !plan->dropped[i] ? &r->met : &r->not_met) += plan->met[i];
    snprintf(r->example, sizeof r->example, "%s", plan->example);
    const bool all_dropped = tell_dropped(job, job->cases - r->next);
    const bool calls_once = job->property->faults &
        (CHECK_FAULT_CRASH | CHECK_FAULT_MEMORY); /* runs, memory: refusals are counted */
    const bool only_empty = calls_once && r->full >= FULL && !r->full_accepted && r->refused;
    r->unmade = r->outcome == CHECK_PASS && (!r->cases || r->refused == r->cases || only_empty);
    if (r->unmade && r->refused < r->cases && only_empty)
        check_not(job,
            "the kernel refused each of the %u cases in which no tensor is empty: %s; facts on contents, such as "
            "sorted(offsets) or ids.values < n, would declare which it accepts",
            r->full, r->note);
    else if (r->unmade && r->cases)
        check_not(job,
            "the kernel refused all %u cases: %s; a fact on the contents of a tensor, such as x.values > 0, would "
            "declare which it accepts",
            r->cases, r->note);
    else if (r->outcome == CHECK_PASS && plan->n && (all_dropped || (r->unmade && *r->dropped))) {
        r->unmade = false;
        check_not(job, "%s", r->dropped);
    } else if (r->unmade && plan->n)
        check_not(job, "no arguments were found that this row takes");
    else if (r->unmade)
        check_not(job, "%s%s",
            job->op->contract ? "no arguments were found that the contract accepts; the last were refused: "
                              : "there is no contract, and no arguments were found that its shape function accepts; the last "
                                "were refused: ",
            plan->refusal);
    else if (r->outcome == CHECK_PASS && job->property->incomplete && job->property->incomplete(job->op, job->row))
        check_not(job, "%s", job->property->incomplete(job->op, job->row));
}

void check_plan_goes_on(void)
{
    current->result->step++;
    arm(4 * cpu_ms); /* a shape function may loop */
}

static void make_plan(check_job *job)
{
    check_plan_make(job->op, job->row, job->cases, job->seed, job->plan);
    if (!job->plan->n && job->plan->too_large)
        snprintf(job->plan->refusal, sizeof job->plan->refusal,
            "the smallest that fits has a tensor of %lld elements, and --max-elements is %lld", (long long)job->plan->too_large,
            (long long)check_most_elements);
    else
        snprintf(job->plan->refusal, sizeof job->plan->refusal, "%s", dv_last_error());
}

static void run_job(check_job *job)
{
    if (job->property->whole)
        job->property->whole(job);
    else
        go_through_cases(job);
}

static void run_once(check_job *job)
{
    const check_case *c = &job->result->failing;
    arm(cpu_ms);
    if (!c->broken && !check_accepts(job->op, c))
        return;
    const double begin = check_used();
    attempt(job, c);
    job->result->took = check_used() - begin;
}

/* ---- In the parent ---- */

typedef struct child {
    check_contained contained;
    check_job *job;
} child;

/* Task of a worker: a function to call for a job. */
typedef struct task {
    check_job *job;
    void (*fn)(check_job *);
} task;

/* Memory that workers share with the checker, mapped before they are forked. */
enum { MAX_MAPS = 2 * MOST_PLANS + 8 };
static struct shared_map {
    char *at; /* NULL: free */
    size_t bytes;
} maps[MAX_MAPS];

/* Maps zeroed memory that is shared with child processes, and lists it in maps. NULL with errno. */
static void *shared_map(size_t bytes)
{
    size_t i = 0;
    while (i < MAX_MAPS && maps[i].at)
        i++;
    if (i == MAX_MAPS)
        return errno = ENOMEM, NULL;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    maps[i] = (struct shared_map){ p, (bytes + 4095) / 4096 * 4096 };
    return p;
}

static void shared_unmap(const void *p)
{
    for (size_t i = 0; i < MAX_MAPS; i++)
        if (maps[i].at == p) {
            munmap(maps[i].at, maps[i].bytes);
            maps[i].at = NULL;
        }
}

check_result *check_shared(void) { return shared_map(sizeof(check_result)); }

/* Result of a job, on separate pages, so that other results can be protected. */
typedef union slot {
    check_result result;
    char pages[(sizeof(check_result) + 4095) / 4096 * 4096];
} slot;

/* Makes all shared memory inaccessible in a worker, except the result of its job. The plan of the job is readable, and writable
 * only for the job that makes the plan. */
static void protect_shared(const check_job *job)
{
    char *const result = (char *)job->result, *const plan = (char *)job->plan;
    for (size_t i = 0; i < MAX_MAPS; i++) {
        char *const at = maps[i].at, *const end = at + maps[i].bytes;
        if (!at || (at == plan && job->property->whole))
            continue;
        if (at == plan) {
            mprotect(at, maps[i].bytes, PROT_READ);
        } else if (result >= at && result < end) {
            mprotect(at, (size_t)(result - at), PROT_NONE);
            mprotect(result + sizeof(slot), (size_t)(end - result) - sizeof(slot), PROT_NONE);
        } else {
            mprotect(at, maps[i].bytes, PROT_NONE);
        }
    }
}

static void run_task(void *user)
{
    const task *t = user;
    current = t->job;
    prepare_child(t->job);
    protect_shared(t->job);
    t->fn(t->job);
    t->job->result->done = true;
}

/* Starts fn(job) in a worker, which may sleep for `patience` seconds. False: not started, with errno. */
static bool start(child *c, check_job *job, double patience, void (*fn)(check_job *))
{
    task t = { job, fn };
    job->result->apart = false;
    job->result->helper = job->result->limit_ms = 0;
    job->result->held = false;
    c->job = job;
    return check_contain(&c->contained, job->result, patience, run_task, &t);
}

static const char see[] = " (see ";
static const char *whose(const check_result *r)
{
    return r->fault == CHECK_FAULT_MEMORY ? "memory" : r->fault == CHECK_FAULT_LOOK ? "fake" : "runs";
}

/* Turns a fault that another property reports into "not checked", with a reference to that property. */
static void blame(check_job *job)
{
    check_result *r = job->result;
    if (r->outcome != CHECK_FAIL || !r->fault || job->property->faults & r->fault)
        return;
    char message[sizeof r->message];
    memcpy(message, r->message, sizeof message);
    if (r->own & r->fault) {
        snprintf(r->message, sizeof r->message, "%.900s, %s", message, r->during);
        r->how.show = r->own_show;
        return;
    }
    r->outcome = CHECK_NOT;
    snprintf(r->message, sizeof r->message, "%.900s%s%s)", message, see, whose(r));
}

/* Turns a result that blame() made "not checked" into a failure of this property again. */
static void make_failure(check_result *r)
{
    char *end = strstr(r->message, see);
    r->outcome = CHECK_FAIL;
    if (end)
        *end = 0;
}

/* Writes the fault that the supervisor found into r. False: none, or the worker has reported one itself. */
static bool say_ending(check_result *r, const check_ending *e)
{
    switch (e->cause) {
    case CHECK_ENDED_WAITING: say(r, CHECK_FAULT_TIME, "endless wait", "the kernel waits and does not end"); return true;
    case CHECK_ENDED_STOPPED:
        say(r, CHECK_FAULT_TIME, "endless wait", "the kernel stops its process and does not end");
        return true;
    case CHECK_ENDED_LOOPING:
        say(r, CHECK_FAULT_TIME, "endless loop",
            "the kernel has not ended after %g s of processor time, and keeps SIGPROF from ending it", case_ms / 1e3);
        return true;
    case CHECK_ENDED_CROWDED:
        say(r, CHECK_FAULT_CRASH, "many processes", "the kernel starts more and more processes: %u were running", e->left);
        return true;
    case CHECK_ENDED_PARENT_KILLED:
        say(r, CHECK_FAULT_CRASH, "parent killed", "the kernel kills the parent of its process");
        return true;
    case CHECK_ENDED_PARENT_STOPPED:
        say(r, CHECK_FAULT_CRASH, "parent stopped", "the kernel stops the parent of its process");
        return true;
    case CHECK_ENDED_ITSELF:
        if (r->fault || r->done)
            return false;
        if (WIFSIGNALED(e->status))
            say_signal(r, WTERMSIG(e->status));
        else
            say(r, CHECK_FAULT_CRASH, "end of the process", "the kernel ended the process with exit(%d)", WEXITSTATUS(e->status));
        return true;
    case CHECK_ENDED_UNSTARTED: break;
    }
    return false;
}

/* Reports processes that a kernel left running, or a fork whose copy returned from the call. If the job has failed already,
 * appends their number to its message. */
static void say_left(check_job *job, const check_ending *e)
{
    check_result *r = job->result;
    const bool failed = r->outcome == CHECK_FAIL;
    if (job->property->whole || (!e->left && !r->copied) || e->cause == CHECK_ENDED_CROWDED)
        return;
    r->outcome = CHECK_FAIL;
    if (failed && e->left) {
        const size_t n = strlen(r->message);
        snprintf(r->message + n, sizeof r->message - n, "; it leaves %u process%s running", e->left, e->left == 1 ? "" : "es");
    } else if (!failed) {
        r->how.show = CHECK_SHOW_NOTHING;
        if (e->left)
            say(r, CHECK_FAULT_CRASH, "processes left", "the kernel leaves processes running: %u", e->left);
        else
            say(r, CHECK_FAULT_CRASH, "fork", "the kernel forks, and its call returns in both processes");
    }
}

static void not_started(check_job *job, int error)
{
    check_not(job, "no process could be started: %s", strerror(error));
    job->result->unmade = job->result->unstarted = true;
}

static bool is_text(const char *s, size_t size) { return memchr(s, 0, size) != NULL; }

static bool is_sane_case(const check_case *c)
{
    bool sane = c->nargs <= CHECK_ARGS && c->ntensors <= CHECK_TENSORS;
    for (size_t i = 0; sane && i < c->nargs; i++)
        sane = c->args[i].count <= CHECK_TENSORS && c->args[i].first <= CHECK_TENSORS && is_text(c->args[i].string, CHECK_STRING);
    for (size_t i = 0; sane && i < c->ntensors; i++)
        sane = c->tensors[i].layout < CHECK_LAYOUT_COUNT && c->tensors[i].form < CHECK_FORMS && c->tensors[i].ndim >= 0 &&
            c->tensors[i].ndim <= CHECK_DIMS;
    for (size_t i = 0; sane && i < CHECK_RUNS; i++)
        sane = c->names.runs[i].n >= 0 && c->names.runs[i].n <= CHECK_DIMS;
    return sane;
}

/* True if the values that a worker left in shared memory are valid, so that the checker can read them. A kernel may have written
 * there. */
static bool is_sane(const check_job *job)
{
    const check_result *r = job->result;
    bool sane = (unsigned)r->outcome <= CHECK_NOT && r->how.show < CHECK_SHOW_COUNT && r->fault < 2 * CHECK_FAULT_LOOK &&
        is_text(r->kind, sizeof r->kind) && is_text(r->message, sizeof r->message) && is_text(r->during, sizeof r->during) &&
        is_text(r->note, sizeof r->note) && is_text(r->left_out, sizeof r->left_out) && is_text(r->example, sizeof r->example) &&
        is_text(r->dropped, sizeof r->dropped) && is_sane_case(&r->failing) && (!r->has_before || is_sane_case(&r->before));
    for (size_t i = 0; i < CHECK_MADE; i++)
        sane &= r->made[i].ndim <= CHECK_DIMS;
    if (job->plan && job->property->whole) { /* it made the plan */
        sane &= job->plan->n <= CHECK_MOST_CASES && is_text(job->plan->example, sizeof job->plan->example) &&
            is_text(job->plan->refusal, sizeof job->plan->refusal);
        for (size_t i = 0; i < job->plan->n && sane; i++)
            sane = is_sane_case(&job->plan->cases[i]);
    }
    return sane && r->at < CHECK_MOST_CASES;
}

static void finish(child *c, const check_ending *e)
{
    check_result *r = c->job->result;
    if (!is_sane(c->job)) {
        memset(r, 0, sizeof *r);
        r->outcome = CHECK_FAIL;
        say(r, CHECK_FAULT_CRASH, "checker's memory",
            "the kernel writes to memory of the checker, which none of its arguments has");
        blame(c->job);
        return;
    }
    if (e->cause == CHECK_ENDED_UNSTARTED) {
        not_started(c->job, e->status);
        return;
    }
    r->used += e->used;
    r->held = e->cause == CHECK_ENDED_LOOPING;
    if (say_ending(r, e)) {
        r->outcome = CHECK_FAIL;
        r->how.show = CHECK_SHOW_CRASH;
    }
    say_left(c->job, e);
    blame(c->job);
}

static bool (*interrupted)(void); /* check_options.interrupted */

/* check_options.progress, and how far everything is */
static struct {
    check_progress *fn;
    void *user;
    size_t done, all;
} shown;

static void show(const check_job *job)
{
    shown.done += job->finished;
    if (shown.fn)
        shown.fn(shown.user, shown.done, shown.all, job);
}

/* Waits until a child ends, completes its job's result, removes its entry and returns the job. NULL: interrupted, and no child is
 * left. */
static check_job *wait_for_one(child *children, size_t *n)
{
    struct pollfd fds[CHECK_CONTAINED];
    check_ending e;
    for (;;) {
        if (interrupted && interrupted()) {
            check_contained_end_all();
            for (size_t i = 0; i < *n; i++)
                close(children[i].contained.fd);
            *n = 0;
            return NULL;
        }
        for (size_t i = 0; i < *n; i++)
            fds[i] = (struct pollfd){ .fd = children[i].contained.fd, .events = POLLIN };
        poll(fds, *n, 100);
        if (*n)
            show(children[0].job);
        for (size_t i = 0; i < *n; i++) {
            child *c = &children[i];
            if (!check_contained_ended(&c->contained, &e))
                continue;
            check_job *job = c->job;
            finish(c, &e);
            *c = children[--*n];
            return job;
        }
    }
}

static bool again_within(int ms, const check_job *job, const check_case *c, check_result *shared)
{
    check_job again = *job;
    child one;
    size_t n = 1;
    memset(shared, 0, offsetof(check_result, failing));
    shared->done = false;
    shared->has_case = true;
    shared->failing = *c;
    again.result = shared;
    cpu_ms = ms;
    if ((interrupted && interrupted()) || !start(&one, &again, stuck_again, run_once))
        return false;
    const bool ended = wait_for_one(&one, &n) != NULL;
    if (shared->outcome == CHECK_NOT && shared->fault)
        make_failure(shared);
    return ended && shared->outcome == CHECK_FAIL && !strcmp(shared->kind, job->result->kind);
}

/* Does it fail in the same way, under the same condition? On a busy machine a process may seem to wait before it has begun. */
bool check_again(const check_job *job, const check_case *c, check_result *shared)
{
    const check_result *r = job->result;
    return again_within(job->again_ms ? job->again_ms : case_ms / 8, job, c, shared) &&
        !(r->own & r->fault) == !(shared->own & shared->fault);
}

/* Operator of the last endless case, of any plan. */
static const check_op *endless_op;

/* Makes the failing case of `once` smaller until no step helps. Then every smaller case takes less than an eighth of case_ms.
 * False: some step still helped when the time was up. */
static bool shrink_to_end(check_job *once)
{
    bool done = false;
    for (int round = 0; round < MAX_ROUNDS && !done; round++)
        done = check_shrink(once);
    return done;
}

/* True if the current case is endless, false if it is slow. A case that waits is endless. Otherwise the case is run as one call
 * with a limit of four times case_ms. If that call does not end, the case is made smaller while it takes more than an eighth of
 * case_ms. If the smallest case does not end in 32 times as long, no growth of work explains that: it is endless. If it ends, the
 * larger case is slow, unless its time is more than the third power of the work explains. If one call ends at once, but the calls
 * of this property do not end in four times case_ms, the case is endless, too. For an endless call, the smallest case becomes the
 * failing one. again_ms is set to more than slow cases of that size need. */
static bool is_endless(check_job *job, check_result *shared)
{
    static check_result smaller;
    check_result *r = job->result;
    if (check_is_huge(job->op, &r->failing))
        return false;
    if (!strcmp(r->kind, "endless wait"))
        return !r->apart;
    if (r->held) /* no kernel that is only slow does this */
        return true;
    const bool one_call = job->property->faults & CHECK_FAULT_TIME;
    const double work = check_work_with_numbers(job->op, &r->failing);
    if (job->plan->slow_work > 0 && work >= job->plan->slow_work)
        return false;
    if (!one_call && (job->plan->endless || job->op == endless_op))
        return true;
    check_job once = *job;
    once.property = &check_property_runs;
    once.result = &smaller;
    smaller = *r;
    smaller.own = 0;
    if (!again_within(4 * case_ms, &once, &r->failing, shared))
        return !one_call && shared->outcome == CHECK_PASS && shared->took < case_ms * AT_ONCE &&
            again_within(4 * case_ms, job, &r->failing, shared);
    const bool smallest = shrink_to_end(&once);
    if (again_within(4 * case_ms, &once, &smaller.failing, shared)) {
        if (one_call) {
            smaller.own = r->own;
            *r = smaller; /* with the results that belong to the case */
        }
        job->again_ms = case_ms;
        return smallest;
    }
    const double more = work / check_work_with_numbers(job->op, &smaller.failing);
    const double took_ms = fmax(shared->took * 1e3, case_ms / 8.0); /* it did not end in an eighth of case_ms */
    job->again_ms = case_ms;
    if (took_ms * pow(fmax(more, 1), MAX_GROWTH) < case_ms / 2.0)
        return true;
    job->plan->slow_work = work; /* less than the last: else it would not be here */
    return false;
}

/* A case that does not end is a failure; one that is slow is dropped for all properties of this row. True: it was, and the others
 * go on. */
static bool drop_slow(check_job *job, check_result *shared)
{
    check_result *r = job->result;
    check_plan *plan = job->plan;
    if (r->fault != CHECK_FAULT_TIME || !r->has_case || !plan || !shared)
        return false;
    if (is_endless(job, shared)) {
        plan->endless = true;
        endless_op = job->op;
        return false;
    }
    job->again_ms = 0;
    const bool huge = check_is_huge(job->op, &r->failing);
    uint32_t slow = 0;
    double least = INFINITY;
    for (uint32_t i = 0; i < plan->n; i++) {
        if (i == r->at || (huge && check_is_huge(job->op, &plan->cases[i])))
            plan->dropped[i] = CHECK_SLOW;
        if (plan->dropped[i] == CHECK_SLOW && !check_is_huge(job->op, &plan->cases[i])) {
            slow++;
            least = fmin(least, check_work_with_numbers(job->op, &plan->cases[i]));
        }
    }
    for (uint32_t i = r->at + 1; i < plan->n && slow >= MOST_SLOW; i++) /* so are those with as much work that follow */
        if (!plan->dropped[i] && check_work_with_numbers(job->op, &plan->cases[i]) >= least / 2)
            plan->dropped[i] = CHECK_AS_SLOW;
    r->outcome = CHECK_PASS;
    r->fault = 0;
    *r->kind = *r->message = 0;
    r->cases -= r->cases > 0;
    return true;
}

/* Make a failing case smaller. True: the case was slow, and the job is to go on with the next. */
static bool settle(check_job *job)
{
    static check_result *shared;
    if (!shared)
        shared = check_shared();
    if (drop_slow(job, shared))
        return true;
    if (job->result->outcome == CHECK_FAIL && job->result->has_case)
        check_shrink(job);
    return false;
}

/* ---- Loading ---- */

static const char *loaded_path;

static void load_library(check_job *job)
{
    dv_library *lib;
    arm(LOAD_MS);
    if (dv_load(loaded_path, &lib))
        check_not(job, "%s", dv_last_error());
    else if (!check_descriptors_kept())
        check_fail(job, "descriptors", "the kernel closes or replaces descriptors that it has not opened");
    arm(0);
}

/* Formats the message of a fault in code that runs while a library is loaded. */
static void say_while_loading(const char *path, const char *message, char *out, size_t size)
{
    static const char before[] = "the kernel ";
    const char *at = strstr(message, before);
    if (at)
        snprintf(out, size, "%s: while it is loaded, its code is at fault: %.*sit %s", path, (int)(at - message), message,
            at + sizeof before - 1);
    else
        snprintf(out, size, "%s: while it is loaded, its code is at fault: %s", path, message);
}

/* Signal mask, signal handlers and standard descriptors of the checker, saved before dv_load() and restored after it. */
typedef struct process_state {
    sigset_t mask;
    struct sigaction actions[NSIG];
    int standard[3]; /* copies of descriptors */
} process_state;

static void state_save(process_state *s)
{
    enum { HIGH = 900 };
    sigprocmask(SIG_BLOCK, NULL, &s->mask);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &s->actions[i]);
    for (int fd = 0; fd < 3; fd++)
        s->standard[fd] = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
}

static void state_restore(const process_state *s)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &s->actions[numbers[i]], NULL);
    sigprocmask(SIG_SETMASK, &s->mask, NULL);
    alarm(0);
    for (int fd = 0; fd < 3; fd++)
        if (s->standard[fd] >= 0) {
            dup2(s->standard[fd], fd);
            close(s->standard[fd]);
        }
}

static int load_here(const char *path, dv_library **lib)
{
    static process_state state;
    state_save(&state);
    const int status = dv_load(path, lib);
    state_restore(&state);
    return status;
}

int check_load(const char *path, bool (*is_interrupted)(void), dv_library **lib)
{
    static const check_property loading = { .name = "load", .faults = ~0u };
    static const check_op none;
    static check_result *shared;
    child one;
    size_t n = 1;
    check_job job = { .op = &none, .property = &loading };
    *lib = NULL;
    if (!shared && !(shared = check_shared()))
        return dv_fail(DV_ENOMEM, "out of memory");
    memset(shared, 0, sizeof *shared);
    job.result = shared;
    loaded_path = path;
    interrupted = is_interrupted;
    case_ms = LOAD_MS; /* check_run() sets it again */
    if (!start(&one, &job, LOAD_SECONDS, load_library))
        return dv_fail(DV_ENOMEM, "no process could be started: %s", strerror(errno));
    if (!wait_for_one(&one, &n))
        return dv_fail(DV_EBINARY, "interrupted");
    if (shared->outcome == CHECK_FAIL) {
        char message[sizeof shared->message + 4096];
        say_while_loading(path, shared->message, message, sizeof message);
        return dv_fail(DV_EBINARY, "%s", message);
    }
    return shared->outcome == CHECK_PASS ? load_here(path, lib) : dv_fail(DV_EBINARY, "%s", shared->message);
}

/* ---- All of it ---- */

#define ROW(name) &check_property_##name,
const check_property *const check_properties[] = { CHECK_PROPERTIES(ROW) NULL };
#undef ROW

bool check_wanted(const check_options *options, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = options->only; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (!strncmp(p, name, n) && (p[n] == ',' || !p[n]))
            return true;
    return !options->only;
}

static void add_job(
    check_job *jobs, size_t *n, const check_op *op, const check_row *row, const check_property *p, const check_options *o)
{
    if (jobs)
        jobs[*n] = (check_job){ .op = op,
            .row = row,
            .property = p,
            .seed = o->seed,
            .last_seed = o->last_seed > o->seed ? o->last_seed : o->seed,
            .cases = o->cases,
            .seconds = 1 };
    ++*n;
}

/* Every job, in the order of a report. jobs NULL: only count them. */
static size_t list_jobs(const check_op *ops, size_t nops, const check_options *options, check_job *jobs)
{
    size_t n = 0;
    for (size_t i = 0; i < nops; i++)
        for (const check_property *const *p = options->properties ? options->properties : check_properties; *p; p++) {
            if ((*p)->outside || (!options->properties && !check_wanted(options, (*p)->name)))
                continue;
            if (!(*p)->each_row)
                add_job(jobs, &n, &ops[i], NULL, *p, options);
            for (size_t k = 0; (*p)->each_row && k < ops[i].nrows; k++)
                add_job(jobs, &n, &ops[i], &ops[i].rows[k], *p, options);
        }
    return n;
}

/* Why a job need not be started. */
static const char *out_of_question(const check_job *job)
{
    if (job->op->too_large)
        return job->op->too_large;
    if (job->op->refused && !job->property->whole)
        return "its binary is refused (see binding)";
    if (!job->property->whole && !job->op->nrows && !job->op->foreign)
        return "it has no kernel for the cpu and no native form: nothing can be run";
    if (job->row && !job->row->available)
        return "this processor does not have its instruction set";
    return job->property->applies ? job->property->applies(job->op, job->row) : NULL;
}

/* The row's results depend on more than its arguments (parallel reports that), or it fails runs or memory. */
static bool is_unsound(const check_job *job)
{
    static const char *const kinds[] = { "not deterministic", "keeps something", "depends on addresses" };
    bool unsound = job->property->faults != 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        unsound |= !strcmp(job->result->kind, kinds[i]);
    return unsound && job->result->outcome == CHECK_FAIL;
}

/* Its results for a part are as wrong as for the whole. */
static bool is_wrong_in_parts(const check_job *values, const check_job *job)
{
    return values->property == &check_property_values && values->result->outcome == CHECK_FAIL &&
        job->property == &check_property_parallel &&
        (!strcmp(job->result->kind, "not parallel") || !strcmp(job->result->kind, "not a sum"));
}

/* If a kernel accepts bad indices, do not also report that it refuses others too late. */
static bool is_late_refusal(const check_job *memory, const check_job *job)
{
    return memory->op == job->op && memory->property == &check_property_memory && memory->result->outcome == CHECK_FAIL &&
        job->property == &check_property_shapes && job->result->outcome == CHECK_FAIL &&
        !strcmp(job->result->kind, "written before it was refused");
}

static bool fails(const check_job *jobs, size_t n, const check_op *op)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= jobs[i].op == op && jobs[i].result->outcome == CHECK_FAIL;
    return any;
}

static void take_failure(check_job *job)
{
    make_failure(job->result);
    if (job->result->has_case)
        check_shrink(job);
}

/* A fault that the property which reports such faults has not met: it is its failure all the same. Where something else fails, it
 * may be the same fault. */
static void hand_over_faults(check_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n && jobs[i].result->outcome == CHECK_NOT && jobs[i].result->fault && jobs[i].row; k++) {
            check_result *from = jobs[i].result, *to = jobs[k].result;
            if (jobs[k].row != jobs[i].row || strcmp(jobs[k].property->name, whose(from)) || fails(jobs, n, jobs[i].op))
                continue;
            *to = *from;
            take_failure(&jobs[k]);
        }
    for (size_t i = 0; i < n; i++) /* that property is not asked, or the call was not one of a row: then it is this one's */
        if (jobs[i].result->outcome == CHECK_NOT && jobs[i].result->fault && !fails(jobs, n, jobs[i].op))
            take_failure(&jobs[i]);
}

/* Then its values are not judged: the other property reports the failure. */
static void leave_unsound_rows(check_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            if (is_late_refusal(&jobs[k], &jobs[i])) {
                jobs[i].result->outcome = CHECK_NOT;
                snprintf(jobs[i].result->message, sizeof jobs[i].result->message, "row %s fails memory", jobs[k].row->name);
            }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n && jobs[i].property->needs_sound_row && jobs[i].result->outcome == CHECK_FAIL; k++)
            if (k != i && jobs[k].row == jobs[i].row && jobs[k].row &&
                (is_unsound(&jobs[k]) || is_wrong_in_parts(&jobs[k], &jobs[i]))) {
                jobs[i].result->outcome = CHECK_NOT;
                snprintf(jobs[i].result->message, sizeof jobs[i].result->message, "this row fails %s", jobs[k].property->name);
            }
}

/* ---- Plans of rows, each as long as a job needs it ---- */

typedef struct planned {
    const check_op *op;
    const check_row *row;
    check_plan *plan;
    check_result *result; /* of making it: a shape function may fail */
    size_t jobs;          /* that still need it */
} planned;

static bool takes_cases(const check_job *job) { return !job->property->whole; }

static planned *find_plan(planned *plans, const check_job *job)
{
    for (size_t i = 0; i < MOST_PLANS; i++)
        if (plans[i].plan && plans[i].op == job->op && plans[i].row == job->row)
            return &plans[i];
    return NULL;
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* Does a plan for all rows take dtypes from one? For a variable that may be any, if the row names it, or it is the first. */
static bool takes_dtypes_of_rows(const check_op *op)
{
    const check_json *dtypes = check_json_get(op->contract, "dtypes"), *first = dtypes ? dtypes->child : NULL;
    bool any = !op->contract;
    for (const check_json *d = first; d; d = d->next) {
        const check_json *in = check_json_get(d, "in");
        for (size_t k = 0; k < op->nrows && in && in->kind == CHECK_NULL; k++)
            any |= op->rows[k].dtypes && (d == first || strchr(op->rows[k].dtypes, '='));
    }
    return any;
}

/* For a row, and for a property of the whole operator (NULL), the same plan would be made. */
static bool same_plan(const check_op *op, const check_row *a, const check_row *b)
{
    const check_row none = { 0 }, *x = a ? a : &none, *y = b ? b : &none;
    return same_text(x->dtypes, y->dtypes) && same_text(x->when, y->when) && (!a == !b || !takes_dtypes_of_rows(op));
}

/* The plan of another row for which the same one would be made; NULL: there is none. */
static const planned *find_same(const planned *plans, const check_job *job)
{
    for (size_t i = 0; i < MOST_PLANS; i++)
        if (plans[i].plan && plans[i].op == job->op && same_plan(job->op, plans[i].row, job->row))
            return &plans[i];
    return NULL;
}

static void release_plan(planned *plans, const check_job *job)
{
    planned *p = find_plan(plans, job);
    if (!p || !takes_cases(job) || --p->jobs)
        return;
    shared_unmap(p->plan);
    *p = (planned){ .result = p->result };
}

/* The plan for a job, made in a child. NULL: with errno. */
static planned *plan_for(planned *plans, const check_job *job, const check_job *jobs, size_t n)
{
    static const check_property planning = { .name = "plan", .whole = make_plan };
    planned *p = find_plan(plans, job);
    const planned *same = find_same(plans, job);
    child one;
    size_t running = 1;
    if (p)
        return p;
    for (p = plans; p->plan; p++)
        if (p + 1 == plans + MOST_PLANS)
            return errno = ENOMEM, NULL;
    void *memory = shared_map(sizeof *p->plan);
    if (!memory || (!p->result && !(p->result = check_shared())))
        return NULL;
    *p = (planned){ job->op, job->row, memory, p->result, 0 };
    for (size_t i = 0; i < n; i++)
        p->jobs += jobs[i].op == job->op && jobs[i].row == job->row && takes_cases(&jobs[i]);
    if (same) {
        *p->result = *same->result;
        *p->plan = *same->plan;
        memset((void *)(uintptr_t)p->plan->dropped, 0, sizeof p->plan->dropped);
        return p;
    }
    check_job making = *job;
    making.property = &planning;
    making.result = p->result;
    making.plan = p->plan;
    memset(p->result, 0, sizeof *p->result);
    return start(&one, &making, stuck, run_job) && wait_for_one(&one, &running) ? p : NULL;
}

/* Begin a job; false: it has ended at once. */
static bool begin(check_job *job, child *c, planned *plans, const check_job *jobs, size_t n)
{
    cpu_ms = case_ms;
    if (takes_cases(job) && !job->plan) {
        const planned *p = plan_for(plans, job, jobs, n);
        if (!p) {
            not_started(job, errno);
            return false;
        }
        job->plan = p->plan;
        job->result->used += p->result->used; /* the first that needs it pays for it */
        p->result->used = 0;
        if (p->result->outcome != CHECK_PASS) { /* what failed while the plan was made: a shape function */
            *job->result = *p->result;
            job->result->failing = p->plan->cases[p->plan->n < CHECK_MOST_CASES ? p->plan->n : 0];
            job->result->has_case = true;
            job->result->outcome = CHECK_FAIL;
            blame(job);
            settle(job);
            return false;
        }
    }
    if (start(c, job, stuck, run_job))
        return true;
    not_started(job, errno);
    return false;
}

/* Releases the job's plan, marks the job finished and reports progress. Its result is complete already. */
static void release_job(planned *plans, check_job *job)
{
    release_plan(plans, job);
    job->plan = NULL;
    job->finished = true;
    show(job);
}

int check_run(const check_op *ops, size_t nops, const check_options *options, check_job **out, size_t *nout)
{
    const size_t n = list_jobs(ops, nops, options, NULL);
    check_job *jobs = calloc(n + 1, sizeof *jobs);
    slot *slots = shared_map((n + 1) * sizeof *slots);
    const double end = check_now() + options->seconds;
    static planned plans[MOST_PLANS];
    child children[CHECK_CONTAINED];
    size_t running = 0;
    *out = NULL;
    *nout = 0;
    case_ms = options->case_ms;
    backtrace((void *[1]){ NULL }, 1); /* its first call loads a library, which a handler must not */
    interrupted = options->interrupted;
    shown.fn = options->progress;
    shown.user = options->user;
    shown.done = 0;
    shown.all = n;
    if (!jobs || !slots) {
        free(jobs);
        return -1;
    }
    list_jobs(ops, nops, options, jobs);
    for (size_t next = 0; shown.done < n && !(interrupted && interrupted());) {
        while (next < n && running < options->workers && !(interrupted && interrupted())) {
            check_job *job = &jobs[next++];
            job->result = &slots[job - jobs].result;
            const char *why = out_of_question(job);
            if (!why && options->seconds > 0 && check_now() > end)
                why = "the time was up";
            if (why)
                check_not(job, "%s", why);
            else if (begin(job, &children[running], plans, jobs, n) && ++running)
                continue;
            release_job(plans, job);
        }
        if (running) {
            check_job *job = wait_for_one(children, &running);
            if (job && settle(job) && !(interrupted && interrupted()) && begin(job, &children[running], plans, jobs, n) &&
                ++running)
                continue;
            if (!job)
                break;
            release_job(plans, job);
        }
    }
    if (shown.done < n) {
        check_contained_end_all();
        for (size_t i = 0; i < n; i++)
            if (!jobs[i].finished) {
                jobs[i].result = &slots[i].result;
                memset(jobs[i].result, 0, offsetof(check_result, failing));
                check_not(&jobs[i], "interrupted");
                release_plan(plans, &jobs[i]);
            }
    }
    hand_over_faults(jobs, n);
    leave_unsound_rows(jobs, n);
    *out = jobs;
    *nout = n;
    return 0;
}
