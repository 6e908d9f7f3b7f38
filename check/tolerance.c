/* The tolerance between two right results. u is half a unit in the last place: 2^-53 for f64, 2^-24 for f32, 2^-11 for f16, 2^-8
 * for bf16; v is u of the type that is computed in, f32, and 2^-47 for f64, whose opinions do not lie apart where much is lost on
 * the way; M is the largest element or number that goes in, at least 1 (left out are integers beyond 32 bits, which are
 * positions, and integers that the size of a result follows from, which are counts; I is the largest of those that sizes bound,
 * which are mostly positions: functions of one take part, and not products), and P the product of the largest of three arguments,
 * at least M^2; n is how many elements may be added up: the largest dim that goes in, or the elements of an input for each of the
 * result.
 *
 *     |a - b| <= r |b| + v (16 (P + I) + n M),  r = 4u + v (16 (M + I) + max(4 sqrt(n), n / 4))
 *
 * The result is rounded to its type (twice on each side: 4u, or 8u when b is the only opinion, which may itself round every step
 * to a small type), functions are right to a few v of what goes into them, and of sums of n terms errors grow like sqrt(n), like
 * n / 4 where terms of the kernel's own are equal, or like n where those of the case are (of expanded tensors, or of a few
 * elements) or cancel, so that roundings add up. An rtol that the contract declares replaces the second term of r, an atol the
 * second term of the bound; `rounded` adds so many units in the last place of M. Integers and booleans: exact. */
#include <math.h>
#include <string.h>

#include "check.h"

double check_largest(dv_dtype d)
{
    const dv_dtype_row *row = dv_dtype_find(d);
    if (row && d.bits > 8 && row->form)
        return ldexp(2 - ldexp(1, -row->mantissa), row->bias);
    double most = 0; /* of one byte */
    for (unsigned bits = 0; bits < 256; bits++) {
        const double x = check_get(&(uint8_t){ (uint8_t)bits }, 0, d);
        most = isfinite(x) && x > most ? x : most;
    }
    return most;
}

static double largest_number(const check_value *v)
{
    double most = 0;
    if (v->type == DV_VALUE_INT) /* what 32 bits cannot hold is a position or a count */
        return v->as.i > INT32_MAX || v->as.i < INT32_MIN ? 0 : fabs((double)v->as.i);
    if (v->type == DV_VALUE_FLOAT)
        return fabs(v->as.f);
    for (uint32_t k = 0; k < v->count && (v->type == DV_VALUE_FLOATS || v->type == DV_VALUE_SCALARS); k++)
        most = fmax(most, fabs(v->floats[k]));
    return most;
}

static double largest_of(const check_case *c, const check_value *v)
{
    double most = largest_number(v);
    for (uint32_t k = 0; k < v->count && (v->type == DV_VALUE_TENSOR || v->type == DV_VALUE_TENSORS); k++) {
        const check_tensor *t = &c->tensors[v->first + k];
        if (t->present && t->fill != CHECK_SPREAD)
            most = fmax(most, fmax(fabs(t->low), fabs(t->high)));
    }
    return most;
}

static double largest_position(const check_case *c)
{
    double most = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        if (c->tensors[i].present && c->tensors[i].fill == CHECK_SPREAD)
            most = fmax(most, fmax(fabs(c->tensors[i].low), fabs(c->tensors[i].high)));
    return most;
}

/* Keeps the three largest, in order. */
static void insert(double most[3], double x)
{
    for (int k = 0; k < 3; k++)
        if (x > most[k]) {
            const double smaller = most[k];
            most[k] = x;
            x = smaller;
        }
}

check_tolerance check_tolerance_of(const check_op *op, const check_case *c, dv_dtype dtype, int64_t elements, bool alone)
{
    double most[3] = { 1, 1, 1 }, n = 1;
    bool equal = false, any = false, few = true;
    if (!check_is_float(dtype) && !check_is_complex(dtype))
        return (check_tolerance){ 0, 0, 1 };
    for (size_t i = 0; i < c->nargs; i++)
        if (c->args[i].type != DV_VALUE_INT || !op->literals[i].sizes)
            insert(most, largest_of(c, &c->args[i]));
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &c->tensors[i];
        if (!t->present)
            continue;
        equal |= t->layout == CHECK_EXPANDED;
        for (int32_t d = 0; d < t->ndim; d++)
            n = fmax(n, (double)t->shape[d]);
        if (elements)
            n = fmax(n, (double)check_numel(t) / (double)elements);
    }
    for (size_t i = 0; i < c->ntensors; i++) { /* a long sum of what they hold has equal terms */
        const check_tensor *t = &c->tensors[i];
        const bool real = t->present && (check_is_float(t->dtype) || check_is_complex(t->dtype));
        any |= real;
        few &= !real || 16 * (double)check_numel(t) <= n;
    }
    equal |= any && few;
    /* In f64 the opinions lose precision in the same way, so their difference does not show it: allow 64 units more; results
     * computed in f32 are still far off.
     */
    const double u = check_unit(dtype), v = u == 0x1p-53 ? 0x1p-47 : 0x1p-24;
    const double largest = most[0], position = largest_position(c), product = largest * fmax(largest, most[1] * most[2]);
    const double relative = v * (16 * (largest + position) + fmax(equal ? n : n / 4, 4 * sqrt(n))),
                 absolute = v * (16 * (product + position) + n * largest);
    return (check_tolerance){ (alone ? 8 : 4) * u + (op->rtol < 0 ? relative : op->rtol),
        (op->atol < 0 ? absolute : op->atol) + 2 * op->rounded * u * largest, equal ? sqrt(n) : 1 };
}

double check_rounding(const check_op *op, dv_dtype dtype, double largest)
{
    if (check_is_integer(dtype))
        return 0;
    const int bits = dtype.code == 5 ? dtype.bits / 2 : dtype.bits;
    const double order = 1024 * (bits >= 64 ? 0x1p-53 : 0x1p-24); /* of sums, in f32 at least */
    const double last = bits > 16 ? 0 : bits == 16 ? check_unit(dtype) : 0x1p-2;
    return (order + 4 * last + fmax(op->rtol, 0)) * largest + fmax(op->atol, 1e-30);
}
