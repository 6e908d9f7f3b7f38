/* One call's arguments against the patterns: bind what is new, compare the rest.
 *
 * The common path (tensors with names, literals and one run, no cases) is two nested loops without a call. What cannot be
 * compared yet, because it speaks of a size that a later pattern binds, is put aside and settled at the end. Messages are made
 * from the state at the moment of failure, by looking again at the patterns: nothing is recorded for them on the way. */
#include "lang/contract_internal.h"

/* ---- Dtypes -------------------------------------------------------------------------------------------------------------- */

static bool is_allowed(const dv__dtype_var *var, uint32_t key)
{
    if (!var->allowed)
        return true;
    for (uint32_t i = 0; i < var->nallowed; i++)
        if (var->allowed[i] == key)
            return true;
    return false;
}

/* Everything but the plain variable. */
static int match_other_dtype(dv__env *v, const dv__pattern *t, int element, const dv_tensor *x)
{
    const uint32_t key = dv_dtype_key(x->dtype);
    bool ok = false;
    if (t->dtype.kind == DV__DTYPE_ANY)
        return DV_OK;
    if (t->dtype.kind == DV__DTYPE_ONE) {
        ok = key == t->dtype.one;
    } else if (t->dtype.kind == DV__DTYPE_SET) {
        for (uint32_t i = 0; i < t->dtype.n && !ok; i++)
            ok = key == (uint32_t)t->dtype.alternatives[i]->i;
    } else {
        dv_dtype expected;
        v->where = t->text;
        const int status = dv__eval_dtype(v, t->dtype.alternatives[0], &expected);
        if (status)
            return status;
        ok = dv_dtype_key(expected) == key;
    }
    return ok ? DV_OK : dv__wrong_dtype(v, t, element, x);
}

static inline int match_dtype(dv__env *v, const dv__pattern *t, int element, const dv_tensor *x)
{
    if (t->dtype.kind != DV__DTYPE_VAR)
        return match_other_dtype(v, t, element, x);
    dv__solution *s = v->s;
    const int ref = t->dtype.ref;
    if (s->bound_dtypes >> ref & 1)
        return dv_dtype_key(s->dtypes[ref]) == dv_dtype_key(x->dtype) ? DV_OK : dv__wrong_dtype(v, t, element, x);
    if (!is_allowed(&v->c->dtypes[ref], dv_dtype_key(x->dtype)))
        return dv__wrong_dtype(v, t, element, x);
    s->dtypes[ref] = x->dtype;
    s->bound_dtypes |= 1u << ref;
    return DV_OK;
}

/* ---- Devices ------------------------------------------------------------------------------------------------------------- */

/* s->device.type is 0 until a tensor has said where everything is. CPUs are all one. */
static inline int match_device(dv__env *v, const dv__pattern *t, int element, const dv_tensor *x)
{
    static const dv_device cpu = { DV_CPU, 0 };
    dv_device *device = &v->s->device;
    if (t->on == DV__ON_SAME) {
        if (device->type == x->device.type && (device->id == x->device.id || device->type == DV_CPU))
            return DV_OK;
        if (device->type)
            return dv__wrong_device(v, t, element, *device, x);
        *device = x->device;
        return DV_OK;
    }
    return t->on == DV__ON_ANY || x->device.type == DV_CPU ? DV_OK : dv__wrong_device(v, t, element, cpu, x);
}

/* ---- Shapes -------------------------------------------------------------------------------------------------------------- */

/* How many dims the run in *unknown takes; *unknown is NULL when every run's rank is known. False: the number of dims is wrong.
 */
static int run_ranks(dv__env *v, const dv__pattern *t, int32_t ndim, const dv__item **unknown, int32_t *rest, bool *ok)
{
    int64_t known = t->dims.singles;
    *unknown = NULL;
    for (uint32_t i = 0; i < t->dims.n; i++) {
        const dv__item *item = &t->dims.items[i];
        if (item->kind == DV__ITEM_RUN) {
            if (v->s->bound_runs >> item->ref & 1) {
                known += v->s->runs[item->ref].ndim;
                continue;
            }
            const dv__run_rank *fact = &v->c->run_ranks[item->ref];
            if (fact->e && dv__needs_within(fact->needs, dv__solution_bound(v->s))) {
                int64_t rank = 0;
                v->where = fact->text;
                v->who = NULL;
                const int status = dv__eval_int(v, fact->e, &rank);
                if (status)
                    return status;
                if (rank < 0 || rank > DV_MAX_NDIM)
                    return dv__wrong(v, DV_EINVAL, "expected a number of dims, found %lld", (long long)rank);
                v->who = t->name;
                v->s->runs[item->ref].ndim = -1 - (int32_t)rank; /* known, but not yet where */
                known += rank;
                continue;
            }
            v->s->runs[item->ref].ndim = 0;
            *unknown = item;
        } else if (item->kind == DV__ITEM_RUNS) {
            dv__sizes sizes;
            v->where = item->text;
            const int status = dv__eval_sizes(v, item->e, &sizes);
            if (status)
                return status;
            known += sizes.n;
        }
    }
    *rest = (int32_t)(ndim - known);
    *ok = *unknown ? known <= ndim : known == ndim;
    return DV_OK;
}

static inline bool same_sizes(const int64_t *a, const int64_t *b, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

/* One dim that is not a plain variable. *fits false: wrong. */
static int match_other_item(dv__env *v, const dv__item *item, int64_t size, uint64_t *aside, bool *fits)
{
    int64_t expected = item->value;
    v->where = item->text;
    if (item->kind == DV__ITEM_ELEMENT) {
        int64_t *total = &v->s->dims[item->ref];
        if (v->s->bound_dims >> item->ref & 1 ? __builtin_add_overflow(*total, size, total) : (*total = size, 0))
            return dv__wrong(v, DV_ESHAPE, "the sum over the list does not fit 64 bits");
        v->s->bound_dims |= 1ull << item->ref;
        return DV_OK;
    }
    if (item->kind == DV__ITEM_EXPR) {
        if (item->aside >= 0 && item->needs.dims & ~v->s->bound_dims) {
            *aside |= 1ull << item->aside;
            return DV_OK;
        }
        const int status = dv__eval_int(v, item->e, &expected);
        if (status)
            return status;
    }
    *fits = expected == size;
    return DV_OK;
}

static int match_run(dv__env *v, const dv__pattern *t, int element, const dv__item *item, const dv__item *unknown, int32_t rest,
    const dv_tensor *x, int32_t *at)
{
    dv__solution *s = v->s;
    const int64_t *here = *at < x->ndim ? x->shape + *at : NULL; /* an empty run at the end */
    dv__sizes sizes;
    if (item->kind == DV__ITEM_RUNS) {
        v->where = item->text;
        const int status = dv__eval_sizes(v, item->e, &sizes);
        if (status)
            return status;
    } else if (s->bound_runs >> item->ref & 1) {
        sizes.data = s->runs[item->ref].sizes;
        sizes.n = s->runs[item->ref].ndim;
    } else {
        const int32_t n = item == unknown ? rest : -1 - s->runs[item->ref].ndim;
        s->runs[item->ref].sizes = here;
        s->runs[item->ref].ndim = n;
        s->bound_runs |= 1u << item->ref;
        *at += n;
        return DV_OK;
    }
    if (!same_sizes(sizes.data, here, sizes.n))
        return dv__wrong_shape(v, t, element, item, x);
    *at += sizes.n;
    return DV_OK;
}

static int match_shape(dv__env *v, const dv__pattern *t, int element, const dv_tensor *x, uint64_t *aside)
{
    dv__solution *s = v->s;
    const dv__item *unknown = NULL;
    int32_t rest = 0;
    bool ok = x->ndim == (int32_t)t->dims.n;
    if (t->dims.singles != t->dims.n) {
        const int status = run_ranks(v, t, x->ndim, &unknown, &rest, &ok);
        if (status)
            return status;
    }
    if (!ok)
        return dv__wrong_shape(v, t, element, NULL, x);
    int32_t at = 0;
    for (uint32_t i = 0; i < t->dims.n; i++) {
        const dv__item *item = &t->dims.items[i];
        if (item->kind == DV__ITEM_VAR) {
            const int64_t size = x->shape[at++];
            const uint64_t bit = 1ull << item->ref;
            if (!(s->bound_dims & bit))
                s->dims[item->ref] = size, s->bound_dims |= bit;
            else if (s->dims[item->ref] != size)
                return dv__wrong_shape(v, t, element, item, x);
        } else if (item->kind == DV__ITEM_RUN || item->kind == DV__ITEM_RUNS) {
            const int status = match_run(v, t, element, item, unknown, rest, x, &at);
            if (status)
                return status;
        } else {
            bool fits = true;
            const int status = match_other_item(v, item, x->shape[at++], aside, &fits);
            if (status)
                return status;
            if (!fits)
                return dv__wrong_shape(v, t, element, item, x);
        }
    }
    return DV_OK;
}

static inline int match_tensor(dv__env *v, const dv__pattern *t, int element, const dv_tensor *x, uint64_t *aside)
{
    v->who = t->name;
    int status = match_device(v, t, element, x);
    if (!status)
        status = match_dtype(v, t, element, x);
    if (!status && !t->dims.any)
        status = match_shape(v, t, element, x, aside);
    return status;
}

/* ---- Patterns that are no single tensor ---------------------------------------------------------------------------------- */

static int match_list(dv__env *v, const dv__pattern *t, const dv_value *value, uint64_t *aside)
{
    bool any = false;
    for (size_t i = 0; i < value->as.tensors.size; i++) {
        const dv_tensor *x = value->as.tensors.data[i];
        if (!x)
            continue;
        const int status = match_tensor(v, t, (int)(i < INT32_MAX ? i : INT32_MAX), x, aside);
        if (status)
            return status;
        any = true;
    }
    return any || t->may_be_empty || t->dims.any ? DV_OK : dv__wrong_presence(v, t, "at least one tensor", "an empty list");
}

/* An int[] argument: its pattern's one dim is its length. */
static int match_length(dv__env *v, const dv__pattern *t, const dv_value *value, uint64_t *aside)
{
    if (t->dims.any)
        return DV_OK;
    const dv__item *item = t->dims.items;
    const int64_t n = (int64_t)value->as.ints.size;
    bool fits = true;
    int status = DV_OK;
    if (item->kind == DV__ITEM_VAR) {
        const uint64_t bit = 1ull << item->ref;
        fits = !(v->s->bound_dims & bit) || v->s->dims[item->ref] == n;
        v->s->dims[item->ref] = v->s->bound_dims & bit ? v->s->dims[item->ref] : n;
        v->s->bound_dims |= bit;
    } else {
        v->who = t->name;
        status = match_other_item(v, item, n, aside, &fits);
    }
    return status || fits ? status : dv__wrong_length(v, t, item, n);
}

/* None, lists, values of a wrong type. */
static int match_value(dv__env *v, const dv__pattern *t, const dv_value *value, uint64_t *aside)
{
    static const char *const nouns[] = { "a tensor", "a list of tensors", "a list of integers" };
    static const uint32_t types[] = { DV_VALUE_TENSOR, DV_VALUE_TENSORS, DV_VALUE_INTS };
    const bool present = dv__is_present(value);
    if (t->presence == DV__ABSENT)
        return present ? dv__wrong_presence(v, t, "None", nouns[t->kind]) : DV_OK;
    if (!present)
        return t->presence == DV__OPTIONAL ? DV_OK : dv__wrong_presence(v, t, nouns[t->kind], "None");
    if (value->type != types[t->kind])
        return dv__wrong_presence(v, t, nouns[t->kind], "another type");
    if (t->kind == DV__PATTERN_TENSOR)
        return match_tensor(v, t, -1, value->as.tensor, aside);
    return t->kind == DV__PATTERN_LIST ? match_list(v, t, value, aside) : match_length(v, t, value, aside);
}

/* ---- The common path ----------------------------------------------------------------------------------------------------- */

DV_INLINE bool plain_dims_fit(dv__solution *s, dv__needs *bound, const dv__dims *dims, const dv_tensor *x)
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
                s->dims[item->ref] = size, bound->dims |= bit;
            else if (s->dims[item->ref] != size)
                return false;
        } else if (item->kind == DV__ITEM_INT) {
            if (x->shape[at++] != item->value)
                return false;
        } else {
            const int64_t *sizes = rest ? x->shape + at : NULL; /* a 0-d tensor may have no shape */
            if (!(bound->runs >> item->ref & 1)) {
                s->runs[item->ref].sizes = sizes;
                s->runs[item->ref].ndim = rest;
                bound->runs |= 1u << item->ref;
            } else if (s->runs[item->ref].ndim != rest || !same_sizes(s->runs[item->ref].sizes, sizes, rest)) {
                return false;
            }
            at += rest;
        }
    }
    return true;
}

/* A plain pattern and a tensor, without a call. False: it does not fit, or it takes more to say; match_tensor() tells, and finds
 * what was bound here as it would have bound it itself. What is bound is kept in *bound, so that it can live in registers. */
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
        if (bound->dtypes & bit) {
            if (dv_dtype_key(s->dtypes[t->dtype.ref]) != key)
                return false;
        } else {
            if (!is_allowed(&c->dtypes[t->dtype.ref], key))
                return false;
            s->dtypes[t->dtype.ref] = x->dtype;
            bound->dtypes |= bit;
        }
    } else if (t->dtype.kind == DV__DTYPE_ONE && t->dtype.one != key) {
        return false;
    }
    return plain_dims_fit(s, bound, &t->dims, x);
}

/* ---- The whole ----------------------------------------------------------------------------------------------------------- */

static int choose_cases(dv__env *v)
{
    for (uint32_t g = 0; g < v->c->ngroups; g++) {
        const dv__group *group = &v->c->groups[g];
        bool yes = false;
        uint32_t i = 0;
        for (; i < group->n; i++) {
            v->where = group->cases[i].text;
            const int status = group->cases[i].e ? dv__eval_bool(v, group->cases[i].e, &yes) : DV_OK;
            if (status)
                return status;
            if (yes || !group->cases[i].e)
                break;
        }
        if (i == group->n)
            return dv__no_case(v, group);
        v->s->cases[g] = (int32_t)i;
    }
    return DV_OK;
}

/* Optional tensors that only other cases speak of. */
static int check_case_only(const dv__env *v)
{
    const dv__contract *c = v->c;
    for (uint32_t i = 0; i < c->ncase_only; i++) {
        const int slot = c->case_only[i];
        const dv__pattern *spoken = NULL;
        bool described = !dv__is_present(&v->args[slot]);
        for (uint32_t k = 0; k < c->npatterns && !described; k++)
            if (c->patterns[k].slot == slot) {
                spoken = &c->patterns[k];
                described = dv__when_holds(spoken->when, v->s);
            }
        if (!described)
            return dv__wrong_case(v, spoken);
    }
    return DV_OK;
}

static int bind_unbacked(dv__env *v)
{
    for (uint32_t i = 0; i < v->c->nunbacked; i++) {
        const dv__unbacked *u = &v->c->unbacked[i];
        int64_t most = 0;
        v->where = u->name;
        v->who = NULL;
        const int status = dv__eval_int(v, u->max, &most);
        if (status)
            return status;
        v->s->dims[u->var] = most;
        v->s->bound_dims |= 1ull << u->var;
    }
    return DV_OK;
}

/* From pattern `first` on: the ones before it were plain and fit. */
static __attribute__((noinline)) int solve_rest(
    const dv__contract *c, const dv_value *args, dv__solution *s, bool check_values, uint32_t first)
{
    dv__env v = { .c = c, .args = args, .s = s };
    uint64_t aside = 0;
    int status = c->ngroups ? choose_cases(&v) : DV_OK;
    for (uint32_t i = first; i < c->npatterns && !status; i++) {
        const dv__pattern *t = &c->patterns[i];
        if (!dv__when_holds(t->when, s))
            continue;
        status = match_value(&v, t, &args[t->slot], &aside);
    }
    if (status)
        return status;
    if (!s->device.type)
        s->device.type = DV_CPU;
    status = dv__settle(&v, aside);
    if (!status)
        status = bind_unbacked(&v);
    if (!status)
        status = dv__check_constraints(&v, check_values);
    return status ? status : check_case_only(&v);
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
