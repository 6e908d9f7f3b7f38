/* Gradients in dtypes with few digits, whose own rounding is measured (property gradient). */
#include <math.h>
#include <string.h>

#include "gradient.h"

enum { NUM_ROUNDED_RUNS = 3 };

/* Sets spreads[i] to the largest change of the f64 gradient of tensor i when every intermediate value is rounded, simulated by
 * noise of this relative size. Returns false if a call fails, a change is not finite, or values are near the end of the range of
 * f16. */
static bool gradient_precision_try_measure_rounding_spreads(
    check_job *job, gradient_point *point, double noise, const gradient_set *exact_gradients, double spreads[CHECK_MAX_TENSORS])
{
    bool wanted[MAX_SLOTS];
    check_gradient_set_wanted_slots(point, wanted);
    memset(spreads, 0, sizeof *spreads * CHECK_MAX_TENSORS);
    check_gradient_host.noise = noise;
    check_gradient_host.max_magnitude = 0;
    bool is_usable = true;
    for (int k = 0; k < NUM_ROUNDED_RUNS && is_usable; k++) {
        const size_t before = check_double_pool.used;
        gradient_set rounded_gradients = { { NULL } };
        is_usable = !check_gradient_call_forward(point, 0, NULL, 0) &&
            check_gradient_call_backward(job, point, wanted, &rounded_gradients) == BACKWARD_DONE;
        for (size_t i = 0; i < point->c.ntensors && is_usable; i++)
            for (int64_t n = 0; exact_gradients->tensors[i] && n < check_tensor_numel(&point->c.tensors[i]); n++) {
                const double change = rounded_gradients.tensors[i]
                    ? fabs(rounded_gradients.tensors[i][n] - exact_gradients->tensors[i][n])
                    : NAN;
                is_usable &= isfinite(change) != 0;
                spreads[i] = fmax(spreads[i], change);
            }
        check_double_pool.used = before;
    }
    check_gradient_host.noise = 0;
    return is_usable && check_gradient_host.max_magnitude < 4096; /* f16 ends at 65504: the rest of its range is left for sums */
}

/* True if backward is the transpose of forward: the tangent along a random direction, weighted, equals the gradient for these
 * weights along it. This holds even in narrow dtypes and at jumps. True, too, if one of both cannot be computed. */
static bool gradient_precision_agrees_with_tangent(
    check_job *job, gradient_point *point, size_t tensor_index, check_random *random, gradient_difference *difference)
{
    const size_t before = check_double_pool.used;
    const int64_t numel = check_tensor_numel(&point->c.tensors[tensor_index]);
    bool wanted[MAX_SLOTS];
    gradient_set gradients = { { NULL } };
    double size = 0, sum = 0, direction_size = 0, spread[CHECK_MAX_TENSORS],
           *direction = check_gradient_draw_direction(point, tensor_index, random);
    check_gradient_set_wanted_slots(point, wanted);
    bool agree = !direction || check_gradient_call_forward(point, 0, NULL, 0) ||
        check_gradient_call_backward(job, point, wanted, &gradients) != BACKWARD_DONE ||
        !check_gradient_try_compute_tangent(job, point, tensor_index, direction, &sum, &size);
    *difference = (gradient_difference){ sum,
        agree ? 0 : check_gradient_dot_direction(gradients.tensors[tensor_index], direction, numel), false };
    for (int64_t i = 0; !agree && i < numel; i++) {
        size += gradients.tensors[tensor_index] ? fabs(gradients.tensors[tensor_index][i] * direction[i]) : 0;
        direction_size += fabs(direction[i]);
    }
    const double distance = fabs(difference->formula - difference->slope), rounded = 32 * point->eps * size + 1e-5;
    agree = agree || !isfinite(distance) || distance <= rounded ||
        !gradient_precision_try_measure_rounding_spreads(job, point, point->eps, &gradients, spread) ||
        distance <= rounded + 64 * spread[tensor_index] * direction_size;
    check_double_pool.used = before;
    return agree;
}

void check_gradient_against_tangents(check_job *job, gradient_point *point, check_random *random)
{
    static gradient_point other;
    gradient_difference difference, first;
    bool any;
    check_gradient_zero_weights_without_tangent(point);
    for (size_t tensor_index = 0; tensor_index < point->c.ntensors && job->result->outcome == CHECK_OUTCOME_PASS;
        tensor_index++) {
        const size_t slot = check_find_tensor_slot(&point->c, tensor_index), before = check_double_pool.used;
        if (!point->c.tensors[tensor_index].present || !check_gradient_is_differentiable(point->c.tensors[tensor_index].dtype) ||
            !check_tensor_numel(&point->c.tensors[tensor_index]) ||
            check_gradient_find_clause_kind(point->op, "gradient", slot, &any) != CLAUSE_VALUE)
            continue;
        bool agree = gradient_precision_agrees_with_tangent(job, point, tensor_index, random, &first);
        for (uint64_t k = 1; k <= 3 && !agree; k++) { /* other points exclude a kink */
            agree = !check_gradient_try_make_other_point(&other, point, k, random);
            if (!agree)
                check_gradient_zero_weights_without_tangent(&other);
            agree = agree || gradient_precision_agrees_with_tangent(job, &other, tensor_index, random, &difference);
        }
        check_double_pool.used = before;
        if (!agree)
            check_fail(job, "tangent and gradient disagree",
                "the tangent and the gradient of '%s' are not of one function: in a direction one gives %.6g and the other %.6g",
                point->op->slots[slot].name, first.formula, first.slope);
    }
}

/* Compares the gradients at low_point, in the case's own dtypes, with those at wide_point, in f64 at the same elements.
 * VERDICT_DIFFERS: *differing_tensor and *difference receive where and how. */
static enum comparison_verdict gradient_precision_judge_low_precision(check_job *job, gradient_point *low_point,
    gradient_point *wide_point, check_random *random, size_t *differing_tensor, gradient_difference *difference)
{
    gradient_set gradients = { { NULL } }, low_gradients = { { NULL } };
    double spread[CHECK_MAX_TENSORS];
    bool wanted[MAX_SLOTS];
    check_gradient_set_wanted_slots(low_point, wanted);
    if (!check_gradient_try_draw_weights(wide_point, random) || check_gradient_call_forward(low_point, 0, NULL, 0) ||
        low_point->nweights != wide_point->nweights)
        return VERDICT_UNSURE;
    memcpy(low_point->weights, wide_point->weights, sizeof *wide_point->weights * (size_t)wide_point->nweights);
    if (check_gradient_call_backward(job, low_point, wanted, &low_gradients) != BACKWARD_DONE ||
        check_gradient_call_forward(wide_point, 0, NULL, 0) ||
        check_gradient_call_backward(job, wide_point, wanted, &gradients) != BACKWARD_DONE ||
        !gradient_precision_try_measure_rounding_spreads(job, wide_point, low_point->eps, &gradients, spread))
        return VERDICT_UNSURE;
    for (size_t i = 0; i < wide_point->c.ntensors; i++) {
        double most = 0;
        const int64_t n = check_tensor_numel(&wide_point->c.tensors[i]);
        for (int64_t k = 0; k < n && gradients.tensors[i]; k++)
            most = fmax(most, fabs(gradients.tensors[i][k]));
        for (int64_t k = 0; k < n && gradients.tensors[i]; k++) {
            const double found = low_gradients.tensors[i] ? low_gradients.tensors[i][k] : 0,
                         allowed = 16 * (spread[i] + low_point->eps * most) + 1e-5 + fmax(wide_point->op->rtol, 0) * most;
            *differing_tensor = i;
            *difference = (gradient_difference){ found, gradients.tensors[i][k], false };
            if (!isfinite(gradients.tensors[i][k]) || fabs(found - gradients.tensors[i][k]) <= allowed)
                continue;
            return VERDICT_DIFFERS;
        }
    }
    return VERDICT_AGREES;
}

void check_gradient_low_precision(check_job *job, gradient_point *low_point, gradient_point *wide_point, check_random *random)
{
    static gradient_point low_again, same_point;
    gradient_difference difference, first;
    size_t other_tensor, differing_tensor;
    char name[100];
    if (gradient_precision_judge_low_precision(job, low_point, wide_point, random, &differing_tensor, &first) != VERDICT_DIFFERS)
        return;
    /* other points must differ, too: rounding may change the outcome of a comparison within the operator at one point */
    for (uint64_t k = 1; k <= 3; k++) {
        const size_t before = check_double_pool.used;
        const bool differs = check_gradient_try_make_other_point(&low_again, low_point, k, random) &&
            check_gradient_try_make_point_with_dtypes(&same_point, &low_again, &wide_point->c) &&
            !check_gradient_call_forward(&same_point, 0, NULL, 0) &&
            gradient_precision_judge_low_precision(job, &low_again, &same_point, random, &other_tensor, &difference) ==
                VERDICT_DIFFERS;
        check_double_pool.used = before;
        if (!differs)
            return;
    }
    check_gradient_format_tensor_name(wide_point, differing_tensor, name, sizeof name);
    check_fail(job, "wrong in low precision",
        "the gradient of '%s' is %.6g, and at the same numbers in %s it is %.6g: more than rounding explains", name,
        first.formula, check_gradient_get_slope_dtype_name(wide_point), first.slope);
}
