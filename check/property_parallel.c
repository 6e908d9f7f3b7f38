/* Property parallel: the facts of the contract about slices and threads hold, and the results of a call depend on its arguments
 * only.
 *
 * In this order, for each case:
 * - If the operator writes to static memory: a call after one with another argument, each in a new process.
 * - Guarded calls: other contents at the same addresses; the case; the case at other addresses; the case again. The second and
 *   the last are the same call, so their bits are equal unless the operator keeps state.
 * - The chunks of parallel loops in reverse order, which shows a sum without a lock; then 2 and 4 threads.
 * - Unguarded calls of slices along `parallel` dims, and of partitions of `sum` dims.
 * - The other chunks of a loop between the instructions of the first; a call of another thread during the first call of a
 *   process; a call of another thread between the instructions of a call.
 * - Four threads at once, each with its own data, while a fifth pauses them in turn. */
#include <errno.h>

#include "parallel.h"

enum { MAX_STRESSED_CASES = 4, NUM_GROWN_CASES = 2 };

/* Checks that a call made again gives the same bits, also with another errno, and at other addresses the same values up to
 * rounding. first_outputs: outputs of the call made before. */
static void parallel_check_repeated_calls(check_job *job, const check_case *c, const check_outputs *first_outputs)
{
    static check_outputs elsewhere, last, repeated;
    char words[300];
    if (!check_parallel_try_call_kernel(job, c, CHECK_GUARD_BEFORE, check_parallel_run_loop_as_one_chunk, false, &elsewhere) ||
        !check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &last))
        return;
    if (check_outputs_differ(job->op, first_outputs, &last, words, sizeof words)) {
        const bool is_repeatable = check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &repeated) &&
            !check_outputs_differ(job->op, &last, &repeated, words, sizeof words);
        check_outputs_differ(job->op, first_outputs, &last, words, sizeof words);
        if (is_repeatable)
            check_fail(job, "keeps state",
                "the same call gives another result after other calls, so something is kept from call to call: %s", words);
        else
            check_fail(job, "not deterministic",
                "the same call made again gives another result, and no tag says nondeterministic: %s", words);
    } else if (check_outputs_differ_beyond_rounding(job->op, first_outputs, &elsewhere, words, sizeof words)) {
        check_fail(job, "depends on addresses", "the same arguments at other addresses give another result: %s", words);
    }
    if (check_parallel_has_failed(job))
        return;
    check_parallel_calls.initial_errno = ERANGE;
    if (!check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &repeated))
        check_fail(job, "depends on errno", "the call fails when errno is not 0 before it: %s", dv_last_error());
    else if (check_outputs_differ(job->op, &last, &repeated, words, sizeof words))
        check_fail(job, "depends on errno", "another errno before the call gives another result: %s", words);
    check_parallel_calls.initial_errno = 0;
}

/* Checks that results do not depend on what chunks of another call, that of preceding_case, left in scratch. first_outputs: what
 * the call gives without this. Does nothing if the kernel uses no scratch. */
static void parallel_check_scratch_contents(
    check_job *job, const check_case *preceding_case, const check_case *c, const check_outputs *first_outputs)
{
    static check_outputs other;
    char words[300];
    if (check_parallel_has_failed(job) || !check_parallel_calls.allocated_scratch)
        return;
    check_parallel_calls.reuse_scratch = true;
    check_parallel_try_call_kernel(job, preceding_case, CHECK_GUARD_AFTER, check_parallel_run_loop_as_one_chunk, false, &other);
    if (check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, check_parallel_run_loop_as_one_chunk, false, &other) &&
        check_outputs_differ(job->op, first_outputs, &other, words, sizeof words))
        check_fail(job, "used scratch",
            "the result depends on what a chunk of another call left in the memory of dv_parallel_scratch(), which holds "
            "anything at first: %s",
            words);
    check_parallel_calls.reuse_scratch = false;
}

/* Returns what no case of this kernel checked, such as the order of chunks. NULL: everything was checked. */
static const char *parallel_find_incomplete_reason(const check_op *op, const check_kernel *kernel)
{
    return op->is_nondeterministic && check_parallel_has_generator(op) && !check_parallel_calls.used_given_generator
        ? "no case took random numbers of the Generator that is given (its slices in another order and on more threads passed)"
        : op->is_nondeterministic
        ? "it is nondeterministic (only the random numbers that it takes were looked at, and its slices in another "
          "order and on more threads)"
        : check_parallel_has_unchunked_loop()
        ? "no case had two chunks of a loop of dv_parallel_for(), so their order was not looked at (all else passed)"
        : kernel->split && check_parallel_calls.result && !check_parallel_calls.result->ran_loop_in_chunks
        ? "no case was so large that its .split cuts it, so the order of slices was not looked at (all else passed)"
        : NULL;
}

/* Checks a copy of the case that is so large that its loops have several chunks: their order, races and random numbers. Does
 * nothing if no loop needs such a copy, or none can be made. */
static void parallel_check_larger_loops(check_job *job, const check_case *input_case)
{
    static check_case original_case, large_case;
    static check_outputs first_outputs;
    original_case = *input_case;
    if (!check_parallel_find_chunked_case(job, &original_case, &large_case))
        return;
    check_set_current_case(job, &large_case);
    if (job->op->is_nondeterministic)
        check_parallel_random(job, &large_case);
    else if (check_parallel_try_call_kernel(job, &large_case, CHECK_GUARD_AFTER, NULL, false, &first_outputs))
        check_parallel_loops(job, &large_case, &first_outputs, true);
    if (!check_parallel_has_failed(job))
        check_set_current_case(job, &original_case);
}

/* Checks one case, in the order that the head comment of this file lists. */
static void parallel_test_case(check_job *job, const check_case *input_case)
{
    static check_case before, larger_case;
    static check_outputs first_outputs;
    static bool any_writes_static_memory;
    const check_case *c = input_case;
    const uint32_t case_number =
        job->result->tried_cases; /* number of cases tried so far; 0 while a failing case is being shrunk */
    const double slow = job->plan ? job->plan->min_slow_work : 0;
    if (case_number > 1 && case_number <= 1 + NUM_GROWN_CASES &&
        check_parallel_try_make_large_case(job, input_case, &larger_case) &&
        (slow <= 0 || check_estimate_work_with_ints(job->op, &larger_case) < slow / 2)) {
        c = &larger_case;
        check_set_current_case(job, c);
    }
    if (job->op->is_nondeterministic) {
        check_parallel_calls.has_called_kernel = true;
        check_parallel_random(job, c);
        if (case_number && !check_parallel_has_failed(job))
            parallel_check_larger_loops(job, c);
        return;
    }
    const bool writes_static_memory = case_number <= 1 &&
        check_parallel_is_true_in_fork(job, c, check_parallel_first_call_writes_static_memory),
               has_first_call_race = writes_static_memory && check_parallel_has_any_first_call_race(job, c);
    any_writes_static_memory |= writes_static_memory;
    if (writes_static_memory)
        check_parallel_state(job, c);
    if (check_parallel_has_failed(job))
        return;
    check_parallel_calls.has_called_kernel = true;
    before = *c;
    before.seed ^= 0x5555;
    check_parallel_try_call_kernel(job, &before, CHECK_GUARD_AFTER, NULL, false, &first_outputs);
    if (!check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &first_outputs)) {
        static check_guarded_call call; /* why */
        call = (check_guarded_call){ .op = job->op, .kernel = job->kernel, .poison_byte = POISON_BYTE };
        check_guarded_call_run(&call, c);
        if (call.kernel_declined)
            job->result->tried_cases--;
        else if (call.status)
            check_count_refusal(job);
        return;
    }
    check_parallel_calls.max_loop_steps = 0;
    parallel_check_repeated_calls(job, c, &first_outputs);
    parallel_check_scratch_contents(job, &before, c, &first_outputs);
    if (case_number && any_writes_static_memory && !check_parallel_has_failed(job))
        check_parallel_first_case_again(job, case_number, c);
    if (check_parallel_calls.max_loop_steps > 1 && !check_parallel_has_failed(job))
        check_parallel_loops(job, c, &first_outputs, true);
    if (!check_parallel_has_failed(job) && check_parallel_has_no_special_values(c))
        check_parallel_facts(job, c);
    if (!check_parallel_has_failed(job) && case_number <= MAX_STRESSED_CASES) {
        check_parallel_simultaneous_calls(job, c);
        if (!check_parallel_has_failed(job) &&
            (!case_number || case_number == (job->max_cases < MAX_STRESSED_CASES ? job->max_cases : MAX_STRESSED_CASES)))
            check_parallel_threads_with_other_arguments(job, c);
    }
    if (!check_parallel_has_failed(job) && has_first_call_race) {
        check_fail(job, "first calls race",
            "in a new process another thread called it during the first call, and a result is not the one that the same call "
            "gives later: what the first call makes is used before it is made, or taken away while it is used");
    }
    if (case_number && !check_parallel_has_failed(job))
        parallel_check_larger_loops(job, c);
}

const check_property check_property_parallel = {
    .name = "parallel",
    .description =
        "slices and sums are what is declared; a result depends neither on earlier calls nor on addresses nor on threads",
    .per_kernel = true,
    .test_case = parallel_test_case,
    .find_incomplete_reason = parallel_find_incomplete_reason,
    .is_unchecked_if_kernel_unsound = true,
};
