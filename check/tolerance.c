/* The tolerance between two right results of an element.
 *
 * - u: unit roundoff of the result's dtype: 2^-53 for f64, 2^-24 for f32, 2^-11 for f16, 2^-8 for bf16.
 * - v: unit roundoff of the computation: 2^-24 (f32); for f64 2^-47, because references in f64 lose digits in the same way, so
 *   that their distance does not show the loss.
 * - M: the largest input element or number, at least 1. Left out are integers beyond 32 bits, which are positions, and integers
 *   that decide a result's size, which are counts.
 * - I: the largest of the integers that sizes bound. They are mostly positions: they are arguments of functions, not factors of
 *   products.
 * - P: product of the largest of three arguments, at least M^2.
 * - n: how many elements may be summed: the largest input dim, or the elements of an input for each element of the result.
 *
 *     |a - b| <= r |b| + v (16 (P + I) + n M),  r = 4u + v (16 (M + I) + max(4 sqrt(n), n / 4))
 *
 * The result is rounded to its dtype twice on each side: 4u, or 8u when b is the only reference, which may itself round every
 * step to a narrow dtype. Functions are accurate to a few v of their arguments. Errors of sums of n terms grow like sqrt(n);
 * like n / 4 where the kernel adds equal terms; and like n where the case has equal terms (expanded tensors, few elements) or
 * terms cancel, so that all roundings have one sign. An rtol of the contract replaces the second term of r, an atol the second
 * term of the bound; `rounded` adds so many units in the last place of M. Integers and booleans must be equal. */
#include <math.h>
#include <string.h>

#include "check.h"

double check_get_max_finite(dv_dtype dtype)
{
    const dv_dtype_row *row = dv_dtype_find(dtype);
    if (row && dtype.bits > 8 && row->form)
        return ldexp(2 - ldexp(1, -row->mantissa), row->bias);
    double most = 0; /* for dtypes of one byte: the largest finite number of all 256 */
    for (unsigned bits = 0; bits < 256; bits++) {
        const double x = check_element_get(&(uint8_t){ (uint8_t)bits }, 0, dtype);
        most = isfinite(x) && x > most ? x : most;
    }
    return most;
}

/* Returns the largest magnitude of an int, float or list of floats or scalars; 0 for other types, and for ints beyond 32 bits. */
static double tolerance_get_number_magnitude(const check_value *v)
{
    double most = 0;
    if (v->type == DV_VALUE_INT) /* an int beyond 32 bits is a position or a count */
        return v->as.i > INT32_MAX || v->as.i < INT32_MIN ? 0 : fabs((double)v->as.i);
    if (v->type == DV_VALUE_FLOAT)
        return fabs(v->as.f);
    for (uint32_t k = 0; k < v->count && (v->type == DV_VALUE_FLOATS || v->type == DV_VALUE_SCALARS); k++)
        most = fmax(most, fabs(v->floats[k]));
    return most;
}

/* Returns the largest magnitude of an argument: of a number, or of the bounds of its tensors' elements. Integers that the
 * contract bounds are left out. */
static double tolerance_get_argument_magnitude(const check_case *c, const check_value *v)
{
    double most = tolerance_get_number_magnitude(v);
    for (uint32_t k = 0; k < v->count && (v->type == DV_VALUE_TENSOR || v->type == DV_VALUE_TENSORS); k++) {
        const check_tensor *t = &c->tensors[v->first_tensor + k];
        if (t->present && t->fill != CHECK_FILL_RANGE_ENDS)
            most = fmax(most, fmax(fabs(t->low), fabs(t->high)));
    }
    return most;
}

/* Returns the largest magnitude of the case's integers that the contract bounds, which are mostly indices; 0 if there are none.
 */
static double tolerance_get_index_magnitude(const check_case *c)
{
    double most = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_RANGE_ENDS)
            most = fmax(most, fmax(fabs(c->tensors[i].low), fabs(c->tensors[i].high)));
    return most;
}

/* Inserts a value into the three largest numbers, kept in descending order; a smaller value is ignored. */
static void tolerance_insert_into_largest_three(double largest[3], double value)
{
    for (int k = 0; k < 3; k++)
        if (value > largest[k]) {
            const double smaller = largest[k];
            largest[k] = value;
            value = smaller;
        }
}

check_tolerance check_get_tolerance(const check_op *op, const check_case *c, dv_dtype dtype, int64_t numel, bool single_reference)
{
    double most[3] = { 1, 1, 1 }, n = 1;
    bool equal = false, any_real = false, few_elements = true;
    if (!check_is_float_dtype(dtype) && !check_is_complex_dtype(dtype))
        return (check_tolerance){ 0, 0, 1 };
    for (size_t i = 0; i < c->nargs; i++)
        if (c->args[i].type != DV_VALUE_INT || !op->literals[i].decides_shape)
            tolerance_insert_into_largest_three(most, tolerance_get_argument_magnitude(c, &c->args[i]));
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        if (!t->present)
            continue;
        equal |= t->layout == CHECK_LAYOUT_EXPANDED;
        for (int32_t d = 0; d < t->ndim; d++)
            n = fmax(n, (double)t->shape[d]);
        if (numel)
            n = fmax(n, (double)check_tensor_numel(t) / (double)numel);
    }
    for (size_t i = 0; i < c->ntensors; i++) { /* a long sum of few distinct elements has equal terms */
        const check_tensor *t = &c->tensors[i];
        const bool real = t->present && (check_is_float_dtype(t->dtype) || check_is_complex_dtype(t->dtype));
        any_real |= real;
        few_elements &= !real || 16 * (double)check_tensor_numel(t) <= n;
    }
    equal |= any_real && few_elements;
    /* References in f64 lose precision in the same way, so their difference does not show it: v allows 64 units more. Results
     * computed in f32 still exceed that. */
    const double u = check_get_unit_roundoff(dtype), v = u == 0x1p-53 ? 0x1p-47 : 0x1p-24;
    const double largest = most[0], position = tolerance_get_index_magnitude(c),
                 product = largest * fmax(largest, most[1] * most[2]);
    const double relative = v * (16 * (largest + position) + fmax(equal ? n : n / 4, 4 * sqrt(n))),
                 absolute = v * (16 * (product + position) + n * largest);
    return (check_tolerance){ (single_reference ? 8 : 4) * u + (op->rtol < 0 ? relative : op->rtol),
        (op->atol < 0 ? absolute : op->atol) + 2 * op->rounded_tolerance * u * largest, equal ? sqrt(n) : 1 };
}

double check_get_reorder_tolerance(const check_op *op, dv_dtype dtype, double largest)
{
    if (check_is_integer_dtype(dtype))
        return 0;
    const int bits = dtype.code == 5 ? dtype.bits / 2 : dtype.bits;
    const double reorder_error = 1024 * (bits >= 64 ? 0x1p-53 : 0x1p-24); /* error of sums in another order, in f32 at least */
    const double last_place_error = bits > 16 ? 0 : bits == 16 ? check_get_unit_roundoff(dtype) : 0x1p-2;
    return (reorder_error + 4 * last_place_error + fmax(op->rtol, 0)) * largest + fmax(op->atol, 1e-30);
}
