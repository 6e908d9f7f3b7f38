/* Jobs in forked children (workers), and the schedule of all jobs in the parent.
 *
 * Nothing that a kernel does can end the checker. The handler of a fault writes a message into shared memory and ends the child.
 * A child that ends in any other way before its job is done was ended by the kernel. A case may use --case-ms of processor time,
 * and four times as much when it is repeated to be sure. A child that sleeps for two seconds is killed.
 *
 * The functions worker_*() run in a child, fault_*() turn a fault into a message and the property that owns it, schedule_*() run
 * in the parent, load_*() load a binary. */
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum {
    MIN_NONEMPTY_CASES = 8 /* number of nonempty cases from which on it is reported that the kernel refused all of them */
};
enum { LOAD_MS = 5000, LOAD_SECONDS = 10 };
enum {
    EXIT_FAULT = 77,
    FORKED,
    MAX_GROWTH_POWER = 3,
    MAX_ROUNDS = 8,
    MAX_SLOW_CASES = 3,
    MAX_PLANS = 256,
    MAX_HEAP_BYTES = 64 << 20
};
static int current_case_ms = 2000;            /* limit of processor time for one case in ms, as --case-ms sets it */
static const double retry_idle_seconds = 0.5; /* a repeated case that sleeps for so many seconds counts as endless */
static const double NO_PROGRESS_STEP = 1e-7;  /* seconds of one loop iteration; a loop that needs more makes no progress */
static const double INSTANT_FRACTION =
    1e-6; /* a call ends at once if its seconds are at most this fraction of --case-ms, in ms */
static const rlim_t MAX_FILE_BYTES = 1 << 24, EXTRA_STACK_BYTES = 256 << 10;

/* Returns for how many seconds a worker may sleep before it is killed. */
static double worker_get_sleep_limit(void) { return fmax(2, current_case_ms / 1e3); }

/* ---- In a child ---- */

/* Writes a fault's enum check_fault_kind, its kind in words and its message into a result. */
DV__PRINTF(4, 5) static void fault_record(check_result *r, uint32_t fault, const char *kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    r->fault_kind = fault;
    snprintf(r->kind, sizeof r->kind, "%s", kind);
    vsnprintf(r->message, sizeof r->message, format, args);
    va_end(args);
}

/* Records a fault of an access to memory of the checker that is out of bounds, freed or read-only. verb: "reads" or "writes". */
static void fault_record_memory_access(check_result *r, const char *verb, const check_memory_location *location)
{
    char kind[40];
    const long long at = (long long)location->offset, low = (long long)location->low, high = (long long)location->high;
    const char *where = location->offset < location->low ? "before the start" : "past the end";
    snprintf(kind, sizeof kind, "%s %s", verb, where);
    if (location->is_freed)
        fault_record(r, CHECK_FAULT_MEMORY, "use after free", "the kernel %s %s: byte %lld of %lld", verb, location->description,
            at, high);
    else if (location->is_between_elements)
        fault_record(r, CHECK_FAULT_MEMORY, "between elements",
            "the kernel %s between the elements of %s, which lie 2^31 elements apart: byte %lld", verb, location->description,
            at);
    else if (location->is_inside && location->is_readonly)
        fault_record(r, CHECK_FAULT_MEMORY, "undeclared write",
            "the kernel %s %s, which the schema does not declare to be written, at byte %lld of [%lld, %lld)", verb,
            location->description, at, low, high);
    else
        fault_record(r, CHECK_FAULT_MEMORY, kind, "the kernel %s %s of %s: byte %lld, and its memory is [%lld, %lld)%s", verb,
            where, location->description, at, low, high, check_get_earlier_tensor_note(location->is_earlier_tensor));
}

/* Records a SIGSEGV as a fault, by what memory the address belongs to. */
static void fault_record_segv(check_result *r, const siginfo_t *info, void *context)
{
    static const char kind[] = "segmentation fault";
    check_memory_location location;
    const char *verb = "touches";
#if defined(__x86_64__)
    enum { PAGE_FAULT_WRITE = 2 };
    const ucontext_t *u = context;
    verb = u->uc_mcontext.gregs[REG_ERR] & PAGE_FAULT_WRITE ? "writes" : "reads";
#else
    (void)context;
#endif
    if (check_is_inaccessible_data(info->si_addr) && !check_is_in_kernel()) {
        fault_record(r, CHECK_FAULT_FAKE_READ, "fake reads data",
            "the shape function %s the contents of a tensor: a fake tensor has none", verb);
    } else if (check_try_find_nearest_memory(info->si_addr, &location)) {
        fault_record_memory_access(r, verb, &location);
    } else if (info->si_code == SI_KERNEL) {
        fault_record(r, CHECK_FAULT_CRASH, kind,
            "SIGSEGV: an instruction of the kernel that needs an aligned address got another one "
            "(without align(...) a tensor begins at any element), or an address that cannot be");
    } else {
        const bool null = (uintptr_t)info->si_addr < 65536;
        if (null && check_has_empty_workspace()) {
            fault_record(r, CHECK_FAULT_MEMORY, "no workspace",
                "the kernel %s the workspace, of which the contract says here that it has 0 bytes", verb);
            return;
        }
        fault_record(r, CHECK_FAULT_CRASH, kind, "SIGSEGV: the kernel %s memory at address %p, %s", verb, info->si_addr,
            null ? "as of a null pointer" : "which is near none of its tensors");
    }
}

/* Records as a fault that a signal with this number ended the process. */
static void fault_record_signal(check_result *r, int number)
{
    fault_record(
        r, CHECK_FAULT_CRASH, "end of the process", "the kernel ended the process: signal %d (%s)", number, strsignal(number));
}

/* True if the stack pointer is at unmapped memory, and fault_address is near it, in the frame of a function that needs more
 * stack. */
static bool fault_is_stack_overflow(uintptr_t fault_address, const void *context)
{
#if defined(__x86_64__)
    enum { MAX_FRAME_BYTES = 1 << 30, BELOW_STACK_BYTES = 4096 };
    const ucontext_t *u = context;
    const uintptr_t top = (uintptr_t)u->uc_mcontext.gregs[REG_RSP];
    return fault_address >= top - BELOW_STACK_BYTES && fault_address < top + MAX_FRAME_BYTES &&
        syscall(SYS_rt_sigprocmask, -1, top, NULL, sizeof(uint64_t)) && errno == EFAULT;
#else
    (void)fault_address, (void)context;
    return false;
#endif
}

static uintptr_t stack_low, stack_high; /* range of addresses of this thread's stack, and of memory below it */

/* True if a loaded object is an operator's binary: not this program, the C library or the compiler's runtime. */
static bool fault_is_operator_binary(const Dl_info *object)
{
    static const char *const others[] = { "libc.", "libm.", "libgcc_s", "libpthread", "libdl.", "ld-linux", "linux-vdso",
        "libstdc++" };
    const char *slash = strrchr(object->dli_fname, '/'), *name = slash ? slash + 1 : object->dli_fname;
    Dl_info checker_object;
    if (!dladdr((void *)(uintptr_t)fault_is_operator_binary, &checker_object) || checker_object.dli_fbase == object->dli_fbase)
        return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strncmp(name, others[i], strlen(others[i])))
            return false;
    return true;
}

/* Sets r->origin to the innermost instruction of the operator's binary on the stack: the one that raised the fault, or the call
 * that led to it. Signal handlers call this function last, so that the message exists already if a broken stack ends the process
 * here. */
static void fault_record_origin(check_result *r, const void *context)
{
    enum { MAX_FRAMES = 32 };
    void *frames[MAX_FRAMES + 1] = { NULL };
    size_t n = 1;
#if defined(__x86_64__)
    frames[0] = (void *)(uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
    (void)context;
#endif
    Dl_info object;
    if (!frames[0] || !dladdr(frames[0], &object) || !fault_is_operator_binary(&object)) {
        const int more = backtrace(frames + 1, MAX_FRAMES);
        n += more > 0 ? (size_t)more : 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (!frames[i] || !dladdr(frames[i], &object) || !object.dli_fname || !fault_is_operator_binary(&object))
            continue;
        snprintf(r->origin.object, sizeof r->origin.object, "%s", object.dli_fname);
        r->origin.file_address = (uintptr_t)frames[i] - (uintptr_t)object.dli_fbase -
            (i > 0); /* for a caller: an address inside the call instruction, not the return address */
        return;
    }
}

/* Signal handler of all faults: records the fault in the job's result and ends this process. */
static void fault_record_signal_and_exit(int number, siginfo_t *info, void *context)
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
    check_result *r = check_job_get_current()->result;
    const uintptr_t at = (uintptr_t)info->si_addr;
    const bool is_end = number == SIGTERM || number == SIGINT || number == SIGHUP;
    if (is_end && info->si_pid != getpid()) /* the signal was sent to the process group: the parent ends this process */
        return;
    r->outcome = CHECK_OUTCOME_FAIL;
    if (is_end || (number == SIGPROF && info->si_code != SI_KERNEL)) {
        fault_record_signal(r, number);
    } else if (number == SIGPROF) {
        fault_record(r, CHECK_FAULT_TIMEOUT, "endless loop", "the kernel has not ended after %g s of processor time",
            4 * current_case_ms / 1e3);
    } else if (number == SIGSEGV && ((at >= stack_low && at < stack_high) || fault_is_stack_overflow(at, context))) {
        fault_record(r, CHECK_FAULT_CRASH, "stack overflow", "SIGSEGV: the kernel uses more stack than there is");
    } else if (number == SIGSEGV) {
        fault_record_segv(r, info, context);
    } else if (number == SIGABRT && check_heap_has_wrong_free()) {
        fault_record(
            r, CHECK_FAULT_MEMORY, "wrong free", "the kernel frees memory twice, or an address that malloc() did not give");
    } else {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (names[i].number == number)
                fault_record(r, CHECK_FAULT_CRASH, names[i].kind, "%s", names[i].says);
    }
    if (!is_end)
        fault_record_origin(r, context);
    _exit(EXIT_FAULT);
}

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
    return (rlim_t)(job->cpu_seconds_per_seed * seeds + CASE_TIMES * current_case_ms / 1e3) + SPARE_SECONDS;
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

/* Prepares a worker before code of an operator runs: limits of memory and time, signal handlers on a stack of their own, and
 * redirected descriptors. */
static void worker_set_limits_and_handlers(const check_job *job)
{
    static const int numbers[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP, SIGPROF, SIGTERM, SIGINT, SIGHUP };
    static char stack[64 << 10];
    const stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack };
    struct sigaction action = { .sa_sigaction = fault_record_signal_and_exit, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    struct rlimit limit = { 0, 0 };
    sigset_t caught;
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
    const uintptr_t size = limit.rlim_cur == RLIM_INFINITY ? (uintptr_t)1 << 30 : (uintptr_t)limit.rlim_cur;
    stack_high = (uintptr_t)__builtin_frame_address(0);
    stack_low = stack_high - size - ((uintptr_t)1 << 20);
    check_redirect_output();
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    sigaltstack(&alternate, NULL);
    sigemptyset(&caught);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        sigaction(numbers[i], &action, NULL);
        sigaddset(&caught, numbers[i]);
    }
    sigprocmask(SIG_UNBLOCK, &caught, NULL); /* the process that started this command may have blocked these signals */
    dv_set_threads(1);
}

/* Makes the call job->preceding_case, which comes before each attempt of the job. */
static void worker_make_preceding_call(check_job *job)
{
    check_guarded_call call = {
        .op = job->op, .kernel = job->kernel, .guard_side = job->preceding_guard_side, .poison_byte = 0xa5
    };
    check_guarded_call_run(&call, job->preceding_case);
}

/* Calls the property's test_case() for one case, after the preceding call, if there is one, within the limit of processor time.
 */
static void worker_run_case_within_limit(check_job *job, const check_case *c)
{
    check_set_current_case(job, c);
    check_set_cpu_limit(check_case_limit_ms);
    if (job->preceding_case)
        worker_make_preceding_call(job);
    job->property->test_case(job, c);
    check_set_cpu_limit(0);
}

/* Replaces the contents of all non-integer tensors of a case by simpler ones, which a kernel refuses less often: log() refuses
 * negative numbers, a search refuses unsorted bounds. simple_fill: which contents, below NUM_SIMPLE_FILLS. */
enum { NUM_SIMPLE_FILLS = 4 };
static void worker_set_simple_real_contents(check_case *c, uint32_t simple_fill)
{
    static const enum check_fill fills[NUM_SIMPLE_FILLS] = { CHECK_FILL_RANDOM, CHECK_FILL_RANDOM, CHECK_FILL_NONDECREASING,
        CHECK_FILL_INCREASING };
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && !check_is_integer_dtype(c->tensors[i].dtype)) {
            c->tensors[i].fill = (uint8_t)fills[simple_fill];
            c->tensors[i].low = simple_fill == 1 ? 0 : 0.25;
            c->tensors[i].high = simple_fill == 1 ? 1 : 2;
        }
}

/* True if the last element of some integer tensor of a case is a wrong index, which a kernel should refuse. */
static bool worker_has_wrong_index(const check_case *c)
{
    bool wrong = false;
    for (size_t i = 0; i < c->ntensors; i++)
        wrong |= c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_LAST_EXTREME &&
            check_is_integer_dtype(c->tensors[i].dtype);
    return wrong;
}

/* True if a case has tensors, and each tensor that is not None has elements. For other cases a kernel may compute nothing and
 * accept any arguments. */
static bool worker_is_nonempty_case(const check_case *c)
{
    bool full = c->ntensors;
    for (size_t i = 0; i < c->ntensors; i++)
        full &= !c->tensors[i].present || check_tensor_numel(&c->tensors[i]);
    return full;
}

/* Runs one case of the plan. While the kernel refuses it, runs it again with simpler contents and then with other contents of
 * integer tensors. */
static void worker_run_case_until_accepted(check_job *job, uint32_t case_index, uint64_t seed)
{
    static check_case tried;
    check_result *r = job->result;
    const uint32_t refused = r->refused_cases;
    check_copy_case_with_seed(&job->plan->cases[case_index], seed, &r->current_case);
    r->has_case = true;
    check_set_cpu_limit(4 * check_case_limit_ms); /* a shape function may never end */
    if (job->op->has_element_facts && !check_is_accepted(job->op, &r->current_case))
        return;
    tried = r->current_case;
    r->tried_cases++;
    worker_run_case_within_limit(job, &r->current_case);
    for (uint32_t how = 0; how < NUM_SIMPLE_FILLS && r->outcome == CHECK_OUTCOME_PASS && r->refused_cases > refused &&
        !worker_has_wrong_index(&tried);
        how++) {
        worker_set_simple_real_contents(&tried, how);
        if (!check_is_accepted(job->op, &tried))
            break;
        r->refused_cases = refused;
        r->current_case = tried;
        worker_run_case_within_limit(job, &r->current_case);
    }
    check_copy_case_with_seed(&job->plan->cases[case_index], seed, &tried);
    for (uint32_t k = 0; r->outcome == CHECK_OUTCOME_PASS && r->refused_cases > refused && !worker_has_wrong_index(&tried); k++) {
        static check_case other;
        if (!check_try_make_contents_variant(job->op, &tried, k, &other))
            return;
        if (k % 2)
            worker_set_simple_real_contents(&other, k / 2 % NUM_SIMPLE_FILLS);
        if (!check_is_accepted(job->op, &other))
            continue;
        r->refused_cases = refused;
        r->current_case = other;
        worker_run_case_within_limit(job, &r->current_case);
        if (r->refused_cases == refused)
            check_note_accepted_contents();
    }
}

/* Runs one case of the plan by worker_run_case_until_accepted(), and counts it as nonempty and accepted if it is. */
static void worker_run_and_count_case(check_job *job, uint32_t case_index, uint64_t seed)
{
    check_result *r = job->result;
    const uint32_t cases = r->tried_cases, refused = r->refused_cases;
    worker_run_case_until_accepted(job, case_index, seed);
    if (r->tried_cases == cases || !worker_is_nonempty_case(&r->current_case) || worker_has_wrong_index(&r->current_case))
        return;
    r->tried_nonempty_cases++;
    r->accepted_nonempty_cases += r->refused_cases == refused;
}

/* Writes to the result's dropped_cases how many cases were not tried, and why; "" if all were. untried: number of cases left when
 * the time was up. */
static void worker_describe_dropped_cases(check_job *job, uint32_t untried)
{
    check_result *r = job->result;
    uint32_t n = 0, slow = 0, first = 0;
    for (uint32_t i = job->plan->ncases; i-- > 0;) {
        n += job->plan->dropped[i] != CHECK_NOT_DROPPED;
        const bool is = job->plan->dropped[i] == CHECK_DROPPED_SLOW || job->plan->dropped[i] == CHECK_DROPPED_SLOW_LARGER;
        slow += is;
        first = is ? i : first;
    }
    FILE *to = fmemopen(r->dropped_cases, sizeof r->dropped_cases, "w");
    if (to && n) {
        fprintf(to, "%u of %u cases", n, job->plan->ncases);
        if (n > slow)
            fprintf(to, ": %u that have as much work as %u that take longer than %g s (--case-ms), as does ", n - slow, slow,
                current_case_ms / 1e3);
        else
            fprintf(to, ", which take longer than %g s (--case-ms), as does ", current_case_ms / 1e3);
        check_print_case(job->op, &job->plan->cases[first], to);
    } else if (to && untried && r->outcome == CHECK_OUTCOME_PASS) {
        fprintf(to, "the last %u of %u cases: the others took %g s of processor time", untried, job->max_cases,
            job->cpu_seconds_per_seed);
    }
    if (to)
        fclose(to);
    r->dropped_cases[sizeof r->dropped_cases - 1] = 0;
}

/* True if all cases of a plan are dropped; false for an empty plan. */
static bool worker_has_dropped_all_cases(const check_plan *plan)
{
    uint32_t n = 0;
    while (n < plan->ncases && plan->dropped[n] != CHECK_NOT_DROPPED)
        n++;
    return n && n == plan->ncases;
}

/* Tries the cases of a job's plan, for each seed, until one fails or the time is up. Sets "not checked" if no case says anything:
 * none was found, all were refused or dropped, or the property is incomplete. */
static void worker_run_plan_cases(check_job *job)
{
    check_result *r = job->result;
    const check_plan *plan = job->plan;
    const uint32_t each = job->max_cases && job->max_cases < plan->ncases ? job->max_cases : plan->ncases;
    const uint64_t seeds = job->last_seed - job->seed + 1;
    const double end = check_get_cpu_seconds() + job->cpu_seconds_per_seed * (double)seeds;
    job->max_cases = each * (uint32_t)seeds;
    for (; r->cases_begun < job->max_cases && r->outcome == CHECK_OUTCOME_PASS && check_get_cpu_seconds() < end;) {
        r->plan_index = r->cases_begun++ % each;
        r->seed = job->seed + (r->cases_begun - 1) / each;
        r->progress_count++;
        if (!plan->dropped[r->plan_index])
            worker_run_and_count_case(job, r->plan_index, r->seed);
    }
    for (uint32_t i = each; i < plan->ncases && r->outcome == CHECK_OUTCOME_PASS && r->tried_cases &&
        r->refused_cases == r->tried_cases && check_get_cpu_seconds() < end;
        i++)
        if (!plan->dropped[i]) /* cases beyond --cases are tried while the kernel has refused all */
            worker_run_and_count_case(job, r->plan_index = i, job->seed);
    check_set_cpu_limit(0);
    r->infeasible_pairs = plan->infeasible_pairs, r->oversized_pairs = plan->oversized_pairs,
    r->uncovered_pairs = plan->uncovered_pairs;
    for (uint32_t i = 0; i < plan->ncases; i++)
        *(i < each && i < r->cases_begun && !plan->dropped[i] ? &r->covered_pairs
                                                              : &r->uncovered_pairs) += plan->newly_covered_pairs[i];
    snprintf(r->uncovered_example, sizeof r->uncovered_example, "%s", plan->uncovered_example);
    worker_describe_dropped_cases(job, job->max_cases - r->cases_begun);
    const bool all_dropped = worker_has_dropped_all_cases(plan);
    const bool calls_once = job->property->reported_faults &
        (CHECK_FAULT_CRASH | CHECK_FAULT_MEMORY); /* only properties runs and memory make one call for each case, so that refusals
                                                     can be counted */
    const bool only_empty = calls_once && r->tried_nonempty_cases >= MIN_NONEMPTY_CASES && !r->accepted_nonempty_cases &&
        r->refused_cases;
    r->nothing_checked = r->outcome == CHECK_OUTCOME_PASS &&
        (!r->tried_cases || r->refused_cases == r->tried_cases || only_empty);
    if (r->nothing_checked && r->refused_cases < r->tried_cases && only_empty)
        check_report_unchecked(job,
            "the kernel refused each of the %u cases in which no tensor is empty: %s; facts on contents, such as "
            "sorted(offsets) or ids.values < n, would declare which it accepts",
            r->tried_nonempty_cases, r->last_refusal);
    else if (r->nothing_checked && r->tried_cases)
        check_report_unchecked(job,
            "the kernel refused all %u cases: %s; a fact on the contents of a tensor, such as x.values > 0, would "
            "declare which it accepts",
            r->tried_cases, r->last_refusal);
    else if (r->outcome == CHECK_OUTCOME_PASS && plan->ncases && (all_dropped || (r->nothing_checked && *r->dropped_cases))) {
        r->nothing_checked = false;
        check_report_unchecked(job, "%s", r->dropped_cases);
    } else if (r->nothing_checked && plan->ncases)
        check_report_unchecked(job, "no arguments were found that this kernel takes");
    else if (r->nothing_checked)
        check_report_unchecked(job, "%s%s",
            job->op->contract ? "no arguments were found that the contract accepts; the last were refused: "
                              : "there is no contract, and no arguments were found that its shape function accepts; the last "
                                "were refused: ",
            plan->last_refusal);
    else if (r->outcome == CHECK_OUTCOME_PASS && job->property->find_incomplete_reason &&
        job->property->find_incomplete_reason(job->op, job->kernel))
        check_report_unchecked(job, "%s", job->property->find_incomplete_reason(job->op, job->kernel));
}

/* Fills job->plan, as the task of a worker. If the plan has no case, writes the reason to its last_refusal. */
static void worker_make_plan(check_job *job)
{
    check_plan_make_cases(job->op, job->kernel, job->max_cases, job->seed, job->plan);
    if (!job->plan->ncases && job->plan->smallest_too_large_numel)
        snprintf(job->plan->last_refusal, sizeof job->plan->last_refusal,
            "the smallest that fits has a tensor of %lld elements, and --max-elements is %lld",
            (long long)job->plan->smallest_too_large_numel, (long long)check_max_elements);
    else
        snprintf(job->plan->last_refusal, sizeof job->plan->last_refusal, "%s", dv_last_error());
}

/* Sets "not checked" if the checker's own limits prevent a repeated call: a tensor exceeds --max-elements, or no memory is left
 * for tensors. was_refused: the call failed. Does nothing otherwise. */
static void worker_report_case_beyond_checker(check_job *job, enum check_verdict verdict, bool was_refused)
{
    if (verdict == CHECK_VERDICT_TOO_LARGE)
        check_report_unchecked(job, "%s", dv_last_error());
    else if (was_refused && check_guarded_call_lacked_memory())
        check_report_unchecked(job,
            "the system gives the checker no memory for the tensors of this call: repeat it with more free memory, or a higher "
            "limit");
    else
        return;
    job->result->tried_cases = job->result->refused_cases = 0;
    job->result->nothing_checked |= job->result->outcome == CHECK_OUTCOME_UNCHECKED;
}

/* Tries the result's current case once, after the preceding call, if there is one, and records the time. Sets "not checked" if
 * the contract or kernel refuses the case. */
static void worker_run_repeated_case(check_job *job)
{
    check_result *r = job->result;
    const check_case *c = &r->current_case;
    check_set_cpu_limit(check_case_limit_ms);
    const enum check_verdict verdict = c->is_invalid ? CHECK_VERDICT_ACCEPTED : check_classify_case(job->op, c);
    if (verdict != CHECK_VERDICT_ACCEPTED) {
        worker_report_case_beyond_checker(job, verdict, true);
        check_report_unchecked(job, "the case is refused: %s", dv_last_error());
        return;
    }
    const double begin = check_get_cpu_seconds(), began = check_get_monotonic_seconds();
    worker_run_case_within_limit(job, c);
    r->repeat_seconds = check_get_cpu_seconds() - begin;
    r->elapsed_seconds = check_get_monotonic_seconds() - began;
    if (r->tried_cases) /* the property uncounted the case; the counter is 0 until now, since a property makes more effort for a
                           repeated case */
        check_report_unchecked(job, "the case is refused: a condition of the kernel (.when, .dtypes) does not hold");
    r->tried_cases = 1;
    worker_report_case_beyond_checker(job, verdict, r->refused_cases);
    if (r->refused_cases)
        snprintf(r->omitted, sizeof r->omitted, "the kernel refuses the call: %.120s", r->last_refusal);
}

/* True if the job repeats one given case (--case KEY). */
static bool worker_has_given_case(const check_job *job) { return job->repeat && job->repeat->repeats_one_case; }

/* Runs a job in this process: its given case, else the property's check without cases, else the cases of the plan. */
static void worker_run_job(check_job *job)
{
    if (worker_has_given_case(job)) {
        job->result->current_case = job->repeat->repeated_case;
        job->result->has_preceding_case = job->repeat->has_preceding_case;
        job->result->preceding_case = job->repeat->preceding_case;
        job->result->has_case = true;
        worker_run_repeated_case(job);
    } else if (job->property->check_without_cases)
        job->property->check_without_cases(job);
    else
        worker_run_plan_cases(job);
}

/* ---- In the parent ---- */

typedef struct running_job {
    check_contained contained;
    check_job *job;
} running_job;

/* Task of a worker: a function, and the job to call it for. */
typedef struct worker_task {
    check_job *job;
    void (*fn)(check_job *);
} worker_task;

/* Blocks of memory that workers share with the checker, mapped before the workers are forked. */
enum { MAX_SHARED_MAPS = 2 * MAX_PLANS + 8 };
static struct shared_map {
    char *at; /* start of the block; NULL: a free entry */
    size_t bytes;
} shared_maps[MAX_SHARED_MAPS];

/* Maps zeroed memory that is shared with child processes, and enters it in shared_maps. Returns NULL, with errno, if that fails.
 */
static void *shared_map_new_zeroed(size_t bytes)
{
    size_t i = 0;
    while (i < MAX_SHARED_MAPS && shared_maps[i].at)
        i++;
    if (i == MAX_SHARED_MAPS)
        return errno = ENOMEM, NULL;
    void *p = check_map_shared_memory(bytes);
    if (p)
        shared_maps[i] = (struct shared_map){ p, (bytes + 4095) / 4096 * 4096 };
    return p;
}

/* Unmaps a block of shared_map_new_zeroed() and frees its entry. Does nothing for other addresses. */
static void shared_map_free(const void *memory)
{
    for (size_t i = 0; i < MAX_SHARED_MAPS; i++)
        if (shared_maps[i].at == memory) {
            munmap(shared_maps[i].at, shared_maps[i].bytes);
            shared_maps[i].at = NULL;
        }
}

check_result *check_map_shared_result(void) { return shared_map_new_zeroed(sizeof(check_result)); }

/* Result of a job, padded to whole pages, so that results of other jobs can be protected. */
typedef union result_slot {
    check_result result;
    char pages[(sizeof(check_result) + 4095) / 4096 * 4096];
} result_slot;

/* Makes all shared memory inaccessible in a worker, except the result of its own job. The plan of the job is readable; it is
 * writable only for the job that makes it. */
static void worker_protect_shared_memory(const check_job *job)
{
    char *const result = (char *)job->result, *const plan = (char *)job->plan;
    for (size_t i = 0; i < MAX_SHARED_MAPS; i++) {
        char *const at = shared_maps[i].at, *const end = at + shared_maps[i].bytes;
        if (!at || (at == plan && job->property->check_without_cases))
            continue;
        if (at == plan) {
            mprotect(at, shared_maps[i].bytes, PROT_READ);
        } else if (result >= at && result < end) {
            mprotect(at, (size_t)(result - at), PROT_NONE);
            mprotect(result + sizeof(result_slot), (size_t)(end - result) - sizeof(result_slot), PROT_NONE);
        } else {
            mprotect(at, shared_maps[i].bytes, PROT_NONE);
        }
    }
}

/* Runs a worker_task in a new worker: prepares the process, protects shared memory, calls the function, and sets
 * worker_completed. */
static void worker_run_task(void *user)
{
    const worker_task *t = user;
    check_job_begin(t->job, false);
    worker_set_limits_and_handlers(t->job);
    worker_protect_shared_memory(t->job);
    t->fn(t->job);
    t->job->result->worker_completed = true;
}

/* Starts fn(job) in a worker, which may sleep for max_idle_seconds. Returns false, with errno, if no process could be started. */
static bool schedule_try_start_worker(running_job *child, check_job *job, double max_idle_seconds, void (*fn)(check_job *))
{
    worker_task t = { job, fn };
    job->result->forked_after_call = false;
    job->result->helper_pid = 0;
    job->result->cpu_limit_ms = LOAD_MS; /* limit until the job sets its own, since handlers of pthread_atfork() run before */
    job->result->timer_was_blocked = false;
    child->job = job;
    return check_contained_try_start(&child->contained, job->result, max_idle_seconds, worker_run_task, &t);
}

static const char see_property_prefix[] = " (see ";
/* Returns the name of the property that reports faults of the result's fault kind: "memory", "fake" or "runs". */
static const char *fault_get_reporting_property_name(const check_result *r)
{
    return r->fault_kind == CHECK_FAULT_MEMORY ? "memory" : r->fault_kind == CHECK_FAULT_FAKE_READ ? "fake" : "runs";
}

/* If another property reports faults of this kind, turns the job's failure into "not checked" with "(see PROPERTY)". If
 * also_reported_faults has the kind, appends the condition to the message instead. */
static void fault_refer_to_reporting_property(check_job *job)
{
    check_result *r = job->result;
    if (r->outcome != CHECK_OUTCOME_FAIL || !r->fault_kind || job->property->reported_faults & r->fault_kind)
        return;
    char message[sizeof r->message];
    memcpy(message, r->message, sizeof message);
    if (r->also_reported_faults & r->fault_kind) {
        snprintf(r->message, sizeof r->message, "%.900s, %s", message, r->fault_condition);
        return;
    }
    r->outcome = CHECK_OUTCOME_UNCHECKED;
    snprintf(r->message, sizeof r->message, "%.900s%s%s)", message, see_property_prefix, fault_get_reporting_property_name(r));
}

/* Turns a result that fault_refer_to_reporting_property() made "not checked" into a failure of this property again. */
static void fault_restore_as_failure(check_result *r)
{
    char *end = strstr(r->message, see_property_prefix);
    r->outcome = CHECK_OUTCOME_FAIL;
    if (end)
        *end = 0;
}

/* Records as a fault how a worker ended, if it did not end by itself after its job or a recorded fault. Returns false, without a
 * record, if it did, could not start, or was ended by the OOM killer. */
static bool fault_try_record_abnormal_end(check_result *r, const check_contained_end *end)
{
    switch (end->cause) {
    case CHECK_ENDED_IDLE_LIMIT:
        fault_record(r, CHECK_FAULT_TIMEOUT, "endless wait",
            "the kernel waits and does not end"); /* schedule_try_drop_slow_case() waits for longer */
        return true;
    case CHECK_ENDED_STOPPED:
        fault_record(r, CHECK_FAULT_TIMEOUT, "endless wait", "the kernel stops its process and does not end");
        return true;
    case CHECK_ENDED_CPU_LIMIT:
        fault_record(r, CHECK_FAULT_TIMEOUT, "endless loop",
            "the kernel has not ended after %g s of processor time, and keeps SIGPROF from ending it", current_case_ms / 1e3);
        return true;
    case CHECK_ENDED_PROCESS_LIMIT:
        fault_record(r, CHECK_FAULT_CRASH, "many processes", "the kernel starts more and more processes: %u were running",
            end->processes_left);
        return true;
    case CHECK_ENDED_SUPERVISOR_KILLED:
        fault_record(r, CHECK_FAULT_CRASH, "parent killed", "the kernel kills the parent of its process");
        return true;
    case CHECK_ENDED_SUPERVISOR_STOPPED:
        fault_record(r, CHECK_FAULT_CRASH, "parent stopped", "the kernel stops the parent of its process");
        return true;
    case CHECK_ENDED_ITSELF:
        if (r->fault_kind || r->worker_completed)
            return false;
        if (WIFSIGNALED(end->status))
            fault_record_signal(r, WTERMSIG(end->status));
        else
            fault_record(r, CHECK_FAULT_CRASH, "end of the process", "the kernel ended the process with exit(%d)",
                WEXITSTATUS(end->status));
        return true;
    case CHECK_ENDED_NOT_BEGUN:
        fault_record(r, CHECK_FAULT_CRASH, "fork", "the kernel's library has a handler of pthread_atfork() that does not return");
        return true;
    case CHECK_ENDED_BY_OOM_KILLER:
    case CHECK_ENDED_NOT_STARTED: break;
    }
    return false;
}

/* Turns a passed job into a failure if the kernel left processes running, or forked and returned in both processes. If the job
 * has failed already, appends the number of processes to its message. */
static void fault_record_left_processes(check_job *job, const check_contained_end *end)
{
    check_result *r = job->result;
    const bool failed = r->outcome == CHECK_OUTCOME_FAIL;
    if (job->property->check_without_cases || (!end->processes_left && !r->forked_in_call) ||
        end->cause == CHECK_ENDED_PROCESS_LIMIT)
        return;
    r->outcome = CHECK_OUTCOME_FAIL;
    if (failed && end->processes_left) {
        const size_t n = strlen(r->message);
        snprintf(r->message + n, sizeof r->message - n, "; it leaves %u process%s running", end->processes_left,
            end->processes_left == 1 ? "" : "es");
    } else if (!failed) {
        if (end->processes_left)
            fault_record(r, CHECK_FAULT_CRASH, "processes left", "the kernel leaves processes running: %u", end->processes_left);
        else
            fault_record(r, CHECK_FAULT_CRASH, "fork", "the kernel forks, and its call returns in both processes");
    }
}

/* Sets "not checked" with the reason that no process could be started, and not_started. error: the errno. */
static void schedule_report_not_started(check_job *job, int error)
{
    check_report_unchecked(job, "no process could be started: %s", strerror(error));
    job->result->nothing_checked = job->result->not_started = true;
}

/* True if a buffer of this size holds a string ended by a 0 byte. */
static bool result_is_terminated_string(const char *buffer, size_t size) { return memchr(buffer, 0, size) != NULL; }

/* True if a case that a worker left in shared memory has valid counts, ranks, layouts and strings. */
static bool result_is_valid_case(const check_case *c)
{
    bool sane = c->nargs <= CHECK_MAX_ARGS && c->ntensors <= CHECK_MAX_TENSORS;
    for (size_t i = 0; sane && i < c->nargs; i++)
        sane = c->args[i].count <= CHECK_MAX_TENSORS && c->args[i].first_tensor <= CHECK_MAX_TENSORS &&
            result_is_terminated_string(c->args[i].string, CHECK_MAX_STRING);
    for (size_t i = 0; sane && i < c->ntensors; i++)
        sane = c->tensors[i].layout < CHECK_LAYOUT_COUNT && c->tensors[i].layout_variant < CHECK_LAYOUT_VARIANTS &&
            c->tensors[i].ndim >= 0 && c->tensors[i].ndim <= CHECK_MAX_DIMS;
    for (size_t i = 0; sane && i < CHECK_MAX_VARIADICS; i++)
        sane = c->names.variadics[i].ndim >= 0 && c->names.variadics[i].ndim <= CHECK_MAX_DIMS;
    return sane;
}

/* True if the result, and the plan if the worker made it, that a worker left in shared memory hold valid values. A kernel may
 * have written there. */
static bool result_is_valid(const check_job *job)
{
    const check_result *r = job->result;
    bool sane = (unsigned)r->outcome <= CHECK_OUTCOME_UNCHECKED && r->fault_kind < 2 * CHECK_FAULT_FAKE_READ &&
        result_is_terminated_string(r->kind, sizeof r->kind) && result_is_terminated_string(r->message, sizeof r->message) &&
        result_is_terminated_string(r->fault_condition, sizeof r->fault_condition) &&
        result_is_terminated_string(r->last_refusal, sizeof r->last_refusal) &&
        result_is_terminated_string(r->omitted, sizeof r->omitted) &&
        result_is_terminated_string(r->uncovered_example, sizeof r->uncovered_example) &&
        result_is_terminated_string(r->dropped_cases, sizeof r->dropped_cases) && result_is_valid_case(&r->current_case) &&
        (!r->has_preceding_case || result_is_valid_case(&r->preceding_case));
    if (job->plan && job->property->check_without_cases) { /* this is the job that made the plan */
        sane &= job->plan->ncases <= CHECK_MAX_CASES &&
            result_is_terminated_string(job->plan->uncovered_example, sizeof job->plan->uncovered_example) &&
            result_is_terminated_string(job->plan->last_refusal, sizeof job->plan->last_refusal);
        for (size_t i = 0; i < job->plan->ncases && sane; i++)
            sane = result_is_valid_case(&job->plan->cases[i]);
    }
    return sane && r->plan_index < CHECK_MAX_CASES;
}

/* Completes the result of a job from the way in which its worker ended, as a failure, "not checked" or as the worker left it. */
static void schedule_complete_result(running_job *child, const check_contained_end *end)
{
    check_result *r = child->job->result;
    if (!result_is_valid(child->job)) {
        memset(r, 0, sizeof *r);
        r->outcome = CHECK_OUTCOME_FAIL;
        fault_record(r, CHECK_FAULT_CRASH, "checker's memory",
            "the kernel writes to memory of the checker, which none of its arguments has");
        fault_refer_to_reporting_property(child->job);
        return;
    }
    if (end->cause == CHECK_ENDED_NOT_STARTED) {
        schedule_report_not_started(child->job, end->status);
        return;
    }
    if (end->cause == CHECK_ENDED_BY_OOM_KILLER) {
        check_report_unchecked(child->job, "the system had too little memory, and its OOM killer ended the process");
        return;
    }
    r->cpu_seconds += end->cpu_seconds;
    r->timer_was_blocked = end->cause == CHECK_ENDED_CPU_LIMIT;
    if (fault_try_record_abnormal_end(r, end))
        r->outcome = CHECK_OUTCOME_FAIL;
    fault_record_left_processes(child->job, end);
    fault_refer_to_reporting_property(child->job);
}

static bool (*is_interrupted_fn)(void); /* check_options.interrupted */

/* progress_state: check_options.progress with its argument, and the number of finished jobs */
static struct {
    check_progress *fn;
    void *user;
    size_t done, all;
} progress_state;

/* Counts the job if it is finished, and calls check_options.progress. */
static void schedule_report_progress(const check_job *job)
{
    progress_state.done += job->finished;
    if (progress_state.fn)
        progress_state.fn(progress_state.user, progress_state.done, progress_state.all, job);
}

/* Waits until some worker ends, completes its job's result, removes it from `children`, and returns the job. Returns NULL, after
 * ending all workers, if the check is interrupted. */
static check_job *schedule_wait_for_ended_job(running_job *children, size_t *nchildren)
{
    struct pollfd fds[CHECK_MAX_CONTAINED];
    check_contained_end e;
    for (;;) {
        if (is_interrupted_fn && is_interrupted_fn()) {
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
            schedule_report_progress(children[0].job);
        for (size_t i = 0; i < *nchildren; i++) {
            running_job *c = &children[i];
            if (!check_contained_has_ended(&c->contained, &e))
                continue;
            check_job *job = c->job;
            schedule_complete_result(c, &e);
            *c = children[--*nchildren];
            return job;
        }
    }
}

/* Tries a case once in a new worker, with a limit of limit_ms of processor time and max_idle_seconds of sleep. shared: receives
 * the result. Returns true if the case fails with the same kind as the job. */
static bool schedule_fails_again_within(
    int limit_ms, double max_idle_seconds, const check_job *job, const check_case *c, check_result *shared)
{
    check_job retry_job = *job;
    running_job one;
    size_t n = 1;
    memset(shared, 0, offsetof(check_result, current_case));
    shared->worker_completed = false;
    shared->has_case = true;
    shared->current_case = *c;
    retry_job.result = shared;
    check_case_limit_ms = limit_ms;
    if ((is_interrupted_fn && is_interrupted_fn()) ||
        !schedule_try_start_worker(&one, &retry_job, max_idle_seconds, worker_run_repeated_case))
        return false;
    const bool ended = schedule_wait_for_ended_job(&one, &n) != NULL;
    if (shared->outcome == CHECK_OUTCOME_UNCHECKED && shared->fault_kind)
        fault_restore_as_failure(shared);
    return ended && shared->outcome == CHECK_OUTCOME_FAIL && !strcmp(shared->kind, job->result->kind);
}

/* The failure must have the same kind and fault condition. On a busy machine a process may seem to wait before it has begun. */
bool check_case_fails_again(const check_job *job, const check_case *c, check_result *shared)
{
    const check_result *r = job->result;
    return schedule_fails_again_within(job->retry_ms ? job->retry_ms : current_case_ms / 8, retry_idle_seconds, job, c, shared) &&
        !(r->also_reported_faults & r->fault_kind) == !(shared->also_reported_faults & shared->fault_kind);
}

/* operator for which an endless case was found last, in any plan */
static const check_op *last_endless_op;

/* Calls check_try_shrink_case_fully() until no step helps, at most MAX_ROUNDS times. Then every smaller case takes less than an
 * eighth of
 * --case-ms. Returns false if some step still helped in the last round. */
static bool schedule_try_shrink_until_minimal(check_job *once)
{
    bool done = false;
    for (int round = 0; round < MAX_ROUNDS && !done; round++)
        done = check_try_shrink_case_fully(once);
    return done;
}

/* True if the current case, which sleeps, is endless: one call also sleeps four times as long, or one call ends at once, so that
 * another call waited for a lock or a thread. False: the call only sleeps for a while, and so is slow. */
static bool schedule_is_endless_wait(const check_job *job, check_result *shared)
{
    check_job once = *job;
    once.property = &check_property_runs;
    if (job->result->forked_after_call)
        return false;
    return job->plan->has_seen_endless_case || job->op == last_endless_op ||
        schedule_fails_again_within(
            4 * current_case_ms, 4 * worker_get_sleep_limit(), &once, &job->result->current_case, shared) ||
        shared->elapsed_seconds < worker_get_sleep_limit() / 8;
}

/* True if the job's current case, which exceeded its time, is endless; false if it is slow.
 *
 * The case is run as one call with a limit of twice --case-ms. If that call does not end, the case is shrunk while it takes more
 * than an eighth of --case-ms. If the smallest case does not end in 32 times as long, no growth of work explains that: it is
 * endless. If it ends, the larger case is slow, unless its time is more than the third power of the work explains.
 *
 * If one call ends at once, but the calls of this property do not end in four times --case-ms, the case is endless, too. For an
 * endless call, the smallest case becomes the failing one. retry_ms is set to more than slow cases of that size need. */
static bool schedule_is_endless_case(check_job *job, check_result *shared)
{
    static check_result smaller;
    check_result *r = job->result;
    if (check_has_endless_int(job->op, &r->current_case))
        return false;
    if (!strcmp(r->kind, "endless wait"))
        return schedule_is_endless_wait(job, shared);
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
    if (!schedule_fails_again_within(2 * current_case_ms, retry_idle_seconds, &once, &r->current_case, shared))
        return !one_call && shared->outcome == CHECK_OUTCOME_PASS &&
            shared->repeat_seconds < current_case_ms * INSTANT_FRACTION &&
            schedule_fails_again_within(4 * current_case_ms, retry_idle_seconds, job, &r->current_case, shared);
    const bool smallest = schedule_try_shrink_until_minimal(&once);
    if (schedule_fails_again_within(4 * current_case_ms, retry_idle_seconds, &once, &smaller.current_case, shared)) {
        if (check_estimate_work_with_ints(job->op, &smaller.current_case) * NO_PROGRESS_STEP >
            4 * current_case_ms / 1e3) { /* shrinking found no small case */
            job->plan->min_slow_work = work;
            return false;
        }
        if (one_call) {
            smaller.also_reported_faults = r->also_reported_faults;
            *r = smaller; /* the result replaces the old one together with its case */
        }
        job->retry_ms = current_case_ms;
        return smallest;
    }
    const double more = work / check_estimate_work_with_ints(job->op, &smaller.current_case);
    const double repeat_ms = fmax(shared->repeat_seconds * 1e3,
        current_case_ms / 8.0); /* shrinking showed that the smallest case takes at least an eighth of --case-ms */
    job->retry_ms = current_case_ms;
    if (repeat_ms * pow(fmax(more, 1), MAX_GROWTH_POWER) < current_case_ms / 2.0)
        return true;
    job->plan->min_slow_work = work; /* min_slow_work only decreases */
    return false;
}

/* If the current case timed out because it is slow, drops it and similar ones for all properties of this kernel, and resets the
 * result. Returns true if so, and the job goes on. Returns false if the case is endless, which is a failure, or did not time out.
 */
static bool schedule_try_drop_slow_case(check_job *job, check_result *shared)
{
    check_result *r = job->result;
    check_plan *plan = job->plan;
    if (r->fault_kind != CHECK_FAULT_TIMEOUT || !r->has_case || !plan || !shared)
        return false;
    if (schedule_is_endless_case(job, shared)) {
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

/* Shrinks the failing case of a job and sets its key. Does nothing if the result has no case. */
static void worker_shrink_and_set_key(check_job *job)
{
    if (!job->result->has_case)
        return;
    check_try_shrink_case_fully(job);
    check_job_set_key(job);
}

/* Decides what follows the end of a job: a slow case is dropped, a failing one is shrunk, and a given one (--case) keeps its
 * fault. Returns true if a slow case was dropped, so that the job goes on with the next. */
static bool schedule_try_drop_slow_case_or_shrink(check_job *job)
{
    static check_result *shared;
    if (worker_has_given_case(job)) {
        if (job->result->outcome == CHECK_OUTCOME_UNCHECKED && job->result->fault_kind)
            fault_restore_as_failure(job->result);
        return false;
    }
    if (!shared)
        shared = check_map_shared_result();
    if (schedule_try_drop_slow_case(job, shared))
        return true;
    if (job->result->outcome == CHECK_OUTCOME_FAIL)
        worker_shrink_and_set_key(job);
    return false;
}

/* ---- Loading ---- */

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
            _exit(!generations || load_can_fork_twice(generations - 1) ? FORKED : 0);
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (pid > 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == FORKED))
            return false;
    }
    return true;
}

/* Loads the library of loaded_path in a worker and forks there, so that its constructors and fork handlers run outside the
 * checker first. Reports their faults in the job's result. */
static void load_library_in_worker(check_job *job)
{
    dv_library *lib;
    check_set_cpu_limit(LOAD_MS);
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

/* Signal mask, signal handlers and standard descriptors of the checker, saved before dv_load() and restored after it. */
typedef struct worker_state {
    sigset_t mask;
    struct sigaction actions[NSIG];
    int standard[3]; /* copies of descriptors 0, 1 and 2 */
} worker_state;

/* Saves signal mask, signal handlers and copies of the standard descriptors. */
static void process_state_save(worker_state *state)
{
    enum { MIN_COPY_DESCRIPTOR = 900 };
    sigprocmask(SIG_BLOCK, NULL, &state->mask);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &state->actions[i]);
    for (int fd = 0; fd < 3; fd++)
        state->standard[fd] = fcntl(fd, F_DUPFD_CLOEXEC, MIN_COPY_DESCRIPTOR);
}

/* Restores signal mask, common signal handlers and standard descriptors, and cancels alarm(). */
static void process_state_restore(const worker_state *state)
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

/* Loads a library in this process by dv_load(), and undoes its changes of signals and standard descriptors. Returns a status. */
static int load_library_in_checker(const char *path, dv_library **lib)
{
    static worker_state state;
    process_state_save(&state);
    const int status = dv_load(path, lib);
    process_state_restore(&state);
    return status;
}

int check_load(const char *path, bool (*is_interrupted)(void), dv_library **lib)
{
    static const check_property loading = { .name = "load", .reported_faults = ~0u };
    static const check_op none;
    static check_result *shared;
    running_job one;
    size_t n = 1;
    check_job job = { .op = &none, .property = &loading };
    *lib = NULL;
    if (!shared && !(shared = check_map_shared_result()))
        return dv_fail(DV_ENOMEM, "out of memory");
    memset(shared, 0, sizeof *shared);
    job.result = shared;
    loaded_path = path;
    is_interrupted_fn = is_interrupted;
    current_case_ms = LOAD_MS; /* check_run_jobs() sets current_case_ms again */
    if (!schedule_try_start_worker(&one, &job, LOAD_SECONDS, load_library_in_worker))
        return dv_fail(DV_ENOMEM, "no process could be started: %s", strerror(errno));
    if (!schedule_wait_for_ended_job(&one, &n))
        return dv_fail(DV_EBINARY, "interrupted");
    if (shared->outcome == CHECK_OUTCOME_FAIL) {
        char message[sizeof shared->message + 4096];
        load_format_fault_message(path, shared, message, sizeof message);
        return dv_fail(DV_EBINARY, "%s", message);
    }
    return shared->outcome == CHECK_OUTCOME_PASS ? load_library_in_checker(path, lib)
                                                 : dv_fail(DV_EBINARY, "%s", shared->message);
}

/* ---- All of it ---- */

bool check_is_selected_property(const check_options *options, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = options->only_properties; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (!strncmp(p, name, n) && (p[n] == ',' || !p[n]))
            return true;
    return !options->only_properties;
}

/* Appends a job to `jobs`, unless --case KEY asks for another one. jobs NULL: only counts it in *njobs. */
static void schedule_add_job(check_job *jobs, size_t *njobs, const check_op *op, const check_kernel *kernel,
    const check_property *property, const check_options *options)
{
    const check_repeat *given = options->repeat;
    if (given &&
        ((!options->properties && given->property != property) || (given->op && given->op != op) ||
            (given->kernel && given->kernel != kernel)))
        return;
    if (jobs)
        jobs[*njobs] = (check_job){ .op = op,
            .kernel = kernel,
            .property = property,
            .seed = options->seed,
            .last_seed = options->last_seed > options->seed ? options->last_seed : options->seed,
            .max_cases = options->max_cases,
            .cpu_seconds_per_seed = 1,
            .case_ms = options->case_ms,
            .preceding_case = given && given->has_preceding_case ? &given->preceding_case : NULL,
            .preceding_guard_side = given ? given->preceding_guard_side : CHECK_GUARD_AFTER,
            .repeat = given };
    ++*njobs;
}

/* Writes all jobs to `jobs` in the order of a report, and returns their number. jobs NULL: only counts them. */
static size_t schedule_list_all_jobs(const check_op *ops, size_t nops, const check_options *options, check_job *jobs)
{
    size_t n = 0;
    for (size_t i = 0; i < nops; i++)
        for (const check_property *const *p = options->properties ? options->properties : check_properties; *p; p++) {
            if ((*p)->runs_in_python || (!options->properties && !check_is_selected_property(options, (*p)->name)))
                continue;
            if (!(*p)->per_kernel)
                schedule_add_job(jobs, &n, &ops[i], NULL, *p, options);
            for (size_t k = 0; (*p)->per_kernel && k < ops[i].nkernels; k++)
                schedule_add_job(jobs, &n, &ops[i], &ops[i].kernels[k], *p, options);
        }
    return n;
}

/* Returns the reason for which a job is "not checked" without being started; NULL if it must be started. */
static const char *schedule_find_reason_not_to_run(const check_job *job)
{
    if (job->op->unsupported_reason)
        return job->op->unsupported_reason;
    if (job->op->load_error && !job->property->check_without_cases)
        return "its binary is refused (see binding)";
    if (!job->property->check_without_cases && !job->op->nkernels && !job->op->is_torch_operator)
        return "it has no kernel for the cpu and no decomposition: nothing can be run";
    if (job->kernel && !job->kernel->is_available)
        return "this processor does not have its instruction set";
    return job->property->find_inapplicable_reason ? job->property->find_inapplicable_reason(job->op, job->kernel) : NULL;
}

/* True if a failed job shows that its kernel is unsound: its results depend on more than its arguments, or it fails runs or
 * memory. */
static bool schedule_shows_unsound_kernel(const check_job *job)
{
    static const char *const kinds[] = { "not deterministic", "keeps state", "depends on addresses" };
    bool unsound = job->property->reported_faults != 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        unsound |= !strcmp(job->result->kind, kinds[i]);
    return unsound && job->result->outcome == CHECK_OUTCOME_FAIL;
}

/* True if a failure of property `parallel` only repeats that of property `values`: the results of slices are as wrong as those of
 * the whole call. The scheduler then drops the second failure. */
static bool schedule_is_same_wrong_value_in_slices(const check_job *values, const check_job *job)
{
    return values->property == &check_property_values && values->result->outcome == CHECK_OUTCOME_FAIL &&
        job->property == &check_property_parallel &&
        (!strcmp(job->result->kind, "not parallel") || !strcmp(job->result->kind, "not a sum"));
}

/* True if property shapes only reports that a kernel writes before it refuses a call, and the kernel fails property memory
 * anyway. */
static bool schedule_is_late_refusal_of_failed_kernel(const check_job *memory, const check_job *job)
{
    return memory->op == job->op && memory->property == &check_property_memory && memory->result->outcome == CHECK_OUTCOME_FAIL &&
        job->property == &check_property_shapes && job->result->outcome == CHECK_OUTCOME_FAIL &&
        !strcmp(job->result->kind, "written before it was refused");
}

/* True if some job of an operator failed. */
static bool schedule_operator_has_failure(const check_job *jobs, size_t njobs, const check_op *op)
{
    bool any = false;
    for (size_t i = 0; i < njobs; i++)
        any |= jobs[i].op == op && jobs[i].result->outcome == CHECK_OUTCOME_FAIL;
    return any;
}

/* Makes a referred fault a failure of this job again, and shrinks its case. */
static void fault_restore_and_shrink(check_job *job)
{
    fault_restore_as_failure(job->result);
    worker_shrink_and_set_key(job);
}

/* Moves each fault that a job could not report to the job of the kernel whose property reports its kind; if there is no such job,
 * the fault stays as a failure where it was found. Nothing is moved for an operator that has another failure, since that may be
 * the same fault. */
static void fault_move_all_to_reporting_property(check_job *jobs, size_t njobs)
{
    for (size_t i = 0; i < njobs; i++)
        for (size_t k = 0;
            k < njobs && jobs[i].result->outcome == CHECK_OUTCOME_UNCHECKED && jobs[i].result->fault_kind && jobs[i].kernel;
            k++) {
            check_result *from = jobs[i].result, *to = jobs[k].result;
            if (jobs[k].kernel != jobs[i].kernel || strcmp(jobs[k].property->name, fault_get_reporting_property_name(from)) ||
                schedule_operator_has_failure(jobs, njobs, jobs[i].op))
                continue;
            *to = *from;
            jobs[k].found_by = jobs[i].property;
            fault_restore_and_shrink(&jobs[k]);
        }
    for (size_t i = 0; i < njobs;
        i++) /* the reporting property was not selected, or the call was not a kernel's: the fault stays with this job */
        if (jobs[i].result->outcome == CHECK_OUTCOME_UNCHECKED && jobs[i].result->fault_kind &&
            !schedule_operator_has_failure(jobs, njobs, jobs[i].op))
            fault_restore_and_shrink(&jobs[i]);
}

/* Turns failures that only follow from another failure of the kernel into "not checked, because this kernel fails ...". */
static void schedule_withdraw_dependent_failures(check_job *jobs, size_t njobs)
{
    for (size_t i = 0; i < njobs; i++)
        for (size_t k = 0; k < njobs; k++)
            if (schedule_is_late_refusal_of_failed_kernel(&jobs[k], &jobs[i])) {
                jobs[i].result->outcome = CHECK_OUTCOME_UNCHECKED;
                snprintf(jobs[i].result->message, sizeof jobs[i].result->message, "kernel %s fails memory", jobs[k].kernel->name);
            }
    for (size_t i = 0; i < njobs; i++)
        for (size_t k = 0;
            k < njobs && jobs[i].property->is_unchecked_if_kernel_unsound && jobs[i].result->outcome == CHECK_OUTCOME_FAIL; k++)
            if (k != i && jobs[k].kernel == jobs[i].kernel && jobs[k].kernel &&
                (schedule_shows_unsound_kernel(&jobs[k]) || schedule_is_same_wrong_value_in_slices(&jobs[k], &jobs[i]))) {
                jobs[i].result->outcome = CHECK_OUTCOME_UNCHECKED;
                snprintf(jobs[i].result->message, sizeof jobs[i].result->message, "this kernel fails %s", jobs[k].property->name);
            }
}

/* ---- Plans of kernels, each kept while a job needs it ---- */

typedef struct shared_plan {
    const check_op *op;
    const check_kernel *kernel;
    check_plan *plan;
    check_result *result; /* result of the worker that made the plan: a shape function may have failed */
    size_t jobs;          /* number of jobs that still need the plan */
} shared_plan;

/* True if the property of a job tries the cases of a plan. */
static bool schedule_needs_plan(const check_job *job) { return !job->property->check_without_cases; }

/* Returns the plan of a job's operator and kernel; NULL if it is not made yet, or was released. */
static shared_plan *schedule_find_plan(shared_plan *plans, const check_job *job)
{
    for (size_t i = 0; i < MAX_PLANS; i++)
        if (plans[i].plan && plans[i].op == job->op && plans[i].kernel == job->kernel)
            return &plans[i];
    return NULL;
}

/* True if two strings are equal, or both are NULL. */
static bool schedule_is_same_or_both_null(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* True if the plan for properties of the whole operator takes dtypes from a kernel: some kernel lists dtypes for a variable that
 * the contract leaves open, by name or as the first variable. */
static bool schedule_uses_kernel_dtypes(const check_op *op)
{
    const check_json *dtypes = check_json_find_member(op->contract, "dtypes"), *first = dtypes ? dtypes->child : NULL;
    bool any = !op->contract;
    for (const check_json *d = first; d; d = d->next) {
        const check_json *in = check_json_find_member(d, "in");
        for (size_t k = 0; k < op->nkernels && in && in->kind == CHECK_JSON_NULL; k++)
            any |= op->kernels[k].dtypes && (d == first || strchr(op->kernels[k].dtypes, '='));
    }
    return any;
}

/* True if the plans of two kernels would be the same. NULL stands for the plan of properties of the whole operator. */
static bool schedule_kernels_have_same_plan(const check_op *op, const check_kernel *a, const check_kernel *b)
{
    const check_kernel none = { 0 }, *x = a ? a : &none, *y = b ? b : &none;
    return schedule_is_same_or_both_null(x->dtypes, y->dtypes) && schedule_is_same_or_both_null(x->when, y->when) &&
        (!a == !b || !schedule_uses_kernel_dtypes(op));
}

/* Returns a plan of the same operator that would equal the job's plan; NULL if there is none. */
static const shared_plan *schedule_find_equal_plan(const shared_plan *plans, const check_job *job)
{
    for (size_t i = 0; i < MAX_PLANS; i++)
        if (plans[i].plan && plans[i].op == job->op && schedule_kernels_have_same_plan(job->op, plans[i].kernel, job->kernel))
            return &plans[i];
    return NULL;
}

/* Releases a job's reference to its plan, and unmaps the plan after the last job that needs it. */
static void schedule_release_plan(shared_plan *plans, const check_job *job)
{
    shared_plan *p = schedule_find_plan(plans, job);
    if (!p || !schedule_needs_plan(job) || --p->jobs)
        return;
    shared_map_free(p->plan);
    *p = (shared_plan){ .result = p->result };
}

/* Returns the plan for a job: an existing one, a copy of an equal one, or a new one, which a worker makes. jobs: all njobs jobs,
 * to count those that need the plan. Returns NULL, with errno, if memory or processes are out, or the check is interrupted. */
static shared_plan *schedule_find_or_make_plan(shared_plan *plans, const check_job *job, const check_job *jobs, size_t njobs)
{
    static const check_property planning = { .name = "plan", .check_without_cases = worker_make_plan };
    shared_plan *p = schedule_find_plan(plans, job);
    const shared_plan *same = schedule_find_equal_plan(plans, job);
    running_job one;
    size_t running = 1;
    if (p)
        return p;
    for (p = plans; p->plan; p++)
        if (p + 1 == plans + MAX_PLANS)
            return errno = ENOMEM, NULL;
    void *memory = shared_map_new_zeroed(sizeof *p->plan);
    if (!memory || (!p->result && !(p->result = check_map_shared_result())))
        return NULL;
    *p = (shared_plan){ job->op, job->kernel, memory, p->result, 0 };
    for (size_t i = 0; i < njobs; i++)
        p->jobs += jobs[i].op == job->op && jobs[i].kernel == job->kernel && schedule_needs_plan(&jobs[i]);
    if (same) {
        *p->result = *same->result;
        *p->plan = *same->plan;
        memset((void *)(uintptr_t)p->plan->dropped, 0, sizeof p->plan->dropped);
        return p;
    }
    check_job making = *job;
    making.property = &planning;
    making.repeat = NULL;
    making.result = p->result;
    making.plan = p->plan;
    memset(p->result, 0, sizeof *p->result);
    return schedule_try_start_worker(&one, &making, worker_get_sleep_limit(), worker_run_job) &&
            schedule_wait_for_ended_job(&one, &running)
        ? p
        : NULL;
}

/* Starts a worker for a job, after its plan is made. Returns false if the job has ended at once: its plan failed, or no process
 * could be started. The result then says so. */
static bool schedule_try_start_job(check_job *job, running_job *child, shared_plan *plans, const check_job *jobs, size_t njobs)
{
    check_case_limit_ms = worker_has_given_case(job) ? 4 * current_case_ms : current_case_ms;
    if (schedule_needs_plan(job) && !job->plan) {
        const shared_plan *p = schedule_find_or_make_plan(plans, job, jobs, njobs);
        if (!p) {
            schedule_report_not_started(job, errno);
            return false;
        }
        job->plan = p->plan;
        job->result->cpu_seconds += p->result->cpu_seconds; /* the first job that needs the plan gets its processor time */
        p->result->cpu_seconds = 0;
        if (p->result->outcome != CHECK_OUTCOME_PASS) { /* the shape function failed while the plan was made */
            *job->result = *p->result;
            if (!*p->result->kind) /* there was no fault: no process could make the plan, or the system ended it */
                return false;
            job->result->current_case = p->plan->cases[p->plan->ncases < CHECK_MAX_CASES ? p->plan->ncases : 0];
            job->result->has_case = true;
            job->result->outcome = CHECK_OUTCOME_FAIL;
            fault_refer_to_reporting_property(job);
            schedule_try_drop_slow_case_or_shrink(job);
            return false;
        }
    }
    if (schedule_try_start_worker(child, job, worker_get_sleep_limit(), worker_run_job))
        return true;
    schedule_report_not_started(job, errno);
    return false;
}

/* Releases a finished job's reference to its plan, sets job->finished and reports progress. The job and its result stay. */
static void schedule_mark_job_finished(shared_plan *plans, check_job *job)
{
    schedule_release_plan(plans, job);
    job->plan = NULL;
    job->finished = true;
    schedule_report_progress(job);
}

int check_run_jobs(const check_op *ops, size_t nops, const check_options *options, check_job **jobs_out, size_t *njobs_out)
{
    const size_t n = schedule_list_all_jobs(ops, nops, options, NULL);
    check_job *jobs = calloc(n + 1, sizeof *jobs);
    result_slot *slots = shared_map_new_zeroed((n + 1) * sizeof *slots);
    const double end = check_get_monotonic_seconds() + options->max_seconds;
    static shared_plan plans[MAX_PLANS];
    running_job children[CHECK_MAX_CONTAINED];
    size_t running = 0;
    *jobs_out = NULL;
    *njobs_out = 0;
    current_case_ms = options->case_ms;
    backtrace((void *[1]){ NULL }, 1); /* the first call of backtrace() loads a library, which a signal handler must not do */
    is_interrupted_fn = options->interrupted;
    progress_state.fn = options->progress;
    progress_state.user = options->user_data;
    progress_state.done = 0;
    progress_state.all = n;
    if (!jobs || !slots) {
        free(jobs);
        return -1;
    }
    schedule_list_all_jobs(ops, nops, options, jobs);
    for (size_t next = 0; progress_state.done < n && !(is_interrupted_fn && is_interrupted_fn());) {
        while (next < n && running < options->max_workers && !(is_interrupted_fn && is_interrupted_fn())) {
            check_job *job = &jobs[next++];
            job->result = &slots[job - jobs].result;
            const char *why = schedule_find_reason_not_to_run(job);
            if (!why && options->max_seconds > 0 && check_get_monotonic_seconds() > end)
                why = "the time was up";
            if (why)
                check_report_unchecked(job, "%s", why);
            else if (schedule_try_start_job(job, &children[running], plans, jobs, n) && ++running)
                continue;
            schedule_mark_job_finished(plans, job);
        }
        if (running) {
            check_job *job = schedule_wait_for_ended_job(children, &running);
            if (job && schedule_try_drop_slow_case_or_shrink(job) && !(is_interrupted_fn && is_interrupted_fn()) &&
                schedule_try_start_job(job, &children[running], plans, jobs, n) && ++running)
                continue;
            if (!job)
                break;
            schedule_mark_job_finished(plans, job);
        }
    }
    if (progress_state.done < n) {
        check_kill_all_descendants();
        for (size_t i = 0; i < n; i++)
            if (!jobs[i].finished) {
                jobs[i].result = &slots[i].result;
                memset(jobs[i].result, 0, offsetof(check_result, current_case));
                check_report_unchecked(&jobs[i], "interrupted");
                schedule_release_plan(plans, &jobs[i]);
            }
    }
    fault_move_all_to_reporting_property(jobs, n);
    schedule_withdraw_dependent_failures(jobs, n);
    *jobs_out = jobs;
    *njobs_out = n;
    return 0;
}

int check_run_jobs_in_process(
    const check_op *ops, size_t nops, const check_options *options, check_job **jobs_out, size_t *njobs_out)
{
    const size_t n = schedule_list_all_jobs(ops, nops, options, NULL);
    check_job *jobs = calloc(n + 1, sizeof *jobs);
    *jobs_out = jobs;
    *njobs_out = 0;
    current_case_ms = options->case_ms;
    dv_set_threads(1);
    if (jobs)
        schedule_list_all_jobs(ops, nops, options, jobs);
    for (check_job *job = jobs; jobs && job < jobs + n; job++, ++*njobs_out) {
        check_job_begin(job, true);
        if (!(job->result = calloc(1, sizeof *job->result)) || !(job->plan = calloc(1, sizeof *job->plan)))
            return -1;
        const char *why = schedule_find_reason_not_to_run(job);
        if (why)
            check_report_unchecked(job, "%s", why);
        else if (schedule_needs_plan(job))
            worker_make_plan(job);
        if (!why)
            worker_run_job(job);
    }
    return jobs ? 0 : -1;
}
