/* Property gradient: the declared formulas agree with finite differences.
 *
 * The sum of all results, each element times a random weight, is one function of the arguments. Its slope in a random direction,
 * by finite differences, must equal the gradient's dot product with that direction. This is computed in f64 where the contract
 * allows it, else in f32. The same case in its own dtypes must then give the same gradient up to rounding.
 *
 * Where differences disagree among themselves (other steps, one side against the other), there is a kink, a jump or no
 * precision, and no failure is reported. A difference is reported only if it also appears in other directions and at other
 * points. */

#include "gradient.h"

enum { MAX_ELEMENTS = 4096, MAX_ELEMENTS_F32 = 256, MIN_JUDGED_CASES = 24 };

/* Copies a case to `out` with this dtype for all its floating-point tensors and dtype arguments. Returns false if the contract
 * does not accept the copy. */
static bool gradient_try_cast_case(const check_op *op, const check_case *c, const char *dtype_name, check_case *out)
{
    dv_dtype dtype;
    *out = *c;
    dv_dtype_parse(dtype_name, &dtype);
    for (size_t i = 0; i < c->ntensors; i++) {
        out->tensors[i].layout = CHECK_LAYOUT_CONTIGUOUS;
        if (check_gradient_is_differentiable(c->tensors[i].dtype))
            out->tensors[i].dtype = dtype;
    }
    for (size_t i = 0; i < c->nargs; i++)
        if (c->args[i].type == DV_VALUE_DTYPE && check_gradient_is_differentiable(c->args[i].as.dtype))
            out->args[i].as.dtype = dtype;
    return check_is_accepted(op, out);
}

/* True if the tensors of two cases, except absent ones, have the same dtypes. */
static bool gradient_has_same_dtypes(const check_case *first, const check_case *second)
{
    for (size_t i = 0; i < first->ntensors; i++)
        if (first->tensors[i].present && dv_dtype_key(first->tensors[i].dtype) != dv_dtype_key(second->tensors[i].dtype))
            return false;
    return true;
}

/* Makes all checks that need a point in f64 or f32: gradients and tangents against slopes, linearity, subsets of wanted
 * gradients, and low precision. Returns without a verdict if the operator accepts neither dtype. */
static void gradient_check_point(check_job *job, gradient_point *point, const check_case *original_case, check_random *random)
{
    static gradient_point wide_point;
    static check_case wide_case;
    bool wanted[MAX_SLOTS];
    gradient_set gradients = { { NULL } };
    const bool takes_f64 = gradient_try_cast_case(job->op, original_case, "f64", &wide_case);
    if (!takes_f64 && !gradient_try_cast_case(job->op, original_case, "f32", &wide_case)) {
        check_judged_counts.unchecked_reason = "it takes neither f64 nor f32: finite differences have no precision";
        return;
    }
    if (!takes_f64 && check_case_max_numel(original_case) > MAX_ELEMENTS_F32)
        return;
    if (!check_gradient_try_make_point_with_dtypes(&wide_point, point, &wide_case) ||
        check_gradient_call_forward(&wide_point, 0, NULL, 0) || !check_gradient_try_draw_weights(&wide_point, random))
        return;
    if (wide_point.eps > 0x1p-24) {
        check_judged_counts.unchecked_reason =
            "a result is of a type with fewer digits than f32: finite differences have no precision";
        return;
    }
    check_judged_counts.nnumeric++;
    check_set_current_case(job, &wide_case);
    check_gradient_set_wanted_slots(&wide_point, wanted);
    if (check_gradient_call_backward(job, &wide_point, wanted, &gradients) != BACKWARD_DONE)
        return;
    if (check_gradient_has_formula_of_kind(job->op, "gradient"))
        check_gradient_against_slopes(job, &wide_point, &gradients, random);
    if (job->result->outcome == CHECK_OUTCOME_PASS && check_gradient_has_formula_of_kind(job->op, "gradient"))
        check_gradient_linearity(job, &wide_point, &gradients);
    if (job->result->outcome == CHECK_OUTCOME_PASS &&
        check_gradient_expr_contains(check_json_find_member(job->op->json, "gradient"), "needs", NULL))
        check_gradient_wanted_subsets(job, &wide_point, &gradients);
    if (job->result->outcome == CHECK_OUTCOME_PASS && !job->op->is_nondeterministic &&
        !gradient_has_same_dtypes(original_case, &wide_case) && point->eps < 0x1p-7 &&
        check_gradient_has_f64_precision(&wide_point)) {
        check_set_current_case(job, original_case);
        check_gradient_low_precision(job, point, &wide_point, random);
    }
    if (job->result->outcome == CHECK_OUTCOME_PASS &&
        check_gradient_has_formula_of_kind(
            job->op, "tangent")) { /* tangents are checked last, because that changes the weights */
        check_set_current_case(job, &wide_case);
        check_gradient_tangents(job, &wide_point, random);
    }
}

/* Changes a case's contents so that finite differences are meaningful: no special values, moderate magnitudes, contiguous
 * tensors. is_positive: all elements are at least 0.25. */
static void gradient_simplify_contents(check_case *c, bool is_positive)
{
    for (size_t i = 0; i < c->ntensors; i++) {
        check_tensor *t = &c->tensors[i];
        t->layout = CHECK_LAYOUT_CONTIGUOUS;
        if (!check_gradient_is_differentiable(t->dtype))
            continue;
        if (t->fill == CHECK_FILL_BINADES) { /* small elements would vanish in finite differences of large ones */
            t->low = -2;
            t->high = 2;
        }
        t->fill = t->fill == CHECK_FILL_SPECIAL_VALUES || t->fill == CHECK_FILL_BINADES ? CHECK_FILL_RANDOM : t->fill;
        t->low = is_positive ? 0.25 : t->low;
    }
}

/* Counts a case. When MIN_JUDGED_CASES were counted, sets "not checked" if none or too few of them could be judged by finite
 * differences. */
static void gradient_count_case(check_job *job)
{
    if (++check_judged_counts.cases < MIN_JUDGED_CASES || job->result->outcome != CHECK_OUTCOME_PASS)
        return;
    if (check_judged_counts.cases == MIN_JUDGED_CASES && !check_judged_counts.nnumeric)
        check_report_unchecked(job, "%s",
            check_judged_counts.unchecked_reason ? check_judged_counts.unchecked_reason
                                                 : "no case has a result and an argument of real numbers");
    else if (check_judged_counts.cases == MIN_JUDGED_CASES && check_judged_counts.nrough > check_judged_counts.nsmooth)
        check_report_unchecked(job,
            "finite differences do not agree among themselves at %u of %u points: it is not smooth, or too imprecise",
            check_judged_counts.nrough, check_judged_counts.nrough + check_judged_counts.nsmooth);
}

/* Checks one case: its gradients and tangents against finite differences, and against each other. */
static void gradient_test_case(check_job *job, const check_case *planned_case)
{
    static check_case c;
    static gradient_point point;
    check_random random = { planned_case->seed };
    bool wanted[MAX_SLOTS];
    gradient_set gradients = { { NULL } };
    check_double_pool.used = 0;
    check_gradient_host.noise = 0;
    c = *planned_case;
    gradient_simplify_contents(&c, false);
    check_set_current_case(job, &c);
    if (check_case_max_numel(&c) > MAX_ELEMENTS)
        return;
    for (size_t i = 0; i < c.ntensors; i++)
        if (c.tensors[i].present && c.tensors[i].dtype.code == 5) {
            check_judged_counts.unchecked_reason = "its element types are complex, of which finite differences are not taken";
            gradient_count_case(job);
            return;
        }
    for (size_t i = 0; i < c.nargs; i++)
        if (c.args[i].type == DV_VALUE_COMPLEX) /* results may be complex, of which finite differences are not taken */
            return;
    if (!check_gradient_try_make_point(&point, job->op, &c))
        return;
    if (check_gradient_call_forward(&point, 0, NULL, 0)) {
        check_count_refusal(job);
        return;
    }
    if (check_gradient_try_draw_weights(&point, &random) && !check_gradient_has_finite_outputs(&point)) {
        check_double_pool.used = 0;
        gradient_simplify_contents(&c, true);
        check_set_current_case(job, &c);
        if (!check_gradient_try_make_point(&point, job->op, &c) || check_gradient_call_forward(&point, 0, NULL, 0) ||
            !check_gradient_try_draw_weights(&point, &random) || !check_gradient_has_finite_outputs(&point))
            return;
    }
    check_gradient_set_wanted_slots(&point, wanted);
    if (point.nouts && check_gradient_has_formula_of_kind(job->op, "gradient") &&
        check_gradient_call_backward(job, &point, wanted, &gradients) == BACKWARD_DONE)
        gradient_check_point(job, &point, &c, &random);
    if (point.nouts && check_gradient_has_formula_of_kind(job->op, "gradient") &&
        check_gradient_has_formula_of_kind(job->op, "tangent") && job->result->outcome == CHECK_OUTCOME_PASS) {
        check_set_current_case(job, &c);
        check_gradient_against_tangents(job, &point, &random);
    }
    gradient_count_case(job);
}

/* Returns the reason why the property does not apply, which is a missing formula; NULL: it applies. */
static const char *gradient_find_inapplicable_reason(const check_op *op, const check_kernel *kernel)
{
    (void)kernel;
    return check_gradient_has_formula_of_kind(op, "gradient") ? NULL : "it declares no gradient";
}

const check_property check_property_gradient = {
    .name = "gradient",
    .description =
        "the declared gradients and tangents are those of finite differences, in every element type, shape and for every "
        "part that is wanted",
    .find_inapplicable_reason = gradient_find_inapplicable_reason,
    .test_case = gradient_test_case,
};
