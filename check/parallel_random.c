/* Random numbers of a nondeterministic operator (property parallel). */
#include <math.h>
#include <string.h>

#include "parallel.h"

/* Copies a case to `out` with real elements drawn from [low, high]. Returns false if the contract has facts on contents, or
 * refuses the copy. */
static bool parallel_random_try_make_case_with_contents_range(
    const check_job *job, const check_case *c, double low, double high, check_case *out)
{
    *out = *c;
    for (size_t i = 0; i < out->ntensors; i++)
        if (!check_is_integer_dtype(out->tensors[i].dtype)) {
            out->tensors[i].fill = CHECK_FILL_RANDOM;
            out->tensors[i].low = low;
            out->tensors[i].high = high;
        }
    return !job->op->has_element_facts && check_is_accepted(job->op, out);
}

/* True if no int or float argument is negative. False, too, if an argument is a list of floats or scalars, which is not examined.
 */
static bool parallel_random_has_no_negative_number(const check_case *c)
{
    bool none = true;
    for (size_t i = 0; i < c->nargs; i++)
        none &= !(c->args[i].type == DV_VALUE_FLOAT && c->args[i].as.f < 0) &&
            !(c->args[i].type == DV_VALUE_INT && c->args[i].as.i < 0) && c->args[i].type != DV_VALUE_FLOATS &&
            c->args[i].type != DV_VALUE_SCALARS;
    return none;
}

/* True if results change, or the call is refused, with another seed of dv_random(). first_outputs: outputs with the current seed.
 */
static bool parallel_random_depends_on_seed(const check_job *job, const check_case *c, const check_outputs *first_outputs)
{
    static check_outputs other;
    char words[300];
    check_parallel_calls.random_seed++;
    const bool differs = !check_parallel_try_call_kernel(
                             job, c, CHECK_GUARD_AFTER, check_parallel_run_loop_as_one_chunk, false, &other) ||
        check_outputs_differ(job->op, first_outputs, &other, words, sizeof words);
    check_parallel_calls.random_seed--;
    return differs;
}

static check_outputs first_call_outputs, second_call_outputs; /* outputs of two calls */

/* True if first_call_outputs and second_call_outputs both have this result, with the same number of elements of at least 8 bits.
 */
static bool parallel_random_has_comparable_result(size_t result_index)
{
    return result_index < first_call_outputs.noutputs && result_index < second_call_outputs.noutputs &&
        !first_call_outputs.is_incomplete && !second_call_outputs.is_incomplete &&
        first_call_outputs.items[result_index].t.dtype.bits >= 8 &&
        dv_numel(&first_call_outputs.items[result_index].t) == dv_numel(&second_call_outputs.items[result_index].t);
}

/* Returns the index from which on `output` repeats the beginning of `repeated`, up to its own end. If both are the same output:
 * an index i such that the i / 2 elements from i on repeat the first ones. -1: no index. *hash: hash of the repeated
 * elements. */
static int64_t parallel_random_find_repetition(const check_output *output, const check_output *repeated, uint64_t *hash)
{
    enum { MAX_COMPARED_ELEMENTS = 1 << 16, MIN_CHANGES = 24 };
    const int64_t all = dv_numel(&output->t), n = all < MAX_COMPARED_ELEMENTS ? all : MAX_COMPARED_ELEMENTS,
                  size = dv_dtype_bytes(output->t.dtype, 1);
    const char *x = output->t.data, *y = repeated->t.data;
    int64_t least = 1;
    for (int changes = 0; least < n && changes < MIN_CHANGES; least++) /* equal elements are not random */
        changes += memcmp(y + least * size, y + (least - 1) * size, (size_t)size) != 0;
    for (int64_t from = output == repeated ? 2 * least : 0; least < n; from++) {
        const int64_t in = output == repeated ? from / 2 : n - from;
        if (in < least || from + in > n)
            break;
        if (memcmp(x + from * size, y, (size_t)(in * size)))
            continue;
        *hash = 0;
        for (int64_t i = 0; i < in * size; i++)
            *hash = (*hash ^ (unsigned char)y[i]) * UINT64_C(0x100000001b3);
        return from;
    }
    return -1;
}

/* Returns the index from which on a result repeats the beginning of the same result of the next call, up to the end. -1: it does
 * not. *hash: hash of the repeated elements. */
static int64_t parallel_random_find_reuse_in_next_call(
    const check_job *job, const check_case *c, size_t result_index, uint64_t *hash)
{
    bool is_accepted = check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &first_call_outputs);
    check_parallel_calls.continue_random = true;
    is_accepted = is_accepted && check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &second_call_outputs);
    check_parallel_calls.continue_random = false;
    return is_accepted && parallel_random_has_comparable_result(result_index)
        ? parallel_random_find_repetition(&first_call_outputs.items[result_index], &second_call_outputs.items[result_index], hash)
        : -1;
}

/* Returns an index i such that the i / 2 elements of a result from i on repeat the first ones, though not when its loop has one
 * chunk. -1: there is none. *hash: hash of the repeated elements. */
static int64_t parallel_random_find_reuse_in_other_chunk(
    const check_job *job, const check_case *c, size_t result_index, uint64_t *hash)
{
    const bool is_accepted = check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, true, &second_call_outputs) &&
        check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &first_call_outputs);
    const int64_t from = is_accepted && parallel_random_has_comparable_result(result_index)
        ? parallel_random_find_repetition(&first_call_outputs.items[result_index], &first_call_outputs.items[result_index], hash)
        : -1;
    if (from < 0)
        return -1;
    const int64_t size = dv_dtype_bytes(second_call_outputs.items[result_index].t.dtype, 1);
    const char *uncut_data = second_call_outputs.items[result_index].t.data;
    return memcmp(uncut_data, uncut_data + from * size, (size_t)(from / 2 * size)) ? from : -1;
}

/* Returns the index that find_reuse() finds in a result for all of up to 32 seeds; -1: for some seed another one or none. Of
 * independent numbers each order is equally likely, so the chance of a coincidence is one in the number of orders. */
static int64_t parallel_random_find_stable_reuse(const check_job *job, const check_case *c, size_t result_index,
    int64_t (*find_reuse)(const check_job *, const check_case *, size_t, uint64_t *))
{
    enum { NUM_SEEDS = 32, MAX_CONSTANT_SEEDS = 4 };
    static const double max_chance = 1e-18; /* so small because a repetition may begin at any element */
    check_random random = { 1 };
    uint64_t hashes[NUM_SEEDS] = { 0 };
    double chance = 1;
    int64_t from = -1;
    for (int k = 0; k < NUM_SEEDS && chance > max_chance && !(k == MAX_CONSTANT_SEEDS && chance >= 1); k++) {
        int nequal = 1;
        check_parallel_calls.random_seed = check_random_next(&random);
        const int64_t position = find_reuse(job, c, result_index, &hashes[k]);
        if (position < 0 || (k && position != from))
            break;
        from = position;
        for (int i = 0; i < k; i++)
            nequal += hashes[i] == hashes[k];
        chance *= (double)nequal / (k + 1);
    }
    check_parallel_calls.random_seed = 1;
    return chance > max_chance ? -1 : from;
}

/* Fails the job if a result is NaN although all real elements are between 0.25 and 2 and no number argument is negative. */
static void parallel_random_check_no_nan(check_job *job, const check_case *c)
{
    static check_case positive_case;
    static check_outputs outputs;
    char where[200];
    if (!parallel_random_has_no_negative_number(c) ||
        !parallel_random_try_make_case_with_contents_range(job, c, 0.25, 2, &positive_case) ||
        !check_parallel_try_call_kernel(job, &positive_case, CHECK_GUARD_AFTER, NULL, false, &outputs))
        return;
    for (size_t k = 0; k < outputs.noutputs && !check_parallel_has_failed(job); k++)
        for (int64_t i = 0, n = dv_numel(&outputs.items[k].t); i < n && !check_parallel_has_failed(job); i++) {
            if (!isnan(check_output_get_number(&outputs.items[k], i, 0)))
                continue;
            check_output_format_element_name(job->op, &outputs.items[k], i, where, sizeof where);
            check_set_current_case(job, &positive_case);
            check_fail(job, "NaN", "all that goes in is between 0.25 and 2, no number is negative, and %s is NaN", where);
        }
}

static bool used_random_numbers; /* true: some call of this process took random numbers, from any Generator */

bool check_parallel_has_generator(const check_op *op)
{
    for (size_t i = 0; i < op->nargs; i++)
        if (op->slots[i].type == DV_FIELD_GENERATOR)
            return true;
    return false;
}

/* Checks that a kernel whose operator has a Generator argument takes its random numbers from the Generator that is given. */
static void parallel_random_check_generator(check_job *job, const check_case *c)
{
    static check_guarded_call call;
    call = (check_guarded_call){ .op = job->op,
        .kernel = job->kernel,
        .guard_side = CHECK_GUARD_AFTER,
        .poison_byte = POISON_BYTE,
        .pass_generator_values = true };
    check_guarded_call_run(&call, c);
    check_parallel_calls.used_given_generator |= call.used_given_generator;
    used_random_numbers |= call.used_given_generator || call.used_default_generator;
    if (call.used_default_generator && check_parallel_has_generator(job->op))
        check_fail(job, "generator",
            "a Generator is given, and the kernel takes random numbers of the default one: it calls dv_random() with NULL in the "
            "place of its argument");
}

/* Checks that neither the next call nor another chunk of a loop uses the random numbers of a call again. */
static void parallel_random_check_offsets(check_job *job, const check_case *c)
{
    static check_case uniform_case;
    const check_case *constant_case = parallel_random_try_make_case_with_contents_range(job, c, 0.7, 0.7, &uniform_case)
        ? &uniform_case
        : c; /* 0.7 is inexact in all float dtypes, so that random rounding shows */
    for (size_t result_index = 0;
        (!result_index || result_index < first_call_outputs.noutputs) && !check_parallel_has_failed(job); result_index++) {
        const int64_t next = parallel_random_find_stable_reuse(
                          job, constant_case, result_index, parallel_random_find_reuse_in_next_call),
                      chunk_position = next < 0 && check_parallel_calls.max_loop_steps > 1
            ? parallel_random_find_stable_reuse(job, constant_case, result_index, parallel_random_find_reuse_in_other_chunk)
            : -1;
        if (!next)
            check_fail(job, "random numbers reused",
                "a call and the next one have the same random numbers, whatever the seed: it does not begin at the offset that "
                "dv_random() gives, or reserves no number");
        else if (next > 0)
            check_fail(job, "random numbers reused",
                "a call and the next one have random numbers in common: what the first gives from element %lld on is what the "
                "next gives from its beginning, so it takes more numbers than it reserves with dv_random()",
                (long long)next);
        else if (chunk_position > 0)
            check_fail(job, "random numbers reused",
                "chunks of a parallel loop have the same random numbers: what a call gives from element %lld on is what it gives "
                "from its beginning, and it is not when the loop is not split",
                (long long)chunk_position);
    }
}

void check_parallel_random(check_job *job, const check_case *c)
{
    static check_outputs first_outputs, repeated;
    char words[300];
    check_parallel_calls.max_loop_steps = 0;
    parallel_random_check_generator(job, c);
    if (!check_parallel_has_failed(job))
        parallel_random_check_no_nan(job, c);
    if (check_parallel_has_failed(job) ||
        !check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, check_parallel_run_loop_as_one_chunk, false, &first_outputs) ||
        !check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, check_parallel_run_loop_as_one_chunk, false, &repeated))
        return;
    const bool is_repeatable = !check_outputs_differ(job->op, &first_outputs, &repeated, words, sizeof words);
    if (!is_repeatable && used_random_numbers && job->op->is_seeded)
        check_fail(job, "not seeded",
            "with the same seed again the same call gives another result, so its random numbers are not those of dv_random() "
            "alone: %s",
            words);
    if (!check_parallel_has_failed(job) && used_random_numbers)
        parallel_random_check_offsets(job, c);
    if (check_parallel_has_failed(job) || !is_repeatable || check_parallel_calls.max_loop_steps <= 1)
        return;
    check_parallel_loops(job, c, &first_outputs, !job->op->is_seeded);
    if (!check_parallel_has_failed(job) && job->kernel->split && !parallel_random_depends_on_seed(job, c, &first_outputs) &&
        check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, true, &repeated) &&
        check_outputs_differ(job->op, &repeated, &first_outputs, words, sizeof words))
        check_fail(job, "split differs",
            "the kernel says .split = %lld, its numbers are not those of dv_random(), and split at multiples of this grain it "
            "gives "
            "another result than whole: %s",
            (long long)job->kernel->split, words);
}
