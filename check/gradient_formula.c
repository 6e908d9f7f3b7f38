/* Gradients by the declared formulas (property gradient). */
#include <string.h>

#include "gradient.h"

enum clause_kind check_gradient_find_clause_kind(const check_op *op, const char *formula_name, size_t slot, bool *has_any_value)
{
    const check_json *clauses = check_json_find_member(check_json_find_member(op->json, formula_name), "clauses");
    enum clause_kind found = CLAUSE_NONE;
    *has_any_value = false;
    for (const check_json *k = clauses ? clauses->child : NULL; k; k = k->next) {
        const check_json *targets = check_json_find_member(k, "targets"), *value = check_json_find_member(k, "value");
        const bool has = value && value->kind != CHECK_JSON_NULL;
        *has_any_value |= has;
        for (const check_json *t = targets ? targets->child : NULL; t; t = t->next)
            if ((size_t)t->int_value == slot)
                found = has ? CLAUSE_VALUE : CLAUSE_NOT_DIFFERENTIABLE;
    }
    return found;
}

bool check_gradient_has_formula_of_kind(const check_op *op, const char *gradient_or_tangent)
{
    const check_json *f = check_json_find_member(op->json, gradient_or_tangent);
    return f && f->kind == CHECK_JSON_OBJECT;
}

bool check_gradient_expr_contains(const check_json *expr, const char *kind, const char *name)
{
    if (!expr || (expr->kind != CHECK_JSON_ARRAY && expr->kind != CHECK_JSON_OBJECT))
        return false;
    if (check_json_is_expr(expr, kind) &&
        (!name || (check_json_find_element(expr, 1)->text && !strcmp(check_json_find_element(expr, 1)->text, name))))
        return true;
    for (const check_json *k = expr->child; k; k = k->next)
        if (check_gradient_expr_contains(k, kind, name))
            return true;
    return false;
}

/* Returns the gradient of a tensor of the case from the values that dv_gradient() gave by slot. NULL: none was computed, so it is
 * zero. */
static const dv_tensor *gradient_formula_find_gradient_of_tensor(
    const gradient_point *point, const dv_value *gradients, size_t tensor_index)
{
    const size_t slot = check_find_tensor_slot(&point->c, tensor_index);
    return check_gradient_find_tensor_of_value(&gradients[slot], tensor_index - point->c.args[slot].first_tensor);
}

/* Formats the dtype and shape of a tensor as "f32[3, 4]". */
static void gradient_formula_format_dtype_and_shape(const dv_tensor *tensor, char *text, size_t capacity)
{
    size_t length = (size_t)snprintf(text, capacity, "%s[", dv_dtype_name(tensor->dtype));
    for (int32_t d = 0; d < tensor->ndim && length < capacity; d++)
        length += (size_t)snprintf(text + length, capacity - length, "%s%lld", d ? ", " : "", (long long)tensor->shape[d]);
    if (length < capacity)
        snprintf(text + length, capacity - length, "]");
}

/* True if all floating-point arguments and outputs have one dtype. Where dtypes are mixed, a framework converts gradients. */
static bool gradient_formula_has_one_dtype(const gradient_point *point)
{
    const dv_tensor *first = NULL;
    for (size_t s = 0; s < point->c.ntensors + point->nouts; s++) {
        const dv_tensor *t = s >= point->c.ntensors ? check_gradient_find_output(point, s - point->c.ntensors)
            : point->c.tensors[s].present           ? &point->v.tensors[s]
                                                    : NULL;
        if (!t || !check_gradient_is_differentiable(t->dtype))
            continue;
        if (first && dv_dtype_key(first->dtype) != dv_dtype_key(t->dtype))
            return false;
        first = t;
    }
    return true;
}

/* Checks that each gradient has the shape and dtype of its argument. Fails the job with the first that has not, and returns
 * false. */
static bool gradient_formula_try_verify_shapes_and_dtypes(check_job *job, const gradient_point *point, const dv_value *gradients)
{
    char found[300], expected[300];
    for (size_t i = 0; i < point->c.ntensors; i++) {
        const dv_tensor *t = &point->v.tensors[i],
                        *gradient = point->c.tensors[i].present && check_gradient_is_differentiable(t->dtype)
            ? gradient_formula_find_gradient_of_tensor(point, gradients, i)
            : NULL;
        if (!gradient)
            continue;
        bool same = gradient->ndim == t->ndim;
        for (int32_t d = 0; d < t->ndim && same; d++)
            same = gradient->shape[d] == t->shape[d];
        const bool has_same_dtype = dv_dtype_key(gradient->dtype) == dv_dtype_key(t->dtype) ||
            (check_gradient_is_differentiable(gradient->dtype) && !gradient_formula_has_one_dtype(point));
        if (same && has_same_dtype)
            continue;
        gradient_formula_format_dtype_and_shape(gradient, found, sizeof found);
        gradient_formula_format_dtype_and_shape(t, expected, sizeof expected);
        check_fail(job, same ? "gradient's element type" : "gradient's shape",
            "the gradient of '%s' is %s, and the argument is %s", point->op->slots[check_find_tensor_slot(&point->c, i)].name,
            found, expected);
        return false;
    }
    return true;
}

void check_gradient_set_wanted_slots(const gradient_point *point, bool *wanted)
{
    memset(wanted, 0, sizeof *wanted * MAX_SLOTS);
    for (size_t i = 0; i < point->c.ntensors; i++)
        if (point->c.tensors[i].present && check_gradient_is_differentiable(point->c.tensors[i].dtype))
            wanted[check_find_tensor_slot(&point->c, i)] = true;
}

void check_gradient_free_lists(const dv_value *values, size_t count)
{
    for (size_t s = 0; s < count; s++)
        if (values[s].type == DV_VALUE_TENSORS)
            dv_free((void *)(uintptr_t)values[s].as.tensors.data);
}

enum backward_result check_gradient_call_backward(
    check_job *job, const gradient_point *point, const bool *wanted, gradient_set *gradients)
{
    static const dv_tensor *list_tensors[MAX_SLOTS + CHECK_MAX_TENSORS];
    dv_value grads[MAX_SLOTS], out[MAX_SLOTS];
    if (!check_gradient_try_make_output_grads(point, grads, list_tensors))
        return BACKWARD_REFUSED;
    const int status = dv_gradient(point->op->op, point->slots, grads, wanted, out, &check_gradient_host.host);
    if (status == DV_ENOTSUP || status == DV_ENOMEM) /* these arguments have no gradient, or the host is out of memory */
        return BACKWARD_REFUSED;
    if (status) {
        check_fail(job, "gradient fails", "the gradient cannot be computed: %s", dv_last_error());
        return BACKWARD_FAILED;
    }
    bool is_right = gradient_formula_try_verify_shapes_and_dtypes(job, point, out);
    for (size_t i = 0; i < point->c.ntensors && is_right; i++) {
        const dv_tensor *t = wanted[check_find_tensor_slot(&point->c, i)] && point->c.tensors[i].present &&
                check_gradient_is_differentiable(point->c.tensors[i].dtype)
            ? gradient_formula_find_gradient_of_tensor(point, out, i)
            : NULL;
        gradients->tensors[i] = t ? check_gradient_alloc_doubles(dv_numel(t)) : NULL;
        if (gradients->tensors[i])
            check_gradient_copy_elements(t, gradients->tensors[i]);
    }
    check_gradient_free_lists(out, point->op->nargs);
    return is_right ? BACKWARD_DONE : BACKWARD_FAILED;
}
