/* Finite differences, and gradients compared with them (property gradient). */
#include <math.h>
#include <string.h>

#include "gradient.h"

enum { NUM_SPARSE_DIRECTIONS = 8 };

struct judged_counts check_judged_counts;

/* Calls the operator at a point with one tensor moved by `distance` along `direction`, and copies all elements of its
 * floating-point outputs to `elements`. Returns false if the call is refused, or the outputs' sizes changed. */
static bool gradient_difference_try_call_and_copy_outputs(
    gradient_point *point, size_t moved_tensor, const double *direction, double distance, double *elements)
{
    if (check_gradient_call_forward(point, moved_tensor, direction, distance))
        return false;
    for (size_t output_index = 0; output_index < point->nouts; output_index++) {
        const dv_tensor *t = check_gradient_find_output(point, output_index);
        if (!t || dv_numel(t) != check_gradient_get_weights_end(point, output_index) - point->weight_offsets[output_index])
            return false; /* the size depends on contents */
        check_gradient_copy_elements(t, elements + point->weight_offsets[output_index]);
    }
    return true;
}

/* True if some output changes, or the call is refused, when a tensor moves by 0.7 to 70,000 to either side. If small steps change
 * nothing, the point is then only locally flat, as with floor() or relu(). Its declared gradient often differs on purpose
 * (straight-through estimator), so it is not judged. */
static bool gradient_difference_changes_with_large_steps(
    gradient_point *point, size_t moved_tensor, const double *direction, const double *outputs_here)
{
    const size_t before = check_double_pool.used;
    double *outputs_there = check_gradient_alloc_doubles(point->nweights);
    bool changes = !outputs_there;
    for (double distance = 0.7; distance < 1e5 && !changes; distance *= distance > 0 ? -1 : -10)
        changes = !gradient_difference_try_call_and_copy_outputs(point, moved_tensor, direction, distance, outputs_there) ||
            memcmp(outputs_there, outputs_here, sizeof *outputs_here * (size_t)point->nweights) != 0;
    check_double_pool.used = before;
    return changes;
}

typedef struct difference_precision { double step, agree, differ, slack; } difference_precision;
static const difference_precision precision_f64 = { 1e-4, 1e-6, 1e-5, 1000 }, precision_f32 = { 0x1p-5, 3e-3, 1e-2, 30 };
static const double MIN_SLOPE = 0x1p-60; /* smaller differences of slopes are accepted: a function may be cut off near 0 */
enum {
    TOLERANCE_FACTOR = 4
}; /* factor: a gradient that is computed from approximate results may be wrong by this many times their declared tolerance */

bool check_gradient_has_f64_precision(const gradient_point *point) { return point->eps < 0x1p-50; }

/* Returns the step and the tolerances of finite differences at a point: those for f64, or those for coarser dtypes. */
static const difference_precision *gradient_difference_get_difference_precision(const gradient_point *point)
{
    return check_gradient_has_f64_precision(point) ? &precision_f64 : &precision_f32;
}

bool check_gradient_try_measure_slope(
    gradient_point *point, size_t moved_tensor, const double *direction, finite_difference *difference)
{
    static const double steps[] = { 0, 1, -1, 0.5, -0.5, 0.3, -0.3 };
    const difference_precision *precision = gradient_difference_get_difference_precision(point);
    const size_t before = check_double_pool.used;
    double *outputs_at[7], d[7] = { 0 }, length = 0, rest = 0;
    bool moved = false;
    memset(difference, 0, sizeof *difference);
    difference->is_finite = true;
    for (int k = 0; k < 7; k++) {
        outputs_at[k] = check_gradient_alloc_doubles(point->nweights);
        if (!outputs_at[k] ||
            !gradient_difference_try_call_and_copy_outputs(
                point, moved_tensor, direction, steps[k] * precision->step, outputs_at[k])) {
            check_double_pool.used = before;
            return false;
        }
    }
    for (int64_t i = 0; i < point->nweights; i++) {
        double most = 0;
        for (int k = 0; k < 7; k++) {
            difference->is_finite &= isfinite(outputs_at[k][i]) != 0;
            most = fabs(outputs_at[k][i]) > most ? fabs(outputs_at[k][i]) : most;
            /* differences of single elements are summed, because a difference of two large sums would lose them */
            d[k] += point->weights[i] * (outputs_at[k][i] - outputs_at[0][i]);
        }
        const double one = point->weights[i] * (outputs_at[1][i] - outputs_at[2][i]) / (2 * precision->step);
        length = hypot(length, one);
        const double noise = point->eps * fabs(point->weights[i]) * most / (0.3 * precision->step);
        difference->noise += fabs(one) > 0 ? noise : 0;
        rest = noise > rest ? noise : rest;
        for (int k = 1; k < 7; k++)
            moved |= outputs_at[k][i] < outputs_at[0][i] || outputs_at[k][i] > outputs_at[0][i];
    }
    difference->noise = fmax(difference->noise, rest);
    difference->is_flat = difference->is_finite && !moved &&
        gradient_difference_changes_with_large_steps(point, moved_tensor, direction, outputs_at[0]);
    check_double_pool.used = before;
    const double h = precision->step, full_step = (d[1] - d[2]) / (2 * h), half = (d[3] - d[4]) / h,
                 third = (d[5] - d[6]) / (0.6 * h);
    const double forward_slope = (4 * d[3] - d[1]) / h, backward_slope = -(4 * d[4] - d[2]) / h;
    difference->value = (4 * half - full_step) / 3;
    /* distance of two extrapolations, each without the term in h^2 */
    difference->extrapolation_spread = fabs(difference->value - (0.25 * third - 0.09 * half) / 0.16);
    difference->scale = length + fabs(difference->value);
    const double allowed = precision->agree * difference->scale + precision->slack * difference->noise;
    difference->is_smooth = difference->is_finite && fabs(difference->value - third) <= allowed &&
        fabs(forward_slope - backward_slope) <= 4 * allowed;
    return true;
}

/* ---- Comparing ---- */

double *check_gradient_draw_direction(const gradient_point *point, size_t tensor_index, check_random *random)
{
    const int64_t numel = check_tensor_numel(&point->c.tensors[tensor_index]);
    double *direction = check_gradient_alloc_doubles(numel);
    for (int64_t i = 0; direction && i < numel; i++)
        direction[i] = 0;
    const bool is_sparse = gradient_difference_get_difference_precision(point) == &precision_f32 && numel > NUM_SPARSE_DIRECTIONS;
    for (int64_t k = 0; direction && k < (is_sparse ? NUM_SPARSE_DIRECTIONS : numel); k++)
        direction[is_sparse ? check_random_between(random, 0, numel - 1) : k] = (double)check_random_between(random, 4, 8) / 8 *
            (check_random_next(random) & 1 ? 1 : -1);
    return direction;
}

double check_gradient_dot_direction(const double *gradient, const double *direction, int64_t numel)
{
    double sum = 0;
    for (int64_t i = 0; i < numel && gradient; i++)
        sum += direction[i] != 0 ? gradient[i] * direction[i] : 0;
    return sum;
}

enum comparison_verdict check_gradient_judge_derivative(
    const gradient_point *point, const finite_difference *slope, double formula_derivative, gradient_difference *difference)
{
    const difference_precision *precision = gradient_difference_get_difference_precision(point);
    *difference = (gradient_difference){ formula_derivative, slope->value, false };
    if (!slope->is_finite || !slope->is_smooth || !isfinite(slope->scale))
        return VERDICT_UNSURE;
    if (slope->is_flat)
        return fabs(formula_derivative) > 0 ? VERDICT_UNSURE : VERDICT_AGREES;
    const double results = slope->noise * 0.3 * precision->step / point->eps; /* magnitude of the results */
    const double strict = precision->differ * slope->scale + precision->slack * slope->noise + MIN_SLOPE;
    const double allowed = strict + fmax(point->op->rtol, 0) * (slope->scale + TOLERANCE_FACTOR * results) +
        TOLERANCE_FACTOR * fmax(point->op->atol, 0);
    /* Slopes in f64 are more precise. The error of the forward call shows in the distance of the two extrapolations. */
    const double precise = precision == &precision_f64
        ? fmin(
              allowed, 32 * slope->extrapolation_spread + 200 * slope->noise + 2e-9 * slope->scale + MIN_SLOPE + allowed - strict)
        : allowed;
    difference->is_slight = fabs(formula_derivative - slope->value) <= allowed;
    return fabs(formula_derivative - slope->value) <= precise ? VERDICT_AGREES : VERDICT_DIFFERS;
}

/* Compares the gradient of a tensor (NULL: zero) with the slope in one random direction. VERDICT_UNSURE, too, if a call is
 * refused. *difference receives both numbers. */
static enum comparison_verdict gradient_difference_judge_random_direction(
    gradient_point *point, size_t tensor_index, const double *gradient, check_random *random, gradient_difference *difference)
{
    const size_t before = check_double_pool.used;
    finite_difference slope;
    double *direction = check_gradient_draw_direction(point, tensor_index, random);
    enum comparison_verdict verdict = VERDICT_UNSURE;
    if (direction && check_gradient_try_measure_slope(point, tensor_index, direction, &slope))
        verdict = check_gradient_judge_derivative(point, &slope,
            check_gradient_dot_direction(gradient, direction, check_tensor_numel(&point->c.tensors[tensor_index])), difference);
    check_double_pool.used = before;
    return verdict;
}

bool check_gradient_try_make_other_point(
    gradient_point *other, const gradient_point *point, uint64_t number, check_random *random)
{
    check_case c = point->c;
    c.seed += 1000 * number;
    for (size_t i = 0; i < c.ntensors; i++)
        if (check_gradient_is_differentiable(c.tensors[i].dtype))
            c.tensors[i].fill = CHECK_FILL_RANDOM;
    return check_gradient_try_make_point(other, point->op, &c) && !check_gradient_call_forward(other, 0, NULL, 0) &&
        check_gradient_try_draw_weights(other, random);
}

/* True if the gradient of a tensor also differs from slopes in other random directions, and the function is smooth at two of
 * three other points. Two of five directions must differ; all of them if the difference is slight. */
static bool gradient_difference_is_difference_confirmed(
    gradient_point *point, size_t tensor_index, const double *gradient, check_random *random)
{
    static gradient_point other;
    gradient_difference difference;
    int ndiffering = 0, nsmooth = 0;
    bool is_slight = false;
    for (int k = 0; k < 5; k++) {
        ndiffering += gradient_difference_judge_random_direction(point, tensor_index, gradient, random, &difference) ==
            VERDICT_DIFFERS;
        is_slight |= difference.is_slight;
        if (k == 2 && !is_slight)
            break;
    }
    for (uint64_t k = 1; k <= 3 && ndiffering >= (is_slight ? 5 : 2); k++) {
        const size_t before = check_double_pool.used;
        if (check_gradient_try_make_other_point(&other, point, k, random))
            nsmooth += gradient_difference_judge_random_direction(&other, tensor_index, NULL, random, &difference) !=
                VERDICT_UNSURE;
        check_double_pool.used = before;
    }
    return nsmooth >= 2;
}

const char *check_gradient_get_slope_dtype_name(const gradient_point *point)
{
    return gradient_difference_get_difference_precision(point) == &precision_f64 ? "f64" : "f32";
}

void check_gradient_format_tensor_name(const gradient_point *point, size_t tensor_index, char *name, size_t capacity)
{
    const size_t slot = check_find_tensor_slot(&point->c, tensor_index);
    if (point->c.args[slot].type == DV_VALUE_TENSORS)
        snprintf(name, capacity, "%s[%zu]", point->op->slots[slot].name, tensor_index - point->c.args[slot].first_tensor);
    else
        snprintf(name, capacity, "%s", point->op->slots[slot].name);
}

/* Fails the job with a gradient that differs from a slope, as slightly wrong, missing, not finite or wrong. */
static void gradient_difference_report_difference(check_job *job, const gradient_point *point, size_t tensor_index,
    enum clause_kind clause, const gradient_difference *difference)
{
    char name[100];
    check_gradient_format_tensor_name(point, tensor_index, name, sizeof name);
    if (difference->is_slight)
        check_fail(job, "slightly wrong gradient",
            "the gradient of '%s' is %.12g in a direction in which finite differences give %.12g (f64): a factor seems to be in "
            "f32",
            name, difference->formula, difference->slope);
    if (clause == CLAUSE_NONE)
        check_fail(job, "gradient missing",
            "gradient missing for '%s': no clause names it, and finite differences give %.6g (%s)", name, difference->slope,
            check_gradient_get_slope_dtype_name(point));
    else if (!isfinite(difference->formula))
        check_fail(job, "gradient not finite", "the gradient of '%s' is %g where finite differences give %.6g (%s)", name,
            difference->formula, difference->slope, check_gradient_get_slope_dtype_name(point));
    else
        check_fail(job, "wrong gradient",
            "the gradient of '%s' is wrong: %.6g in a direction in which finite differences give %.6g (%s)", name,
            difference->formula, difference->slope, check_gradient_get_slope_dtype_name(point));
}

/* True if some tensor is filled with multiples of 1/2 (CHECK_FILL_HALVES), so that kinks at 0 and at equal numbers are hit on
 * purpose. */
static bool gradient_difference_has_halves_fill(const gradient_point *point)
{
    bool any = false;
    for (size_t i = 0; i < point->c.ntensors; i++)
        any |= point->c.tensors[i].present && point->c.tensors[i].fill == CHECK_FILL_HALVES;
    return any;
}

void check_gradient_against_slopes(check_job *job, gradient_point *point, const gradient_set *gradients, check_random *random)
{
    bool has_any_value, is_sure = true;
    for (size_t tensor_index = 0; tensor_index < point->c.ntensors && job->result->outcome == CHECK_OUTCOME_PASS;
        tensor_index++) {
        const enum clause_kind clause = check_gradient_find_clause_kind(
            point->op, "gradient", check_find_tensor_slot(&point->c, tensor_index), &has_any_value);
        gradient_difference difference;
        if (!point->c.tensors[tensor_index].present || !check_gradient_is_differentiable(point->c.tensors[tensor_index].dtype) ||
            !check_tensor_numel(&point->c.tensors[tensor_index]) || clause == CLAUSE_NOT_DIFFERENTIABLE || !has_any_value)
            continue;
        const enum comparison_verdict verdict = gradient_difference_judge_random_direction(
            point, tensor_index, gradients->tensors[tensor_index], random, &difference);
        is_sure &= verdict != VERDICT_UNSURE;
        if (verdict == VERDICT_DIFFERS &&
            gradient_difference_is_difference_confirmed(point, tensor_index, gradients->tensors[tensor_index], random))
            gradient_difference_report_difference(job, point, tensor_index, clause, &difference);
    }
    check_judged_counts.nsmooth += is_sure;
    check_judged_counts.nrough += !is_sure && !gradient_difference_has_halves_fill(point);
}
