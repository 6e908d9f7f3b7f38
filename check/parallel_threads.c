/* Calls of several threads at once, and inside each other (property parallel). */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "interleave.h"
#include "parallel.h"

enum {
    MAX_OTHER_VALUES = 6,     /* number of other values that are tried for an argument */
    MAX_SMALL_ELEMENTS = 512, /* of one tensor */
    MAX_LARGE_ELEMENTS = 4200,
    MAX_STATIC_BYTES = 1 << 20,
    FIRST_INTERRUPTED = 16,
    MAX_INTERRUPTED = 16384
};

/* ---- Static memory: kernels that write to it are checked for longer ---- */

/* True if a path names Dovetail's own library, the C library, libm, the loader or the vDSO. */
static bool parallel_threads_is_system_library(const char *path)
{
    static const char *const others[] = { "/libdovetail", "/libc.", "/libm.", "/ld-linux", "linux-vdso" };
    bool result = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        result |= strstr(path, others[i]) != NULL;
    return result;
}

/* Updates *hash, a uint64_t, with the writable and thread-local segments of one loaded library, unless it is a system library or
 * a segment is larger than MAX_STATIC_BYTES. Callback of dl_iterate_phdr(); returns 0. */
static int parallel_threads_hash_segments(struct dl_phdr_info *info, size_t size, void *hash)
{
    uint64_t *h = hash;
    const bool counts = *info->dlpi_name && !parallel_threads_is_system_library(info->dlpi_name);
    (void)size;
    for (int i = 0; counts && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *s = &info->dlpi_phdr[i];
        const bool of_thread = s->p_type == PT_TLS;
        const unsigned char *from = of_thread ? info->dlpi_tls_data : (const void *)(uintptr_t)(info->dlpi_addr + s->p_vaddr);
        if (from && (of_thread || (s->p_type == PT_LOAD && s->p_flags & PF_W)) && s->p_memsz <= MAX_STATIC_BYTES)
            for (size_t k = 0; k < s->p_memsz; k++)
                *h = (*h ^ from[k]) * UINT64_C(0x100000001b3);
    }
    return 0;
}

/* Returns a hash of the static memory of all loaded libraries except the system's and Dovetail's. */
static uint64_t parallel_threads_hash_static_memory(void)
{
    uint64_t hash = 0;
    dl_iterate_phdr(parallel_threads_hash_segments, &hash);
    return hash;
}

/* ---- Four threads at once ---- */

typedef struct thread_call {
    check_unguarded_call call;
    check_case c;
    check_outputs expected, found;
    pthread_t id;
    atomic_bool *stop;
    bool differs;
} thread_call;

/* Sleeps for ns nanoseconds. */
static void parallel_threads_sleep_ns(long ns)
{
    const struct timespec t = { 0, ns };
    nanosleep(&t, NULL);
}

/* Pauses this thread for 30 us while the others continue. Handler of SIGUSR1. */
static void parallel_threads_on_pause_signal(int signal_number)
{
    (void)signal_number;
    parallel_threads_sleep_ns(30000);
}

/* Makes a thread's call, and sets thread_call.differs if its outputs differ from the expected ones. A refused call changes
 * nothing. */
static void parallel_threads_call_and_compare(void *thread_call_arg)
{
    thread_call *thread = thread_call_arg;
    char words[300];
    check_unguarded_call_run(&thread->call);
    if (thread->call.status)
        return;
    check_outputs_copy(&thread->found, thread->call.op, &thread->c, thread->call.results, thread->call.values.tensors);
    thread->differs |= check_outputs_differ(thread->call.op, &thread->expected, &thread->found, words, sizeof words);
}

/* Repeats a thread's call until a result differs or another thread stops all threads. Main function of the threads; returns NULL.
 */
static void *parallel_threads_repeat_call_until_stopped(void *thread_call_arg)
{
    thread_call *thread = thread_call_arg;
    while (!atomic_load_explicit(thread->stop, memory_order_relaxed)) {
        parallel_threads_call_and_compare(thread);
        if (thread->differs)
            atomic_store(thread->stop, true);
    }
    return NULL;
}

static thread_call thread_calls[NUM_THREADS];

/* Prepares a thread's call with its own contents (seed_offset is added to the seed): makes it alone and stores the expected
 * outputs. Returns false if the call is refused. */
static bool parallel_threads_try_prepare_thread_call(
    const check_job *job, const check_case *c, uint64_t seed_offset, thread_call *thread)
{
    thread->c = *c;
    thread->c.seed += seed_offset;
    thread->differs = false;
    if (!check_unguarded_call_try_init(&thread->call, job->op, job->kernel, &thread->c))
        return false;
    check_unguarded_call_run(&thread->call);
    if (thread->call.status)
        return false;
    check_outputs_copy(&thread->expected, job->op, &thread->c, thread->call.results, thread->call.values.tensors);
    return !thread->expected.is_incomplete;
}

/* Prepares the calls of NUM_THREADS threads, each with other contents. Returns the number of calls that succeed alone. */
static int parallel_threads_prepare_and_count_thread_calls(const check_job *job, const check_case *c)
{
    int n = 0;
    for (int i = 0; i < NUM_THREADS; i++)
        n += parallel_threads_try_prepare_thread_call(job, c, (uint64_t)i * 1000, &thread_calls[n]);
    return n;
}

/* True if a result changes when thread_calls[1] is called between the instructions of thread_calls[0]. The case itself is unused.
 */
static bool parallel_threads_differs_when_interleaved(const check_job *job, const check_case *c)
{
    (void)c;
    check_unguarded_call_run(&thread_calls[0].call);
    job->result->forked_after_call = false; /* the call has just ended, so it waits for no thread that a forked process lacks */
    check_heap_overwrite_freed();
    const dv_host host = thread_calls[0].call.host;
    thread_calls[0].call.host.before_kernel = interleave_begin_stepping;
    thread_calls[0].call.host.after_kernel = interleave_end_stepping;
    interleave_try_calls(
        parallel_threads_call_and_compare, &thread_calls[0], parallel_threads_call_and_compare, &thread_calls[1]);
    thread_calls[0].call.host = host;
    return thread_calls[0].differs || thread_calls[1].differs;
}

/* Interrupts the threads in turn with SIGUSR1, which pauses each for a moment. Returns after so many seconds, or when *stop is
 * set because a result differs. */
static void parallel_threads_pause_threads(int nthreads, double seconds, const atomic_bool *stop)
{
    const double end = check_get_monotonic_seconds() + seconds;
    for (int i = 0; !atomic_load_explicit(stop, memory_order_relaxed) && check_get_monotonic_seconds() < end; i++) {
        pthread_kill(thread_calls[i % nthreads].id, SIGUSR1);
        parallel_threads_sleep_ns(20000);
    }
}

void check_parallel_simultaneous_calls(check_job *job, const check_case *c)
{
    const struct sigaction action = { .sa_handler = parallel_threads_on_pause_signal, .sa_flags = SA_RESTART };
    struct sigaction before;
    static atomic_bool stop;
    int started = 0;
    const int nthreads = parallel_threads_prepare_and_count_thread_calls(job, c);
    if (nthreads < 2)
        return;
    const uint64_t hash = parallel_threads_hash_static_memory();
    check_unguarded_call_run(&thread_calls[0].call);
    const bool writes_static_memory = parallel_threads_hash_static_memory() != hash;
    check_parallel_report_faults_here(job);
    snprintf(job->result->fault_condition, sizeof job->result->fault_condition,
        "when %d threads call it at once, each with its own data", nthreads);
    if (writes_static_memory || !job->result->tried_cases)
        thread_calls[0].differs |= CAN_SINGLE_STEP &&
            check_parallel_is_true_in_fork(job, c, parallel_threads_differs_when_interleaved);
    prctl(PR_SET_TIMERSLACK, 1);
    sigaction(SIGUSR1, &action, &before);
    atomic_store(&stop, thread_calls[0].differs || thread_calls[1].differs);
    for (; started < nthreads; started++) {
        thread_calls[started].stop = &stop;
        if (pthread_create(&thread_calls[started].id, NULL, parallel_threads_repeat_call_until_stopped, &thread_calls[started]))
            break;
    }
    if (started)
        parallel_threads_pause_threads(started, job->result->tried_cases ? writes_static_memory ? 0.06 : 0.004 : 0.03, &stop);
    atomic_store(&stop, true);
    for (int i = 0; i < started; i++)
        pthread_join(thread_calls[i].id, NULL);
    sigaction(SIGUSR1, &before, NULL);
    job->result->also_reported_faults = 0;
    for (int i = 0; i < started; i++)
        if (thread_calls[i].differs)
            check_fail(job, "not thread-safe",
                "%d threads called it at once, each with its own data, and a result is not the one that the same call gives "
                "alone%s",
                started, writes_static_memory ? ": the kernel writes to static memory" : "");
}

/* ---- Chunks and first calls inside each other ---- */

/* Copies to `out` the case of the plan with the most elements up to max_elements, but with another number of elements than case
 * c. Returns false if the plan has no such case. */
static bool parallel_threads_try_copy_case_of_other_numel(
    const check_job *job, const check_case *c, int64_t max_elements, check_case *out)
{
    int64_t most = 0;
    for (uint32_t k = 0; job->plan && k < job->plan->ncases; k++) {
        const check_case *planned_case = &job->plan->cases[k];
        const int64_t n = check_case_max_numel(planned_case);
        if (n > most && n <= max_elements && n != check_case_max_numel(c) && check_parallel_has_no_special_values(planned_case) &&
            !job->plan->dropped[k] && !check_has_endless_int(job->op, planned_case)) {
            most = n;
            *out = *planned_case;
        }
    }
    return most > 0;
}

/* True if results change when the other chunks of a loop run before some instruction of its first chunk. Tries one instruction in
 * each call, for at most a quarter of a second. */
static bool parallel_threads_differs_with_other_chunks_inside(const check_job *job, const check_case *c)
{
    enum { MAX_CLOCKS = CLOCKS_PER_SEC / 4 };
    static check_outputs uncut_outputs, other;
    char words[300];
    if (!check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &uncut_outputs))
        return false;
    job->result->forked_after_call = false;
    const clock_t begin = clock();
    single_stop.position = 0;
    single_stop.stop_condition = 0;
    do {
        if (check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, interleave_parallel_for_inside_first, false, &other) &&
            check_outputs_differ_unordered(job->op, c, &uncut_outputs, &other, words, sizeof words))
            return true;
    } while (single_stop_try_select_next_position() && clock() - begin < MAX_CLOCKS);
    return false;
}

bool check_parallel_has_chunk_race(check_job *job, const check_case *c)
{
    return CAN_SINGLE_STEP && check_parallel_is_true_in_fork(job, c, parallel_threads_differs_with_other_chunks_inside);
}

/* Shared memory in which a process that makes a first call leaves data for the next such process. */
enum { MAX_WRITES = 1000 };
static struct {
    int late;    /* number of other threads' calls that did not end in time */
    int64_t all; /* instructions of the first call */
    size_t n;    /* number of recorded writes */
    struct {
        const uint8_t *by;
        int64_t at;
    } writes[MAX_WRITES];
} *first_call_record;

/* Records a write to memory of the first call: the address of the instruction, and its number in the call. Writes past MAX_WRITES
 * are not recorded. */
static void parallel_threads_record_write(const uint8_t *instruction, int64_t instruction_number)
{
    if (first_call_record->n < MAX_WRITES) {
        first_call_record->writes[first_call_record->n].by = instruction;
        first_call_record->writes[first_call_record->n++].at = instruction_number;
    }
}

/* Begins single-stepping of a process's first call (function for dv_host.before_kernel). Before instruction number
 * single_stop.position another thread makes a call, which finds races in lazy initialization. Each write is recorded. */
static void parallel_threads_begin_stepping_first_call(const dv_host *host)
{
    (void)host;
    single_stop.timeouts = first_call_record->late;
    single_stop.on_write = parallel_threads_record_write;
    single_stop_try_begin(parallel_threads_call_and_compare, &thread_calls[1]);
}

/* Ends single-stepping of the first call (function for dv_host.after_kernel). Records the number of instructions and of late
 * calls for the next process. */
static void parallel_threads_end_stepping_first_call(const dv_host *host)
{
    (void)host;
    single_stop_end();
    first_call_record->late = single_stop.timeouts;
    first_call_record->all = single_stop.total;
}

static const check_case *second_case; /* case of the other thread's call; NULL: the first call's case with other contents */

/* True if a result of either call differs when another thread makes a call before instruction number single_stop.position of a
 * process's first call. Each call is repeated alone for comparison. */
static bool parallel_threads_differs_in_first_call(const check_job *job, const check_case *c)
{
    char words[300];
    bool differs = false;
    check_heap_overwrite_freed();
    for (int i = 0; i < 2; i++) {
        thread_calls[i].c = i && second_case ? *second_case : *c;
        thread_calls[i].c.seed += (uint64_t)i * 1000;
        if (!check_unguarded_call_try_init(&thread_calls[i].call, job->op, job->kernel, &thread_calls[i].c))
            return false;
    }
    thread_calls[0].call.host.before_kernel = parallel_threads_begin_stepping_first_call;
    thread_calls[0].call.host.after_kernel = parallel_threads_end_stepping_first_call;
    parallel_threads_call_and_compare(&thread_calls[0]);
    thread_calls[0].call.host.before_kernel = thread_calls[0].call.host.after_kernel = NULL;
    for (int i = 0; i < 2 && !differs; i++) {
        thread_call *thread = &thread_calls[i];
        check_unguarded_call_run(&thread->call);
        if (thread->call.status || thread->found.is_incomplete)
            return false;
        check_outputs_copy(&thread->expected, job->op, &thread->c, thread->call.results, thread->call.values.tensors);
        differs = thread->found.noutputs == thread->expected.noutputs &&
            check_outputs_differ(job->op, &thread->expected, &thread->found, words, sizeof words);
    }
    return differs;
}

bool check_parallel_first_call_writes_static_memory(const check_job *job, const check_case *c)
{
    const bool is_ready = check_unguarded_call_try_init(&thread_calls[0].call, job->op, job->kernel, c);
    const uint64_t hash = parallel_threads_hash_static_memory();
    if (is_ready)
        check_unguarded_call_run(&thread_calls[0].call);
    return is_ready && parallel_threads_hash_static_memory() != hash;
}

/* True if a recorded write was made by the operator's code, or follows directly on a write of it, as the first one in a function
 * that it calls. Other writes, such as those of malloc(), are not tried. */
static bool parallel_threads_is_operator_write(size_t write_index)
{
    bool is_operator_code[2] = { false, true };
    for (size_t i = 0; i < 2 && write_index >= i; i++) {
        Dl_info info;
        is_operator_code[i] = !dladdr(first_call_record->writes[write_index - i].by, &info) ||
            !parallel_threads_is_system_library(info.dli_fname);
    }
    return is_operator_code[0] || is_operator_code[1];
}

/* True if a result differs when the other thread's call is made before this instruction of a first call. Runs in a forked
 * process. */
static bool parallel_threads_differs_at_instruction(check_job *job, const check_case *c, int64_t instruction_number)
{
    single_stop.position = instruction_number;
    return check_parallel_is_true_in_fork(job, c, parallel_threads_differs_in_first_call);
}

/* True if another thread's call during a process's first call changes a result. The other call is made before ever fewer
 * instructions, since a first call may have thousands of them, and before each of the first writes: a flag may be set just before
 * the data that it announces is stored. */
static bool parallel_threads_has_first_call_race(check_job *job, const check_case *c, const check_case *other_thread_case)
{
    if (!first_call_record && !(first_call_record = check_map_shared_memory(sizeof *first_call_record)))
        return false;
    second_case = other_thread_case;
    single_stop.stop_condition = 0;
    memset(first_call_record, 0, sizeof *first_call_record);
    check_parallel_report_timeouts_here(job, "when another thread calls it during its first call");
    bool differs = parallel_threads_differs_at_instruction(job, c, 0);
    for (int64_t instruction_number = FIRST_INTERRUPTED;
        instruction_number < first_call_record->all && instruction_number < MAX_INTERRUPTED && !differs;
        instruction_number += instruction_number / 4)
        differs = parallel_threads_differs_at_instruction(job, c, instruction_number);
    const double begin = check_parallel_get_forks_cpu_seconds();
    for (size_t write_index = 0;
        write_index < first_call_record->n && check_parallel_get_forks_cpu_seconds() - begin < MAX_RACE_SECONDS && !differs;
        write_index++)
        differs = parallel_threads_is_operator_write(write_index) &&
            parallel_threads_differs_at_instruction(job, c, first_call_record->writes[write_index].at);
    job->result->also_reported_faults = 0;
    return differs;
}

bool check_parallel_has_any_first_call_race(check_job *job, const check_case *c)
{
    static check_case small, large;
    return CAN_SINGLE_STEP &&
        (parallel_threads_has_first_call_race(job, c, NULL) ||
            (parallel_threads_try_copy_case_of_other_numel(job, c, MAX_SMALL_ELEMENTS, &small) &&
                parallel_threads_try_copy_case_of_other_numel(job, &small, MAX_LARGE_ELEMENTS, &large) &&
                parallel_threads_has_first_call_race(job, &small, &large)));
}

/* ---- Another argument or other sizes in another thread ---- */

/* True if a call of the other case changes static memory, and a call of one case between the instructions of a call of the other
 * changes a result. */
static bool parallel_threads_interleaved_cases_differ(check_job *job, const check_case *c, const check_case *other)
{
    if (!parallel_threads_try_prepare_thread_call(job, c, 0, &thread_calls[0]))
        return false;
    const uint64_t hash = parallel_threads_hash_static_memory();
    return parallel_threads_try_prepare_thread_call(job, other, 0, &thread_calls[1]) &&
        parallel_threads_hash_static_memory() != hash &&
        check_parallel_is_true_in_fork(job, c, parallel_threads_differs_when_interleaved);
}

void check_parallel_threads_with_other_arguments(check_job *job, const check_case *c)
{
    static check_case other;
    const char *argument = NULL;
    check_parallel_report_timeouts_here(job, "when another thread calls it with other arguments");
    for (size_t slot = 0; slot < job->op->nargs && CAN_SINGLE_STEP && !argument; slot++)
        for (uint32_t k = 0, tries = 0; job->plan && k < job->plan->ncases && tries < MAX_OTHER_VALUES && !argument; k++)
            if (check_parallel_try_make_case_with_planned_argument(job, c, slot, k, &other)) {
                tries++;
                argument = parallel_threads_interleaved_cases_differ(job, c, &other) ? job->op->slots[slot].name : NULL;
            }
    const bool differs = argument ||
        (CAN_SINGLE_STEP && parallel_threads_try_copy_case_of_other_numel(job, c, MAX_LARGE_ELEMENTS, &other) &&
            parallel_threads_interleaved_cases_differ(job, c, &other));
    job->result->also_reported_faults = 0;
    if (!differs)
        return;
    check_fail(job, "not thread-safe with others",
        "during the call another thread calls it with %s%s%s, and a result is not the one that the same call gives alone: the "
        "kernel writes to static memory",
        argument ? "another '" : "other sizes", argument ? argument : "", argument ? "'" : "");
}
