/* Arguments that a kernel does not read. A kernel that ignores a flag gives plausible results, and without a reference no
 * comparison shows it. The results of one case may not depend on the flag, but a kernel that uses a flag reads its field in the
 * struct.
 *
 * The kernel gets a copy of its struct, placed so that the field begins at an inaccessible page. A read of the field faults at
 * an address in it, and ends the process. Any other fault is an access to a later field: the page becomes accessible for one
 * instruction, by the processor's trap flag, and inaccessible again. Only x86-64 has this; elsewhere nothing is reported. */
#include <ctype.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "check.h"

enum {
    MIN_UNREAD_CASES = 24,       /* number of cases in which an argument is not read, after which it is reported */
    MIN_UNREAD_CASES_QUICK = 12, /* number of such cases for plans with as few cases as those of --quick */
    MAX_ELEMENTS = 1
        << 12, /* limit on elements of a tensor: a kernel may read its struct for each element, and each read costs two signals */
    PAGE_BYTES = 4096,
    HALF_BYTES = 2 * PAGE_BYTES, /* number of bytes that a struct may have before the field, and from the field on */
    TRAP_FLAG = 0x100
};

enum field_access { FIELD_UNKNOWN, FIELD_READ, FIELD_UNREAD };
static volatile enum field_access *observed; /* what the forked process observed; in shared memory */
static size_t watched_slot;

#if defined(__x86_64__)
static char *field_begin; /* address of the field in the copied struct, where the inaccessible pages begin */
static size_t field_size;

/* Calls mprotect() for the pages that begin at the watched field. */
static void unread_set_field_protection(int access) { mprotect(field_begin, HALF_BYTES, access); }

/* Handler of SIGSEGV and SIGTRAP: stores FIELD_READ and ends the process if the field is accessed; steps over an access to later
 * fields; stores FIELD_UNKNOWN and ends the process after any other fault. */
static void unread_step_or_exit_on_signal(int number, siginfo_t *info, void *context)
{
    greg_t *const flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
    const char *const at = info->si_addr;
    if (number == SIGTRAP) { /* the instruction that accessed a later field is done */
        unread_set_field_protection(PROT_NONE);
        *flags &= ~TRAP_FLAG;
    } else if (at >= field_begin + field_size && at < field_begin + HALF_BYTES) {
        unread_set_field_protection(PROT_READ | PROT_WRITE);
        *flags |= TRAP_FLAG;
    } else {
        *observed = at >= field_begin && at < field_begin + field_size ? FIELD_READ : FIELD_UNKNOWN;
        _exit(0);
    }
}

/* dv_test_hooks.watch: returns a copy of the kernel's struct in which the field begins at an inaccessible page, so that the
 * process ends when the kernel reads it. Returns `frame` itself if that is impossible. */
static void *unread_watch_field(const dv_host *host, void *frame, size_t frame_size, size_t field_offset, size_t size)
{
    const struct sigaction action = { .sa_sigaction = unread_step_or_exit_on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    char *const pages = mmap(NULL, 2 * HALF_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)host;
    if (pages == MAP_FAILED || field_offset > HALF_BYTES || frame_size - field_offset > HALF_BYTES)
        return frame;
    field_begin = pages + HALF_BYTES;
    field_size = size;
    memcpy(field_begin - field_offset, frame, frame_size);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGTRAP, &action, NULL);
    unread_set_field_protection(PROT_NONE);
    *observed = FIELD_UNREAD;
    return field_begin - field_offset;
}
#else
static void *unread_watch_field(const dv_host *host, void *frame, size_t frame_size, size_t field_offset, size_t field_size)
{
    (void)host, (void)frame_size, (void)field_offset, (void)field_size;
    return frame;
}
#endif

/* Calls the kernel while the field of watched_slot is watched; must run in a forked process. */
static void unread_observe_field_in_fork(check_job *job, const check_case *c)
{
    static check_guarded_call call;
    call = (check_guarded_call){ .op = job->op,
        .kernel = job->kernel,
        .poison_byte = 0xa5,
        .ignore_split = true,
        .watched_slot = (int32_t)watched_slot,
        .watch_field = unread_watch_field };
    check_guarded_call_run(&call, c);
    if (call.status)
        *observed = FIELD_UNKNOWN;
}

/* True if a kernel's predicate names an argument. */
static bool unread_predicate_names(const char *predicate, const char *name)
{
    const size_t n = strlen(name);
    bool names = false;
    for (const char *at = predicate; at && !names && (at = strstr(at, name)); at++)
        names = (at == predicate || (at[-1] != '_' && !isalnum((unsigned char)at[-1]))) && at[n] != '_' &&
            !isalnum((unsigned char)at[n]);
    return names;
}

/* True if the kernel's predicate names an argument that is not a tensor: a kernel for one mode need not read what other modes
 * do. */
static bool unread_is_kernel_of_a_mode(const check_job *job)
{
    bool is = false;
    for (size_t i = 0; i < job->op->nargs; i++)
        is |= job->op->slots[i].type != DV_FIELD_TENSOR && unread_predicate_names(job->kernel->when, job->op->slots[i].name);
    return is;
}

/* True if this kernel takes only integers and another one takes floats: a flag about NaN or rounding is for floats alone. */
static bool unread_is_integer_kernel_beside_floats(const check_job *job)
{
    bool others = false;
    for (size_t k = 0; k < job->op->nkernels; k++)
        others |= job->op->kernels[k].dtypes && strchr(job->op->kernels[k].dtypes, 'f');
    return others && job->kernel->dtypes && !strpbrk(job->kernel->dtypes, "fc");
}

/* True if a kernel must read this argument for results to depend on it. The contract at most bounds its value, and the kernel's
 * predicate does not read it. It is a value, or an optional tensor that is given. */
static bool unread_must_be_read_by_kernel(const check_job *job, const check_case *c, size_t slot)
{
    const dv_slot_info *s = &job->op->slots[slot];
    if (job->op->is_unused[slot] || job->op->literals[slot].decides_inference || unread_is_kernel_of_a_mode(job) ||
        (s->type == DV_FIELD_BOOL && unread_is_integer_kernel_beside_floats(job)))
        return false;
    if (s->type == DV_FIELD_TENSOR)
        return s->flags & DV_SLOT_OPTIONAL && c->tensors[c->args[slot].first_tensor].present;
    return s->type != DV_FIELD_TENSORS && s->type != DV_FIELD_DEVICE && s->type != DV_FIELD_GENERATOR &&
        s->type != DV_FIELD_LAYOUT &&
        s->type != DV_FIELD_MEMORY_FORMAT; /* layouts and memory formats are hints, in ATen's operators, too */
}

/* Calls the kernel in a forked process, and returns true if it reads the struct's field of this slot. */
static bool unread_kernel_reads_argument(check_job *job, const check_case *c, size_t slot)
{
    watched_slot = slot;
    *observed = FIELD_UNKNOWN;
    check_try_run_forked(job, c, unread_observe_field_in_fork);
    return *observed == FIELD_READ;
}

void check_unread_arguments(check_job *job, const check_case *c)
{
    static uint32_t unread[CHECK_MAX_ARGS];
    static bool is_done[CHECK_MAX_ARGS];
    if ((!observed && !(observed = check_map_shared_memory(sizeof *observed))) || !job->result->tried_cases ||
        job->op->has_shape_function || !check_has_small_tensors(c, MAX_ELEMENTS))
        return;
    const int min_cases = job->plan->ncases <= 2 * MIN_UNREAD_CASES_QUICK ? MIN_UNREAD_CASES_QUICK : MIN_UNREAD_CASES;
    for (size_t i = 0; i < c->nargs && job->result->outcome == CHECK_OUTCOME_PASS; i++) {
        if (is_done[i] || !unread_must_be_read_by_kernel(job, c, i))
            continue;
        is_done[i] = unread_kernel_reads_argument(job, c, i);
        unread[i] += *observed == FIELD_UNREAD;
        if (unread[i] >= (uint32_t)min_cases && !(is_done[i] = check_holds_for_other_cases(job, unread_kernel_reads_argument, i)))
            check_fail(job, "unread argument",
                "the kernel never reads argument '%s', in %d cases; if that is intended, declare unused(%s)",
                job->op->slots[i].name, min_cases, job->op->slots[i].name);
    }
}
