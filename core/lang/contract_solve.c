/* One call's arguments against the patterns: bind what is new, compare the rest.
 *
 * The common path (tensors with names, literals and one run, no cases) is two nested loops without function calls. For other
 * contracts, and for arguments that do not fit, the program runs (contract_run.c). */
#include "lang/contract_internal.h"

/* ---- The common path ----------------------------------------------------------------------------------------------------- */

static bool is_allowed(const dv__dtype_var *var, uint32_t key)
{
    if (!var->allowed)
        return true;
    for (uint32_t i = 0; i < var->nallowed; i++)
        if (var->allowed[i] == key)
            return true;
    return false;
}

static inline bool same_sizes(const int64_t *a, const int64_t *b, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

DV_INLINE bool plain_dims_fit(const dv__contract *c, dv__solution *s, dv__needs *bound, const dv__dims *dims, const dv_tensor *x)
{
    const int32_t rest = x->ndim - (int32_t)dims->singles; /* what the run takes */
    if (dims->singles == dims->n ? rest != 0 : rest < 0)
        return false;
    int32_t at = 0;
    for (uint32_t i = 0; i < dims->n; i++) {
        const dv__item *item = &dims->items[i];
        if (item->kind == DV__ITEM_VAR) {
            const uint64_t bit = 1ull << item->ref;
            const int64_t size = x->shape[at++];
            if (!(bound->dims & bit))
                s->registers[item->ref].i = size, bound->dims |= bit;
            else if (s->registers[item->ref].i != size)
                return false;
        } else if (item->kind == DV__ITEM_INT) {
            if (x->shape[at++] != item->value)
                return false;
        } else {
            const int64_t *sizes = rest ? x->shape + at : NULL; /* a 0-d tensor may have no shape */
            dv__reg *run = &s->registers[dv__run_register(c, item->ref)];
            if (!(bound->runs >> item->ref & 1)) {
                run->sizes = sizes;
                run->n = rest;
                bound->runs |= 1u << item->ref;
            } else if (run->n != rest || !same_sizes(run->sizes, sizes, rest)) {
                return false;
            }
            at += rest;
        }
    }
    return true;
}

/* Match a plain pattern with a tensor, without function calls. False: it does not fit, or the program must decide. The set of
 * bound variables is in *bound, so that the compiler can keep it in a register. */
DV_INLINE bool match_plain(const dv__contract *c, dv__solution *s, dv__needs *bound, const dv__pattern *t, const dv_tensor *x)
{
    const uint32_t key = dv_dtype_key(x->dtype);
    if (s->device.type != x->device.type || s->device.id != x->device.id) {
        if (s->device.type)
            return false;
        s->device = x->device;
    }
    if (t->dtype.kind == DV__DTYPE_VAR) {
        const uint32_t bit = 1u << t->dtype.ref;
        dv__reg *variable = &s->registers[dv__dtype_register(c, t->dtype.ref)];
        if (bound->dtypes & bit) {
            if (dv_dtype_key(variable->dtype) != key)
                return false;
        } else {
            if (!is_allowed(&c->dtypes[t->dtype.ref], key))
                return false;
            variable->dtype = x->dtype;
            bound->dtypes |= bit;
        }
    } else if (t->dtype.kind == DV__DTYPE_ONE && t->dtype.one != key) {
        return false;
    }
    return plain_dims_fit(c, s, bound, &t->dims, x);
}

bool dv__contract_fits(const dv__contract *c, dv__solution *s, size_t i, const dv_tensor *given)
{
    const dv__pattern *t = c->output_of[i] >= 0 ? &c->outputs[c->output_of[i]] : NULL;
    dv__needs bound = { s->bound_dims, s->bound_runs, s->bound_dtypes };
    return t && t->plain && match_plain(c, s, &bound, t, given);
}

/* ---- The whole ----------------------------------------------------------------------------------------------------------- */

static void note_cases(const dv__run *r)
{
    for (uint32_t g = 0; g < r->c->ngroups; g++)
        for (uint32_t i = 0; i < r->c->groups[g].n; i++)
            if (dv__read(r, r->program->taken[g][i])->i)
                r->s->cases[g] = (int32_t)i;
}

/* plain: the number of patterns at the beginning that are known to fit. */
static __attribute__((noinline)) int solve_rest(
    const dv__contract *c, const dv_value *args, dv__solution *s, bool check_values, uint32_t plain)
{
    const dv__program *p = c->program;
    dv__run r = { .c = c, .program = p, .args = args, .s = s, .values = check_values };
    dv__reg *device = &s->registers[dv__device_register(c)];
    const bool skip = p->nplain && plain >= p->nplain;
    device->device = s->device;
    if (!skip)
        s->bound_dims = s->bound_runs = s->bound_dtypes = 0;
    const int status = dv__run_steps(&r, skip ? p->after_plain : 0, p->solve_end);
    s->device = device->device;
    if (status)
        return status;
    s->bound_dims |= p->binds.dims;
    s->bound_runs |= p->binds.runs;
    s->bound_dtypes |= p->binds.dtypes;
    note_cases(&r);
    return DV_OK;
}

int dv__contract_solve(const dv__contract *c, const dv_value *args, dv__solution *s, bool check_values)
{
    uint32_t i = 0;
    s->device.type = 0;
    s->device.id = 0;
    s->pool_used = 0;
    dv__needs bound = { 0, 0, 0 };
    for (; i < c->nplain; i++) {
        const dv__pattern *t = &c->patterns[i];
        const dv_value *value = &args[t->slot];
        if (value->type == DV_VALUE_NONE && t->presence == DV__OPTIONAL)
            continue;
        if (value->type != DV_VALUE_TENSOR || !match_plain(c, s, &bound, t, value->as.tensor))
            break;
    }
    s->bound_dims = bound.dims;
    s->bound_runs = bound.runs;
    s->bound_dtypes = bound.dtypes;
    if (i < c->npatterns || !c->matching_only || !s->device.type)
        return solve_rest(c, args, s, check_values, i);
    return DV_OK;
}
