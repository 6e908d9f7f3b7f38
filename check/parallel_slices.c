/* Slices (property parallel): the facts parallel() and sum() of a contract, checked by calls of slices. */
#include <math.h>
#include <string.h>

#include "parallel.h"

/* A split of a case into two slices, [0, position) and [position, size), along the dim that has a name of the contract. */
typedef struct slice_cut {
    const check_op *op;
    const check_case *c;
    const check_name *name;
    int32_t axis; /* index of the dim within variadic dims *s; 0 for other names */
    int64_t position, size;
    /* for each tensor the dim along which it is split; AXIS_NONE: the slices get the whole tensor */
    int axes[CHECK_MAX_TENSORS];
} slice_cut;

enum { AXIS_NONE = -1, AXIS_UNKNOWN = -2 };

/* Returns the only dim in which the shape of a whole tensor and of its slice differ, if it is cut->size in the whole and
 * slice_size in the slice. AXIS_NONE: the shapes are equal. AXIS_UNKNOWN: they differ in another way. */
static int parallel_slices_find_dim_index(const slice_cut *cut, int64_t slice_size, int32_t whole_ndim,
    const int64_t *whole_shape, int32_t slice_ndim, const int64_t *slice_shape)
{
    int axis = AXIS_NONE;
    if (whole_ndim != slice_ndim)
        return AXIS_UNKNOWN;
    for (int32_t d = 0; d < whole_ndim; d++)
        if (whole_shape[d] != slice_shape[d])
            axis = axis == AXIS_NONE && whole_shape[d] == cut->size && slice_shape[d] == slice_size ? d : AXIS_UNKNOWN;
    return axis;
}

bool check_try_resize_case(const check_op *op, const check_case *original_case, const check_varied_size *varied_size,
    int64_t *wanted_size, check_case *resized_case, int *axes)
{
    *resized_case = *original_case;
    int64_t *const resized = varied_size->name
        ? check_name_find_sizes(varied_size->name, resized_case) + varied_size->index_in_variadic
        : &resized_case->args[varied_size->argument_slot].as.i;
    const slice_cut k = { .op = op, .c = original_case, .size = *resized };
    *resized = *wanted_size;
    if (!check_try_fit_case(op, resized_case, original_case, NULL) || resized_case->ntensors != original_case->ntensors)
        return false;
    *wanted_size = *resized;
    for (size_t i = 0; i < resized_case->nargs; i++)
        if (resized_case->args[i].type == DV_VALUE_INT && resized_case->args[i].as.i != original_case->args[i].as.i &&
            (varied_size->name || i != varied_size->argument_slot))
            return false;
    for (size_t i = 0; i < resized_case->ntensors; i++) {
        const check_tensor *original = &original_case->tensors[i], *resized_tensor = &resized_case->tensors[i];
        axes[i] = resized_tensor->present ? parallel_slices_find_dim_index(&k, *wanted_size, original->ndim, original->shape,
                                                resized_tensor->ndim, resized_tensor->shape)
                                          : AXIS_NONE;
        if (resized_tensor->present != original->present)
            return false;
    }
    return true;
}

/* Sets axes[i] to the dim along which tensor i is split for a slice of slice_size, or AXIS_NONE. Returns false if the dim of some
 * tensor is not clear, or no tensor is split. */
static bool parallel_slices_try_find_axes(const slice_cut *cut, int64_t slice_size, int *axes)
{
    static check_case c;
    const check_varied_size of = { .name = cut->name, .index_in_variadic = cut->axis };
    int64_t size = slice_size;
    bool is_split = false, is_clear = check_try_resize_case(cut->op, cut->c, &of, &size, &c, axes) && size == slice_size;
    for (size_t i = 0; i < cut->c->ntensors && is_clear; i++) {
        is_split |= axes[i] >= 0;
        is_clear = axes[i] != AXIS_UNKNOWN &&
            !(axes[i] >= 0 && check_is_sub_byte_dtype(cut->c->tensors[i].dtype)); /* a slice may begin within a byte */
    }
    return is_split && is_clear;
}

/* Sets cut->axes to the dim along which each tensor is split. Returns false if the two slices split tensors along different dims,
 * or no tensor. */
static bool parallel_slices_try_set_split_axes(slice_cut *cut)
{
    int other[CHECK_MAX_TENSORS];
    return parallel_slices_try_find_axes(cut, cut->position, cut->axes) &&
        parallel_slices_try_find_axes(cut, cut->size - cut->position, other) &&
        !memcmp(cut->axes, other, sizeof *other * cut->c->ntensors);
}

/* True if the output of a slice's call equals, up to rounding, the elements from slice_begin on along `axis` of the whole call's
 * output. Otherwise `message` receives the first difference. */
static bool parallel_slices_equal_part_of_whole(const check_op *op, const check_output *whole_output,
    const check_output *slice_output, int axis, int64_t slice_begin, char *message, size_t capacity)
{
    const int64_t n = dv_numel(&slice_output->t), size = whole_output->dims[axis], slice_size = slice_output->dims[axis];
    const double tolerance = check_get_reorder_tolerance(op, whole_output->t.dtype, check_output_get_max_magnitude(whole_output));
    char where[200], a[40], b[40];
    int64_t inner = 1;
    for (int32_t i = axis + 1; i < slice_output->t.ndim; i++)
        inner *= slice_output->dims[i];
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = i / inner % slice_size, at = (i / inner / slice_size * size + slice_begin + k) * inner + i % inner;
        int number;
        if (!check_output_elements_differ(slice_output, i, whole_output, at, tolerance, &number))
            continue;
        check_output_format_element_name(op, whole_output, at, where, sizeof where);
        snprintf(message, capacity, "%s is %s%s in the whole and %s in the slice", where,
            check_output_format_number(whole_output, at, number, a, sizeof a), number ? " (imaginary)" : "",
            check_output_format_number(slice_output, i, number, b, sizeof b));
        return false;
    }
    return true;
}

typedef struct slice_calls {
    check_unguarded_call whole_call, slices[2];
    check_outputs outputs[3];
} slice_calls;
static slice_calls sliced_calls;

/* Makes the whole call and the calls of its two slices, and copies their outputs to sliced_calls. Returns false if it is not
 * clear how tensors are split, or a call was refused. */
static bool parallel_slices_try_call(slice_cut *cut, const check_job *job)
{
    if (!parallel_slices_try_set_split_axes(cut) ||
        !check_unguarded_call_try_init(&sliced_calls.whole_call, job->op, job->kernel, cut->c) ||
        !check_unguarded_call_try_init_slice(&sliced_calls.slices[0], &sliced_calls.whole_call, cut->axes, 0, cut->position) ||
        !check_unguarded_call_try_init_slice(
            &sliced_calls.slices[1], &sliced_calls.whole_call, cut->axes, cut->position, cut->size))
        return false;
    for (int i = 0; i < 3; i++) {
        check_unguarded_call *call = i ? &sliced_calls.slices[i - 1] : &sliced_calls.whole_call;
        check_unguarded_call_run(call);
        if (call->status)
            return false;
        check_outputs_copy(&sliced_calls.outputs[i], job->op, cut->c, call->results, call->values.tensors);
        if (sliced_calls.outputs[i].is_incomplete || sliced_calls.outputs[i].noutputs != sliced_calls.outputs[0].noutputs)
            return false;
    }
    return true;
}

/* Checks a declared parallel(name): the call of each slice alone gives that slice of the whole call's results. */
static void parallel_slices_check(check_job *job, slice_cut *cut)
{
    char words[300];
    if (!parallel_slices_try_call(cut, job))
        return;
    for (int slice_number = 0; slice_number < 2; slice_number++)
        for (size_t i = 0; i < sliced_calls.outputs[0].noutputs && !check_parallel_has_failed(job); i++) {
            const check_output *whole_output = &sliced_calls.outputs[0].items[i],
                               *slice_output = &sliced_calls.outputs[1 + slice_number].items[i];
            const int64_t low = slice_number ? cut->position : 0, high = slice_number ? cut->size : cut->position;
            const int axis = parallel_slices_find_dim_index(
                cut, high - low, whole_output->t.ndim, whole_output->dims, slice_output->t.ndim, slice_output->dims);
            if (axis >= 0 &&
                !parallel_slices_equal_part_of_whole(job->op, whole_output, slice_output, axis, low, words, sizeof words))
                check_fail(job, "not parallel",
                    "parallel(%s%s) does not hold: of the slice [%lld, %lld) alone the result is another than that slice of the "
                    "whole: %s",
                    cut->name->kind == CHECK_NAME_VARIADIC ? "*" : "", cut->name->text, (long long)low, (long long)high, words);
        }
}

/* Returns an upper bound of |product| of one element of each tensor; each factor counts as at least 1. *max_terms receives the
 * number of such products that one sum may have, which is the largest tensor's number of elements. */
static double parallel_slices_get_max_product(const check_case *c, double *max_terms)
{
    double product = 1;
    *max_terms = 1;
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        if (!t->present)
            continue;
        product *= fmax(1, fmax(fabs(t->low), fabs(t->high)));
        *max_terms = fmax(*max_terms, (double)check_tensor_numel(t));
    }
    return product;
}

/* Returns how far a sum may lie from the same sum in another order. Its terms are products with an element of each tensor as a
 * factor. max_magnitude: of the results. A kernel that rounds every step to a narrow dtype has inaccurate values, but its result
 * is still a sum, so the largest rounding error is allowed. */
static double parallel_slices_get_sum_tolerance(const check_op *op, const check_case *c, dv_dtype dtype, double max_magnitude)
{
    double terms;
    const double product = parallel_slices_get_max_product(c, &terms);
    const double order = dtype.bits >= 64 ? 8 * 0x1p-53 : dtype.bits >= 32 ? 8 * 0x1p-24 : terms * check_get_unit_roundoff(dtype);
    const double one_by_one = dtype.bits >= 32 ? terms * check_get_unit_roundoff(dtype) * max_magnitude
                                               : 0; /* the roundings of a sum of equal terms all have one sign */
    return check_get_reorder_tolerance(op, dtype, fmax(max_magnitude, product)) + order * terms * product + one_by_one;
}

/* True if an integer element of the whole call's output is the sum of the same element of both slices' outputs. Integers wrap, so
 * the sum is compared modulo 2^bits. */
static bool parallel_slices_is_exact_sum(
    const check_output *whole_output, const check_output *first_slice, const check_output *second_slice, int64_t element_index)
{
    const size_t size = (size_t)dv_dtype_bytes(whole_output->t.dtype, 1);
    uint64_t w = 0, x = 0, y = 0;
    memcpy(&w, (const char *)whole_output->t.data + (size_t)element_index * size, size);
    memcpy(&x, (const char *)first_slice->t.data + (size_t)element_index * size, size);
    memcpy(&y, (const char *)second_slice->t.data + (size_t)element_index * size, size);
    const uint64_t difference = x + y - w;
    return !memcmp(&difference, &(uint64_t){ 0 }, size);
}

/* True if an integer result of this dtype may overflow: a sum of products, with an element of each tensor and each number
 * argument as factors. An operator may saturate it. */
static bool parallel_slices_sum_may_overflow(const check_case *c, dv_dtype dtype)
{
    double terms, product = parallel_slices_get_max_product(c, &terms);
    for (size_t i = 0; i < c->nargs; i++) {
        const check_value *v = &c->args[i];
        product *= fmax(1, fabs(v->type == DV_VALUE_INT ? (double)v->as.i : v->type == DV_VALUE_FLOAT ? v->as.f : 1));
    }
    return !(product * terms < check_get_max_integer(dtype) + 1);
}

/* Size of the integers that a sum adds. TERMS_SMALL: from -1 to 1. TERMS_LARGE: all are the bound of an 8 or 16 bit dtype that is
 * farther from 0. */
enum term_size { TERMS_SMALL, TERMS_LARGE };

/* Copies a case to `out` with integers of this size as elements of its tensors. Returns false if the contract does not accept the
 * copy, or a sum in sum_dtype may overflow. */
static bool parallel_slices_try_make_case_with_integer_terms(
    const check_job *job, const check_case *c, enum term_size size_of_terms, dv_dtype sum_dtype, check_case *out)
{
    *out = *c;
    for (size_t i = 0; i < out->ntensors; i++) {
        check_tensor *t = &out->tensors[i];
        const bool large = size_of_terms == TERMS_LARGE;
        if (!t->present || !check_is_integer_dtype(t->dtype) || t->dtype.bits < 8 || (large && t->dtype.bits > 16) ||
            check_has_positional_fill(t))
            continue;
        t->fill = CHECK_FILL_RANDOM;
        t->high_size_code = 0;
        t->low = !large ? fmax(t->low, -1) : t->dtype.code ? check_get_max_integer(t->dtype) : check_get_min_integer(t->dtype);
        t->high = large ? t->low : fmin(t->high, 1);
        if (t->low > t->high || (large && t->dtype.code == 6))
            *t = c->tensors[i];
    }
    return !parallel_slices_sum_may_overflow(out, sum_dtype) && check_is_accepted(job->op, out);
}

/* True if an output has integers of at least 8 bits; bool does not count. */
static bool parallel_slices_is_integer_output(const check_output *output)
{
    return check_is_integer_dtype(output->t.dtype) && output->t.dtype.code != 6 && output->t.dtype.bits >= 8;
}

/* Fails the job if the results of the slices in sliced_calls do not add up to those of the whole call. Returns the dtype of the
 * last integer result whose sum is not exact and may have overflowed, which is no failure; bits 0: there is none. */
static dv_dtype parallel_slices_check_sums_and_get_overflowed_dtype(check_job *job, const slice_cut *cut)
{
    char where[200], numbers[3][40];
    dv_dtype large = { .bits = 0 };
    for (size_t i = 0; i < sliced_calls.outputs[0].noutputs && !check_parallel_has_failed(job); i++) {
        const check_output *whole_output = &sliced_calls.outputs[0].items[i], *a = &sliced_calls.outputs[1].items[i],
                           *b = &sliced_calls.outputs[2].items[i];
        const bool whole_numbers = parallel_slices_is_integer_output(whole_output);
        if (whole_output->slot < job->op->nargs || whole_output->is_number_result ||
            !(whole_numbers || check_is_float_dtype(whole_output->t.dtype)))
            continue;
        const bool same = !memcmp(whole_output->dims, a->dims, sizeof a->dims) &&
            !memcmp(whole_output->dims, b->dims, sizeof a->dims);
        const check_json *unbacked = check_json_find_member(job->op->contract, "unbacked");
        if (!same && !(unbacked && unbacked->child)) {
            check_fail(job, "not a sum", "sum(%s%s) does not hold: result '%s' has another shape for [0, %lld) alone",
                cut->name->kind == CHECK_NAME_VARIADIC ? "*" : "", cut->name->text, job->op->slots[whole_output->slot].name,
                (long long)cut->position);
        }
        if (!same)
            continue;
        const double largest = fmax(check_output_get_max_magnitude(whole_output),
            fmax(check_output_get_max_magnitude(a), check_output_get_max_magnitude(b)));
        const double tolerance = whole_numbers
            ? 0
            : parallel_slices_get_sum_tolerance(job->op, cut->c, whole_output->t.dtype, largest);
        const bool overflows = whole_numbers && parallel_slices_sum_may_overflow(cut->c, whole_output->t.dtype);
        for (int64_t n = 0, all = dv_numel(&whole_output->t); n < all && !check_parallel_has_failed(job); n++) {
            const double w = check_element_get(whole_output->t.data, n, whole_output->t.dtype),
                         x = check_element_get(a->t.data, n, a->t.dtype), y = check_element_get(b->t.data, n, b->t.dtype);
            if (whole_numbers ? parallel_slices_is_exact_sum(whole_output, a, b, n)
                              : !isfinite(w) || !isfinite(x + y) || fabs(x + y - w) <= tolerance)
                continue;
            if (overflows) {
                large = whole_output->t.dtype;
                break;
            }
            check_output_format_element_name(job->op, whole_output, n, where, sizeof where);
            check_fail(job, "not a sum",
                "sum(%s%s) does not hold: of [0, %lld) and [%lld, %lld) alone %s is %s and %s, and of the whole %s",
                cut->name->kind == CHECK_NAME_VARIADIC ? "*" : "", cut->name->text, (long long)cut->position,
                (long long)cut->position, (long long)cut->size, where,
                check_output_format_number(a, n, 0, numbers[0], sizeof numbers[0]),
                check_output_format_number(b, n, 0, numbers[1], sizeof numbers[1]),
                check_output_format_number(whole_output, n, 0, numbers[2], sizeof numbers[2]));
        }
    }
    return large;
}

/* Checks a declared sum once more, with a case that has other integers in its tensors and is split at `position`. Restores the
 * current case unless the check fails. */
static void parallel_slices_check_sum_with_integers(
    check_job *job, const slice_cut *cut, const check_case *case_with_integers, int64_t position)
{
    static check_case original_case;
    slice_cut other = *cut;
    original_case = *cut->c;
    other.c = case_with_integers;
    other.position = position;
    check_set_current_case(job, case_with_integers);
    if (parallel_slices_try_call(&other, job))
        parallel_slices_check_sums_and_get_overflowed_dtype(job, &other);
    if (!check_parallel_has_failed(job))
        check_set_current_case(job, &original_case);
}

/* Checks a declared sum(name): the results of two slices add up to those of the whole call. Integers must add up exactly, the
 * largest ones too: a kernel may add them in a dtype that is too narrow. */
static void parallel_slices_check_sum(check_job *job, slice_cut *cut)
{
    static check_case other;
    dv_dtype integers = { .bits = 0 };
    if (!parallel_slices_try_call(cut, job))
        return;
    for (size_t i = 0; i < sliced_calls.outputs[0].noutputs; i++)
        integers = parallel_slices_is_integer_output(&sliced_calls.outputs[0].items[i]) ? sliced_calls.outputs[0].items[i].t.dtype
                                                                                        : integers;
    const dv_dtype large = parallel_slices_check_sums_and_get_overflowed_dtype(job, cut);
    if (large.bits && !check_parallel_has_failed(job)) {
        if (parallel_slices_try_make_case_with_integer_terms(job, cut->c, TERMS_SMALL, large, &other))
            parallel_slices_check_sum_with_integers(job, cut, &other, cut->position);
        else
            check_set_omitted(job, "large sums of integers, which may overflow the dtype of the result");
    }
    if (integers.bits && !check_parallel_has_failed(job) &&
        parallel_slices_try_make_case_with_integer_terms(job, cut->c, TERMS_LARGE, integers, &other))
        parallel_slices_check_sum_with_integers(job, cut, &other, 1);
}

const check_name *check_parallel_find_fact_name(const check_op *op, const check_json *fact)
{
    return check_op_find_name(
        op, check_json_is_expr(fact, "run") ? CHECK_NAME_VARIADIC : CHECK_NAME_DIM, fact->child->next->text);
}

/* Calls check_cut() for each dim of more than one element that a name stands for, split into two slices. Does nothing if the name
 * is NULL, or if facts on elements or other names depend on it. */
static void parallel_slices_check_cuts_of_name(
    check_job *job, const check_case *c, const check_name *name, void (*check_cut)(check_job *, slice_cut *))
{
    const bool is_variadic = name && name->kind == CHECK_NAME_VARIADIC;
    /* a slice need not be a valid call if something else depends on the size */
    if (!name || check_name_has_dependents(job->op, name))
        return;
    for (int32_t axis = 0;
        axis < (is_variadic ? c->names.variadics[name->value_index].ndim : 1) && !check_parallel_has_failed(job); axis++) {
        slice_cut cut = { .op = job->op, .c = c, .name = name, .axis = axis };
        cut.size = is_variadic ? c->names.variadics[name->value_index].sizes[axis] : c->names.dims[name->value_index];
        cut.position = cut.size > 1 ? 1 + (int64_t)(c->seed % (uint64_t)(cut.size - 1)) : 0;
        if (cut.position)
            check_cut(job, &cut);
    }
}

bool check_parallel_fact_applies(const check_case *c, const check_json *fact_case)
{
    const check_json *when = check_json_find_member(fact_case, "case"),
                     *group = when && when->kind == CHECK_JSON_ARRAY ? when->child : NULL;
    return !group ||
        (group->int_value < CHECK_MAX_CASE_GROUPS && c->names.selected_case[group->int_value] == group->next->int_value);
}

void check_parallel_facts(check_job *job, const check_case *c)
{
    const check_json *places = check_json_find_member(job->op->contract, "places"), *fact_case = places ? places->child : NULL;
    for (int sums = 0; sums < 2; sums++) {
        const check_json *facts = check_json_find_member(job->op->contract, sums ? "sum" : "parallel");
        for (const check_json *fact = facts ? facts->child : NULL; fact && !check_parallel_has_failed(job);
            fact = fact->next, fact_case = fact_case->next)
            if (check_parallel_fact_applies(c, fact_case))
                parallel_slices_check_cuts_of_name(job, c, check_parallel_find_fact_name(job->op, fact),
                    sums ? parallel_slices_check_sum : parallel_slices_check);
    }
}
