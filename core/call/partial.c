/* Calls of which not everything is known: arguments as for a call where they are, then the contract (lang/contract_partial.c). */
#include "call/call.h"
#include "call/values.h"

struct dv_partial {
    dv__call call; /* keeps what conversion made */
    dv__partial *partial;
};

static int bind(dv__call *c, const dv_value *args, size_t nargs, dv_value **values)
{
    const dv_value missing = { .type = DV_VALUE_DEFAULT };
    const size_t n = c->plan->nargs;
    if (nargs > n)
        return dv_fail(DV_EINVAL, "%s: expected at most %zu arguments, found %zu", c->op->name, n, nargs);
    if (nargs && !args)
        return dv_fail(DV_EINVAL, "%s: %zu arguments, but the array is NULL", c->op->name, nargs);
    if (!(*values = DV__ARENA_ARRAY(&c->arena, dv_value, n + 1)))
        return DV_ENOMEM;
    int status = DV_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = dv__bind_partly_known(c, i, i < nargs ? &args[i] : &missing, &(*values)[i]);
    return status;
}

int dv_partial_new(dv_operator *op, const dv_value *args, size_t nargs, dv_partial **out)
{
    static dv_value no_results[DV__MAX_RETURNS]; /* nothing writes to them */
    dv_value *values = NULL;
    if (!op || !out)
        return dv_fail(DV_EINVAL, "dv_partial_new: no %s given: found NULL", op ? "place for what it makes" : "operator");
    *out = NULL;
    if (!op->contract)
        return dv_fail(DV_ENOTSUP, "%s: it has no contract, so nothing follows from what is known", op->name);
    dv_partial *p = dv__calloc(1, sizeof *p);
    if (!p)
        return DV_ENOMEM;
    int status = dv__call_init(&p->call, op, no_results, op->plan->nreturns, NULL, 0);
    if (status) {
        dv__free(p);
        return status;
    }
    if (!(status = bind(&p->call, args, nargs, &values)))
        status = dv__partial_new(op->contract, values, &p->partial);
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

int dv_partial_get(const dv_partial *p, enum dv_partial_of of, size_t index, size_t element, dv_known *out)
{
    return p && out ? dv__partial_get(p->partial, of, index, element, out) : dv_fail(DV_EINVAL, "dv_partial_get: found NULL");
}

/* A step of 0 is as good as 1, so that { 8, 8 } is 8. */
static bool sound(dv_range *r)
{
    r->step += r->step == 0;
    return r->step > 0 && r->rest >= 0 && r->rest < r->step;
}

int dv_partial_set(dv_partial *p, enum dv_partial_of of, size_t index, size_t element, const dv_known *known)
{
    if (!p || !known)
        return dv_fail(DV_EINVAL, "dv_partial_set: found NULL");
    dv_known k = *known;
    for (int i = -2; i < DV_MAX_NDIM; i++) {
        dv_range *r = i == -2 ? &k.present : i == -1 ? &k.value : &k.sizes[i];
        if (!sound(r))
            return dv_fail(DV_EINVAL,
                "dv_partial_set: a range needs a step above 0 and a rest below the step: found step %lld, rest %lld",
                (long long)r->step, (long long)r->rest);
    }
    if (k.string.data) { /* it is kept */
        char *copy = dv__arena_alloc(&p->call.arena, k.string.size + 1);
        if (!copy)
            return DV_ENOMEM;
        memcpy(copy, k.string.data, k.string.size);
        copy[k.string.size] = 0;
        k.string.data = copy;
    }
    return dv__partial_set(p->partial, of, index, element, &k);
}

int dv_infer_partial(dv_operator *op, const dv_value *args, size_t nargs, dv_known *specs, size_t nspecs)
{
    dv_partial *p;
    if (nspecs && !specs)
        return dv_fail(DV_EINVAL, "dv_infer_partial: room for %zu results, but the array is NULL", nspecs);
    if (op && nspecs != op->plan->nreturns)
        return dv_fail(DV_EINVAL, "%s: expected room for %u results, found %zu", op->name, op->plan->nreturns, nspecs);
    int status = dv_partial_new(op, args, nargs, &p);
    if (status)
        return status;
    for (size_t i = 0; i < nspecs && !status; i++)
        status = dv_partial_get(p, DV_PARTIAL_RESULT, i, 0, &specs[i]);
    dv_partial_free(p);
    return status;
}
