/* Comparison of a call with the same call in other dtypes: a test for operators without any reference.
 *
 * - A call in bf16, f16 or f32 must give the results of the same call in f32 or f64, up to rounding; c64 those of c128.
 * - A call in f64 or c128 must be more precise than f32: its results must follow changes of the arguments that f32 cannot
 *   represent.
 * - Results that are integers, and all results of integers, must be those of two wider dtypes, if these two agree.
 *
 * An operator may round intermediate results, and may have jumps, where rounding chooses a side. So a difference is reported
 * only in the third case that has one. Results are not compared after they jumped in three cases when the arguments moved by the
 * rounding of the narrow dtype. */
#include <math.h>
#include <string.h>

#include "check.h"

enum {
    MAX_ELEMENTS = 1 << 14,
    MAX_COMPARED_CASES = 64, /* limit on the compared cases of a job */
    MIN_DIFFERENT_CASES = 3, /* number of cases with a difference, from which on it is reported */
    MIN_UNCHANGED_ELEMENTS =
        8, /* number of elements that do not follow a small change of the arguments, from which on that is reported */
    ROUNDING_UNITS =
        8, /* tolerance for intermediate rounding, in rounding units of the narrow dtype times the results or arguments */
    MIN_JUMP_UNITS = 64, /* change in the same units that only a jump can explain */
    MAX_MAGNITUDE = 20,  /* limit on the magnitude of elements: their squares are finite in f16 */
};

enum { MAX_OUTPUTS = CHECK_MAX_RESULTS + CHECK_MAX_TENSORS };
enum dtypes_change_target {
    CHANGE_TENSORS,
    CHANGE_NUMBERS,
    CHANGE_COUNT
}; /* what dtypes_check_no_f32_computation() changes: all tensors, or all number arguments */

/* Counts of this process: [1] for cases of which a dim was made long, [0] for the others. */
static struct dtypes_counts {
    uint32_t with_wider, with_two;  /* number of cases compared with a wider dtype; with two wider dtypes */
    uint32_t different, unlike_two; /* number of cases with other results than a wider dtype; than two wider dtypes that agree */
    uint32_t jumps[MAX_OUTPUTS];    /* by output: number of cases in which the result jumped */
    uint32_t tries[CHANGE_COUNT], deviating_cases[CHANGE_COUNT][MAX_OUTPUTS];
    int64_t ndeviating[CHANGE_COUNT][MAX_OUTPUTS], ncompared[CHANGE_COUNT][MAX_OUTPUTS];
} all_counts[2], *counts = all_counts;

static const check_kernel best_kernel = { .name = "", .hook_index = 0 };

/* Returns the next wider float or complex dtype: f32 for 16 bits, f64 for f32. Other dtypes are returned unchanged. */
static dv_dtype dtypes_get_next_wider(dv_dtype d)
{
    dv_dtype wide = d;
    if (check_is_float_dtype(d) && d.bits == 16)
        dv_dtype_parse("f32", &wide);
    if (dv_dtype_key(d) == DV_DTYPE_f32)
        dv_dtype_parse("f64", &wide);
    if (check_is_complex_dtype(d) && d.bits < 128)
        wide.bits = (uint8_t)(2 * d.bits);
    return wide;
}

/* Returns the signed integer dtype of max_bits bits for a narrower integer dtype. Other dtypes are returned unchanged. */
static dv_dtype dtypes_widen_integer_to(dv_dtype d, uint8_t max_bits)
{
    return d.code < 2 && d.bits >= 8 && d.bits < max_bits ? (dv_dtype){ 0, max_bits, 1 } : d;
}
/* Returns i16 for a narrower integer dtype. Other dtypes are returned unchanged. */
static dv_dtype dtypes_to_16_bits(dv_dtype d) { return dtypes_widen_integer_to(d, 16); }
/* Returns i32 for a narrower integer dtype. Other dtypes are returned unchanged. */
static dv_dtype dtypes_to_32_bits(dv_dtype d) { return dtypes_widen_integer_to(d, 32); }
/* Returns i64 for a narrower integer dtype. Other dtypes are returned unchanged. */
static dv_dtype dtypes_to_64_bits(dv_dtype d) { return dtypes_widen_integer_to(d, 64); }

/* True if only rounding can make the results of a case differ between dtypes: no tensor is empty or large, and float elements
 * have no special values and are at most MAX_MAGNITUDE. */
static bool dtypes_is_smooth_small_case(const check_case *c)
{
    bool mild = check_has_small_tensors(c, MAX_ELEMENTS);
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        const bool is_smooth_fill = t->fill == CHECK_FILL_RANDOM || t->fill == CHECK_FILL_SEQUENCE ||
            t->fill == CHECK_FILL_HALVES || t->fill == CHECK_FILL_NONDECREASING || t->fill == CHECK_FILL_INCREASING;
        mild &= !t->present || (check_is_integer_dtype(t->dtype) || (is_smooth_fill && fmax(-t->low, t->high) <= MAX_MAGNITUDE));
    }
    return mild;
}

/* Returns check_get_unit_roundoff() of a dtype; for a complex dtype that of its components. */
static double dtypes_get_unit_roundoff(dv_dtype d)
{
    check_get_component_count_and_dtype(&d);
    return check_get_unit_roundoff(d);
}

/* Copies a case to `out` with each dtype replaced by change_dtype() of it. *unit_roundoff: largest unit roundoff of a float dtype
 * that was changed; 0: none was. Returns false if no tensor changes, or the contract does not accept the new case. */
static bool dtypes_try_make_case_in_dtypes(
    const check_op *op, const check_case *c, dv_dtype (*change_dtype)(dv_dtype), check_case *out, double *unit_roundoff)
{
    bool any = false;
    *unit_roundoff = 0;
    *out = *c;
    for (size_t k = 0; k < op->nnames; k++)
        if (op->names[k].kind == CHECK_NAME_DTYPE && c->names.is_bound[k]) {
            dv_dtype *d = &out->names.dtypes[op->names[k].value_index];
            *d = change_dtype(*d);
        }
    for (size_t i = 0; i < c->nargs; i++) /* a dtype argument, as the dtype of a result */
        if (out->args[i].type == DV_VALUE_DTYPE)
            out->args[i].as.dtype = change_dtype(out->args[i].as.dtype);
    if (!check_try_fit_case(op, out, c, NULL))
        return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *a = &c->tensors[i], *b = &out->tensors[i];
        const bool same = dv_dtype_key(a->dtype) == dv_dtype_key(b->dtype);
        if (a->present != b->present || a->ndim != b->ndim || memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim))
            return false;
        if (a->present && !same && dv_dtype_key(change_dtype(a->dtype)) != dv_dtype_key(b->dtype))
            return false;
        any |= a->present && !same;
        *unit_roundoff = a->present && !same && !check_is_integer_dtype(a->dtype)
            ? fmax(*unit_roundoff, dtypes_get_unit_roundoff(a->dtype))
            : *unit_roundoff;
    }
    return any && check_is_accepted(op, out);
}

/* Returns f64 for a narrower float dtype. Other dtypes are returned unchanged. */
static dv_dtype dtypes_to_f64(dv_dtype d) { return check_is_float_dtype(d) && d.bits >= 16 ? (dv_dtype){ 2, 64, 1 } : d; }

/* Copies a case to `out` with the next wider float and complex dtypes. *unit_roundoff: largest unit roundoff of a dtype that was
 * widened. Returns false if no tensor changes, or the contract refuses the new case. */
static bool dtypes_try_widen_case(const check_op *op, const check_case *c, check_case *out, double *unit_roundoff)
{
    return dtypes_try_make_case_in_dtypes(op, c, dtypes_get_next_wider, out, unit_roundoff);
}

/* Returns f32 for a float dtype of 16 bits, and c64 for c32. Other dtypes are returned unchanged. */
static dv_dtype dtypes_widen_16_bits(dv_dtype d)
{
    dv_dtype part = d;
    check_get_component_count_and_dtype(&part);
    return check_is_float_dtype(part) && part.bits == 16 ? dtypes_get_next_wider(d) : d;
}

bool check_try_widen_16_bit_floats(const check_op *op, const check_case *c, check_case *out)
{
    double unit;
    return dtypes_try_make_case_in_dtypes(op, c, dtypes_widen_16_bits, out, &unit);
}

/* Calls a kernel and copies its outputs. contents: case whose elements the tensors get. relative_perturbation: elements are
 * changed by so much. integer_step: number added to integers. Returns false if the call fails or outputs are missing. */
static bool dtypes_try_call_stepped(const check_job *job, const check_kernel *kernel, const check_case *c,
    const check_case *contents, double relative_perturbation, double integer_step, check_outputs *outputs)
{
    static check_guarded_call call;
    call = (check_guarded_call){ .op = job->op,
        .kernel = kernel,
        .poison_byte = 0xa5,
        .contents_from = contents == c ? NULL : contents,
        .relative_perturbation = relative_perturbation,
        .integer_step = integer_step };
    check_guarded_call_run(&call, c);
    if (call.status)
        return false;
    check_outputs_copy(outputs, job->op, c, call.results, check_get_last_argument_tensors());
    return !outputs->is_incomplete;
}

/* Calls a kernel as dtypes_try_call_stepped() does, without a step. */
static bool dtypes_try_call_and_copy(const check_job *job, const check_kernel *kernel, const check_case *c,
    const check_case *contents, double relative_perturbation, check_outputs *outputs)
{
    return dtypes_try_call_stepped(job, kernel, c, contents, relative_perturbation, 0, outputs);
}

/* True if an output is a tensor of floats of at least 16 bits, or of complex numbers, whose elements may be rounded. */
static bool dtypes_is_real_output(const check_output *o)
{
    return ((check_is_float_dtype(o->t.dtype) && o->t.dtype.bits >= 16) || check_is_complex_dtype(o->t.dtype)) &&
        !o->is_number_result;
}

/* Returns how many real numbers an output holds: a complex element has two. */
static int64_t dtypes_count_components(const check_output *o)
{
    dv_dtype dtype = o->t.dtype;
    return dv_numel(&o->t) * check_get_component_count_and_dtype(&dtype);
}

/* Returns one real number of an output; both components of a complex element are counted. */
static double dtypes_get_component(const check_output *o, int64_t number)
{
    dv_dtype dtype = o->t.dtype;
    const int parts = check_get_component_count_and_dtype(&dtype);
    return check_output_get_number(o, number / parts, (int)(number % parts));
}

/* Prints one real number of an output, as check_output_format_number() does, and returns `words`. */
static char *dtypes_format_component(const check_output *o, int64_t number, char *words, size_t size)
{
    dv_dtype dtype = o->t.dtype;
    const int parts = check_get_component_count_and_dtype(&dtype);
    return check_output_format_number(o, number / parts, (int)(number % parts), words, size);
}

/* Prints the name of the element to which a real number of an output belongs: "element [1, 2] of result 'out'". */
static void dtypes_format_element_of_component(
    const check_op *op, const check_output *o, int64_t number, char *words, size_t size)
{
    check_output_format_element_name(op, o, number / (dtypes_count_components(o) / dv_numel(&o->t)), words, size);
}

/* True if the outputs of two calls are equally many and have the same shapes; dtypes may differ. */
static bool dtypes_have_same_shapes(const check_outputs *a, const check_outputs *b)
{
    bool same = a->noutputs == b->noutputs;
    for (size_t k = 0; k < a->noutputs && same; k++)
        same = a->items[k].slot == b->items[k].slot && a->items[k].t.ndim == b->items[k].t.ndim &&
            !memcmp(a->items[k].dims, b->items[k].dims, sizeof *a->items[k].dims * (size_t)a->items[k].t.ndim);
    return same;
}

/* Returns the largest magnitude that elements of the case's non-integer tensors may have. */
static double dtypes_get_max_real_magnitude(const check_case *c)
{
    double most = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && !check_is_integer_dtype(c->tensors[i].dtype))
            most = fmax(most, fmax(fabs(c->tensors[i].low), fabs(c->tensors[i].high)));
    return most;
}

/* Returns the largest finite number of a float dtype, or of the components of a complex one. */
static double dtypes_get_max_finite(dv_dtype d)
{
    check_get_component_count_and_dtype(&d);
    return check_get_max_finite(d);
}

/* ---- Narrow and wide ------------------------------------------------------------------------------------------------------ */

/* Calls the first kernel that accepts the same numbers in the next wider dtypes, or else in f64. *wide, *unit_roundoff and
 * outputs receive that case, its rounding unit and its outputs. Returns false if no call succeeds. */
static bool dtypes_try_call_in_wider_dtypes(
    const check_job *job, const check_case *c, check_case *wide, double *unit_roundoff, check_outputs *outputs)
{
    return (dtypes_try_make_case_in_dtypes(job->op, c, dtypes_get_next_wider, wide, unit_roundoff) &&
               dtypes_try_call_and_copy(job, &best_kernel, wide, c, 0, outputs)) ||
        (dtypes_try_make_case_in_dtypes(job->op, c, dtypes_to_f64, wide, unit_roundoff) &&
            dtypes_try_call_and_copy(job, &best_kernel, wide, c, 0, outputs));
}

/* Compares float and complex results with those of the same call in wider dtypes, and reports a difference that rounding does not
 * explain. */
static void dtypes_check_against_wider(check_job *job, const check_case *c)
{
    static check_case wide;
    static check_outputs found, expected, up, down;
    char where[200], texts[2][40];
    double unit;
    const uint32_t min_different = job->result->tried_cases ? MIN_DIFFERENT_CASES
                                                            : 1; /* 1: the case is only repeated, as while it is shrunk */
    if ((job->result->tried_cases && counts->with_wider >= MAX_COMPARED_CASES) ||
        !dtypes_try_call_in_wider_dtypes(job, c, &wide, &unit, &expected))
        return;
    counts->with_wider++;
    if (!dtypes_try_call_and_copy(job, job->kernel, c, c, 0, &found) ||
        !dtypes_try_call_and_copy(job, &best_kernel, &wide, c, unit, &up) ||
        !dtypes_try_call_and_copy(job, &best_kernel, &wide, c, unit / 4, &down) || !dtypes_have_same_shapes(&found, &expected) ||
        !dtypes_have_same_shapes(&expected, &up) || !dtypes_have_same_shapes(&expected, &down))
        return;
    for (size_t k = 0; k < found.noutputs; k++) {
        const check_output *a = &found.items[k], *b = &expected.items[k];
        const double largest = fmax(check_output_get_max_magnitude(a), check_output_get_max_magnitude(b)),
                     last = fmax(unit, dtypes_get_unit_roundoff(a->t.dtype));
        const int64_t n = dtypes_count_components(a);
        const check_tolerance t = check_get_tolerance(job->op, c, a->t.dtype, n, true);
        const double numbers = dtypes_get_max_real_magnitude(c), scale = fmax(largest, numbers);
        bool jump = false;
        if (!dtypes_is_real_output(a) || !dtypes_is_real_output(b))
            continue;
        for (int64_t i = 0; i < n && !jump; i++) {
            const double moved = fmax(fabs(dtypes_get_component(&up.items[k], i) - dtypes_get_component(b, i)),
                fabs(dtypes_get_component(&down.items[k], i) - dtypes_get_component(b, i)));
            jump = !(moved <= MIN_JUMP_UNITS * last * scale);
        }
        counts->jumps[k] += jump;
        for (int64_t i = 0; i < n && !jump && counts->jumps[k] < MIN_DIFFERENT_CASES; i++) {
            const double x = dtypes_get_component(a, i), y = dtypes_get_component(b, i);
            const double moved = fmax(
                fabs(dtypes_get_component(&up.items[k], i) - y), fabs(dtypes_get_component(&down.items[k], i) - y));
            const double allowed = t.atol + t.rtol * fabs(y) + ROUNDING_UNITS * last * fmax(fabs(y), numbers) +
                ROUNDING_UNITS * moved;
            if ((isfinite(x) && isfinite(y) && fabs(x - y) <= allowed) || (isnan(x) && isnan(y)) || x == y)
                continue;
            if (!isfinite(x) && !isfinite(y) && !isnan(x) == !isnan(y))
                continue;
            if (fabs(x) >= dtypes_get_max_finite(a->t.dtype) && fabs(y) + allowed > dtypes_get_max_finite(a->t.dtype) &&
                !signbit(x) == !signbit(y))
                continue; /* the narrow dtype overflowed: the result is infinity or its largest number */
            if (++counts->different < min_different)
                return;
            dtypes_format_element_of_component(job->op, a, i, where, sizeof where);
            check_fail(job, "other dtype",
                "%s (%s) is %s, and with the same numbers in wider dtypes it is %s (%s); rounding explains %.3g", where,
                dv_dtype_name(a->t.dtype), dtypes_format_component(a, i, texts[0], sizeof texts[0]),
                dtypes_format_component(b, i, texts[1], sizeof texts[1]), dv_dtype_name(b->t.dtype), allowed);
            return;
        }
    }
}

/* ---- Integers ------------------------------------------------------------------------------------------------------------- */

/* True if each int and float argument lies in the range of each integer dtype of the case's tensors. An operator may convert a
 * number to that dtype, and one out of range would become another number in a wider dtype. */
static bool dtypes_numbers_fit_integer_dtypes(const check_op *op, const check_case *c)
{
    bool fit = true;
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value *v = &c->args[i];
        const dv_value *d = v->type == DV_VALUE_DEFAULT ? &op->slots[i].default_value : NULL;
        const uint32_t type = d ? d->type : v->type;
        const double x = type == DV_VALUE_INT ? (double)(d ? d->as.i : v->as.i)
            : type == DV_VALUE_FLOAT          ? (d ? d->as.f : v->as.f)
                                              : 0;
        for (size_t k = 0; k < c->ntensors; k++)
            fit &= !c->tensors[k].present || c->tensors[k].dtype.code > 1 || check_is_in_integer_range(c->tensors[k].dtype, x);
    }
    return fit;
}

/* By output: the first two different numbers that results in a wide dtype had so far. */
static struct wide_values {
    double values[2];
    uint32_t distinct; /* number of different numbers; 3: more than two */
} wide_values[MAX_OUTPUTS];

/* True if an integer result had more than two different numbers in a wide dtype so far (bool: more than one), or the case is only
 * repeated. A result made of the high bits of a dtype, as a carry or a flag, has at most two. It depends on the width of the
 * dtype by its nature. */
static bool dtypes_has_many_wide_values(const check_job *job, const check_output *wide, size_t output_index)
{
    struct wide_values *seen = &wide_values[output_index];
    const int64_t n = dtypes_count_components(wide);
    for (int64_t i = 0; i < n && seen->distinct < 3; i++) {
        const double y = dtypes_get_component(wide, i);
        bool known = isnan(y);
        for (uint32_t v = 0; v < seen->distinct; v++)
            known |= seen->values[v] == y;
        if (!known && seen->distinct < 2)
            seen->values[seen->distinct] = y;
        seen->distinct += !known;
    }
    return !job->result->tried_cases ||
        seen->distinct > (wide->t.dtype.code == 6 ? 1 : 2); /* tried_cases 0: the case is only repeated */
}

/* True if all numbers in which two outputs differ differ by a multiple of 2^bits: results of so many bits were cut off. One
 * number is no evidence: the sum of two bounds of a dtype is such a multiple, too. */
static bool dtypes_differ_by_wraps(const check_output *a, const check_output *b, int bits)
{
    bool wraps = true, several = false, any = false;
    double first = 0;
    for (int64_t i = 0, n = dtypes_count_components(a); i < n && wraps; i++) {
        const double x = dtypes_get_component(a, i), by = ldexp(x - dtypes_get_component(b, i), -bits);
        if (!(by < 0 || by > 0))
            continue;
        wraps = floor(by) >= by;
        several |= any && x != first;
        first = any ? first : x;
        any = true;
    }
    return wraps && several;
}

/* Returns the least width in bits of the integers of a case. */
static int dtypes_get_least_bits(const check_case *c)
{
    int bits = 64;
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && c->tensors[i].dtype.code < 2 && c->tensors[i].dtype.bits < bits)
            bits = c->tensors[i].dtype.bits;
    return bits;
}

/* How number i of a narrow output moves when the arguments are stepped, beside that of a wide output. */
enum dtypes_motion { MOTION_UNKNOWN, MOTION_EQUAL, MOTION_SMALLER, MOTION_LARGER };

/* Classifies how a narrow number and a wide one move, by dx and dy. SMALLER: the narrow one moves less, in the same direction. */
static enum dtypes_motion dtypes_compare_motion(double dx, double dy, double allowed)
{
    if (!(fabs(dx) <= fabs(dy) + allowed))
        return MOTION_LARGER;
    if (!(fabs(dy) > 4 * allowed))
        return MOTION_UNKNOWN;
    return fabs(dx - dy) <= allowed ? MOTION_EQUAL : dx * dy >= 0 ? MOTION_SMALLER : MOTION_UNKNOWN;
}

/* True if output number output_index of a call with narrow integers may differ from that of a call with wide ones, a and b,
 * because numbers wrap. An operator that detects an overflow, as a sum that saturates step by step, differs by its nature: some
 * elements have lost their influence. So the result moves less than the wide one, if all elements are stepped up or down. */
static bool dtypes_may_be_wrapped(const check_job *job, const check_case *c, const check_case *wide, const check_output *a,
    const check_output *b, size_t output_index)
{
    enum { MAX_LOST = 2 }; /* what a division may round off of a motion */
    static const double steps[] = { 1, 16, 1024 };
    static check_outputs narrow_moved[2], wide_moved[2]; /* stepped up and down */
    const int bits = dtypes_get_least_bits(c);
    const int64_t n = dtypes_count_components(a);
    const check_tolerance t = check_get_tolerance(job->op, c, a->t.dtype, n, true);
    bool follows = false, lags = false;
    if (dtypes_differ_by_wraps(a, b, bits))
        return true;
    for (size_t s = 0; s < sizeof steps / sizeof *steps && !follows && steps[s] < ldexp(1, bits - 3); s++) {
        bool is_known[2];
        for (int down = 0; down < 2; down++) {
            const double step = down ? -steps[s] : steps[s];
            is_known[down] = dtypes_try_call_stepped(job, job->kernel, c, c, 0, step, &narrow_moved[down]) &&
                dtypes_try_call_stepped(job, &best_kernel, wide, c, 0, step, &wide_moved[down]) &&
                dtypes_have_same_shapes(&narrow_moved[down], &wide_moved[down]) && narrow_moved[down].noutputs > output_index &&
                dtypes_count_components(&narrow_moved[down].items[output_index]) == n;
        }
        for (int64_t i = 0; i < n; i++) {
            const double x = dtypes_get_component(a, i), y = dtypes_get_component(b, i),
                         allowed = (steps[s] > 1 ? MAX_LOST : 0) +
                (check_is_integer_dtype(a->t.dtype) ? 0 : t.atol + t.rtol * fmax(fabs(x), fabs(y)));
            bool equal = false, smaller = false, larger = false;
            for (int down = 0; down < 2 && x != y; down++) {
                const enum dtypes_motion motion = !is_known[down]
                    ? MOTION_UNKNOWN
                    : dtypes_compare_motion(dtypes_get_component(&narrow_moved[down].items[output_index], i) - x,
                          dtypes_get_component(&wide_moved[down].items[output_index], i) - y, allowed);
                equal |= motion == MOTION_EQUAL;
                smaller |= motion == MOTION_SMALLER;
                larger |= motion == MOTION_LARGER;
            }
            follows |= equal && !smaller;
            lags |= smaller && !larger;
        }
    }
    return follows || !lags;
}

/* Compares integer results, or all results of integer arguments, with those of the same call in two wider dtypes, and reports a
 * difference if these two agree. Results that depend on the width of a dtype by their nature, as a hash, differ between the two.
 * widen, widen_further: give the dtypes. */
static void dtypes_check_against_two_wider(
    check_job *job, const check_case *c, dv_dtype (*widen)(dv_dtype), dv_dtype (*widen_further)(dv_dtype))
{
    static check_case wide, widest;
    static check_outputs found, expected, second, up, down;
    char where[200], texts[2][40];
    double unit, next;
    const uint32_t needed = job->result->tried_cases ? MIN_DIFFERENT_CASES
                                                     : 1; /* 1: the case is only repeated, as while it is shrunk */
    if (!dtypes_numbers_fit_integer_dtypes(job->op, c) || (job->result->tried_cases && counts->with_two >= MAX_COMPARED_CASES) ||
        !dtypes_try_make_case_in_dtypes(job->op, c, widen, &wide, &unit) ||
        !dtypes_try_make_case_in_dtypes(job->op, widen == widen_further ? &wide : c, widen_further, &widest, &next) ||
        !dtypes_try_call_and_copy(job, job->kernel, c, c, 0, &found) ||
        !dtypes_try_call_and_copy(job, &best_kernel, &wide, c, 0, &expected) ||
        !dtypes_try_call_and_copy(job, &best_kernel, &widest, c, 0, &second) || !dtypes_have_same_shapes(&found, &expected) ||
        !dtypes_have_same_shapes(&expected, &second))
        return;
    const bool moves = unit > 0;
    if (moves &&
        (!dtypes_try_call_and_copy(job, &best_kernel, &widest, c, ROUNDING_UNITS * unit, &up) ||
            !dtypes_have_same_shapes(&second, &up) || !dtypes_try_call_and_copy(job, &best_kernel, &widest, c, unit, &down) ||
            !dtypes_have_same_shapes(&second, &down)))
        return;
    counts->with_two += job->result->tried_cases > 0;
    for (size_t k = 0; k < found.noutputs; k++) {
        const check_output *a = &found.items[k], *b = &expected.items[k];
        const int64_t n = dtypes_count_components(a);
        const check_tolerance t = check_get_tolerance(job->op, c, a->t.dtype, n, true);
        const bool real = !check_is_integer_dtype(a->t.dtype);
        int64_t compared = 0, wrong = 0, first = -1;
        bool steady = true; /* true: no number follows a small change of float arguments */
        const bool tells = moves || dtypes_has_many_wide_values(job, b, k);
        if (real ? moves || !dtypes_is_real_output(a) || !dtypes_is_real_output(b) : !check_is_integer_dtype(b->t.dtype))
            continue;
        for (int64_t i = 0; i < n; i++) {
            const double x = dtypes_get_component(a, i), y = dtypes_get_component(b, i),
                         z = dtypes_get_component(&second.items[k], i);
            const bool moved = moves &&
                (dtypes_get_component(&up.items[k], i) != z || dtypes_get_component(&down.items[k], i) != z);
            steady &= !moved;
            if (moved || y != z || (!real && !check_is_in_integer_range(a->t.dtype, y)))
                continue;
            compared++;
            if (x == y || (isnan(x) && isnan(y)) || (real && fabs(x - y) <= t.atol + t.rtol * fabs(y)))
                continue;
            wrong++;
            first = first < 0 || (fabs(x - y) > 1 && fabs(dtypes_get_component(a, first) - dtypes_get_component(b, first)) <= 1)
                ? i
                : first;
        }
        if (!wrong || !tells ||
            (!steady && (2 * wrong < compared || fabs(dtypes_get_component(a, first) - dtypes_get_component(b, first)) <= 1)) ||
            (!moves && !dtypes_may_be_wrapped(job, c, &wide, a, b, k)) || ++counts->unlike_two < needed)
            continue;
        dtypes_format_element_of_component(job->op, a, first, where, sizeof where);
        size_t i = 0;
        while (dv_dtype_key(c->tensors[i].dtype) == dv_dtype_key(wide.tensors[i].dtype))
            i++;
        check_fail(job, "other dtype", "%s (%s) is %s where '%s' is %s, and %s with the same numbers in %s and in %s", where,
            dv_dtype_name(a->t.dtype), dtypes_format_component(a, first, texts[0], sizeof texts[0]),
            job->op->slots[check_find_tensor_slot(c, i)].name, dv_dtype_name(c->tensors[i].dtype),
            dtypes_format_component(b, first, texts[1], sizeof texts[1]), dv_dtype_name(wide.tensors[i].dtype),
            dv_dtype_name(widest.tensors[i].dtype));
        return;
    }
}

/* True if some output of a differs from that of b, where both dtypes can hold the number. *output_index, *component_index: the
 * first such number. include_width_dependent: outputs for which dtypes_has_many_wide_values() is false are compared, too. */
static bool dtypes_try_find_first_difference(const check_job *job, const check_case *c, const check_outputs *a,
    const check_outputs *b, bool include_width_dependent, size_t *output_index, int64_t *component_index)
{
    for (*output_index = 0; *output_index < a->noutputs; ++*output_index) {
        const check_output *x = &a->items[*output_index], *y = &b->items[*output_index];
        const bool tells = dtypes_has_many_wide_values(job, y, *output_index) || include_width_dependent;
        const int64_t n = tells ? dtypes_count_components(x) : 0;
        const check_tolerance t = check_get_tolerance(job->op, c, x->t.dtype, n, true);
        for (*component_index = 0; *component_index < n; ++*component_index) {
            const double u = dtypes_get_component(x, *component_index), v = dtypes_get_component(y, *component_index);
            const bool exact = check_is_integer_dtype(x->t.dtype);
            if (u != v && !(isnan(u) && isnan(v)) &&
                (exact ? check_is_in_integer_range(x->t.dtype, v) : fabs(u - v) > t.atol + t.rtol * fabs(v)))
                return true;
        }
    }
    return false;
}

/* Compares a call with 32-bit integers with the same call in 64 bits, and reports differences. What the width of a dtype decides
 * by its nature, as a hash, differs for small integers, too. So a difference counts only for large integers if small ones never
 * differ, or for integers that the contract bounds. */
static void dtypes_check_against_64_bits(check_job *job, const check_case *c)
{
    enum { MIN_LARGE_INT = 1 << 15, MIN_EQUAL_SMALL = 8, MIN_UNEQUAL = 2 };
    static uint32_t same,
        different[3]; /* number of equal cases with small integers; of different cases with small ones, large ones, and indices */
    enum { WIDTH_SMALL, WIDTH_LARGE, WIDTH_INDICES };
    static check_case wide;
    static check_outputs found, expected;
    char where[200], texts[2][40];
    double unit;
    size_t k, of = 0;
    int64_t at;
    bool large = false, indices = true, narrow = false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        if (!t->present || t->dtype.code > 1)
            continue;
        narrow |= t->dtype.bits < 32;
        large |= t->dtype.bits == 32 && t->fill != CHECK_FILL_SEQUENCE && fmax(-t->low, t->high) >= MIN_LARGE_INT;
        indices &= t->dtype.bits != 32 || job->op->is_bounded[check_find_tensor_slot(c, i)];
    }
    if (narrow || !dtypes_numbers_fit_integer_dtypes(job->op, c) ||
        !dtypes_try_make_case_in_dtypes(job->op, c, dtypes_to_64_bits, &wide, &unit) ||
        !dtypes_try_call_and_copy(job, job->kernel, c, c, 0, &found) ||
        !dtypes_try_call_and_copy(job, &best_kernel, &wide, c, 0, &expected) || !dtypes_have_same_shapes(&found, &expected))
        return;
    const int kind = indices ? WIDTH_INDICES : large ? WIDTH_LARGE : WIDTH_SMALL;
    const bool differs = dtypes_try_find_first_difference(job, c, &found, &expected, indices, &k, &at) &&
        (kind != WIDTH_LARGE || dtypes_may_be_wrapped(job, c, &wide, &found.items[k], &expected.items[k], k)),
               once = !job->result->tried_cases;
    different[kind] += differs;
    same += kind == WIDTH_SMALL && !differs && found.used_bytes > 1;
    if (!differs || kind == WIDTH_SMALL || different[kind] < (once ? 1 : MIN_UNEQUAL) ||
        (!once && kind == WIDTH_LARGE && (same < MIN_EQUAL_SMALL || different[WIDTH_SMALL])))
        return;
    while (dv_dtype_key(c->tensors[of].dtype) == dv_dtype_key(wide.tensors[of].dtype))
        of++;
    dtypes_format_element_of_component(job->op, &found.items[k], at, where, sizeof where);
    check_fail(job, "other dtype", "%s (%s) is %s where '%s' is %s, and %s with the same numbers in %s", where,
        dv_dtype_name(found.items[k].t.dtype), dtypes_format_component(&found.items[k], at, texts[0], sizeof texts[0]),
        job->op->slots[check_find_tensor_slot(c, of)].name, dv_dtype_name(c->tensors[of].dtype),
        dtypes_format_component(&expected.items[k], at, texts[1], sizeof texts[1]), dv_dtype_name(wide.tensors[of].dtype));
}

/* ---- f64 ------------------------------------------------------------------------------------------------------------------ */

/* True if a dtype is f64 or c128. */
static bool dtypes_is_f64_or_c128(dv_dtype d)
{
    check_get_component_count_and_dtype(&d);
    return dv_dtype_key(d) == DV_DTYPE_f64;
}

/* True if a case has float or complex tensors, and all of them are f64 or c128. */
static bool dtypes_is_f64_case(const check_case *c)
{
    bool any = false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        if (!t->present || check_is_integer_dtype(t->dtype))
            continue;
        if (!dtypes_is_f64_or_c128(t->dtype))
            return false;
        any = true;
    }
    return any;
}

/* Copies a case to `out` with each float argument x replaced by x - relative_change * x. Returns false if the case has no float
 * arguments, or the contract refuses the new ones. */
static bool dtypes_try_make_case_with_smaller_numbers(
    const check_op *op, const check_case *c, double relative_change, check_case *out)
{
    bool any = false;
    *out = *c;
    for (size_t i = 0; i < c->nargs; i++) {
        check_value *v = &out->args[i];
        const dv_value *by_default = &op->slots[i].default_value;
        if (v->type == DV_VALUE_DEFAULT && by_default->type == DV_VALUE_FLOAT)
            *v = (check_value){ .type = DV_VALUE_FLOAT, .as.f = by_default->as.f };
        if (op->slots[i].type == DV_FIELD_SCALAR && v->type == DV_VALUE_INT)
            *v = (check_value){ .type = DV_VALUE_FLOAT, .as.f = (double)v->as.i };
        any |= v->type == DV_VALUE_FLOAT || v->type == DV_VALUE_FLOATS || v->type == DV_VALUE_SCALARS;
        if (v->type == DV_VALUE_FLOAT)
            v->as.f -= relative_change * v->as.f;
        for (uint32_t k = 0; k < v->count; k++)
            if (v->type == DV_VALUE_FLOATS || (v->type == DV_VALUE_SCALARS && v->ints[k] == DV_SCALAR_FLOAT))
                v->floats[k] -= relative_change * v->floats[k];
    }
    return any && check_is_accepted(op, out);
}

/* Calls the kernel with all float tensors, or all float arguments, changed by a relative amount, and copies its outputs. Returns
 * false if that fails. */
static bool dtypes_try_call_with_perturbation(const check_job *job, const check_case *c, enum dtypes_change_target perturbed,
    double relative_change, check_outputs *outputs)
{
    static check_case moved;
    return perturbed == CHANGE_TENSORS ? dtypes_try_call_and_copy(job, job->kernel, c, c, relative_change, outputs)
                                       : dtypes_try_make_case_with_smaller_numbers(job->op, c, relative_change, &moved) &&
            dtypes_try_call_and_copy(job, job->kernel, &moved, &moved, 0, outputs);
}

/* Reports a result in f64 that is computed in f32 somewhere. The arguments are changed by 2^-34 and by 2^-20 of their values: the
 * first change of the result must be 2^-14 of the second. A step that is rounded to f32 hides or enlarges the small change. */
static void dtypes_check_no_f32_computation(check_job *job, const check_case *c, enum dtypes_change_target perturbed)
{
    static check_outputs found, small_change, large_change;
    int64_t *rough = counts->ndeviating[perturbed], *all = counts->ncompared[perturbed];
    uint32_t *cases = counts->deviating_cases[perturbed];
    const bool first = job->result->tried_cases; /* false: the case is only repeated */
    if (job->op->rtol > 0 || job->op->atol > 0 || !dtypes_is_f64_case(c) ||
        (first && counts->tries[perturbed] >= MAX_COMPARED_CASES) ||
        !dtypes_try_call_with_perturbation(job, c, perturbed, 0x1p-34, &small_change) ||
        !dtypes_try_call_with_perturbation(job, c, perturbed, 0x1p-20, &large_change) ||
        !dtypes_try_call_with_perturbation(job, c, perturbed, 0, &found) || !dtypes_have_same_shapes(&found, &small_change) ||
        !dtypes_have_same_shapes(&found, &large_change))
        return;
    counts->tries[perturbed]++;
    for (size_t k = 0; k < found.noutputs; k++) {
        const check_output *o = &found.items[k];
        const int64_t n = dtypes_is_f64_or_c128(o->t.dtype) && !o->is_number_result ? dtypes_count_components(o) : 0;
        const check_tolerance t = check_get_tolerance(job->op, c, o->t.dtype, n, true); /* the rounding error of f64 itself */
        double most = 0;
        int64_t now = 0;
        for (int64_t i = 0; i < n; i++) {
            const double by = fabs(dtypes_get_component(&large_change.items[k], i) - dtypes_get_component(o, i));
            most = isfinite(by) ? fmax(most, by) : INFINITY;
        }
        if (!(most > 0) ||
            most > 0x1p-10 * check_output_get_max_magnitude(o)) /* the result does not change, jumps, or nearly divides by 0 */
            continue;
        for (int64_t i = 0; i < n; i++) {
            const double x = dtypes_get_component(o, i), by = dtypes_get_component(&large_change.items[k], i) - x,
                         small = dtypes_get_component(&small_change.items[k], i) - x;
            all[k] += fabs(by) > 0x1p-6 * most;
            now += fabs(by) > 0x1p-6 * most && fabs(by - 0x1p14 * small) > 0x1p-4 * most + 0x1p14 * (t.atol + t.rtol * fabs(x));
        }
        rough[k] += now;
        cases[k] += now > 0;
        if (!now || (first && (rough[k] < MIN_UNCHANGED_ELEMENTS || cases[k] < MIN_DIFFERENT_CASES || 4 * rough[k] < all[k])))
            continue;
        check_fail(job, "f64 in f32",
            "%lld elements of %s %s (%s) do not follow when each %s changes by 2^-34 of it, as they do when by 2^-20: "
            "something is "
            "computed in f32",
            (long long)now, o->slot < job->op->nargs ? "argument" : "result", job->op->slots[o->slot].name,
            dv_dtype_name(o->t.dtype), perturbed == CHANGE_TENSORS ? "argument" : "number");
        return;
    }
}

/* Copies a case to `out` with positive elements, whose sums grow, so that a narrow dtype loses the small terms of a long sum.
 * Integers change only in a case without floats, since some may be indices. Returns false if no dim has MIN_LONG_DIM elements, or
 * the contract refuses the case. */
static bool dtypes_try_make_positive_case(const check_op *op, const check_case *c, check_case *out)
{
    enum { MIN_LONG_DIM = 256 };
    bool any = false, integers = true;
    *out = *c;
    for (size_t i = 0; i < c->ntensors; i++)
        integers &= !c->tensors[i].present || check_is_integer_dtype(c->tensors[i].dtype);
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &out->tensors[i];
        for (int32_t d = 0; d < t->ndim; d++)
            any |= t->present && t->shape[d] >= MIN_LONG_DIM;
        if (!t->present || (check_is_integer_dtype(t->dtype) && (!integers || check_has_positional_fill(t))))
            continue;
        t->fill = CHECK_FILL_RANDOM;
        t->low = integers ? 1 : 0.25;
        t->high = integers ? 3 : 2;
    }
    return any && check_is_accepted(op, out);
}

/* Makes all comparisons with other dtypes for one case, and reports the first difference. */
static void dtypes_check_one_case(check_job *job, const check_case *c)
{
    static check_case positive, wide, widest;
    double unit;
    dtypes_check_against_wider(job, c);
    if (job->result->outcome == CHECK_OUTCOME_PASS)
        dtypes_check_against_two_wider(job, c, dtypes_get_next_wider, dtypes_get_next_wider);
    if (job->result->outcome == CHECK_OUTCOME_PASS)
        dtypes_check_against_two_wider(job, c, dtypes_to_32_bits, dtypes_to_64_bits);
    if (job->result->outcome == CHECK_OUTCOME_PASS)
        dtypes_check_against_two_wider(job, c, dtypes_to_16_bits, dtypes_to_32_bits);
    if (job->result->outcome == CHECK_OUTCOME_PASS)
        dtypes_check_against_64_bits(job, c);
    if (job->result->outcome == CHECK_OUTCOME_PASS && job->result->tried_cases &&
        dtypes_try_make_positive_case(job->op, c, &positive)) {
        dtypes_check_against_wider(job, &positive);
        if (job->result->outcome == CHECK_OUTCOME_PASS)
            dtypes_check_against_two_wider(job, &positive, dtypes_to_32_bits, dtypes_to_64_bits);
        if (job->result->outcome != CHECK_OUTCOME_PASS)
            check_set_current_case(job, &positive);
    }
    const check_case *f64 = dtypes_is_f64_case(c) ? c
                                                  : NULL; /* the case itself, or the same case in f64 if the kernel accepts it */
    if (!f64 && job->result->tried_cases && dtypes_try_widen_case(job->op, c, &wide, &unit))
        f64 = dtypes_is_f64_case(&wide) ? &wide : dtypes_try_widen_case(job->op, &wide, &widest, &unit) ? &widest : NULL;
    for (int what = 0; f64 && what < CHANGE_COUNT && job->result->outcome == CHECK_OUTCOME_PASS; what++) {
        dtypes_check_no_f32_computation(job, f64, (enum dtypes_change_target)what);
        if (job->result->outcome != CHECK_OUTCOME_PASS && f64 != c)
            check_set_current_case(job, f64);
    }
}

/* Copies a case to `out` with another size of a dim, at least half of `size`. Returns false if the contract has no such size, or
 * the case becomes too large. */
static bool dtypes_try_make_resized_case(
    const check_op *op, const check_case *c, const check_varied_size *varied_size, int64_t size, check_case *out)
{
    const int64_t least = size / 2;
    int axes[CHECK_MAX_TENSORS];
    return check_try_resize_case(op, c, varied_size, &size, out, axes) && size >= least && dtypes_is_smooth_small_case(out);
}

/* Makes the comparisons for a case with one dim made long, where a chunk of a kernel or a narrow sum shows. A kernel that would
 * take too long, even if its time grows with the cube of the dim, is skipped. */
static void dtypes_check_with_long_dim(check_job *job, const check_case *c, const check_varied_size *varied_size)
{
    enum { SHORT_SIZE = 331, LONG_SIZE = 2063 }; /* LONG_SIZE: larger than any chunk that a kernel is likely to have */
    static const double most = 0.2;              /* seconds of one call */
    static check_case along;
    static check_outputs outs;
    if (!dtypes_try_make_resized_case(job->op, c, varied_size, SHORT_SIZE, &along))
        return;
    const double begin = check_get_monotonic_seconds();
    const bool ran = dtypes_try_call_and_copy(job, job->kernel, &along, &along, 0, &outs);
    if (!ran || (check_get_monotonic_seconds() - begin) * pow((double)LONG_SIZE / SHORT_SIZE, 3) > most ||
        !dtypes_try_make_resized_case(job->op, c, varied_size, LONG_SIZE, &along))
        return;
    counts = &all_counts[1];
    dtypes_check_one_case(job, &along);
    counts = &all_counts[0];
    if (job->result->outcome != CHECK_OUTCOME_PASS)
        check_set_current_case(job, &along);
}

void check_wider_dtypes(check_job *job, const check_case *c)
{
    enum { MAX_LONG_CASES = 12 }; /* number of cases of which each dim is made long */
    static uint32_t longs;
    if (job->op->is_nondeterministic || !dtypes_is_smooth_small_case(c))
        return;
    dtypes_check_one_case(job, c);
    if (!job->result->tried_cases || job->result->outcome != CHECK_OUTCOME_PASS || longs++ >= MAX_LONG_CASES)
        return;
    for (size_t k = 0; k < job->op->nnames && job->result->outcome == CHECK_OUTCOME_PASS; k++) {
        const check_name *name = &job->op->names[k];
        const int32_t n = name->kind == CHECK_NAME_DTYPE || !c->names.is_bound[k] ? 0
            : name->kind == CHECK_NAME_VARIADIC                                   ? c->names.variadics[name->value_index].ndim
                                                                                  : 1;
        for (int32_t axis = 0; axis < n && job->result->outcome == CHECK_OUTCOME_PASS; axis++)
            dtypes_check_with_long_dim(job, c, &(check_varied_size){ .name = name, .index_in_variadic = axis });
    }
}
