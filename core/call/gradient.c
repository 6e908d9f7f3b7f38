/* dv_gradient() and dv_tangent(): evaluate a declared formula on a call's values and on the gradients or tangents. */
#include "base/memory.h"
#include "call/call.h"
#include "call/evaluate.h"
#include "call/fail.h"
#include "call/host.h"
#include "call/memory.h"
#include "call/nesting.h"
#include "call/values.h"

/* One value for each of n targets: from a call with n results, a list of n elements, or a single value. */
static int several(dv__eval *ev, const dv__expr *e, size_t n, dv_value *out)
{
    int status = DV_OK;
    const dv__memo *m = NULL;
    if (n == 1)
        return dv__evaluate(ev, e, out);
    const bool is_call = e->kind == DV__EXPR_CALL && e->ref == DV__FORMULA_OPERATOR;
    if (is_call && (status = dv__evaluate_node(ev, e, NULL, &m)))
        return status;
    if ((m ? m->n : e->n) != n || (!is_call && e->kind != DV__EXPR_LIST))
        return dv__fail_expr(ev, DV_ETYPE, e, "expected a value for each target");
    for (size_t i = 0; i < n && !status; i++)
        if (m)
            out[i] = m->results[i];
        else
            status = dv__evaluate(ev, e->args[i], &out[i]);
    return status;
}

/* A tensor for the caller: the result of a call is passed on; any other tensor, or a result used twice, is copied. */
static int hand_over(dv__eval *ev, const dv__expr *e, const dv_tensor *from, const dv_tensor **out)
{
    dv_tensor *made;
    int64_t strides[DV_MAX_NDIM];
    if (!dv__has_memory(from))
        return dv__fail_expr(ev, DV_EINVAL, e, "a tensor without memory: its data is NULL");
    for (dv__owned *o = ev->temporaries; o; o = o->next)
        if (o->t == from) {
            o->t = NULL;
            *out = from;
            return DV_OK;
        }
    int status = dv__shape_check(from->dtype, from->ndim, from->shape, strides);
    if (!status)
        status = dv__new_tensor(ev->c, -1, from->dtype, from->device, from->ndim, from->shape, strides, &made);
    if (status)
        return status;
    *out = made;
    if (!(status = dv__host_copy(ev->c->host, made, from)))
        return DV_OK;
    dv__free_tensor(ev->c, made);
    *out = NULL;
    return status;
}

/* from is in the arena. Its tensors are passed to the caller one by one; *to always holds those that were. */
static int publish(dv__eval *ev, const dv__expr *e, const dv_value *from, dv_value *to)
{
    int status = DV_OK;
    if (from->type == DV_VALUE_NONE)
        return DV_OK;
    if (from->type == DV_VALUE_TENSOR) {
        if (!(status = hand_over(ev, e, from->as.tensor, &to->as.tensor)))
            to->type = DV_VALUE_TENSOR;
        return status;
    }
    if (from->type != DV_VALUE_TENSORS &&
        !(from->type == DV_VALUE_INTS && !from->as.ints.size)) /* an empty list is of any type */
        return dv__fail_expr(ev, DV_ETYPE, e, "expected a tensor, a list of tensors or None");
    const size_t n = from->as.tensors.size;
    const dv_tensor **all = dv__calloc(n + 1, sizeof *all);
    if (!all)
        return DV_ENOMEM;
    *to = dv_from_tensors(all, n);
    for (size_t i = 0; i < n && !status; i++)
        if (from->as.tensors.data[i])
            status = hand_over(ev, e, from->as.tensors.data[i], &all[i]);
    return status;
}

static void take_back(const dv__call *c, dv_value *v)
{
    for (size_t i = 0; v->type == DV_VALUE_TENSORS && i < v->as.tensors.size; i++)
        dv__free_tensor(c, (dv_tensor *)(uintptr_t)v->as.tensors.data[i]);
    if (v->type == DV_VALUE_TENSORS)
        dv_free((void *)(uintptr_t)v->as.tensors.data);
    else if (v->type == DV_VALUE_TENSOR)
        dv__free_tensor(c, (dv_tensor *)(uintptr_t)v->as.tensor);
    *v = dv_none();
}

static bool is_wanted(const dv__eval *ev, const dv__clause *k)
{
    bool any = !ev->wanted;
    for (size_t t = 0; t < k->ntargets && !any; t++)
        any = ev->wanted[k->targets[t]];
    return any && k->value;
}

static int run_clauses(dv__eval *ev, const dv__formula *f, dv_value *out)
{
    int status = DV_OK;
    for (size_t i = 0; i < f->n && !status; i++) {
        const dv__clause *k = &f->clauses[i];
        dv_value *values = DV__ARENA_ARRAY(&ev->c->arena, dv_value, k->ntargets + 1);
        if (!values)
            return DV_ENOMEM;
        if (!is_wanted(ev, k))
            continue;
        status = several(ev, k->value, k->ntargets, values);
        for (size_t t = 0; t < k->ntargets && !status; t++)
            if (!ev->wanted || ev->wanted[k->targets[t]])
                status = publish(ev, k->value, &values[t], &out[k->targets[t]]);
    }
    return status;
}

static int check_slot(const dv__call *c, size_t i, int64_t element, const dv_tensor *t, bool needs_memory)
{
    const int status = dv__check_tensor(c, i, element, t);
    return status || !needs_memory ? status : dv__check_memory(c, i, element, t);
}

/* Checks the values of slots from `first` on. These values are not arguments of the call, so nothing else has checked them. */
static int check_slots(const dv__call *c, size_t first, const dv_value *slots, bool need_memory)
{
    int status = DV_OK;
    for (size_t i = first; i < c->plan->nargs + c->plan->nreturns && !status; i++) {
        const dv_value *v = &slots[i];
        if (v->type == DV_VALUE_TENSOR)
            status = check_slot(c, i, DV__WHOLE, v->as.tensor, need_memory);
        else
            status = dv__check_data(c, i, v);
        for (size_t k = 0; v->type == DV_VALUE_TENSORS && k < v->as.tensors.size && !status; k++)
            status = v->as.tensors.data[k] ? check_slot(c, i, (int64_t)k, v->as.tensors.data[k], need_memory) : DV_OK;
    }
    return status;
}

static int differentiate(dv_operator *op, const char *what, const dv_value *values, const dv_value *given, const bool *wanted,
    dv_value *out, const dv_host *host)
{
    dv__call c;
    uint32_t keys;
    if (!op || !values || !given || !out)
        return dv_fail(DV_EINVAL, "%s: expected an operator, values and room for the %ss, found NULL", what, what);
    const dv__formula *f = *what == 'g' ? op->gradient : op->tangent;
    const size_t nargs = op->plan->nargs, n = nargs + op->plan->nreturns;
    for (size_t i = 0; i < n; i++)
        out[i] = dv_none();
    if (!f)
        return dv_fail(DV_ENOTSUP, "%s: it declares no %s", op->name, what);
    int status = dv__nesting_begin(op);
    if (status)
        return status;
    if ((status = dv__call_init(&c, op, (dv_value *)(uintptr_t)(values + nargs), op->plan->nreturns, host, 0)))
        return dv__nesting_end(), status;
    dv__eval ev = { .c = &c, .what = what, .given = given, .wanted = wanted };
    if (!(status = dv__bind_values(&c, values, nargs, &keys)) && !(status = check_slots(&c, nargs, values, false)) &&
        !(status = check_slots(&c, 0, given, true)))
        status = run_clauses(&ev, f, out);
    for (size_t i = 0; i < n && status; i++)
        take_back(&c, &out[i]);
    dv__eval_deinit(&ev);
    status = dv__call_end(&c, status);
    dv__nesting_end();
    return status;
}

int dv_gradient(
    dv_operator *op, const dv_value *values, const dv_value *grads, const bool *wanted, dv_value *out, const dv_host *host)
{
    return differentiate(op, "gradient", values, grads, wanted, out, host);
}

int dv_tangent(dv_operator *op, const dv_value *values, const dv_value *tangents, dv_value *out, const dv_host *host)
{
    return differentiate(op, "tangent", values, tangents, NULL, out, host);
}
