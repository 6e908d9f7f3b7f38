/* Calls whose arguments are partly known. Known arguments are bound as in a call; the contract is solved by
 * lang/contract_partial.c. */
#include "call/call.h"
#include "call/results.h"
#include "call/bind.h"

struct dv_partial {
    dv__call call; /* the call that was begun; its arena owns the converted values */
    dv_value *values;
    dv__partial *partial;
};

static int partial_bind_arguments(dv__call *c, const dv_value *args, size_t nargs, dv_value **values)
{
    const dv_value missing = { .type = DV_VALUE_DEFAULT };
    const size_t n = c->signature->nargs;
    if (nargs > n)
        return dv_fail(DV_EINVAL, "%s: expected at most %zu arguments, found %zu", c->op->name, n, nargs);
    if (nargs && !args)
        return dv_fail(DV_EINVAL, "%s: %zu arguments, but the array is NULL", c->op->name, nargs);
    if (!(*values = DV__ARENA_ARRAY(&c->arena, dv_value, n + 1)))
        return DV_ENOMEM;
    int status = DV_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = dv__bind_partial_value(c, i, i < nargs ? &args[i] : &missing, &(*values)[i]);
    return status;
}

int dv_partial_new(dv_operator *op, const dv_value *args, size_t nargs, dv_partial **out)
{
    static dv_value no_results[DV__MAX_RETURNS]; /* DV_VALUE_DEFAULT for each result; never written */
    if (!op || !out)
        return dv_fail(DV_EINVAL, "dv_partial_new: no %s given: found NULL", op ? "pointer for the result" : "operator");
    *out = NULL;
    if (!op->contract)
        return dv_fail(DV_ENOTSUP, "%s: it has no contract, so nothing follows from what is known", op->name);
    dv_partial *p = dv__calloc(1, sizeof *p);
    if (!p)
        return DV_ENOMEM;
    int status = dv__call_init(&p->call, op, no_results, op->signature->nreturns, NULL, 0);
    if (status) {
        dv__free(p);
        return status;
    }
    if (!(status = partial_bind_arguments(&p->call, args, nargs, &p->values)))
        status = dv__partial_new(op->contract, p->values, &p->partial);
    if (status)
        dv_partial_free(p);
    else
        *out = p;
    return status;
}

void dv_partial_free(dv_partial *p)
{
    if (!p)
        return;
    dv__partial_free(p->partial);
    dv__call_end(&p->call, DV_EINVAL);
    dv__free(p);
}

/* ---- A C shape function, once all arguments are known ---- */

/* True for NULL, and for a tensor whose rank, sizes, strides, dtype and device are all known. */
static bool partial_is_fully_known_tensor(const dv_tensor *t)
{
    bool is_known = !t || (t->ndim >= 0 && t->dtype.bits && t->device.type && (t->strides || !t->ndim));
    for (int32_t i = 0; t && is_known && i < t->ndim; i++)
        is_known = t->shape[i] >= 0;
    return is_known;
}

/* Returns true if the argument is known. *passed: the passed value; DV_VALUE_UNKNOWN is replaced by the value that follows from
 * the contract, if one does. */
static bool partial_try_resolve_argument(const dv_partial *p, size_t argument_index, dv_value *passed)
{
    dv_partial_spec k;
    bool is_known = true;
    if (passed->type == DV_VALUE_TENSOR)
        return partial_is_fully_known_tensor(passed->as.tensor);
    for (size_t n = 0; passed->type == DV_VALUE_TENSORS && n < passed->as.tensors.size; n++)
        is_known &= partial_is_fully_known_tensor(passed->as.tensors.data[n]);
    if (passed->type != DV_VALUE_UNKNOWN || dv__partial_get(p->partial, DV_PARTIAL_ARGUMENT, argument_index, 0, &k) ||
        k.present.least != k.present.most)
        return passed->type != DV_VALUE_UNKNOWN && is_known;
    const uint32_t type = p->call.signature->slots[argument_index].value;
    *passed = !k.present.most ? dv_none() : type == DV_VALUE_BOOL ? dv_from_bool(k.value.least) : dv_from_int(k.value.least);
    return !k.present.most || ((type == DV_VALUE_INT || type == DV_VALUE_BOOL) && k.value.least == k.value.most);
}

/* Describes a result by the operator's shape function if all arguments are known; otherwise leaves *out unchanged. Returns a
 * status. */
static int partial_run_shape_function(const dv_partial *p, size_t result_index, dv_partial_spec *out)
{
    const dv__signature *signature = p->call.signature;
    dv_value *args = dv__calloc(signature->nargs + 1u, sizeof *args);
    dv_result_spec *specs = dv__calloc(signature->nreturns, sizeof *specs);
    int status = args && specs ? DV_OK : DV_ENOMEM;
    bool known = !status;
    for (size_t i = 0; i < signature->nargs && known; i++) {
        args[i] = p->values[i];
        known = partial_try_resolve_argument(p, i, &args[i]);
    }
    if (known && !(status = dv_infer(p->call.op, args, signature->nargs, specs, signature->nreturns))) {
        const dv_result_spec *s = &specs[result_index];
        out->present.least = out->present.most = s->ndim >= 0;
        out->value.least = out->value.most = s->ndim;
        out->dtype = s->dtype;
        out->device = s->device;
        for (int32_t d = 0; d < s->ndim; d++)
            out->sizes[d].least = out->sizes[d].most = s->shape[d];
    }
    dv__free(args);
    dv__free(specs);
    return status;
}

int dv_partial_get(const dv_partial *p, enum dv_partial_of of, size_t index, size_t element, dv_partial_spec *out)
{
    if (!p || !out)
        return dv_fail(DV_EINVAL, "dv_partial_get: found NULL");
    const int status = dv__partial_get(p->partial, of, index, element, out);
    const bool shape = !status && of == DV_PARTIAL_RESULT && dv__needs_shape_function(p->call.op) &&
        p->call.signature->slots[p->call.signature->nargs + index].value == DV_VALUE_TENSOR;
    return shape ? partial_run_shape_function(p, index, out) : status;
}

int dv_partial_set(dv_partial *p, enum dv_partial_of of, size_t index, size_t element, const dv_partial_spec *known)
{
    if (!p || !known)
        return dv_fail(DV_EINVAL, "dv_partial_set: found NULL");
    for (int i = -2; i < DV_MAX_NDIM; i++) {
        const dv_range *r = i == -2 ? &known->present : i == -1 ? &known->value : &known->sizes[i];
        if (r->step < 0 || r->rest < 0 || r->rest >= r->step + !r->step)
            return dv_fail(DV_EINVAL,
                "dv_partial_set: expected a step of at least 0 and a rest from 0 to below the step, found step %lld, rest %lld",
                (long long)r->step, (long long)r->rest);
    }
    return dv__partial_set(p->partial, of, index, element, known);
}

int dv_infer_partial(dv_operator *op, const dv_value *args, size_t nargs, dv_partial_spec *specs, size_t nspecs)
{
    dv_partial *p;
    if (nspecs && !specs)
        return dv_fail(DV_EINVAL, "dv_infer_partial: room for %zu results, but the array is NULL", nspecs);
    if (op && nspecs != op->signature->nreturns)
        return dv_fail(DV_EINVAL, "%s: expected %u results (one for each return of the schema), found %zu", op->name,
            op->signature->nreturns, nspecs);
    int status = dv_partial_new(op, args, nargs, &p);
    if (status)
        return status;
    for (size_t i = 0; i < nspecs && !status; i++)
        status = dv_partial_get(p, DV_PARTIAL_RESULT, i, 0, &specs[i]);
    dv_partial_free(p);
    return status;
}
