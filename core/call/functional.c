/* A call of a functional form (registry/functional.c): each written argument is copied into the tensor of its new value, unless
 * that is the argument's own memory; then the operator itself is called, with the new values in place of the arguments. */
#include "call/functional.h"

#include "base/memory.h"
#include "call/fail.h"
#include "call/host.h"
#include "call/memory.h"
#include "call/results.h"
#include "call/values.h"

/* Prepare out as the new value of the tensor t; r: for messages and the host. */
static int new_value(dv__call *c, size_t r, const dv_tensor *t, dv_tensor **out)
{
    dv__output o = { .dtype = t->dtype, .device = t->device, .ndim = t->ndim, .shape = t->shape };
    int64_t strides[DV_MAX_NDIM];
    int status = DV_OK;
    if (c->op->contract && c->plan->slots[c->plan->nargs + r].value == DV_VALUE_TENSOR)
        status = dv__contract_output(c->op->contract, c->args, &c->solution, r, &o);
    else if (!(status = dv__shape_check(t->dtype, t->ndim, t->shape, strides)))
        o.strides = strides;
    return status ? status : dv__new_tensor(c, (int)r, o.dtype, o.device, o.ndim, o.shape, o.strides, out);
}

static int tensor_result(dv__call *c, size_t r, const dv_tensor *t)
{
    dv__result *out = &c->outs[r];
    const dv_value *given = &c->results[r];
    if (given->type == DV_VALUE_DEFAULT) {
        const int status = new_value(c, r, t, &out->made);
        out->origin = DV__RESULT_MADE;
        out->tensor = out->made;
        return status;
    }
    out->tensor = (dv_tensor *)(uintptr_t)given->as.tensor;
    out->origin = DV__RESULT_GIVEN;
    int status = dv__check_given_like(c, r, given, t);
    if (!status && dv__same_view(given->as.tensor, t))
        out->origin = DV__RESULT_ALIAS; /* the operator writes the argument itself, and checks overlaps with it */
    return status;
}

/* One element of a list of new values: it is its argument's element itself, or overlaps no argument. */
static int check_element(dv__call *c, size_t r, const dv_tensor *t, const dv_tensor *like)
{
    const size_t slot = c->plan->nargs + r;
    const dv_value one = dv_from_tensor(t);
    char name[256];
    const int status = dv__check_given_like(c, r, &one, like);
    if (status || dv__same_view(t, like))
        return status;
    if (dv__tensor_is_read_only(t))
        return dv__fail_argument(c, DV_EINVAL, slot, "would be written, but is read-only");
    for (size_t i = 0; i < c->plan->nargs; i++) {
        const dv_value *v = &c->args[i];
        const size_t n = v->type == DV_VALUE_TENSORS ? v->as.tensors.size : v->type == DV_VALUE_TENSOR;
        for (size_t k = 0; k < n; k++) {
            const dv_tensor *other = v->type == DV_VALUE_TENSOR ? v->as.tensor : v->as.tensors.data[k];
            if (other && dv_tensor_overlaps(t, other))
                return dv__fail_argument(
                    c, DV_EALIAS, slot, "would be written, but overlaps %s", dv__slot_name(c, i, DV__WHOLE, name, sizeof name));
        }
    }
    return DV_OK;
}

static bool writes(const dv__call *c, size_t i) { return c->op->functional->plan->slots[i].flags & DV__SLOT_WRITES; }

/* The argument whose new value result r is. */
static size_t argument_of(const dv__call *c, size_t r)
{
    size_t i = c->plan->nargs, n = c->plan->nreturns;
    while (n > r)
        n -= writes(c, --i);
    return i;
}

static int new_element(dv__call *c, size_t r, size_t place, dv__output *o, int64_t *strides)
{
    if (c->op->contract)
        return dv__contract_element(c->op->contract, c->args, &c->solution, r, (int64_t)place, o);
    const dv_tensor *t = c->args[argument_of(c, r)].as.tensors.data[place];
    *o = (dv__output){
        .dtype = t->dtype, .device = t->device, .ndim = t->ndim, .shape = t->shape, .strides = strides, .view_of = -1
    };
    return dv__shape_check(t->dtype, t->ndim, t->shape, strides);
}

static int list_result(dv__call *c, size_t r, const dv_tensors *list)
{
    const dv_value *given = &c->results[r];
    if (given->type == DV_VALUE_DEFAULT)
        return dv__make_list(c, r, list->size, new_element);
    if (given->type != DV_VALUE_TENSORS || given->as.tensors.size != list->size)
        return dv__fail_argument(
            c, DV_ETYPE, c->plan->nargs + r, "is a list of new values: expected %zu tensors given for it", list->size);
    c->outs[r].origin = DV__RESULT_SCALAR; /* passed through, so its overlaps are checked here */
    c->outs[r].value = *given;
    int status = DV_OK;
    for (size_t k = 0; k < list->size && !status; k++)
        status = check_element(c, r, given->as.tensors.data[k], list->data[k]);
    return status;
}

static int absent(dv__call *c, size_t r)
{
    return c->results[r].type == DV_VALUE_TENSOR
        ? dv__fail_argument(c, DV_EINVAL, c->plan->nargs + r, "is absent with these arguments, but a tensor was given for it")
        : DV_OK;
}

/* The operator makes its own results; here only the given ones are known. */
static int begin_own(dv__call *c, size_t r)
{
    const dv_value *given = &c->results[r];
    if (given->type == DV_VALUE_TENSOR) {
        c->outs[r].origin = DV__RESULT_GIVEN;
        c->outs[r].tensor = (dv_tensor *)(uintptr_t)given->as.tensor;
        return dv__check_tensor(c, c->plan->nargs + r, DV__WHOLE, given->as.tensor);
    }
    if (given->type == DV_VALUE_TENSORS) {
        c->outs[r].origin = DV__RESULT_LIST;
        c->outs[r].value = *given;
        return dv__check_list(c, c->plan->nargs + r, &c->outs[r].value);
    }
    return DV_OK;
}

static int begin_results(dv__call *c, size_t nown)
{
    int status = DV_OK;
    dv__begin_results(c);
    for (size_t r = 0; r < nown && !status; r++)
        status = begin_own(c, r);
    for (size_t i = 0, r = nown; i < c->plan->nargs && !status; i++)
        if (writes(c, i)) {
            const dv_value *v = &c->args[i];
            status = v->type == DV_VALUE_TENSOR ? tensor_result(c, r, v->as.tensor)
                : v->type == DV_VALUE_TENSORS   ? list_result(c, r, &v->as.tensors)
                                                : absent(c, r);
            r++;
        }
    return status;
}

/* The arguments of the operator's call: copies of the written ones. */
static int copy_arguments(dv__call *c, size_t nown, dv_value *args)
{
    int status = DV_OK;
    for (size_t i = 0, r = nown; i < c->plan->nargs && !status; i++) {
        args[i] = c->args[i];
        if (!writes(c, i))
            continue;
        const dv__result *out = &c->outs[r++];
        if (args[i].type == DV_VALUE_TENSOR) {
            if (out->origin != DV__RESULT_ALIAS)
                status = dv__host_copy(c->host, out->tensor, args[i].as.tensor);
            args[i].as.tensor = out->tensor;
        } else if (args[i].type == DV_VALUE_TENSORS) {
            args[i].as.tensors = out->value.as.tensors;
            for (size_t k = 0; k < args[i].as.tensors.size && !status; k++)
                if (!dv__same_view(args[i].as.tensors.data[k], c->args[i].as.tensors.data[k]))
                    status = dv__host_copy(c->host, args[i].as.tensors.data[k], c->args[i].as.tensors.data[k]);
        }
    }
    return status;
}

/* Take the operator's result: result r of the form is result `own` of the operator. */
static void take(dv__call *c, size_t own, const dv_value *v)
{
    dv__result *out = &c->outs[own];
    if (out->origin == DV__RESULT_GIVEN || out->origin == DV__RESULT_LIST || v->type == DV_VALUE_NONE)
        return;
    out->origin = v->type == DV_VALUE_TENSOR ? DV__RESULT_MADE : DV__RESULT_SCALAR;
    out->made = out->tensor = v->type == DV_VALUE_TENSOR ? (dv_tensor *)(uintptr_t)v->as.tensor : NULL;
    out->value = *v;
}

static bool is_own(const dv__plan *plan, size_t r)
{
    const dv__slot *slot = &plan->slots[plan->nargs + r];
    return slot->alias < 0 || !(slot->flags & DV__SLOT_WRITES);
}

int dv__run_functional(dv__call *c)
{
    dv_operator *op = c->op->functional;
    const dv__plan *plan = op->plan;
    dv_value *args = DV__ARENA_ARRAY(&c->arena, dv_value, plan->nargs + 1);
    dv_value *results = DV__ARENA_ARRAY(&c->arena, dv_value, plan->nreturns + 1);
    if (!args || !results)
        return DV_ENOMEM;
    size_t nown = 0;
    for (size_t r = 0; r < plan->nreturns; r++) {
        if (is_own(plan, r) && nown != r && c->results[nown].type == DV_VALUE_DEFAULT &&
            plan->slots[plan->nargs + r].value == DV_VALUE_TENSOR)
            return dv__fail_argument(c, DV_ENOTSUP, c->plan->nargs + nown,
                "must be given: in %s it stands after a result that is an argument", op->name);
        results[r] = is_own(plan, r) ? c->results[nown++] : dv_default();
    }
    int status = dv__solve(c);
    if (status || (status = dv__gather_args(c)) || (status = begin_results(c, nown)) || (status = dv__gather_results(c)) ||
        (status = dv__check_overlaps(c)) || (status = copy_arguments(c, nown, args)) ||
        (status = c->enter(op, args, plan->nargs, results, plan->nreturns, c->host, c->inner)))
        return status;
    for (size_t r = 0, own = 0; r < plan->nreturns; r++)
        if (is_own(plan, r))
            take(c, own++, &results[r]);
    return DV_OK;
}
