/* Solves a contract for one call: binds unbound variables and compares bound ones. The fast path is for simple patterns (tensors
 * with names, literals and one variadic) without cases. It is two nested loops without function calls. For other contracts, and
 * for arguments that do not fit, the program runs (contract_eval.c). */
#include "lang/contract_internal.h"

/* ---- The fast path ------------------------------------------------------------------------------------------------------- */

/* True if a dtype variable may be the dtype with this key. */
static bool dtype_var_is_allowed(const dv__dtype_var *var, uint32_t key)
{
    if (!var->allowed)
        return true;
    for (uint32_t i = 0; i < var->nallowed; i++)
        if (var->allowed[i] == key)
            return true;
    return false;
}

static inline bool sizes_are_equal(const int64_t *a, const int64_t *b, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

/* Binds or compares the dims of a simple pattern. Returns false if the tensor does not fit. */
DV_INLINE bool solve_try_match_dims_of_simple_pattern(
    const dv__contract *c, dv__solution *s, dv__var_set *bound, const dv__dims *dims, const dv_tensor *tensor)
{
    const int32_t rest = tensor->ndim - (int32_t)dims->nsingle_dims; /* number of dims that the variadic matches */
    if (dims->nsingle_dims == dims->n ? rest != 0 : rest < 0)
        return false;
    int32_t at = 0;
    for (uint32_t i = 0; i < dims->n; i++) {
        const dv__dim_item *item = &dims->items[i];
        if (item->kind == DV__DIM_VAR) {
            const uint64_t bit = 1ull << item->ref;
            const int64_t size = tensor->shape[at++];
            if (!(bound->dims & bit))
                s->registers[item->ref].i = size, bound->dims |= bit;
            else if (s->registers[item->ref].i != size)
                return false;
        } else if (item->kind == DV__DIM_LITERAL) {
            if (tensor->shape[at++] != item->value)
                return false;
        } else {
            const int64_t *sizes = rest ? tensor->shape + at : NULL; /* a 0-d tensor may have no shape */
            dv__reg *variadic = &s->registers[dv__variadic_register(c, item->ref)];
            if (!(bound->variadics >> item->ref & 1)) {
                variadic->sizes = sizes;
                variadic->n = rest;
                bound->variadics |= 1u << item->ref;
            } else if (variadic->n != rest || !sizes_are_equal(variadic->sizes, sizes, rest)) {
                return false;
            }
            at += rest;
        }
    }
    return true;
}

/* Matches a tensor with a simple pattern, without function calls: binds unbound variables, compares bound ones. Returns false
 * if the tensor does not fit, or the program must decide. *bound is kept apart from s, so that the compiler can keep it in a
 * register. */
DV_INLINE bool solve_try_match_simple_pattern(
    const dv__contract *c, dv__solution *s, dv__var_set *bound, const dv__pattern *t, const dv_tensor *tensor)
{
    const uint32_t key = dv_dtype_key(tensor->dtype);
    if (s->device.type != tensor->device.type || s->device.id != tensor->device.id) {
        if (s->device.type)
            return false;
        s->device = tensor->device;
    }
    if (t->dtype.kind == DV__DTYPE_SPEC_VAR) {
        const uint32_t bit = 1u << t->dtype.ref;
        dv__reg *variable = &s->registers[dv__dtype_register(c, t->dtype.ref)];
        if (bound->dtypes & bit) {
            if (dv_dtype_key(variable->dtype) != key)
                return false;
        } else {
            if (!dtype_var_is_allowed(&c->dtypes[t->dtype.ref], key))
                return false;
            variable->dtype = tensor->dtype;
            bound->dtypes |= bit;
        }
    } else if (t->dtype.kind == DV__DTYPE_SPEC_LITERAL && t->dtype.key != key) {
        return false;
    }
    return solve_try_match_dims_of_simple_pattern(c, s, bound, &t->dims, tensor);
}

bool dv__contract_has_fast_match(const dv__contract *c, dv__solution *s, size_t return_index, const dv_tensor *given)
{
    const dv__pattern *t = c->result_pattern_index[return_index] >= 0 ? &c->result_patterns[c->result_pattern_index[return_index]]
                                                                      : NULL;
    dv__var_set bound = { s->bound_dims, s->bound_variadics, s->bound_dtypes };
    return t && t->is_simple && solve_try_match_simple_pattern(c, s, &bound, t, given);
}

/* ---- All patterns -------------------------------------------------------------------------------------------------------- */

/* Stores the selected case of each group in the solution. */
static void solve_set_selected_cases(const dv__evaluator *r)
{
    for (uint32_t g = 0; g < r->c->ngroups; g++)
        for (uint32_t i = 0; i < r->c->groups[g].n; i++)
            if (dv__eval_get_operand(r, r->program->is_selected[g][i])->i)
                r->s->selected_cases[g] = (int32_t)i;
}

/* Solves a call by the contract's program. nmatched: the number of leading simple patterns that are known to match; the program
 * skips those that it can. Returns a status. */
static __attribute__((noinline)) int solve_by_program(
    const dv__contract *c, const dv_value *args, dv__solution *s, bool check_values, uint32_t nmatched)
{
    const dv__program *p = c->program;
    dv__evaluator r = { .c = c, .program = p, .args = args, .s = s, .check_values = check_values };
    dv__reg *device = &s->registers[dv__device_register(c)];
    const bool skip = p->nsimple_patterns && nmatched >= p->nsimple_patterns;
    device->device = s->device;
    if (!skip)
        s->bound_dims = s->bound_variadics = s->bound_dtypes = 0;
    const int status = dv__eval_steps(&r, skip ? p->after_simple : 0, p->solve_end_step);
    s->device = device->device;
    if (status)
        return status;
    s->bound_dims |= p->always_bound.dims;
    s->bound_variadics |= p->always_bound.variadics;
    s->bound_dtypes |= p->always_bound.dtypes;
    solve_set_selected_cases(&r);
    return DV_OK;
}

int dv__contract_solve(const dv__contract *c, const dv_value *args, dv__solution *s, bool check_values)
{
    uint32_t i = 0;
    s->device.type = 0;
    s->device.id = 0;
    s->pool_count = 0;
    dv__var_set bound = { 0, 0, 0 };
    for (; i < c->nsimple_patterns; i++) {
        const dv__pattern *t = &c->patterns[i];
        const dv_value *value = &args[t->slot];
        if (value->type == DV_VALUE_NONE && t->presence == DV__PRESENCE_OPTIONAL)
            continue;
        if (value->type != DV_VALUE_TENSOR || !solve_try_match_simple_pattern(c, s, &bound, t, value->as.tensor))
            break;
    }
    s->bound_dims = bound.dims;
    s->bound_variadics = bound.variadics;
    s->bound_dtypes = bound.dtypes;
    if (i < c->npatterns || !c->is_match_only || !s->device.type)
        return solve_by_program(c, args, s, check_values, i);
    return DV_OK;
}
