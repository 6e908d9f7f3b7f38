/* After the patterns: what was put aside, definitions, constraints. */
#include "lang/contract_internal.h"

#include <stdio.h>

/* ---- What was put aside -------------------------------------------------------------------------------------------------- */

/* The size that was found where this item stands; element: of a list. */
static int64_t size_found(const dv__env *v, const dv__pattern *t, uint32_t item, const dv_tensor *x)
{
    if (t->kind == DV__PATTERN_INTS)
        return (int64_t)v->args[t->slot].as.ints.size;
    int32_t at = 0;
    for (uint32_t i = 0; i < item; i++) {
        const dv__item *before = &t->dims.items[i];
        dv__sizes sizes;
        if (before->kind == DV__ITEM_RUN)
            at += v->s->runs[before->ref].ndim;
        else if (before->kind == DV__ITEM_RUNS)
            at += dv__eval_sizes(v, before->e, &sizes) ? 0 : sizes.n;
        else
            at++;
    }
    return x->shape[at];
}

static int check_aside(dv__env *v, const dv__pattern *t, uint32_t index)
{
    const dv__item *item = &t->dims.items[index];
    const dv_value *value = &v->args[t->slot];
    const size_t n = value->type == DV_VALUE_TENSORS ? value->as.tensors.size : 1;
    int64_t expected = 0;
    v->where = item->text;
    v->who = t->name;
    const int status = dv__eval_int(v, item->e, &expected);
    for (size_t i = 0; i < n && !status; i++) {
        const dv_tensor *x = value->type == DV_VALUE_TENSORS ? value->as.tensors.data[i]
            : value->type == DV_VALUE_TENSOR                 ? value->as.tensor
                                                             : NULL;
        if (!x && t->kind != DV__PATTERN_INTS)
            continue;
        const int64_t found = size_found(v, t, index, x);
        if (found == expected)
            continue;
        if (x)
            return dv__wrong_shape(v, t, n > 1 || value->type == DV_VALUE_TENSORS ? (int)i : -1, item, x);
        return dv_fail(DV_EINVAL, "%s: argument '%s': expected %s = %lld elements, found %lld", v->c->name, t->name, item->text,
            (long long)expected, (long long)found);
    }
    return status;
}

/* Does the variable stand in e exactly once, under + - * / and unary - only? (Static: the prover asks the same.) */
static bool mentions(const dv__expr *e, int ref)
{
    if (e->role == DV__ROLE_DIM && e->ref == ref)
        return true;
    for (uint32_t i = 0; i < e->n; i++)
        if (mentions(e->args[i], ref))
            return true;
    return false;
}

static int unsolvable(const dv__env *v, const char *name, int64_t found)
{
    return dv__wrong(v, DV_ESHAPE, "expected a size for which there is a whole '%s', found %lld", name, (long long)found);
}

/* *out = a / b when there is no remainder. */
static bool exact(int64_t a, int64_t b, int64_t *out)
{
    int64_t rest;
    return dv__floormod(a, b, &rest) && !rest && dv__floordiv(a, b, out);
}

/* e == value, for the variable: undo the outermost operation, and go on inside. */
static int solve_for(dv__env *v, const dv__expr *e, int ref, int64_t value, int64_t *out)
{
    const char *name = v->c->dims[ref].name;
    const int64_t found = value;
    while (e->role != DV__ROLE_DIM) {
        if (e->kind == DV__EXPR_NEG) {
            if (__builtin_sub_overflow(0, value, &value))
                return unsolvable(v, name, found);
            e = e->args[0];
            continue;
        }
        const int side = mentions(e->args[0], ref) ? 0 : 1;
        int64_t other = 0;
        const int status = dv__eval_int(v, e->args[1 - side], &other);
        if (status)
            return status;
        bool ok;
        switch (e->kind) {
        case DV__EXPR_ADD: ok = !__builtin_sub_overflow(value, other, &value); break;
        case DV__EXPR_SUB:
            ok = side ? !__builtin_sub_overflow(other, value, &value) : !__builtin_add_overflow(value, other, &value);
            break;
        case DV__EXPR_MUL: ok = exact(value, other, &value); break;
        default: /* x / other == value, or other / x == value */
            ok = side ? exact(other, value, &value) : other && !__builtin_mul_overflow(value, other, &value);
        }
        if (!ok)
            return unsolvable(v, name, found);
        e = e->args[side];
    }
    *out = value;
    return DV_OK;
}

static int bind_aside(dv__env *v, const dv__pattern *t, uint32_t index, int ref)
{
    const dv__item *item = &t->dims.items[index];
    const dv_tensor *x = dv__tensor_of(v, t->slot);
    int64_t value = 0;
    v->where = item->text;
    v->who = t->name;
    int status = solve_for(v, item->e, ref, size_found(v, t, index, x), &value);
    if (!status && value < 0)
        status = dv__wrong(v, DV_ESHAPE, "'%s' would be negative: %lld", v->c->dims[ref].name, (long long)value);
    if (status)
        return status;
    v->s->dims[ref] = value;
    v->s->bound_dims |= 1ull << ref;
    return DV_OK;
}

static int run_definition(dv__env *v, const dv__definition *d)
{
    int64_t value = 0;
    v->where = d->text;
    v->who = NULL;
    const int status = dv__eval_int(v, d->e, &value);
    if (status)
        return status;
    const uint64_t bit = 1ull << d->var;
    if (v->s->bound_dims & bit && v->s->dims[d->var] != value) {
        const char *who = dv__binder_of(v, false, d->var);
        return dv_fail(DV_ESHAPE, "%s: %s: expected %s = %lld, found %lld%s%s%s", v->c->name, d->text, d->name, (long long)value,
            (long long)v->s->dims[d->var], who ? " (bound by '" : "", who ? who : "", who ? "')" : "");
    }
    v->s->dims[d->var] = value;
    v->s->bound_dims |= bit;
    return DV_OK;
}

/* What can be evaluated, in order, until nothing is left that can; then one is solved for its unknown; and again. */
int dv__settle(dv__env *v, uint64_t aside)
{
    const dv__contract *c = v->c;
    for (uint32_t i = 0; i < c->ndefinitions; i++)
        if (dv__when_holds(c->definitions[i].when, v->s))
            aside |= 1ull << c->definitions[i].aside;
    while (aside) {
        bool progress = false;
        for (uint64_t left = aside; left; left &= left - 1) {
            const int bit = __builtin_ctzll(left);
            const dv__aside *a = &c->asides[bit];
            const dv__needs needs = a->pattern < 0 ? c->definitions[a->item].needs
                                                   : c->patterns[a->pattern].dims.items[a->item].needs;
            if (!dv__needs_within(needs, dv__solution_bound(v->s)))
                continue;
            const int status = a->pattern < 0 ? run_definition(v, &c->definitions[a->item])
                                              : check_aside(v, &c->patterns[a->pattern], (uint32_t)a->item);
            if (status)
                return status;
            aside &= ~(1ull << bit);
            progress = true;
        }
        for (uint64_t left = aside; left && !progress; left &= left - 1) {
            const dv__aside *a = &c->asides[__builtin_ctzll(left)];
            if (a->pattern < 0)
                continue;
            const dv__item *item = &c->patterns[a->pattern].dims.items[a->item];
            const int ref = dv__solvable_for(item, dv__solution_bound(v->s));
            if (ref < 0)
                continue;
            const int status = bind_aside(v, &c->patterns[a->pattern], (uint32_t)a->item, ref);
            if (status)
                return status;
            progress = true;
        }
        if (!progress) /* definitions about sizes that only absent arguments have */
            return DV_OK;
    }
    return DV_OK;
}

static int count_mentions(const dv__expr *e, int ref)
{
    int n = e->role == DV__ROLE_DIM && e->ref == ref;
    for (uint32_t i = 0; i < e->n; i++)
        n += count_mentions(e->args[i], ref);
    return n;
}

int dv__solvable_for(const dv__item *item, dv__needs bound)
{
    const uint64_t unknown = item->needs.dims & ~bound.dims;
    if (!unknown || unknown & (unknown - 1) || item->needs.runs & ~bound.runs || item->needs.dtypes & ~bound.dtypes)
        return -1;
    const int ref = __builtin_ctzll(unknown);
    if (count_mentions(item->e, ref) != 1)
        return -1;
    for (const dv__expr *e = item->e; e->role != DV__ROLE_DIM; e = mentions(e->args[0], ref) ? e->args[0] : e->args[1])
        if (e->kind != DV__EXPR_ADD && e->kind != DV__EXPR_SUB && e->kind != DV__EXPR_MUL && e->kind != DV__EXPR_DIV &&
            e->kind != DV__EXPR_NEG)
            return -1;
    return ref;
}

/* ---- Constraints --------------------------------------------------------------------------------------------------------- */

static bool read_element(dv__env *v, const dv_tensor *x, int64_t i)
{
    const uint32_t key = dv_dtype_key(x->dtype);
    v->element_real = false;
    switch (key) {
#define INTEGER(name, T) \
    case DV_DTYPE_##name: v->element_i = (int64_t)((const T *)x->data)[i]; return true;
        /* clang-format off */
    INTEGER(i8, int8_t) INTEGER(i16, int16_t) INTEGER(i32, int32_t) INTEGER(i64, int64_t)
    INTEGER(u8, uint8_t) INTEGER(u16, uint16_t) INTEGER(u32, uint32_t) INTEGER(bool, uint8_t)
/* clang-format on */
#undef INTEGER
            case DV_DTYPE_u64: {
        const uint64_t u = ((const uint64_t *)x->data)[i];
        v->element_real = u > INT64_MAX;
        v->element_i = (int64_t)u;
        v->element_f = (double)u;
        return true;
    }
    case DV_DTYPE_f64:
        v->element_real = true;
        v->element_f = ((const double *)x->data)[i];
        return true;
    case DV_DTYPE_f32:
    case DV_DTYPE_f16:
    case DV_DTYPE_bf16:
        v->element_real = true;
        v->element_f = (double)dv_get(x->data, i, key);
        return true;
    default: return false;
    }
}

/* The constraint holds for every element of a CPU tensor. */
static int check_values(dv__env *v, const dv__constraint *k)
{
    const dv_tensor *x = dv__tensor_of(v, k->values);
    if (!x || x->device.type != DV_CPU || !x->data)
        return DV_OK;
    int64_t index[DV_MAX_NDIM] = { 0 }, at = 0;
    for (int32_t i = 0; i < x->ndim; i++)
        if (!x->shape[i])
            return DV_OK;
    for (;;) {
        bool yes = true;
        if (!read_element(v, x, at))
            return DV_OK;
        const int status = dv__eval_bool(v, k->e, &yes);
        if (status)
            return status;
        if (!yes) {
            dv__words w = { 0 };
            dv__say_variables(&w, v, k->needs);
            dv__words where = { 0 };
            dv__say_sizes(&where, index, x->ndim);
            char element[40];
            if (v->element_real)
                snprintf(element, sizeof element, "%g", v->element_f);
            else
                snprintf(element, sizeof element, "%lld", (long long)v->element_i);
            return dv_fail(DV_EINVAL, "%s: argument '%s': expected %s, found the element %s at %s%s%s", v->c->name,
                v->c->schema->args[k->values].name, k->text, element, where.data, w.n ? ", " : "", w.n ? w.data : "");
        }
        int32_t d = x->ndim - 1; /* the next index, last dim fastest */
        for (; d >= 0 && ++index[d] == x->shape[d]; d--) {
            at -= (x->shape[d] - 1) * x->strides[d];
            index[d] = 0;
        }
        if (d < 0)
            return DV_OK;
        at += x->strides[d];
    }
}

int dv__check_constraints(dv__env *v, bool values)
{
    for (uint32_t i = 0; i < v->c->nconstraints; i++) {
        const dv__constraint *k = &v->c->constraints[i];
        bool yes = true;
        if (!dv__when_holds(k->when, v->s) || !dv__needs_within(k->needs, dv__solution_bound(v->s)))
            continue;
        v->where = k->text;
        v->who = NULL;
        const int status = k->values < 0 ? dv__eval_bool(v, k->e, &yes) : values ? check_values(v, k) : DV_OK;
        if (status)
            return status;
        if (!yes)
            return dv__wrong_constraint(v, k);
    }
    return DV_OK;
}
