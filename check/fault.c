/* Faults of a worker: the signal handler that records one in the result of the job, and other ends of a worker as faults.
 *
 * The handler of a fault writes a message into shared memory and ends the worker. A worker that ends in any other way before its
 * job is done was ended by the kernel. If another property reports faults of a kind, the job refers to that property. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker.h"

enum { EXIT_FAULT = 77 };

DV__PRINTF(4, 5) void check_fault_record(check_result *r, uint32_t fault, const char *kind, const char *format, ...)
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
        check_fault_record(r, CHECK_FAULT_MEMORY, "use after free", "the kernel %s %s: byte %lld of %lld", verb,
            location->description, at, high);
    else if (location->is_between_elements)
        check_fault_record(r, CHECK_FAULT_MEMORY, "between elements",
            "the kernel %s between the elements of %s, which lie 2^31 elements apart: byte %lld", verb, location->description,
            at);
    else if (location->is_inside && location->is_readonly)
        check_fault_record(r, CHECK_FAULT_MEMORY, "undeclared write",
            "the kernel %s %s, which the schema does not declare to be written, at byte %lld of [%lld, %lld)", verb,
            location->description, at, low, high);
    else
        check_fault_record(r, CHECK_FAULT_MEMORY, kind, "the kernel %s %s of %s: byte %lld, and its memory is [%lld, %lld)%s",
            verb, where, location->description, at, low, high, check_get_earlier_tensor_note(location->is_earlier_tensor));
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
        check_fault_record(r, CHECK_FAULT_FAKE_READ, "fake reads data",
            "the shape function %s the contents of a tensor: a fake tensor has none", verb);
    } else if (check_try_find_nearest_memory(info->si_addr, &location)) {
        fault_record_memory_access(r, verb, &location);
    } else if (info->si_code == SI_KERNEL) {
        check_fault_record(r, CHECK_FAULT_CRASH, kind,
            "SIGSEGV: an instruction of the kernel that needs an aligned address got another one "
            "(without align(...) a tensor begins at any element), or an address that cannot be");
    } else {
        const bool null = (uintptr_t)info->si_addr < 65536;
        if (null && check_has_empty_workspace()) {
            check_fault_record(r, CHECK_FAULT_MEMORY, "no workspace",
                "the kernel %s the workspace, of which the contract says here that it has 0 bytes", verb);
            return;
        }
        check_fault_record(r, CHECK_FAULT_CRASH, kind, "SIGSEGV: the kernel %s memory at address %p, %s", verb, info->si_addr,
            null ? "as of a null pointer" : "which is near none of its tensors");
    }
}

/* Records as a fault that a signal with this number ended the process. */
static void fault_record_signal(check_result *r, int number)
{
    check_fault_record(
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
        check_fault_record(r, CHECK_FAULT_TIMEOUT, "endless loop",
            "the kernel has not ended after %g s of processor time (--case-ms MS gives it more)",
            4 * check_current_case_ms / 1e3);
    } else if (number == SIGSEGV && ((at >= stack_low && at < stack_high) || fault_is_stack_overflow(at, context))) {
        check_fault_record(r, CHECK_FAULT_CRASH, "stack overflow", "SIGSEGV: the kernel uses more stack than there is");
    } else if (number == SIGSEGV) {
        fault_record_segv(r, info, context);
    } else if (number == SIGABRT && check_heap_has_wrong_free()) {
        check_fault_record(
            r, CHECK_FAULT_MEMORY, "wrong free", "the kernel frees memory twice, or an address that malloc() did not give");
    } else {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (names[i].number == number)
                check_fault_record(r, CHECK_FAULT_CRASH, names[i].kind, "%s", names[i].says);
    }
    if (!is_end)
        fault_record_origin(r, context);
    _exit(EXIT_FAULT);
}

void check_fault_install_handlers(uintptr_t stack_bytes)
{
    static const int numbers[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP, SIGPROF, SIGTERM, SIGINT, SIGHUP };
    static char stack[64 << 10];
    const stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack };
    struct sigaction action = { .sa_sigaction = fault_record_signal_and_exit, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    sigset_t caught;
    stack_high = (uintptr_t)__builtin_frame_address(0);
    stack_low = stack_high - stack_bytes - ((uintptr_t)1 << 20);
    sigaltstack(&alternate, NULL);
    sigemptyset(&caught);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        sigaction(numbers[i], &action, NULL);
        sigaddset(&caught, numbers[i]);
    }
    sigprocmask(SIG_UNBLOCK, &caught, NULL); /* the process that started this command may have blocked these signals */
}

static const char see_property_prefix[] = " (see ";
const char *check_fault_get_reporting_property_name(const check_result *r)
{
    return r->fault_kind == CHECK_FAULT_MEMORY ? "memory" : r->fault_kind == CHECK_FAULT_FAKE_READ ? "fake" : "runs";
}

void check_fault_refer_to_reporting_property(check_job *job)
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
    snprintf(
        r->message, sizeof r->message, "%.900s%s%s)", message, see_property_prefix, check_fault_get_reporting_property_name(r));
}

void check_fault_restore_as_failure(check_result *r)
{
    char *end = strstr(r->message, see_property_prefix);
    r->outcome = CHECK_OUTCOME_FAIL;
    if (end)
        *end = 0;
}

bool check_fault_try_record_abnormal_end(check_result *r, const check_contained_end *end)
{
    switch (end->cause) {
    case CHECK_ENDED_IDLE_LIMIT:
        check_fault_record(r, CHECK_FAULT_TIMEOUT, "endless wait",
            "the kernel waits and does not end"); /* check_slow_case_try_drop() waits for longer */
        return true;
    case CHECK_ENDED_STOPPED:
        check_fault_record(r, CHECK_FAULT_TIMEOUT, "endless wait", "the kernel stops its process and does not end");
        return true;
    case CHECK_ENDED_CPU_LIMIT:
        check_fault_record(r, CHECK_FAULT_TIMEOUT, "endless loop",
            "the kernel has not ended after %g s of processor time, and keeps SIGPROF from ending it",
            check_current_case_ms / 1e3);
        return true;
    case CHECK_ENDED_PROCESS_LIMIT:
        check_fault_record(r, CHECK_FAULT_CRASH, "many processes", "the kernel starts more and more processes: %u were running",
            end->processes_left);
        return true;
    case CHECK_ENDED_SUPERVISOR_KILLED:
        check_fault_record(r, CHECK_FAULT_CRASH, "parent killed", "the kernel kills the parent of its process");
        return true;
    case CHECK_ENDED_SUPERVISOR_STOPPED:
        check_fault_record(r, CHECK_FAULT_CRASH, "parent stopped", "the kernel stops the parent of its process");
        return true;
    case CHECK_ENDED_ITSELF:
        if (r->fault_kind || r->worker_completed || (r->left_child && !end->status))
            return false;
        if (WIFSIGNALED(end->status))
            fault_record_signal(r, WTERMSIG(end->status));
        else
            check_fault_record(r, CHECK_FAULT_CRASH, "end of the process", "the kernel ended the process with exit(%d)",
                WEXITSTATUS(end->status));
        return true;
    case CHECK_ENDED_NOT_BEGUN:
        check_fault_record(
            r, CHECK_FAULT_CRASH, "fork", "the kernel's library has a handler of pthread_atfork() that does not return");
        return true;
    case CHECK_ENDED_BY_OOM_KILLER:
    case CHECK_ENDED_NOT_STARTED: break;
    }
    return false;
}

void check_fault_record_left_processes(check_job *job, const check_contained_end *end)
{
    check_result *r = job->result;
    const bool failed = r->outcome == CHECK_OUTCOME_FAIL;
    if (job->property->check_without_cases || (!end->processes_left && !r->forked_in_call && !r->left_child) ||
        end->cause == CHECK_ENDED_PROCESS_LIMIT)
        return;
    r->outcome = CHECK_OUTCOME_FAIL;
    if (failed && end->processes_left) {
        const size_t n = strlen(r->message);
        snprintf(r->message + n, sizeof r->message - n, "; it leaves %u process%s running", end->processes_left,
            end->processes_left == 1 ? "" : "es");
    } else if (!failed) {
        if (end->processes_left)
            check_fault_record(
                r, CHECK_FAULT_CRASH, "processes left", "the kernel leaves processes running: %u", end->processes_left);
        else
            check_fault_record(r, CHECK_FAULT_CRASH, "fork", "%s",
                r->forked_in_call ? "the kernel forks, and its call returns in both processes"
                                  : "the kernel starts a process and does not wait for it");
    }
}
