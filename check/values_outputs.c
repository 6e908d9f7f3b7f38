/* Calls of a kernel and copies of their outputs (property values). */
#include <stdlib.h>
#include <string.h>

#include "values.h"

/* Appends a copy of a tensor to `outputs`, its elements in row-major order. Skips a dtype of less than 8 bits, and a tensor past
 * MAX_OUTPUTS. Returns false if memory is out. */
static bool values_outputs_try_append_tensor(value_outputs *outputs, const dv_tensor *tensor, size_t slot, const char *name)
{
    const int64_t numel = dv_numel(tensor), element_bytes = dv_dtype_bytes(tensor->dtype, 1);
    int64_t index[DV_MAX_NDIM] = { 0 };
    const size_t needed = outputs->size + (size_t)(numel * element_bytes);
    if (tensor->dtype.bits < 8 || outputs->n == MAX_OUTPUTS)
        return true;
    if (needed > outputs->room) {
        unsigned char *larger = realloc(outputs->data, 2 * needed);
        if (!larger)
            return false;
        outputs->data = larger;
        outputs->room = 2 * needed;
    }
    value_output *to = &outputs->t[outputs->n++];
    *to = (value_output){ .dtype = tensor->dtype, .ndim = tensor->ndim, .n = numel, .at = outputs->size, .slot = slot };
    snprintf(to->name, sizeof to->name, "%s", name);
    memcpy(to->shape, tensor->shape, sizeof *tensor->shape * (size_t)tensor->ndim);
    if (numel && dv_tensor_is_contiguous(tensor))
        memcpy(outputs->data + outputs->size, tensor->data, (size_t)(numel * element_bytes));
    for (int64_t i = 0; i < numel && !dv_tensor_is_contiguous(tensor); i++) {
        int64_t at = 0;
        for (int32_t d = 0; d < tensor->ndim; d++)
            at += index[d] * tensor->strides[d];
        memcpy(outputs->data + outputs->size + (size_t)(i * element_bytes), (const char *)tensor->data + at * element_bytes,
            (size_t)element_bytes);
        for (int32_t d = tensor->ndim; d-- > 0 && ++index[d] == tensor->shape[d];)
            index[d] = 0;
    }
    outputs->size = needed;
    return true;
}

/* Appends a result that is an int, float or bool to `outputs`, as a tensor without dims of dtype i64 or f64. Returns false if
 * memory is out. */
static bool values_outputs_try_append_number(value_outputs *outputs, const dv_value *number, size_t slot, const char *name)
{
    const dv_dtype f64 = { .code = 2, .bits = 64, .lanes = 1 }, i64 = { .code = 0, .bits = 64, .lanes = 1 };
    double f = number->as.f;
    int64_t i = number->type == DV_VALUE_BOOL ? number->as.b : number->as.i;
    const bool real = number->type == DV_VALUE_FLOAT;
    const dv_tensor t = { .data = real ? (void *)&f : (void *)&i, .dtype = real ? f64 : i64 };
    return values_outputs_try_append_tensor(outputs, &t, slot, name);
}

/* Appends result r of a call to `outputs`: its tensor, the tensors of its list, or its number. An absent result appends nothing.
 * Returns false if memory is out. */
static bool values_outputs_try_append_result(value_outputs *outputs, const check_guarded_call *call, size_t result_index)
{
    const dv_value *v = &call->results[result_index];
    const int32_t alias = call->op->slots[call->op->nargs + result_index].alias;
    const size_t slot = alias >= 0 ? (size_t)alias : call->op->nargs + result_index;
    char result[80], name[120];
    check_format_result_name(call->op, result_index, result, sizeof result);
    switch (v->type) {
    case DV_VALUE_TENSOR: return !v->as.tensor || values_outputs_try_append_tensor(outputs, v->as.tensor, slot, result);
    case DV_VALUE_FLOAT:
    case DV_VALUE_INT:
    case DV_VALUE_BOOL: return values_outputs_try_append_number(outputs, v, slot, result);
    case DV_VALUE_TENSORS:
        /* a list that aliases an argument is copied with the written arguments */
        for (size_t i = 0; i < v->as.tensors.size && alias < 0; i++) {
            snprintf(name, sizeof name, "element %zu of %s", i, result);
            if (!values_outputs_try_append_tensor(outputs, v->as.tensors.data[i], slot, name))
                return false;
        }
        return true;
    default: return true;
    }
}

/* Replaces `outputs` by copies of all results and written arguments of a call. Returns false if memory is out. */
static bool values_outputs_try_copy_outputs(value_outputs *outputs, const check_guarded_call *call, const check_case *c)
{
    char name[80];
    outputs->n = outputs->size = 0;
    for (size_t r = 0; r < call->op->nresults; r++)
        if (!values_outputs_try_append_result(outputs, call, r))
            return false;
    for (size_t i = 0; i < c->ntensors; i++) {
        const size_t slot = check_find_tensor_slot(c, i);
        snprintf(name, sizeof name, "argument '%.60s'", call->op->slots[slot].name);
        if (c->tensors[i].present && call->op->slots[slot].flags & DV_SLOT_WRITES &&
            !values_outputs_try_append_tensor(outputs, check_get_last_tensor(i), slot, name))
            return false;
    }
    return true;
}

bool check_values_try_call_with_contents(const check_job *job, const check_kernel *kernel, const check_case *c,
    const check_case *contents_from, enum check_guard_side guard_side, double perturbation, value_outputs *outputs,
    check_guarded_call *call)
{
    *call = (check_guarded_call){ .op = job->op,
        .kernel = kernel,
        .guard_side = guard_side,
        .poison_byte = 0xa5,
        .relative_perturbation = perturbation,
        .contents_from = contents_from == c ? NULL : contents_from };
    check_guarded_call_run(call, c);
    return !call->status && values_outputs_try_copy_outputs(outputs, call, c);
}

bool check_values_try_call_kernel(
    const check_job *job, const check_kernel *kernel, const check_case *c, value_outputs *outputs, check_guarded_call *call)
{
    return check_values_try_call_with_contents(job, kernel, c, c, CHECK_GUARD_AFTER, 0, outputs, call);
}

const unsigned char *check_values_get_bytes(const value_outputs *outputs, size_t t) { return outputs->data + outputs->t[t].at; }

bool check_values_has_same_shape_and_dtype(const value_output *a, const value_output *b)
{
    return a->ndim == b->ndim && dv_dtype_key(a->dtype) == dv_dtype_key(b->dtype) &&
        !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim);
}
