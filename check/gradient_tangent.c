/* Tangents by the declared formulas: forward mode (property gradient). */
#include <math.h>

#include "gradient.h"

/* Sets tangents[s] for each argument's slot s: `direction` for the tensor moved_tensor, zeros for all other tensors.
 * list_tensors: receives all tangents. Returns false if memory is out. */
static bool gradient_tangent_try_make_tangents(
    const gradient_point *point, size_t moved_tensor, const double *direction, dv_value *tangents, const dv_tensor **list_tensors)
{
    for (size_t s = 0; s < point->op->nargs + point->op->nresults; s++)
        tangents[s] = dv_none();
    for (size_t i = 0; i < point->c.ntensors; i++) {
        const dv_tensor *t = &point->v.tensors[i];
        const size_t slot = check_find_tensor_slot(&point->c, i);
        dv_tensor *tangent = NULL;
        if (point->c.tensors[i].present &&
            check_gradient_host_new_tensor(NULL, 0, t->dtype, t->device, t->ndim, t->shape, t->strides, &tangent))
            return false;
        for (int64_t k = 0; i == moved_tensor && k < dv_numel(t); k++)
            check_element_put(tangent->data, k, t->dtype, direction[k]);
        list_tensors[i] = tangent;
        if (point->c.args[slot].type == DV_VALUE_TENSORS)
            tangents[slot] = dv_from_tensors(&list_tensors[point->c.args[slot].first_tensor], point->c.args[slot].count);
        else
            tangents[slot] = dv_from_tensor(tangent);
    }
    return true;
}

bool check_gradient_try_compute_tangent(check_job *job, gradient_point *point, size_t moved_tensor, const double *direction,
    double *weighted_sum, double *weighted_magnitude)
{
    static const dv_tensor *list_tensors[CHECK_MAX_TENSORS];
    dv_value tangents[MAX_SLOTS], out[MAX_SLOTS];
    *weighted_sum = *weighted_magnitude = 0;
    if (check_gradient_call_forward(point, 0, NULL, 0) ||
        !gradient_tangent_try_make_tangents(point, moved_tensor, direction, tangents, list_tensors))
        return false;
    if (dv_tangent(point->op->op, point->slots, tangents, out, &check_gradient_host.host)) {
        check_fail(job, "tangent fails", "the tangent cannot be computed: %s", dv_last_error());
        return false;
    }
    for (size_t k = 0; k < point->nouts; k++) {
        const dv_tensor *t = check_gradient_find_tensor_of_value(&out[point->out_slot[k]], point->out_list_index[k]),
                        *output = check_gradient_find_output(point, k);
        const size_t before = check_double_pool.used;
        double *d = t ? check_gradient_alloc_doubles(dv_numel(t)) : NULL;
        if (t &&
            (t->ndim != output->ndim || dv_numel(t) != dv_numel(output) ||
                dv_dtype_key(t->dtype) != dv_dtype_key(output->dtype))) {
            check_fail(job, "tangent's shape", "the tangent of result '%s' has another shape or element type than the result",
                point->op->slots[point->out_slot[k]].name);
            return false;
        }
        if (d)
            check_gradient_copy_elements(t, d);
        for (int64_t i = 0; d && i < dv_numel(t); i++) {
            *weighted_sum += d[i] * point->weights[point->weight_offsets[k] + i];
            *weighted_magnitude += fabs(d[i] * point->weights[point->weight_offsets[k] + i]);
        }
        check_double_pool.used = before;
    }
    check_gradient_free_lists(out, point->op->nargs + point->op->nresults);
    return true;
}

void check_gradient_zero_weights_without_tangent(gradient_point *point)
{
    bool any;
    for (size_t k = 0; k < point->nouts; k++)
        for (int64_t i = point->weight_offsets[k]; i < check_gradient_get_weights_end(point, k) &&
            check_gradient_find_clause_kind(point->op, "tangent", point->out_slot[k], &any) != CLAUSE_VALUE;
            i++)
            point->weights[i] = 0;
}

void check_gradient_tangents(check_job *job, gradient_point *point, check_random *random)
{
    const check_json *formula = check_json_find_member(point->op->json, "tangent");
    bool any;
    check_gradient_zero_weights_without_tangent(point);
    for (size_t tensor_index = 0; tensor_index < point->c.ntensors && job->result->outcome == CHECK_OUTCOME_PASS;
        tensor_index++) {
        const size_t slot = check_find_tensor_slot(&point->c, tensor_index);
        const bool is_named = check_gradient_expr_contains(formula, "tangent", point->op->slots[slot].name);
        int differ = 0;
        gradient_difference difference, first = { 0, 0, false };
        if (!point->c.tensors[tensor_index].present || !check_gradient_is_differentiable(point->c.tensors[tensor_index].dtype) ||
            !check_tensor_numel(&point->c.tensors[tensor_index]) ||
            (!is_named && check_gradient_find_clause_kind(point->op, "gradient", slot, &any) != CLAUSE_VALUE))
            continue;
        /* a wrong tangent is reported only if it differs in all three directions */
        for (int k = 0; k < 3 && (k == 0 || differ == k); k++) {
            finite_difference slope;
            double sum, size, *direction = check_gradient_draw_direction(point, tensor_index, random);
            if (!direction || !check_gradient_try_measure_slope(point, tensor_index, direction, &slope) ||
                !check_gradient_try_compute_tangent(job, point, tensor_index, direction, &sum, &size))
                break;
            differ += check_gradient_judge_derivative(point, &slope, sum, &difference) == VERDICT_DIFFERS &&
                !difference.is_slight;
            first = k ? first : difference;
        }
        if (differ == 3)
            check_fail(job, "wrong tangent",
                "the tangent is wrong: moving '%s' it gives %.6g in a direction in which finite differences give %.6g (%s)",
                point->op->slots[slot].name, first.formula, first.slope, check_gradient_get_slope_dtype_name(point));
    }
}
