/* Comparing the outputs of a kernel with those of references (property values). */
#include <math.h>
#include <string.h>

#include "values.h"

/* factor: a difference from the reference is accepted up to this many times the change that a perturbation of the arguments
 * causes */
enum { MOVEMENT_FACTOR = 16 };

/* True if an expression of the decomposition only moves elements or changes their signs, such as flip() or neg(). Then even the
 * sign of a zero is defined. */
static bool values_compare_expr_only_moves_elements(const check_json *expr)
{
    static const char *const names[] = { "abs", "neg", "clone", "flip", "transpose", "cat", "index_select", "narrow", "slice",
        "reshape", "expand", "squeeze", "unsqueeze" };
    bool moves = true;
    if (check_json_is_expr(expr, "call")) {
        const check_json *name = check_json_find_element(expr, 1);
        const char *text = name && name->text ? name->text : "";
        moves = false;
        for (size_t i = 0; i < sizeof names / sizeof *names && !strncmp(text, "base::", 6) && !moves; i++) {
            const size_t n = strlen(names[i]);
            moves = !strncmp(text + 6, names[i], n) && (!text[6 + n] || text[6 + n] == '.');
        }
    }
    for (const check_json *operand = expr->kind == CHECK_JSON_ARRAY ? expr->child : NULL; operand && moves;
        operand = operand->next)
        moves = values_compare_expr_only_moves_elements(operand);
    return moves;
}

/* True if the operator has a decomposition that writes no argument, and all its results only move elements or change their signs.
 */
static bool values_compare_decomposition_only_moves_elements(const check_op *op)
{
    const check_json *form = check_json_find_member(op->json, "native"),
                     *results = form ? check_json_find_member(form, "results") : NULL,
                     *writes = form ? check_json_find_member(form, "writes") : NULL;
    return results && check_json_count_elements(results) && (!writes || !check_json_count_elements(writes)) &&
        values_compare_expr_only_moves_elements(results);
}

comparison check_values_make_comparison(check_job *job, const check_case *c, const value_outputs *found)
{
    comparison m = { .job = job,
        .c = c,
        .reference_case = c,
        .found = found,
        .only_moves_elements = values_compare_decomposition_only_moves_elements(job->op) };
    for (size_t i = 0; i < c->ntensors; i++) {
        const bool special = c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_SPECIAL_VALUES;
        m.has_overflow |= special && (c->seed + i) % 2;
        m.has_lone_special |= special && (c->seed + i) % 4 == CHECK_SEED_LONE_SPECIAL;
        m.has_binades |= c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_BINADES;
        m.has_negative_infinity |= c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_NEGATIVE_INFINITY;
        m.can_have_overflow |= special && c->tensors[i].dtype.bits <= 16;
        m.has_low_payload_nan |= c->tensors[i].present && c->tensors[i].fill == CHECK_FILL_LOW_PAYLOAD_NAN;
    }
    return m;
}

enum number_class { CLASS_FINITE, CLASS_POSITIVE_INF, CLASS_NEGATIVE_INF, CLASS_NAN };
/* Returns the class of a number: finite, positive infinity, negative infinity or NaN. */
static enum number_class values_compare_get_number_class(double x)
{
    return isnan(x) ? CLASS_NAN : !isinf(x) ? CLASS_FINITE : x > 0 ? CLASS_POSITIVE_INF : CLASS_NEGATIVE_INF;
}

/* Appends to `message` the element of each argument that has the same shape as `output`, at the same index: " (there gate is 3,
 * up is NaN)". Appends nothing if no argument has this shape. */
static void values_compare_append_argument_elements(
    const comparison *m, const value_output *output, int64_t element_index, char *message, size_t capacity)
{
    size_t length = strlen(message);
    const char *separator = " (there ";
    for (size_t i = 0; i < m->c->ntensors; i++) {
        const check_tensor *a = &m->c->tensors[i];
        char number[40];
        if (!a->present || a->ndim != output->ndim || memcmp(a->shape, output->shape, sizeof *a->shape * (size_t)output->ndim) ||
            !check_try_format_element(m->c, i, element_index, number, sizeof number))
            continue;
        length += (size_t)snprintf(message + length, capacity - length, "%s%s is %s", separator,
            m->job->op->slots[check_find_tensor_slot(m->c, i)].name, number);
        if (length >= capacity)
            return;
        separator = ", ";
    }
    if (*separator == ',')
        snprintf(message + length, capacity - length, ")");
}

/* Fills *difference with its kind and message. Its place is component `component_index` of all components of output
 * `output_index`; a complex element has 2. allowed: the tolerance, which the message names for the kind "other value". */
static void values_compare_describe_difference(const comparison *m, size_t output_index, int64_t component_index, int ncomponents,
    double found, double expected, const char *kind, double allowed, value_difference *difference)
{
    const value_output *t = &m->found->t[output_index];
    char index[200], a[40], b[40], limit[60] = "";
    check_format_element_index(t->ndim, t->shape, component_index / ncomponents, index, sizeof index);
    check_format_number(found, check_values_get_bytes(m->found, output_index), component_index, t->dtype, a, sizeof a);
    check_format_number(expected, check_values_get_bytes(m->references[0], output_index), component_index, t->dtype, b, sizeof b);
    if (!strcmp(kind, "other value") && allowed > 0)
        snprintf(limit, sizeof limit, "; they may lie %.3g apart", allowed);
    const check_kernel *reference = m->reference_kernels[0];
    snprintf(difference->message, sizeof difference->message, "element [%s] of %s (%s) is %s%s, and %s%s gives %s%s", index,
        t->name, dv_dtype_name(t->dtype), a,
        ncomponents == 1          ? ""
            : component_index % 2 ? " (imaginary)"
                                  : " (real)",
        reference->hook_index > 0 ? "kernel " : "", reference->name, b, limit);
    values_compare_append_argument_elements(m, t, component_index / ncomponents, difference->message, sizeof difference->message);
    difference->kind = kind;
}

/* True if some element of an output of integers or bools is unequal to the references, and all references agree on this element.
 * *difference receives the first such element. */
static bool values_compare_exact_output_differs(const comparison *m, size_t output_index, value_difference *difference)
{
    const value_output *t = &m->found->t[output_index];
    const size_t size = (size_t)dv_dtype_bytes(t->dtype, 1);
    for (int64_t i = 0; i < t->n; i++) {
        const unsigned char *first = check_values_get_bytes(m->references[0], output_index) + (size_t)i * size;
        bool agree = memcmp(first, check_values_get_bytes(m->found, output_index) + (size_t)i * size, size) != 0;
        for (size_t o = 1; o < m->n && agree; o++)
            agree = !memcmp(first, check_values_get_bytes(m->references[o], output_index) + (size_t)i * size, size);
        if (agree) {
            values_compare_describe_difference(m, output_index, i, 1,
                check_element_get(check_values_get_bytes(m->found, output_index), i, t->dtype),
                check_element_get(first, 0, t->dtype), "other value", 0, difference);
            return true;
        }
    }
    return false;
}

/* True if it is no failure, for these inputs, that one of `found` and `expected` is finite, infinite or NaN and the other is not.
 */
static bool values_compare_accepts_other_number_class(const comparison *m, double found, double expected, double max_finite)
{
    /* the author's reference kernel defines what inputs of -infinity give: the maximum of nothing is -inf, for example */
    const bool is_defined_by_author = m->has_negative_infinity && !m->has_lone_special && m->reference_kernels[0]->is_reference;
    if ((m->has_lone_special || m->has_negative_infinity) && !isfinite(found) && !isfinite(expected) &&
        !(is_defined_by_author && isnan(found)))
        return true;
    if (m->has_negative_infinity) /* where the reference gives NaN for an input of -infinity, a kernel may give a number */
        return isnan(expected);
    if (m->has_overflow || (m->can_have_overflow && !(isnan(expected) && isfinite(found) && fabs(found) < sqrt(max_finite))))
        return true;
    /* an infinity is accepted in place of a number near the largest finite one, and the reverse; a NaN is not */
    return !isinf(found) != !isinf(expected) && fabs(isinf(found) ? expected : found) >= 0.9 * max_finite;
}

/* Returns an allowed error: MOVEMENT_FACTOR times the change of the first reference's element when the arguments change by a few
 * units in the last place. Where it is large, as for a division by a sum near zero, no kernel can be accurate. Returns 0 if no
 * perturbed call was made. */
static double values_compare_get_conditioning_tolerance(
    const comparison *m, size_t output_index, int64_t component_index, double equal_terms_factor)
{
    if (!m->perturbed_reference || output_index >= m->perturbed_reference->n || output_index >= m->unperturbed_reference->n ||
        !check_values_has_same_shape_and_dtype(
            &m->perturbed_reference->t[output_index], &m->unperturbed_reference->t[output_index]) ||
        m->perturbed_reference->t[output_index].n != m->found->t[output_index].n)
        return 0;
    dv_dtype dtype = m->perturbed_reference->t[output_index].dtype;
    check_get_component_count_and_dtype(&dtype);
    const double change = fabs(
        check_element_get(check_values_get_bytes(m->perturbed_reference, output_index), component_index, dtype) -
        check_element_get(check_values_get_bytes(m->unperturbed_reference, output_index), component_index, dtype));
    return isfinite(change) ? MOVEMENT_FACTOR * equal_terms_factor * change : INFINITY;
}

/* True if every reference has a zero at this place, whose sign is not that of the zero `found`. */
static bool values_compare_is_zero_of_other_sign(
    const comparison *m, size_t output_index, int64_t component_index, dv_dtype dtype, double found)
{
    bool is_other = true;
    for (size_t o = 0; o < m->n && is_other; o++) {
        const double x = check_element_get(check_values_get_bytes(m->references[o], output_index), component_index, dtype);
        is_other = fpclassify(x) == FP_ZERO && !signbit(x) != !signbit(found);
    }
    return is_other;
}

/* True if some element of an output of real or complex numbers is farther from the references than the tolerance, or is NaN or an
 * infinity where the references agree on something else. *difference receives the first such element. */
static bool values_compare_real_output_differs(const comparison *m, size_t output_index, value_difference *difference)
{
    const value_output *t = &m->found->t[output_index];
    const bool complex = t->dtype.code == 5, special = check_has_special_values(m->c);
    const int ncomponents = complex ? 2 : 1;
    const dv_dtype real = { .code = 2, .bits = (uint8_t)(t->dtype.bits / 2), .lanes = 1 }, dtype = complex ? real : t->dtype;
    const check_tolerance tolerance = check_get_tolerance(m->job->op, m->c, t->dtype, t->n, m->n == 1);
    const double largest = check_get_max_finite(dtype);
    double spread = 0;
    for (int64_t i = 0; i < t->n * ncomponents && m->n > 1; i++)
        for (size_t o = 1; o < m->n; o++) {
            const double distance = fabs(check_element_get(check_values_get_bytes(m->references[o], output_index), i, dtype) -
                check_element_get(check_values_get_bytes(m->references[0], output_index), i, dtype));
            spread = isfinite(distance) && distance > spread ? distance : spread;
        }
    for (int64_t i = 0; i < t->n * ncomponents; i++) {
        const double found = check_element_get(check_values_get_bytes(m->found, output_index), i, dtype),
                     expected = check_element_get(check_values_get_bytes(m->references[0], output_index), i, dtype);
        bool agree = true;
        for (size_t o = 1; o < m->n && agree; o++)
            agree = values_compare_get_number_class(check_element_get(check_values_get_bytes(m->references[o], output_index), i,
                        dtype)) == values_compare_get_number_class(expected);
        if (!agree)
            continue;
        const double allowed = tolerance.atol + tolerance.rtol * fabs(expected) + 2 * spread +
            values_compare_get_conditioning_tolerance(m, output_index, i, tolerance.equal_terms_factor);
        if (values_compare_get_number_class(found) != values_compare_get_number_class(expected)) {
            if (m->has_low_payload_nan ? !isnan(expected) || !isinf(found)
                                       : values_compare_accepts_other_number_class(m, found, expected, largest))
                continue;
            values_compare_describe_difference(m, output_index, i, ncomponents, found, expected,
                isnan(found)          ? "NaN"
                    : isnan(expected) ? "no NaN"
                                      : "infinity",
                allowed, difference);
            return true;
        }
        if (isfinite(found) && !special && fabs(found - expected) > allowed) {
            values_compare_describe_difference(
                m, output_index, i, ncomponents, found, expected, "other value", allowed, difference);
            return true;
        }
        if (m->only_moves_elements && fpclassify(found) == FP_ZERO &&
            values_compare_is_zero_of_other_sign(m, output_index, i, dtype, found)) {
            values_compare_describe_difference(m, output_index, i, ncomponents, found, expected, "sign of zero", 0, difference);
            return true;
        }
    }
    return false;
}

bool check_values_outputs_differ(const comparison *m, value_difference *difference)
{
    for (size_t o = 1; o < m->n; o++) /* references that differ in shapes or dtypes cannot be compared with */
        for (size_t k = 0; k < m->references[0]->n; k++)
            if (m->references[o]->n != m->references[0]->n ||
                !check_values_has_same_shape_and_dtype(&m->references[o]->t[k], &m->references[0]->t[k]))
                return false;
    for (size_t k = 0; k < m->found->n && k < m->references[0]->n; k++) {
        const value_output *a = &m->found->t[k], *b = &m->references[0]->t[k];
        if (!check_values_has_same_shape_and_dtype(a, b)) {
            /* another dtype is no difference: without a contract the decomposition in f64 returns f64 */
            if (dv_dtype_key(a->dtype) != dv_dtype_key(b->dtype))
                return false;
            snprintf(difference->message, sizeof difference->message, "%s has %lld elements, and %s%s gives %lld", a->name,
                (long long)a->n, m->reference_kernels[0]->hook_index > 0 ? "kernel " : "", m->reference_kernels[0]->name,
                (long long)b->n);
            difference->kind = "other size";
            return true;
        }
        if (check_is_integer_dtype(a->dtype)
                ? !m->has_low_payload_nan && !m->has_binades && values_compare_exact_output_differs(m, k, difference)
                : (check_is_float_dtype(a->dtype) || a->dtype.code == 5) && values_compare_real_output_differs(m, k, difference))
            return true;
    }
    return false;
}
