/* Points of property gradient: cases with contents, and calls of the operator there. */
#include <math.h>
#include <string.h>

#include "gradient.h"

bool check_gradient_is_differentiable(dv_dtype d) { return d.code == 2 || d.code == 4; }

bool check_gradient_try_make_point(gradient_point *point, const check_op *op, const check_case *c)
{
    memset(point, 0, sizeof *point);
    point->op = op;
    point->c = *c;
    for (size_t i = 0; i < c->ntensors; i++)
        point->c.tensors[i].layout = CHECK_LAYOUT_CONTIGUOUS;
    check_values_init_without_data(&point->v, &point->c, (dv_device){ DV_CPU, 0 });
    for (size_t i = 0; i < c->ntensors; i++) {
        const check_tensor *t = &point->c.tensors[i];
        if (!t->present)
            continue;
        const int64_t n = check_tensor_numel(t), words = dv_dtype_bytes(t->dtype, n) / 8 + 2;
        point->bytes[i] = (unsigned char *)check_gradient_alloc_doubles(words);
        point->call_memory[i] = (unsigned char *)check_gradient_alloc_doubles(words);
        point->elements[i] = check_gradient_alloc_doubles(n);
        if (!point->bytes[i] || !point->call_memory[i] || !point->elements[i])
            return false;
        check_fill_tensor(t, c->seed + i, point->bytes[i], point->v.strides[i]);
        for (int64_t k = 0; k < n; k++)
            point->elements[i][k] = check_element_get(point->bytes[i], k, t->dtype);
        point->v.tensors[i].data = point->call_memory[i];
        if (check_gradient_is_differentiable(t->dtype) && check_get_unit_roundoff(t->dtype) > point->eps)
            point->eps = check_get_unit_roundoff(t->dtype);
    }
    return true;
}

bool check_gradient_try_make_point_with_dtypes(gradient_point *point, const gradient_point *original, const check_case *c)
{
    if (!check_gradient_try_make_point(point, original->op, c))
        return false;
    for (size_t i = 0; i < c->ntensors; i++)
        for (int64_t k = 0;
            point->elements[i] && check_gradient_is_differentiable(c->tensors[i].dtype) && k < check_tensor_numel(&c->tensors[i]);
            k++) {
            point->elements[i][k] = original->elements[i][k];
            check_element_put(point->bytes[i], k, c->tensors[i].dtype, point->elements[i][k]);
        }
    return true;
}

int check_gradient_call_forward(gradient_point *point, size_t moved_tensor, const double *direction, double distance)
{
    const dv_host *host = check_gradient_begin_call();
    for (size_t i = 0; i < point->c.ntensors; i++) {
        const check_tensor *t = &point->c.tensors[i];
        if (!t->present)
            continue;
        memcpy(point->call_memory[i], point->bytes[i], (size_t)dv_dtype_bytes(t->dtype, check_tensor_numel(t)));
        for (int64_t k = 0; i == moved_tensor && direction && k < check_tensor_numel(t); k++)
            check_element_put(point->call_memory[i], k, t->dtype, point->elements[i][k] + distance * direction[k]);
        for (int64_t k = 0;
            check_gradient_host.noise > 0 && check_gradient_is_differentiable(t->dtype) && k < check_tensor_numel(t); k++)
            check_element_put(point->call_memory[i], k, t->dtype,
                point->elements[i][k] *
                    (1 +
                        check_gradient_host.noise *
                            ((double)(check_random_next(&check_gradient_host.random) >> 11) * 0x1p-52 - 1)));
    }
    memcpy(point->slots, point->v.values, sizeof *point->slots * point->op->nargs);
    for (size_t result_index = 0; result_index < point->op->nresults; result_index++)
        point->slots[point->op->nargs + result_index] = dv_default();
    if (point->op->is_nondeterministic)
        dv_set_seed(1);
    const int status = dv_call(
        point->op->op, point->v.values, point->op->nargs, point->slots + point->op->nargs, point->op->nresults, host);
    check_exit_if_kernel_left_process();
    return check_try_move_result_lists(point->op, point->slots + point->op->nargs, point->listed) ? status : DV_ELIMIT;
}

/* True if some result of the operator is the argument of this slot, or a view of it. */
static bool gradient_point_is_returned_argument(const check_op *op, size_t slot)
{
    for (size_t result_index = 0; result_index < op->nresults; result_index++)
        if (op->slots[op->nargs + result_index].alias == (int32_t)slot)
            return true;
    return false;
}

/* True if a slot is that of a result, or of a written argument that is not returned. */
static bool gradient_point_is_output(const check_op *op, size_t slot)
{
    return slot >= op->nargs || ((op->slots[slot].flags & DV_SLOT_WRITES) && !gradient_point_is_returned_argument(op, slot));
}

/* Returns the number of tensors in a value: those of a list, 1 for a tensor, else 0. */
static size_t gradient_point_count_tensors(const dv_value *value)
{
    return value->type == DV_VALUE_TENSORS ? value->as.tensors.size : value->type == DV_VALUE_TENSOR;
}
const dv_tensor *check_gradient_find_tensor_of_value(const dv_value *value, size_t position)
{
    return position >= gradient_point_count_tensors(value) ? NULL
        : value->type == DV_VALUE_TENSORS                  ? value->as.tensors.data[position]
                                                           : value->as.tensor;
}
const dv_tensor *check_gradient_find_output(const gradient_point *point, size_t output_index)
{
    return check_gradient_find_tensor_of_value(&point->slots[point->out_slot[output_index]], point->out_list_index[output_index]);
}
int64_t check_gradient_get_weights_end(const gradient_point *point, size_t output_index)
{
    return output_index + 1 < point->nouts ? point->weight_offsets[output_index + 1] : point->nweights;
}

bool check_gradient_try_draw_weights(gradient_point *point, check_random *random)
{
    point->nouts = 0;
    point->nweights = 0;
    for (size_t s = 0; s < point->op->nargs + point->op->nresults; s++)
        for (size_t position = 0; gradient_point_is_output(point->op, s) &&
            position < gradient_point_count_tensors(&point->slots[s]) && point->nouts < MAX_OUTPUTS;
            position++) {
            const dv_tensor *t = check_gradient_find_tensor_of_value(&point->slots[s], position);
            if (!t || !check_gradient_is_differentiable(t->dtype))
                continue;
            point->out_slot[point->nouts] = s;
            point->out_list_index[point->nouts] = position;
            point->weight_offsets[point->nouts++] = point->nweights;
            point->nweights += dv_numel(t);
            point->eps = check_get_unit_roundoff(t->dtype) > point->eps ? check_get_unit_roundoff(t->dtype) : point->eps;
        }
    point->weights = check_gradient_alloc_doubles(point->nweights);
    for (int64_t i = 0; point->weights && i < point->nweights; i++)
        point->weights[i] = (double)check_random_between(random, 1, 8) / 8 * (check_random_next(random) & 1 ? 1 : -1);
    return point->weights && point->nouts;
}

/* Returns a new contiguous tensor of zeros with the shape and dtype of `like`, which need not be contiguous. NULL: memory is out.
 */
static dv_tensor *gradient_point_alloc_zeros_like(const dv_tensor *like)
{
    int64_t strides[DV_MAX_NDIM], n = 1;
    dv_tensor *zeros;
    for (int32_t d = like->ndim; d-- > 0; n *= like->shape[d] > 0 ? like->shape[d] : 1)
        strides[d] = n;
    if (check_gradient_host_new_tensor(NULL, 0, like->dtype, like->device, like->ndim, like->shape, strides, &zeros))
        return NULL;
    check_gradient_host.tensors->is_rounded = true;
    return zeros;
}

bool check_gradient_try_make_output_grads(const gradient_point *point, dv_value *grads, const dv_tensor **list_tensors)
{
    size_t output_index = 0;
    for (size_t s = 0; s < point->op->nargs + point->op->nresults; s++) {
        const size_t n = gradient_point_is_output(point->op, s) ? gradient_point_count_tensors(&point->slots[s]) : 0;
        grads[s] = dv_none();
        for (size_t position = 0; position < n; position++) {
            const dv_tensor *t = check_gradient_find_tensor_of_value(&point->slots[s], position);
            dv_tensor *g = t ? gradient_point_alloc_zeros_like(t) : NULL;
            if (t && !g)
                return false;
            if (output_index < point->nouts && point->out_slot[output_index] == s &&
                point->out_list_index[output_index] == position)
                for (int64_t i = 0, at = point->weight_offsets[output_index++], size = dv_numel(g); i < size; i++)
                    check_element_put(g->data, i, g->dtype, point->weights[at + i]);
            list_tensors[position] = g;
        }
        if (n && point->slots[s].type == DV_VALUE_TENSORS)
            grads[s] = dv_from_tensors(list_tensors, n);
        else if (n && list_tensors[0])
            grads[s] = dv_from_tensor(list_tensors[0]);
        list_tensors += n;
    }
    return true;
}

bool check_gradient_has_finite_outputs(const gradient_point *point)
{
    for (size_t k = 0; k < point->nouts; k++) {
        const dv_tensor *t = check_gradient_find_output(point, k);
        for (int64_t i = 0; i < dv_numel(t); i++)
            if (!isfinite(check_element_get(t->data, i, t->dtype)))
                return false;
    }
    return true;
}
