/* Loops of dv_parallel_for() (property parallel): order of their chunks, numbers of threads, and cases so large that a loop has
 * several chunks. */
#include <time.h>

#include "parallel.h"

enum { MAX_RACED_CASES = 3, MIN_SHARED_STEPS = 2000 };

/* Runs each step of a loop as a chunk, from the last step to the first (function for dv_host.parallel_for). Stops at the first
 * error, and returns its status. */
static int parallel_loops_run_in_reverse(
    const dv_host *host, int64_t begin, int64_t end, int64_t grain, dv_range_fn fn, void *arg)
{
    (void)host;
    (void)grain;
    for (int64_t i = end; i-- > begin;) {
        const int status = fn(arg, i, i + 1);
        if (status)
            return status;
    }
    return DV_OK;
}

/* Checks that results stay the same up to rounding if chunks run in reverse order, and if a kernel with .split is called once for
 * the whole call. first_outputs: outputs of the ordinary call. */
static void parallel_loops_check_chunk_order(check_job *job, const check_case *c, const check_outputs *first_outputs)
{
    static check_outputs other;
    char words[300], *condition = job->result->fault_condition;
    check_parallel_report_faults_here(job);
    snprintf(condition, sizeof job->result->fault_condition, "when its chunks run in reverse order");
    if (check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, parallel_loops_run_in_reverse, false, &other) &&
        check_outputs_differ_unordered(job->op, c, first_outputs, &other, words, sizeof words))
        check_fail(job, "order of chunks",
            "the result depends on the order in which threads take the chunks of a parallel loop: %s", words);
    snprintf(condition, sizeof job->result->fault_condition, "when the kernel is not split at multiples of .split");
    if (!check_parallel_has_failed(job) && job->kernel->split && !job->op->is_nondeterministic &&
        check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, true, &other) &&
        check_outputs_differ_unordered(job->op, c, &other, first_outputs, words, sizeof words))
        check_fail(job, "split differs",
            "the kernel says .split = %lld, and split at multiples of this grain it gives another result than whole: %s",
            (long long)job->kernel->split, words);
    job->result->also_reported_faults = 0;
}

/* Checks that results on 2 and on 4 threads are the same as first_outputs, those on one thread, up to rounding. Memory that
 * chunks share without a lock shows only by chance. */
static void parallel_loops_check_thread_counts(check_job *job, const check_case *c, const check_outputs *first_outputs)
{
    static check_outputs other;
    char words[300], *condition = job->result->fault_condition;
    if (check_parallel_has_failed(job))
        return;
    check_parallel_report_faults_here(job);
    for (int threads = 2; threads <= NUM_THREADS && !check_parallel_has_failed(job); threads *= 2) {
        dv_set_threads(threads);
        snprintf(condition, sizeof job->result->fault_condition, "when its chunks run on %d threads", threads);
        if (check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &other) &&
            check_outputs_differ_unordered(job->op, c, first_outputs, &other, words, sizeof words))
            check_fail(job, "number of threads", "on %d threads the result is not the same as on one: %s", threads, words);
    }
    dv_set_threads(1);
    job->result->also_reported_faults = 0;
}

void check_parallel_loops(check_job *job, const check_case *c, const check_outputs *first_outputs, bool finds_races)
{
    static int nraced_cases;
    parallel_loops_check_chunk_order(job, c, first_outputs);
    if (!check_parallel_has_failed(job) && finds_races && nraced_cases++ < MAX_RACED_CASES &&
        check_parallel_get_forks_cpu_seconds() < MAX_RACE_SECONDS && check_parallel_has_chunk_race(job, c))
        check_fail(job, "chunks race",
            "chunks of a parallel loop share memory that they change without a lock: the result is another when the other chunks "
            "run before an instruction of the first, or inside one that reads and writes");
    parallel_loops_check_thread_counts(job, c, first_outputs);
}

/* ---- Larger cases ---- */

bool check_parallel_try_make_large_case(const check_job *job, const check_case *c, check_case *out)
{
    const check_json *parallel = check_json_find_member(job->op->contract, "parallel"), *fact = parallel ? parallel->child : NULL;
    const check_json *places = check_json_find_member(job->op->contract, "places");
    for (const check_json *fact_case = places ? places->child : NULL; fact && !check_parallel_fact_applies(c, fact_case);
        fact_case = fact_case->next)
        fact = fact->next;
    const check_name *name = fact ? check_parallel_find_fact_name(job->op, fact) : job->op->nnames ? &job->op->names[0] : NULL;
    for (size_t k = 0; k < job->op->nnames && !fact; k++)
        if (job->op->names[k].kind == CHECK_NAME_VARIADIC && name->kind != CHECK_NAME_VARIADIC)
            name = &job->op->names[k];
    const int64_t wanted_size = job->kernel->split ? 5 * job->kernel->split / 2 + 3 : MIN_SHARED_STEPS;
    *out = *c;
    if (!name || name->kind == CHECK_NAME_DTYPE || (!fact && check_case_max_numel(c) > MIN_SHARED_STEPS / 4))
        return false;
    const bool is_variadic = name->kind == CHECK_NAME_VARIADIC;
    int64_t steps = 1, *sizes = check_name_find_sizes(name, out);
    for (int32_t k = 1; is_variadic && k < c->names.variadics[name->value_index].ndim; k++)
        steps *= sizes[k];
    if (!steps || (is_variadic && !c->names.variadics[name->value_index].ndim) || *sizes * steps > wanted_size)
        return false;
    *sizes = wanted_size / steps + 1;
    return check_try_fit_case(job->op, out, c, NULL) && check_estimate_work(job->op, out) <= MAX_WORK &&
        check_is_accepted(job->op, out);
}

/* Returns `out`, a copy of the case in which one size is multiplied by `factor`, plus 1. size_index: index of a name of the
 * contract, or the number of names plus an int argument's slot. NULL: the case has no such size, or the copy is not accepted. */
static const check_case *parallel_loops_find_case_with_multiplied_size(
    const check_job *job, const check_case *c, size_t size_index, int64_t factor, check_case *out)
{
    const check_name *name = size_index < job->op->nnames ? &job->op->names[size_index] : NULL;
    const size_t slot = size_index - job->op->nnames;
    *out = *c;
    int64_t *size = name ? check_name_find_sizes(name, out) : c->args[slot].type == DV_VALUE_INT ? &out->args[slot].as.i : NULL;
    const bool is_missing = name &&
        (!c->names.is_bound[size_index] || (name->kind == CHECK_NAME_VARIADIC && !c->names.variadics[name->value_index].ndim));
    if (!size || is_missing || *size < 1 || *size > MAX_WORK / factor)
        return NULL;
    *size = *size * factor + 1;
    return check_try_fit_case(job->op, out, c, NULL) && check_estimate_work(job->op, out) <= MAX_WORK &&
            check_is_accepted(job->op, out)
        ? out
        : NULL;
}

/* Copies a case to `out` so large that this loop of the kernel has several chunks. The loop's steps may be as many as a size, or
 * grow more slowly. Returns false if no such case was found. */
static bool parallel_loops_try_make_chunked_case(
    const check_job *job, const check_case *c, const check_loop *loop, check_case *out)
{
    enum {
        SIZE_FACTOR = 16,
        FEW_CHUNKS = 2,
        MANY_CHUNKS = 18,
        ALL_CHUNKS = 258
    }; /* ALL_CHUNKS: more grains than the 256 chunks that the runtime makes of a loop */
    static check_outputs outputs;
    const int64_t grain = loop->grain < MAX_WORK ? loop->grain : MAX_WORK,
                  max_wanted = loop->split_cases > 1 ? FEW_CHUNKS
        : loop->split_cases                          ? ALL_CHUNKS
                                                     : MANY_CHUNKS;
    /* few chunks are tried last: each of them may have a buffer of its own */
    for (int64_t wanted = max_wanted; wanted; wanted = wanted > FEW_CHUNKS ? FEW_CHUNKS : 0)
        for (int64_t factor = wanted * grain / loop->steps + 1; factor <= MAX_WORK; factor *= SIZE_FACTOR)
            for (size_t size_index = 0; size_index < job->op->nnames + c->nargs; size_index++)
                if (parallel_loops_find_case_with_multiplied_size(job, c, size_index, factor, out) &&
                    check_parallel_try_call_kernel(job, out, CHECK_GUARD_AFTER, NULL, false, &outputs) &&
                    check_parallel_loop_has_several_chunks(loop))
                    return true;
    return false;
}

const check_case *check_parallel_find_chunked_case(const check_job *job, const check_case *c, check_case *out)
{
    enum { MAX_SPLIT_CASES = 3, MAX_SPLIT_ATTEMPTS = 12, MAX_SPLIT_CLOCKS = CLOCKS_PER_SEC / 4 };
    static clock_t spent;
    const clock_t begin = clock();
    bool is_made = false;
    for (check_loop *loop = check_parallel_calls.result->loops;
        loop < check_parallel_calls.result->loops + CHECK_MAX_LOOPS && loop->fn && !is_made; loop++)
        is_made = loop->last_case == check_parallel_calls.result->tried_cases && loop->last_split_case != loop->last_case &&
            loop->split_cases < MAX_SPLIT_CASES && spent < MAX_SPLIT_CLOCKS && loop->split_attempts++ < MAX_SPLIT_ATTEMPTS &&
            parallel_loops_try_make_chunked_case(job, c, loop, out);
    spent += clock() - begin;
    return is_made ? out : NULL;
}

bool check_parallel_has_unchunked_loop(void)
{
    bool any = false;
    for (size_t i = 0; check_parallel_calls.result && i < CHECK_MAX_LOOPS; i++)
        any |= check_parallel_calls.result->loops[i].fn && !check_parallel_calls.result->loops[i].split_cases &&
            !check_parallel_calls.result->loops[i].never_had_two_steps;
    return any;
}
