/* dv_gradient() and dv_tangent(): evaluate a declared formula on a call's values and on the gradients or tangents. */
#include "base/memory.h"
#include "call/call.h"
#include "call/eval.h"
#include "call/call_error.h"
#include "call/host_tensor.h"
#include "call/memory.h"
#include "call/nesting.h"
#include "call/bind.h"

/* Evaluates a formula that gives ntargets values to `out`: from a call with ntargets results, from a list of ntargets
 * elements, or for one target from any expression. Returns a status. */
static int derivative_eval_targets(dv__eval *ev, const dv__expr *e, size_t ntargets, dv_value *out)
{
    int status = DV_OK;
    const dv__eval_memo *m = NULL;
    if (ntargets == 1)
        return dv__eval_expr(ev, e, out);
    const bool is_call = e->kind == DV__EXPR_CALL && e->ref == DV__FORMULA_OPERATOR;
    if (is_call && (status = dv__eval_call_results(ev, e, NULL, &m)))
        return status;
    if ((m ? m->nresults : e->n) != ntargets || (!is_call && e->kind != DV__EXPR_LIST))
        return dv__eval_fail(ev, DV_ETYPE, e, "expected a value for each target");
    for (size_t i = 0; i < ntargets && !status; i++)
        if (m)
            out[i] = m->results[i];
        else
            status = dv__eval_expr(ev, e->args[i], &out[i]);
    return status;
}

/* Gives a tensor to the caller: a temporary of the formula is handed over once; any other tensor, or a temporary used again,
 * is copied. Returns a status. */
static int derivative_give_tensor_to_caller(dv__eval *ev, const dv__expr *e, const dv_tensor *tensor, const dv_tensor **out)
{
    dv_tensor *made;
    int64_t strides[DV_MAX_NDIM];
    if (!dv__has_memory(tensor))
        return dv__eval_fail(ev, DV_EINVAL, e, "a tensor without memory: its data is NULL");
    for (dv__eval_temporary *o = ev->temporaries; o; o = o->next)
        if (o->tensor == tensor) {
            o->tensor = NULL;
            *out = tensor;
            return DV_OK;
        }
    int status = dv__shape_check(tensor->dtype, tensor->ndim, tensor->shape, strides);
    if (!status)
        status = dv__new_result_tensor(ev->c, -1, tensor->dtype, tensor->device, tensor->ndim, tensor->shape, strides, &made);
    if (status)
        return status;
    *out = made;
    if (!(status = dv__host_copy(ev->c->host, made, tensor)))
        return DV_OK;
    dv__free_host_tensor(ev->c, made);
    *out = NULL;
    return status;
}

/* Gives a tensor, a list of tensors or None to the caller. Tensors of a list are given one by one: after a failure *out
 * holds the tensors given so far. Returns a status. */
static int derivative_give_value_to_caller(dv__eval *ev, const dv__expr *e, const dv_value *value, dv_value *out)
{
    int status = DV_OK;
    if (value->type == DV_VALUE_NONE)
        return DV_OK;
    if (value->type == DV_VALUE_TENSOR) {
        if (!(status = derivative_give_tensor_to_caller(ev, e, value->as.tensor, &out->as.tensor)))
            out->type = DV_VALUE_TENSOR;
        return status;
    }
    if (value->type != DV_VALUE_TENSORS &&
        !(value->type == DV_VALUE_INTS && !value->as.ints.size)) /* the empty list of a formula has the type of a list of ints */
        return dv__eval_fail(ev, DV_ETYPE, e, "expected a tensor, a list of tensors or None");
    const size_t n = value->as.tensors.size;
    const dv_tensor **all = dv__calloc(n + 1, sizeof *all);
    if (!all)
        return DV_ENOMEM;
    *out = dv_from_tensors(all, n);
    for (size_t i = 0; i < n && !status; i++)
        if (value->as.tensors.data[i])
            status = derivative_give_tensor_to_caller(ev, e, value->as.tensors.data[i], &all[i]);
    return status;
}

static void derivative_free_value(const dv__call *c, dv_value *v)
{
    for (size_t i = 0; v->type == DV_VALUE_TENSORS && i < v->as.tensors.size; i++)
        dv__free_host_tensor(c, (dv_tensor *)(uintptr_t)v->as.tensors.data[i]);
    if (v->type == DV_VALUE_TENSORS)
        dv_free((void *)(uintptr_t)v->as.tensors.data);
    else if (v->type == DV_VALUE_TENSOR)
        dv__free_host_tensor(c, (dv_tensor *)(uintptr_t)v->as.tensor);
    *v = dv_none();
}

/* True if the clause has a formula and the caller wants the derivative of one of its targets. */
static bool derivative_is_clause_wanted(const dv__eval *ev, const dv__formula_clause *clause)
{
    bool any = !ev->wanted;
    for (size_t t = 0; t < clause->ntargets && !any; t++)
        any = ev->wanted[clause->targets[t]];
    return any && clause->value;
}

static int derivative_eval_clauses(dv__eval *ev, const dv__formula *f, dv_value *out)
{
    int status = DV_OK;
    for (size_t i = 0; i < f->n && !status; i++) {
        const dv__formula_clause *k = &f->clauses[i];
        dv_value *values = DV__ARENA_ARRAY(&ev->c->arena, dv_value, k->ntargets + 1);
        if (!values)
            return DV_ENOMEM;
        if (!derivative_is_clause_wanted(ev, k))
            continue;
        status = derivative_eval_targets(ev, k->value, k->ntargets, values);
        for (size_t t = 0; t < k->ntargets && !status; t++)
            if (!ev->wanted || ev->wanted[k->targets[t]])
                status = derivative_give_value_to_caller(ev, k->value, &values[t], &out[k->targets[t]]);
    }
    return status;
}

static int derivative_check_slot_tensor(
    const dv__call *c, size_t slot, int64_t element_index, const dv_tensor *t, bool needs_memory)
{
    const int status = dv__check_slot_tensor(c, slot, element_index, t);
    return status || !needs_memory ? status : dv__check_has_memory(c, slot, element_index, t);
}

/* Checks the tensors and lists of the slots from first_slot on. These values are not arguments of the call, so nothing else
 * has checked them. needs_memory: also fail for a tensor with elements but no memory. */
static int derivative_check_slot_values(const dv__call *c, size_t first_slot, const dv_value *slot_values, bool needs_memory)
{
    int status = DV_OK;
    for (size_t i = first_slot; i < c->signature->nargs + c->signature->nreturns && !status; i++) {
        const dv_value *v = &slot_values[i];
        if (v->type == DV_VALUE_TENSOR)
            status = derivative_check_slot_tensor(c, i, DV__NO_ELEMENT, v->as.tensor, needs_memory);
        else
            status = dv__check_value_has_data(c, i, v);
        for (size_t k = 0; v->type == DV_VALUE_TENSORS && k < v->as.tensors.size && !status; k++)
            status = v->as.tensors.data[k] ? derivative_check_slot_tensor(c, i, (int64_t)k, v->as.tensors.data[k], needs_memory)
                                           : DV_OK;
    }
    return status;
}

/* Evaluates the operator's gradient or tangent formula. formula_kind: "gradient" or "tangent". derivatives: by slot, the
 * given gradients or tangents. out: one value for each slot. Returns a status. */
static int derivative_eval(dv_operator *op, const char *formula_kind, const dv_value *values, const dv_value *derivatives,
    const bool *wanted, dv_value *out, const dv_host *host)
{
    dv__call c;
    uint32_t keys;
    if (!op || !values || !derivatives || !out)
        return dv_fail(
            DV_EINVAL, "%s: expected an operator, values and room for the %ss, found NULL", formula_kind, formula_kind);
    const dv__formula *f = *formula_kind == 'g' ? op->gradient : op->tangent;
    const size_t nargs = op->signature->nargs, n = nargs + op->signature->nreturns;
    for (size_t i = 0; i < n; i++)
        out[i] = dv_none();
    if (!f)
        return dv_fail(DV_ENOTSUP, "%s: it declares no %s", op->name, formula_kind);
    int status = dv__nesting_begin(op);
    if (status)
        return status;
    if ((status = dv__call_init(&c, op, (dv_value *)(uintptr_t)(values + nargs), op->signature->nreturns, host, 0)))
        return dv__nesting_end(), status;
    dv__eval ev = { .c = &c, .formula_kind = formula_kind, .derivatives = derivatives, .wanted = wanted };
    if (!(status = dv__bind_values(&c, values, nargs, &keys)) &&
        !(status = derivative_check_slot_values(&c, nargs, values, false)) &&
        !(status = derivative_check_slot_values(&c, 0, derivatives, true)))
        status = derivative_eval_clauses(&ev, f, out);
    for (size_t i = 0; i < n && status; i++)
        derivative_free_value(&c, &out[i]);
    dv__eval_deinit(&ev);
    status = dv__call_end(&c, status);
    dv__nesting_end();
    return status;
}

int dv_gradient(
    dv_operator *op, const dv_value *values, const dv_value *grads, const bool *wanted, dv_value *out, const dv_host *host)
{
    return derivative_eval(op, "gradient", values, grads, wanted, out, host);
}

int dv_tangent(dv_operator *op, const dv_value *values, const dv_value *tangents, dv_value *out, const dv_host *host)
{
    return derivative_eval(op, "tangent", values, tangents, NULL, out, host);
}
