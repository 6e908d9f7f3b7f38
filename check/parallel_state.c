/* State that a call leaves (property parallel): results after other calls. */
#include <string.h>

#include "parallel.h"

/* number of first cases that are checked for state; NUM_LARGE_STATE_CASES: of first cases with much work */
enum { NUM_STATE_CASES = 3, NUM_LARGE_STATE_CASES = 5, MIN_STATE_WORK = 24 };

static struct {
    const check_case *before;  /* NULL: no call before */
    uint64_t *sum;             /* receives a hash of what the call wrote */
    enum check_guard_side end; /* guard side of the preceding call's arguments */
} state_probe;

/* Calls the kernel with state_probe.before, unless it is NULL, and then with case c. Stores a hash of the second call's outputs
 * in *state_probe.sum. Returns false if that call was refused, or an output could not be copied. */
static bool parallel_state_try_hash_outputs_after_preceding(const check_job *job, const check_case *c)
{
    static check_outputs outputs;
    check_result *result = job->result;
    result->has_preceding_case = state_probe.before;
    if (state_probe.before) {
        result->current_case = *state_probe.before;
        check_parallel_try_call_kernel(job, state_probe.before, state_probe.end, NULL, false, &outputs);
    }
    result->current_case = *c;
    if (!check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &outputs))
        return false;
    *state_probe.sum = 0;
    for (size_t i = 0; i < outputs.noutputs; i++) {
        const dv_tensor *t = &outputs.items[i].t;
        const unsigned char *data = t->data;
        for (int64_t k = dv_numel(t) * dv_dtype_bytes(t->dtype, 1); k-- > 0;)
            *state_probe.sum = (*state_probe.sum ^ data[k]) * UINT64_C(0x100000001b3);
    }
    return !outputs.is_incomplete;
}

/* True if a call gives other results after a call with preceding_case than without, in two tries. Each try runs in a process that
 * has made no call. */
static bool parallel_state_depends_on_preceding_call(check_job *job, const check_case *preceding_case, const check_case *c)
{
    uint64_t sums[4];
    for (int i = 0; i < 4; i++) {
        state_probe.before = i % 2 ? preceding_case : NULL;
        if (!check_parallel_is_true_in_fork(job, c, parallel_state_try_hash_outputs_after_preceding))
            return false;
        sums[i] = *state_probe.sum;
        if (i == 1 && sums[0] == sums[1])
            return false;
    }
    return sums[0] == sums[2] && sums[1] == sums[3];
}

bool check_parallel_try_make_case_with_planned_argument(
    const check_job *job, const check_case *c, size_t slot, uint32_t plan_case_index, check_case *out)
{
    const check_value *value = &job->plan->cases[plan_case_index].args[slot];
    if (value->type == DV_VALUE_TENSOR || value->type == DV_VALUE_TENSORS || !memcmp(value, &c->args[slot], sizeof *value))
        return false;
    *out = *c;
    out->args[slot] = *value;
    return !check_has_endless_int(job->op, out) && check_is_accepted(job->op, out);
}

/* Copies a case to `out` with another value for one argument, taken from some case of the plan. only_fraction: instead a float
 * argument grows by 0.25. Returns false if the argument is a tensor or a list of tensors, or no such copy is accepted. */
static bool parallel_state_try_make_case_with_other_argument(
    const check_job *job, const check_case *c, size_t slot, bool only_fraction, check_case *out)
{
    const check_value *value = &c->args[slot];
    if (value->type == DV_VALUE_TENSOR || value->type == DV_VALUE_TENSORS)
        return false;
    if (only_fraction) {
        const dv_value *by_default = &job->op->slots[slot].default_value;
        const bool given = value->type == DV_VALUE_FLOAT;
        *out = *c;
        out->args[slot] = (check_value){ .type = DV_VALUE_FLOAT, .as.f = (given ? value->as.f : by_default->as.f) + 0.25 };
        return (given || (value->type == DV_VALUE_DEFAULT && by_default->type == DV_VALUE_FLOAT)) &&
            check_is_accepted(job->op, out);
    }
    for (uint32_t k = 0; job->plan && k < job->plan->ncases; k++)
        if (check_parallel_try_make_case_with_planned_argument(job, c, slot, k, out))
            return true;
    return false;
}

/* Copies a case to `out` with other random contents of its tensors. has_low_elements: real numbers are from the lowest quarter of
 * their range, integers are all the lowest. Returns false if the case has no tensor, or the copy is not accepted. */
static bool parallel_state_try_make_case_with_other_contents(
    const check_job *job, const check_case *c, bool has_low_elements, check_case *out)
{
    *out = *c;
    out->seed += 2000; /* a multiple of 4, since the seed modulo 4 also selects the kind of special values */
    for (size_t i = 0; i < out->ntensors && has_low_elements; i++) {
        check_tensor *t = &out->tensors[i];
        t->high = check_is_integer_dtype(t->dtype) ? t->low : t->low + (t->high - t->low) / 4;
    }
    return c->ntensors && check_is_accepted(job->op, out);
}

void check_parallel_state(check_job *job, const check_case *input_case)
{
    static check_case original_case, c, other;
    const bool is_shrinking = !job->result->tried_cases;
    const double end = check_get_cpu_seconds() + job->result->cpu_limit_ms / 4e3;
    original_case = *input_case;
    state_probe.sum = state_probe.sum ? state_probe.sum : check_map_shared_memory(sizeof *state_probe.sum);
    for (uint32_t k = 0, large = 0;
        k < (is_shrinking ? 1 : job->plan->ncases) && (k < NUM_STATE_CASES || large < NUM_LARGE_STATE_CASES) && state_probe.sum;
        k++) {
        if (is_shrinking)
            c = original_case;
        else
            check_copy_case_with_seed(&job->plan->cases[k], job->result->seed, &c);
        if (!is_shrinking && (job->plan->dropped[k] || check_get_cpu_seconds() > end))
            continue;
        /* only cases with much work count as large: state may not show in a few elements */
        const double work = check_estimate_work_with_ints(job->op, &c);
        const bool is_large = work >= MIN_STATE_WORK && work <= MAX_WORK;
        large += is_large;
        if (!is_shrinking && k >= NUM_STATE_CASES && !is_large)
            continue;
        for (size_t variant = 0; variant < 2 * (c.nargs + 1) && check_is_accepted(job->op, &c); variant++) {
            const size_t slot = variant / 2;
            const bool changes_contents = slot == c.nargs;
            /* other contents are at other addresses: what a kernel stores by address is checked elsewhere */
            state_probe.end = changes_contents ? CHECK_GUARD_BEFORE : CHECK_GUARD_AFTER;
            /* excluded: a preceding call with the same contents changes the result, too */
            if (!(changes_contents ? parallel_state_try_make_case_with_other_contents(job, &c, variant % 2, &other)
                                   : parallel_state_try_make_case_with_other_argument(job, &c, slot, variant % 2, &other)) ||
                !parallel_state_depends_on_preceding_call(job, &other, &c) ||
                (changes_contents && parallel_state_depends_on_preceding_call(job, &c, &c)))
                continue;
            job->result->preceding_case = other;
            check_fail(job, "keeps state",
                "the same call gives another result after a call with %s%s%s, so something is kept from call to call",
                changes_contents ? "other contents" : "another '", changes_contents ? "" : job->op->slots[slot].name,
                changes_contents ? "" : "'");
            return;
        }
    }
    job->result->has_preceding_case = false;
    job->result->current_case = original_case;
}

void check_parallel_first_case_again(check_job *job, uint32_t case_number, const check_case *c)
{
    enum { FIRST_CASE_INTERVAL = 24 };
    static check_case early;
    static check_outputs first, late;
    static bool is_known;
    char words[300];
    if (case_number == 1) {
        early = *c;
        is_known = check_parallel_try_call_kernel(job, c, CHECK_GUARD_AFTER, NULL, false, &first);
    } else if (is_known && case_number % FIRST_CASE_INTERVAL == 0 &&
        check_parallel_try_call_kernel(job, &early, CHECK_GUARD_AFTER, NULL, false, &late) &&
        check_outputs_differ(job->op, &first, &late, words, sizeof words)) {
        check_set_current_case(job, &early);
        check_fail(job, "keeps state",
            "the first call gives another result after those of %u other cases, so something is kept from call to call: %s",
            case_number - 1, words);
    }
}
