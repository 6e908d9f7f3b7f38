/* How accurate the outputs of a kernel are: a bias of narrow dtypes, and the largest errors (property values). */
#include <math.h>

#include "values.h"

enum { MIN_BIAS_ELEMENTS = 256 }; /* number of elements from which on the mean error of an output is tested for a bias */

/* A mean error is a bias if it exceeds MIN_BIAS units in the last place and MIN_STANDARD_ERRORS standard errors. Truncation has
 * about 0.5 units. */
static const double MIN_BIAS = 0.08, MIN_STANDARD_ERRORS = 6;

void check_values_bias(check_job *job, const comparison *m)
{
    size_t best = 0;
    /* the contract declares how inexact the kernel is */
    if (m->job->op->rtol >= 0 || m->job->op->atol >= 0 || m->job->op->rounded_tolerance > 0) {
        for (size_t k = 0; k < m->found->n; k++)
            if (check_is_float_dtype(m->found->t[k].dtype) && m->found->t[k].dtype.bits <= 16)
                check_set_omitted(job, "a bias of the rounding, as the contract declares rtol, atol or rounded");
        return;
    }
    for (size_t o = 0; o < m->n; o++)
        best = m->reference_kernels[o] == &check_decomposition_f64_kernel ? o : best;
    for (size_t k = 0; k < m->found->n && k < m->references[best]->n; k++) {
        const value_output *t = &m->found->t[k];
        const double u = 2 * check_get_unit_roundoff(t->dtype), least = ldexp(1, -10);
        double sum = 0, squares = 0, n = 0;
        if (!check_is_float_dtype(t->dtype) || t->dtype.bits > 16 || check_has_special_values(m->c))
            continue;
        for (int64_t i = 0; i < t->n; i++) {
            const double expected = check_element_get(check_values_get_bytes(m->references[best], k), i, t->dtype),
                         found = check_element_get(check_values_get_bytes(m->found, k), i, t->dtype);
            if (!isfinite(expected) || fabs(expected) < least)
                continue;
            const double off = (found - expected) / ldexp(u, ilogb(expected)) * (expected < 0 ? -1 : 1);
            if (!(fabs(off) <= 2)) /* NaN, too */
                continue;
            sum += off;
            squares += off * off;
            n++;
        }
        const double mean = sum / n;
        if (n < MIN_BIAS_ELEMENTS || fabs(mean) < MIN_BIAS ||
            fabs(mean) * sqrt(n) < MIN_STANDARD_ERRORS * sqrt(squares / n - mean * mean))
            continue;
        check_fail(job, "bias",
            "the elements of %s (%s) lie %.2f units in the last place %s zero than those of %s%s, in the mean of %.0f: they are "
            "not rounded to nearest",
            t->name, dv_dtype_name(t->dtype), fabs(mean), sum < 0 ? "nearer to" : "farther from",
            m->reference_kernels[best]->hook_index > 0 ? "kernel " : "", m->reference_kernels[best]->name, n);
        return;
    }
}

/* Returns the outputs of a reference of the comparison. NULL: this reference was not called, or refused the case. */
static const value_outputs *values_accuracy_find_reference_outputs(const comparison *m, const check_kernel *kernel)
{
    for (size_t o = 0; o < m->n; o++)
        if (m->reference_kernels[o] == kernel)
            return m->references[o];
    return NULL;
}

/* Returns the entry of result->accuracy for a dtype, or else the first unused entry. NULL: all entries belong to other dtypes. */
static check_accuracy *values_accuracy_find_accuracy_entry(check_result *result, dv_dtype dtype)
{
    for (size_t i = 0; i < CHECK_MAX_ACCURACIES; i++)
        if (!result->accuracy[i].dtype.bits || dv_dtype_key(result->accuracy[i].dtype) == dv_dtype_key(dtype))
            return &result->accuracy[i];
    return NULL;
}

void check_values_measure_accuracy(const comparison *m)
{
    enum { NEAR = 16 };
    const value_outputs *in_f64 = values_accuracy_find_reference_outputs(m, &check_decomposition_f64_kernel),
                        *decomposition_outputs = values_accuracy_find_reference_outputs(m, &check_decomposition_kernel);
    for (size_t k = 0;
        in_f64 && decomposition_outputs && k < m->found->n && k < decomposition_outputs->n && !check_has_special_values(m->c);
        k++) {
        const value_output *t = &m->found->t[k];
        const dv_dtype_row *form = dv_dtype_find(t->dtype);
        check_accuracy *a = check_is_float_dtype(t->dtype) && t->dtype.bits < 64
            ? values_accuracy_find_accuracy_entry(m->job->result, t->dtype)
            : NULL;
        for (int64_t i = 0; a && form && i < t->n; i++) {
            const double expected = check_element_get(check_values_get_bytes(in_f64, k), i, t->dtype), size = fabs(expected),
                         unit = ldexp(2 * check_get_unit_roundoff(t->dtype),
                             size > 0 ? (int)fmax(ilogb(size), 1 - form->bias) : 1 - form->bias),
                         off = fabs(check_element_get(check_values_get_bytes(m->found, k), i, t->dtype) - expected) / unit,
                         others = fabs(check_element_get(check_values_get_bytes(decomposition_outputs, k), i, t->dtype) -
                                      expected) /
                unit;
            if (isfinite(off) && others <= NEAR && size > fmax(m->job->op->atol, 0))
                *a = (check_accuracy){ t->dtype, fmax(a->max_error_ulp, off) };
        }
    }
}
