/* Property leaks: calls release all resources that they take.
 *
 * The same unguarded call is repeated many times. Memory of malloc(), descriptors, threads and mappings must not grow in every
 * one of four equal stretches. Calls that the kernel refuses are repeated as well, and so is each case after which more memory
 * is held than before. Then each allocation of the host fails in turn, and each malloc() of the kernel: the call must return an
 * error, must not crash, and must not leak. */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* ---- Resources of the process ---- */

enum { RESOURCE_DESCRIPTORS, RESOURCE_TASKS, RESOURCE_HEAP, RESOURCE_PAGES, NUM_RESOURCES };
static const char *const resource_names[] = { "file descriptors", "threads", "bytes of malloc()", "pages of mappings" };

/* Returns the number of entries in a folder; 0: it cannot be read. */
static long long leaks_count_entries(const char *folder)
{
    long long count = 0;
    DIR *stream = opendir(folder);
    while (stream && readdir(stream))
        count++;
    if (stream)
        closedir(stream);
    return count;
}

/* Sets held[i] to how much of resource i, such as RESOURCE_HEAP, the process holds now; 0 where that is unknown. */
static void leaks_read_resources(long long *held)
{
    FILE *f = fopen("/proc/self/statm", "r");
    held[RESOURCE_PAGES] = held[RESOURCE_HEAP] = 0;
    if (f && fscanf(f, "%lld", &held[RESOURCE_PAGES]) != 1)
        held[RESOURCE_PAGES] = 0;
    if (f)
        fclose(f);
    held[RESOURCE_DESCRIPTORS] = leaks_count_entries("/proc/self/fd");
    held[RESOURCE_TASKS] = leaks_count_entries("/proc/self/task");
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    held[RESOURCE_HEAP] = (long long)(mallinfo2().uordblks + mallinfo2().hblkhd);
#elif defined(__GLIBC__)
    held[RESOURCE_HEAP] = (long long)((unsigned)mallinfo().uordblks + (unsigned)mallinfo().hblkhd);
#endif
}

/* ---- Calls ---- */

enum {
    MAX_CALLS = 1000,
    MIN_CALLS = 80,
    NUM_STRETCHES = 4,
    WARMUP_CALLS = 20,
    MEASURE_REPEATS = 10,
    FAILING_CALLS = 48,
    MAX_FAILING_ALLOCATIONS = 64,
    MAX_ELEMENTS = 4096,
    MAX_HOLDING_CASES = 16,
    /* most elements of a case that counts as large; MAX_LARGE_CASES: number of such cases that are tried */
    MAX_LARGE_ELEMENTS = 40000,
    MAX_LARGE_CASES = 12,
    /* a large case is tried if it has at most FAILING_STEP times the elements of the largest case with quick calls: a kernel's
       time may grow by the square */
    FAILING_STEP = 4
};
static const double CALLS_SECONDS = 0.02; /* processor time in seconds for the repeated calls of a case */
static const double FAILING_SECONDS = 1;  /* processor time in seconds for the calls of a case with failing allocations */

/* Returns the processor time of this thread, in seconds. */
static double leaks_get_thread_cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Makes the same call ncalls times. */
static void leaks_call_repeatedly(check_unguarded_call *call, int ncalls)
{
    while (ncalls-- > 0)
        check_unguarded_call_run(call);
}

/* Returns how many calls a stretch may have within CALLS_SECONDS, which some warm-up calls measure. */
static int leaks_measure_calls_per_stretch(check_unguarded_call *call)
{
    const double begin = leaks_get_thread_cpu_seconds();
    leaks_call_repeatedly(call, WARMUP_CALLS);
    const double seconds_per_call = (leaks_get_thread_cpu_seconds() - begin) / WARMUP_CALLS,
                 ncalls = seconds_per_call > 0 ? CALLS_SECONDS / seconds_per_call : MAX_CALLS;
    return (ncalls > MAX_CALLS ? MAX_CALLS : ncalls < MIN_CALLS ? MIN_CALLS : (int)ncalls) / NUM_STRETCHES;
}

/* Fails the job if the process holds more of some resource after each of NUM_STRETCHES stretches of calls. calls_per_stretch 0:
 * as many as the time allows. */
static void leaks_check_growth(check_job *job, check_unguarded_call *call, int calls_per_stretch)
{
    long long at[NUM_STRETCHES + 1][NUM_RESOURCES];
    if (calls_per_stretch)
        leaks_call_repeatedly(call, WARMUP_CALLS);
    else
        calls_per_stretch = leaks_measure_calls_per_stretch(call);
    for (int i = 0; i < MEASURE_REPEATS; i++) /* the measurement itself uses malloc(), which keeps some freed memory */
        leaks_read_resources(at[0]);
    for (int i = 0; i < NUM_STRETCHES; i++) {
        leaks_call_repeatedly(call, calls_per_stretch);
        leaks_read_resources(at[i + 1]);
    }
    for (int k = 0; k < NUM_RESOURCES; k++) {
        bool grows = true;
        for (int i = 0; i < NUM_STRETCHES; i++)
            grows = grows && at[i + 1][k] - at[i][k] >= (k == RESOURCE_HEAP ? calls_per_stretch : calls_per_stretch / 2);
        if (grows)
            check_fail(job, resource_names[k], "%s leak: ever more are held, call after call%s", resource_names[k],
                call->status ? ", when it fails" : "");
    }
}

/* True if the process holds more of some resource after a second call than after the first. Makes two calls. */
static bool leaks_second_call_holds_more(check_unguarded_call *call)
{
    long long before[NUM_RESOURCES], after[NUM_RESOURCES];
    bool holds_more = false;
    check_unguarded_call_run(call);
    for (int i = 0; i < 2; i++)
        leaks_read_resources(before);
    check_unguarded_call_run(call);
    leaks_read_resources(after);
    for (int k = 0; k < NUM_RESOURCES; k++)
        holds_more |= after[k] > before[k];
    return holds_more;
}

/* ---- Failing allocations ---- */

/* Makes one allocation of the host, or with fails_malloc one malloc() of the kernel, fail in repeated calls. Fails the job if the
 * call then gives another result, an error without a message, a result besides an error, or a leak. expected: outputs without a
 * failure. */
static void leaks_check_failing_allocation(
    check_job *job, check_unguarded_call *call, size_t allocation_number, bool fails_malloc, const check_outputs *expected)
{
    static check_outputs now;
    char words[300];
    const char *what = fails_malloc ? "malloc()" : "an allocation";
    call->failing_allocation = fails_malloc ? 0 : allocation_number;
    call->failing_malloc = fails_malloc ? allocation_number : 0;
    snprintf(job->result->fault_condition, sizeof job->result->fault_condition, "when %s fails",
        fails_malloc ? "its malloc()" : "one of its allocations");
    check_unguarded_call_run(call);
    if (!call->status) {
        check_outputs_copy(&now, job->op, call->c, call->results, call->values.tensors);
        if (!job->op->is_nondeterministic && check_outputs_differ(job->op, expected, &now, words, sizeof words))
            check_fail(job, "failed allocation", "%s fails, the call succeeds, and its result is another: %s", what, words);
    } else if (!*dv_last_error() || (call->status != DV_ENOMEM && strstr(dv_last_error(), "and no message"))) {
        check_fail(job, "failed allocation", "%s fails, and the error says nothing: %s", what, dv_last_error());
    }
    for (size_t r = 0; r < job->op->nresults; r++)
        if (call->status && call->results[r].type != DV_VALUE_DEFAULT)
            check_fail(job, "failed allocation", "%s fails, and a result is given all the same", what);
    if (job->result->outcome == CHECK_OUTCOME_PASS && call->status)
        leaks_check_growth(job, call, FAILING_CALLS / NUM_STRETCHES);
}

/* Makes each allocation of the host and each malloc() of a call fail in turn, up to 64 of each and for at most FAILING_SECONDS.
 */
static void leaks_check_failing_allocations(check_job *job, check_unguarded_call *call)
{
    static check_outputs expected;
    call->counts_mallocs = true;
    check_unguarded_call_run(call);
    if (call->status || call->is_incomplete)
        return;
    check_outputs_copy(&expected, job->op, call->c, call->results, call->values.tensors);
    const size_t n = call->allocations, nmallocs = call->mallocs;
    const double until = leaks_get_thread_cpu_seconds() + FAILING_SECONDS;
    job->result->also_reported_faults = CHECK_FAULT_CRASH | CHECK_FAULT_TIMEOUT;
    for (size_t i = 1; i <= n && i <= MAX_FAILING_ALLOCATIONS && job->result->outcome == CHECK_OUTCOME_PASS &&
        leaks_get_thread_cpu_seconds() < until;
        i++)
        leaks_check_failing_allocation(job, call, i, false, &expected);
    for (size_t i = 1; i <= nmallocs && i <= MAX_FAILING_ALLOCATIONS && job->result->outcome == CHECK_OUTCOME_PASS &&
        leaks_get_thread_cpu_seconds() < until;
        i++)
        leaks_check_failing_allocation(job, call, i, true, &expected);
    call->failing_allocation = call->failing_malloc = 0;
    job->result->also_reported_faults = 0;
}

/* Traits of a case that may select another path through a kernel. One case with each set of traits is repeated, and several
 * without any. */
enum case_traits { CASE_REFUSED = 1, CASE_EMPTY = 2, CASE_NONE = 4, CASE_STRIDED = 8, NUM_CASE_TRAITS = 16 };
/* Returns the traits of a case, as bits of enum case_traits. */
static uint32_t leaks_get_case_traits(const check_case *c, bool is_refused)
{
    uint32_t traits = is_refused ? CASE_REFUSED : 0;
    for (size_t i = 0; i < c->ntensors; i++)
        traits |= !c->tensors[i].present          ? CASE_NONE
            : !check_tensor_numel(&c->tensors[i]) ? CASE_EMPTY
            : c->tensors[i].layout                ? CASE_STRIDED
                                                  : 0;
    return traits & CASE_EMPTY ? traits & ~(uint32_t)CASE_STRIDED : traits;
}

/* Fails the job if the kernel refuses contents that a fact forbids, and repeated calls with these contents leak. Runs in a forked
 * process, since such a kernel may crash. */
static void leaks_check_forbidden_contents(check_job *job, const check_case *c)
{
    static check_guarded_call call;
    static check_unguarded_call repeated_call;
    call = (check_guarded_call){ .op = job->op, .kernel = job->kernel, .poison_byte = 0xa5 };
    check_guarded_call_run(&call, c); /* what crashes, crashes here */
    if (call.status && call.kernel_ran && check_unguarded_call_try_init(&repeated_call, job->op, job->kernel, c))
        leaks_check_growth(job, &repeated_call, 0);
}

/* Calls the kernel with one element that is NaN or an infinity, which may select another path through it. Repeats the call if the
 * kernel did not free a block, and fails the job if the repeated calls leak. */
static void leaks_check_lone_special(check_job *job, const check_case *c)
{
    static check_case lone_special_case;
    static check_guarded_call call;
    static check_unguarded_call repeated_call;
    static uint32_t nholding_cases;
    if (!check_try_make_lone_special_case(job->op, c, &lone_special_case))
        return;
    check_set_current_case(job, &lone_special_case);
    call = (check_guarded_call){ .op = job->op, .kernel = job->kernel, .poison_byte = 0xa5 };
    const size_t before = check_heap_count_live_blocks();
    check_guarded_call_run(&call, &lone_special_case);
    if (check_heap_count_live_blocks() > before && nholding_cases++ < MAX_HOLDING_CASES &&
        check_unguarded_call_try_init(&repeated_call, job->op, job->kernel, &lone_special_case))
        leaks_check_growth(job, &repeated_call, 0);
    if (job->result->outcome == CHECK_OUTCOME_PASS)
        check_set_current_case(job, c);
}

/* Checks one case: repeated calls, failing allocations, and special and forbidden contents must leak nothing. Cases like earlier
 * ones, and cases with slow calls, are not repeated. */
static void leaks_test_case(check_job *job, const check_case *c)
{
    static check_guarded_call call;
    static check_unguarded_call repeated_call;
    enum { MAX_FORBIDDEN_CASES = 3 };
    static uint32_t nrepeated[NUM_CASE_TRAITS], nholding_cases, nlarge, nheavy, nforbidden; /* numbers of cases */
    const bool is_shrinking = !job->result->tried_cases;
    if (c->is_invalid) { /* a case with forbidden contents, which is being shrunk */
        if (check_classify_case(job->op, c) == CHECK_VERDICT_BAD_CONTENTS)
            check_try_run_isolated(job, c, leaks_check_forbidden_contents);
        return;
    }
    if (check_case_max_numel(c) > MAX_ELEMENTS && !is_shrinking) {
        static int64_t max_quick_elements = MAX_ELEMENTS; /* number of elements of the largest case so far with quick calls */
        const double begin = leaks_get_thread_cpu_seconds();
        const int64_t numel = check_case_max_numel(c);
        if (numel > MAX_LARGE_ELEMENTS || numel > FAILING_STEP * max_quick_elements || nlarge++ >= MAX_LARGE_CASES ||
            !check_unguarded_call_try_init(&repeated_call, job->op, job->kernel, c))
            return;
        if (leaks_second_call_holds_more(&repeated_call) && nholding_cases++ < MAX_HOLDING_CASES)
            leaks_check_growth(job, &repeated_call, 0);
        if (leaks_get_thread_cpu_seconds() - begin < CALLS_SECONDS && numel > max_quick_elements)
            max_quick_elements = numel;
        return;
    }
    call = (check_guarded_call){ .op = job->op, .kernel = job->kernel, .poison_byte = 0xa5 };
    const double begin = leaks_get_thread_cpu_seconds();
    const size_t before = check_heap_count_live_blocks();
    check_guarded_call_run(&call, c); /* what crashes, crashes here */
    const bool is_slow = leaks_get_thread_cpu_seconds() - begin > CALLS_SECONDS,
               is_heavy = leaks_get_thread_cpu_seconds() - begin > CALLS_SECONDS / 16 &&
        nheavy++<WARMUP_CALLS, has_new_blocks = check_heap_count_live_blocks()> before && nholding_cases++ < MAX_HOLDING_CASES;
    if (call.kernel_declined) {
        job->result->tried_cases--;
        return;
    }
    if (call.status)
        check_count_refusal(job);
    if (!is_slow && !is_shrinking)
        leaks_check_lone_special(job, c);
    if (job->result->outcome != CHECK_OUTCOME_PASS)
        return;
    const uint32_t traits = leaks_get_case_traits(c, call.status);
    if (is_slow)
        check_set_omitted(job, "calls that take longer than 20 ms, which were not repeated");
    if (is_slow || (is_heavy && !has_new_blocks && !is_shrinking) ||
        (nrepeated[traits] > !traits && !is_shrinking && !has_new_blocks) ||
        !check_unguarded_call_try_init(&repeated_call, job->op, job->kernel, c))
        return;
    nrepeated[traits]++;
    leaks_check_growth(job, &repeated_call, 0);
    if (job->result->outcome == CHECK_OUTCOME_PASS)
        leaks_check_failing_allocations(job, &repeated_call);
    if (!call.status && !(traits & CASE_EMPTY) && nforbidden < MAX_FORBIDDEN_CASES)
        nforbidden += check_try_run_forbidden_isolated(job, c, leaks_check_forbidden_contents);
}

const check_property check_property_leaks = {
    .name = "leaks",
    .description = "what calls take, they give back, also those that fail; a failing allocation is an error and no crash",
    .per_kernel = true,
    .test_case = leaks_test_case,
    .is_unchecked_if_kernel_unsound = true,
};
