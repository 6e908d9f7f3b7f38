/* Contents that make an argument matter. A right kernel may ignore an argument in nearly all calls: a step size unless an
 * overflow flag is 0, the second tensor of a list unless the first has a NaN, an initial value unless a row is empty. Before a
 * rule reports that an argument has no effect, it tries cases in which the elements of one tensor, of all tensors, or of all
 * tensors of a list but its last, are one number, come from a wide range, lie in order, or are missing. */
#include <math.h>
#include <stdlib.h>

#include "check.h"

/* The unit of a range's bounds. */
enum switching_unit {
    UNIT_ONE,
    UNIT_MOST,  /* the largest finite number of the dtype; -1 is the lowest one */
    UNIT_LEAST, /* a number between 0 and the least normal number of the dtype; only real dtypes have one */
    UNIT_NONE   /* None, in the place of an optional tensor */
};
static const struct switching_range {
    double low, high;
    enum check_fill fill;
    enum switching_unit unit;
} switching_ranges[] = {
    { 0, 0, CHECK_FILL_RANDOM, UNIT_ONE },
    { 1, 1, CHECK_FILL_RANDOM, UNIT_ONE },
    { -1, -1, CHECK_FILL_RANDOM, UNIT_ONE },
    { NAN, NAN, CHECK_FILL_RANDOM, UNIT_ONE },
    { 0x1p30, 0x1p30, CHECK_FILL_RANDOM, UNIT_ONE },
    { -0x1p30, -0x1p30, CHECK_FILL_RANDOM, UNIT_ONE },
    { -1000, 1000, CHECK_FILL_RANDOM, UNIT_ONE },
    { 0, 0, CHECK_FILL_RANDOM, UNIT_NONE },
    { -0.0, -0.0, CHECK_FILL_RANDOM, UNIT_ONE },
    { 0.5, 0.5, CHECK_FILL_RANDOM, UNIT_ONE },
    { INFINITY, INFINITY, CHECK_FILL_RANDOM, UNIT_ONE },
    { -INFINITY, -INFINITY, CHECK_FILL_RANDOM, UNIT_ONE },
    { 1, 1, CHECK_FILL_RANDOM, UNIT_MOST },
    { -1, -1, CHECK_FILL_RANDOM, UNIT_MOST },
    { -1, 1, CHECK_FILL_RANGE_ENDS, UNIT_MOST },
    { 1, 1, CHECK_FILL_RANDOM, UNIT_LEAST },
    { -1, -1, CHECK_FILL_RANDOM, UNIT_LEAST },
    { 0x1p-20, 0x1p-20, CHECK_FILL_RANDOM, UNIT_ONE },
    { -4, 4, CHECK_FILL_HALVES, UNIT_ONE },
    { 0, 1, CHECK_FILL_LAST_EXTREME, UNIT_ONE },
    { -1, 1, CHECK_FILL_RANGE_ENDS, UNIT_ONE },
    { -1000, 1000, CHECK_FILL_INCREASING, UNIT_ONE },
    { 1000, -1000, CHECK_FILL_INCREASING, UNIT_ONE },
    { 0, 100, CHECK_FILL_INCREASING, UNIT_ONE },
};
enum {
    NRANGES = sizeof switching_ranges / sizeof *switching_ranges,
    MAX_ELEMENTS = 1 << 12, /* of a tensor of a case that is tried */
    MAX_BASES = 12,         /* number of a plan's cases that get other contents */
    MIN_WHOLE_CASES = 48    /* number of cases from which on a plan is no selection */
};

static volatile bool *holds; /* shared with the forked process */
static check_predicate *predicate;
static size_t predicate_argument;

/* Returns a bound in units as a number of a real dtype. */
static double switching_get_real_bound(dv_dtype d, double x, enum switching_unit unit)
{
    check_get_component_count_and_dtype(&d);
    return unit == UNIT_ONE ? x : unit == UNIT_MOST ? x * check_get_max_finite(d) : x * (2 / check_get_max_finite(d));
}

/* Sets the bounds of integers. A range is cut off to the numbers of the dtype. Returns false if one number is wanted, and the
 * dtype does not have it. */
static bool switching_try_set_integers(const struct switching_range *range, check_tensor *t)
{
    const bool has_sign = t->dtype.code == 0, is_one = !(range->low < range->high || range->low > range->high);
    const double most = check_get_max_integer(t->dtype), least = check_get_min_integer(t->dtype);
    const double unit = range->unit == UNIT_MOST ? most + 1 : 1;
    if (range->unit == UNIT_LEAST || range->fill == CHECK_FILL_HALVES ||
        (is_one &&
            (isinf(range->low) || floor(range->low) < range->low || (signbit(range->low) && (!has_sign || range->low >= 0)))))
        return false;
    t->low = fmin(fmax(range->low * unit, least), most);
    t->high = fmin(fmax(range->high * unit, least), most);
    return !is_one || range->unit == UNIT_MOST || fabs(range->low) <= most;
}

/* Gives the elements of *t, a copy of tensor number `tensor` of c, the range switching_ranges[range_index]. Returns false if its
 * dtype does not have these numbers; *t may have changed then. */
static bool switching_try_set_element_range(
    const check_op *op, const check_case *c, size_t tensor, size_t range_index, check_tensor *t)
{
    const struct switching_range *range = &switching_ranges[range_index];
    const size_t slot = check_find_tensor_slot(c, tensor);
    if (!t->present || op->is_sorted[slot])
        return false;
    if (range->unit == UNIT_NONE)
        return t->present = false, op->slots[slot].flags & DV_SLOT_OPTIONAL || c->args[slot].type == DV_VALUE_TENSORS;
    t->fill = (uint8_t)range->fill;
    t->high_size_code = 0;
    t->high_is_last_index = false;
    if (check_is_integer_dtype(t->dtype))
        return !isnan(range->low) && switching_try_set_integers(range, t);
    t->low = switching_get_real_bound(t->dtype, range->low, range->unit);
    t->high = switching_get_real_bound(t->dtype, range->high, range->unit);
    return true;
}

/* Copies c to `out` with the range switching_ranges[range_index] for tensors number first to end - 1. Returns false if there is
 * none, or the contract refuses it. */
static bool switching_try_make_case(
    const check_op *op, const check_case *c, size_t first, size_t end, size_t range_index, check_case *out)
{
    bool changed = false;
    *out = *c;
    for (size_t i = first; i < end; i++) {
        const check_tensor t = out->tensors[i];
        if (switching_try_set_element_range(op, c, i, range_index, &out->tensors[i]))
            changed = true;
        else
            out->tensors[i] = t;
    }
    return changed && check_is_accepted(op, out);
}

static void switching_store_predicate(check_job *job, const check_case *c) { *holds = predicate(job, c, predicate_argument); }

/* Tests the predicate in the case that switching_try_make_case() makes, unless the predicate has held already. */
static void switching_test_predicate(check_job *job, const check_case *c, size_t first, size_t end, size_t range_index)
{
    static check_case other;
    if (!*holds && switching_try_make_case(job->op, c, first, end, range_index, &other))
        check_try_run_forked(job, &other, switching_store_predicate);
}

/* Tests the predicate in all cases that differ from c in contents, until it holds. */
static void switching_test_all_contents(check_job *job, const check_case *c)
{
    for (size_t k = 0; k < NRANGES; k++) {
        for (size_t i = 0; i < c->ntensors; i++)
            switching_test_predicate(job, c, i, i + 1, k);
        if (c->ntensors > 1)
            switching_test_predicate(job, c, 0, c->ntensors, k);
        for (size_t i = 0; i < c->nargs; i++)
            if (c->args[i].type == DV_VALUE_TENSORS && c->args[i].count > 2)
                switching_test_predicate(job, c, c->args[i].first_tensor, c->args[i].first_tensor + c->args[i].count - 1, k);
    }
}

/* Sets the predicate that switching_test_predicate() calls. Returns false if memory is out. */
static bool switching_try_begin(check_predicate *fn, size_t argument)
{
    if (!holds && !(holds = check_map_shared_memory(sizeof *holds)))
        return false;
    *holds = false;
    predicate = fn;
    predicate_argument = argument;
    return true;
}

bool check_holds_for_other_contents(check_job *job, const check_case *c, check_predicate *fn, size_t argument)
{
    if (!switching_try_begin(fn, argument))
        return false;
    switching_test_all_contents(job, c);
    return *holds;
}

/* Returns the job's plan, or a whole one if that has few cases, which may be a selection, as with --quick. */
static const check_plan *switching_get_whole_plan(check_job *job)
{
    static check_plan *whole;
    if (job->plan->ncases >= MIN_WHOLE_CASES)
        return job->plan;
    if (!whole && (whole = calloc(1, sizeof *whole)) != NULL)
        check_plan_make_cases(job->op, job->kernel, 0, job->seed, whole);
    return whole ? whole : job->plan;
}

bool check_holds_for_other_cases(check_job *job, check_predicate *fn, size_t argument)
{
    static check_case c;
    static uint32_t bases[CHECK_MAX_CASES];
    uint32_t nbases = 0;
    if (!switching_try_begin(fn, argument) || !job->plan)
        return false;
    const check_plan *plan = switching_get_whole_plan(job);
    for (uint32_t i = 0; i < plan->ncases && !*holds; i++) {
        check_copy_case_with_seed(&plan->cases[i], job->seed, &c);
        if (plan->dropped[i] || check_case_max_numel(&c) > MAX_ELEMENTS)
            continue;
        check_try_run_forked(job, &c, switching_store_predicate);
        if (check_has_small_tensors(&c, MAX_ELEMENTS))
            bases[nbases++] = i;
    }
    const uint32_t n = nbases < MAX_BASES ? nbases : MAX_BASES;
    for (uint32_t k = 0; k < n && !*holds; k++) {
        check_copy_case_with_seed(&plan->cases[bases[k * nbases / n]], job->seed, &c);
        switching_test_all_contents(job, &c);
    }
    return *holds;
}
