/* Levels: those that are wanted of a case, those that a case has, and those that mask others. */
#include <string.h>

#include "plan.h"

int64_t check_plan_level_get_wanted(const planner *p, const int *wanted_levels, enum factor_kind kind, size_t index)
{
    for (int k = 0; k < p->nfactors; k++)
        if (p->factors[k].kind == kind && p->factors[k].index == index)
            return wanted_levels[k] < 0 ? NONE : p->factors[k].levels[wanted_levels[k]];
    return NONE;
}

void check_plan_level_want_small_sizes(const planner *p, int *wanted_levels)
{
    memset(wanted_levels, 0, MAX_FACTORS * sizeof *wanted_levels);
    for (int k = 0; k < p->nfactors; k++)
        for (uint32_t l = 0; l < p->factors[k].nlevels; l++)
            if ((check_plan_level_is_size(p->factors[k].kind) && p->factors[k].levels[l] == SIZE_FEW) ||
                (p->factors[k].kind == FACTOR_RANK && p->factors[k].levels[l] == 2))
                wanted_levels[k] = (int)l;
}

bool check_plan_level_is_size(enum factor_kind kind)
{
    return kind == FACTOR_DIM || kind == FACTOR_VARIADIC_SIZE || kind == FACTOR_FREE_SIZE;
}

/* Returns the size class of a shape's largest dim; SIZE_ZERO if any dim is 0; NONE for a shape without dims. */
static int64_t plan_level_get_size_class_of_shape(const planner *p, int32_t ndim, const int64_t *shape)
{
    int64_t most = ndim ? 1 : NONE;
    bool empty = false;
    for (int32_t i = 0; i < ndim; i++) {
        most = shape[i] > most ? shape[i] : most;
        empty |= !shape[i];
    }
    return empty ? SIZE_ZERO : most < 0 ? NONE : check_plan_size_get_class(p, most);
}

/* Returns where a shape has dims of size 1, as enum ones_position. NONE: the shape has fewer than two dims, or all of them are 1.
 */
static int64_t plan_level_get_ones_position(int32_t ndim, const int64_t *shape)
{
    bool inner = false, all = true;
    for (int32_t i = 0; i < ndim; i++) {
        inner |= i && i + 1 < ndim && shape[i] == 1;
        all &= shape[i] == 1;
    }
    if (ndim < 2 || all)
        return NONE;
    return shape[0] == 1       ? shape[ndim - 1] == 1 ? ONES_BOTH_ENDS : ONES_LEADING
        : shape[ndim - 1] == 1 ? ONES_TRAILING
        : inner                ? ONES_INTERIOR
                               : ONES_NONE;
}

/* True if two argument values count as one level. Lists of ints that the contract reads need only equal lengths; all extreme ints
 * are one level. */
static bool plan_level_is_same_scalar(const check_value *a, const check_value *b, bool contract_reads)
{
    return (contract_reads && a->type == DV_VALUE_INTS && b->type == DV_VALUE_INTS && a->count == b->count) ||
        !memcmp(a, b, sizeof *a) ||
        (a->type == DV_VALUE_INT && b->type == DV_VALUE_INT && a->as.i == extreme_ints[0] &&
            check_plan_size_is_extreme_int(b->as.i));
}

/* Returns the level that a case has for a factor. Returns NONE if the factor does not occur in the case, as for the layout of a
 * tensor that is None. */
static int64_t plan_level_get_of_case(const planner *p, const int *wanted_levels, int factor_index, const check_case *c)
{
    const factor *f = &p->factors[factor_index];
    const check_name *name = &p->op->names[f->kind <= FACTOR_DTYPE ? f->index : 0];
    const check_value *v = &c->args[f->kind > FACTOR_DTYPE ? f->index : 0];
    const bool of_tensor = f->kind >= FACTOR_FREE_RANK && f->kind != FACTOR_SAME_SHAPE && f->kind != FACTOR_SCALAR &&
        f->kind != FACTOR_FILL_MODE;
    const check_tensor *t = &c->tensors[of_tensor ? v->first_tensor : 0];
    const bool there = of_tensor && v->count && t->present;
    if (f->kind <= FACTOR_DTYPE && !c->names.is_bound[f->index])
        return NONE;
    if (of_tensor && !there && f->kind != FACTOR_PRESENT && f->kind != FACTOR_LENGTH)
        return NONE;
    switch (f->kind) {
    case FACTOR_DIM: return check_plan_size_get_class(p, c->names.dims[name->value_index]);
    case FACTOR_RANK: return c->names.variadics[name->value_index].ndim;
    case FACTOR_VARIADIC_SIZE:
        return plan_level_get_size_class_of_shape(
            p, c->names.variadics[name->value_index].ndim, c->names.variadics[name->value_index].sizes);
    case FACTOR_ONES:
        return plan_level_get_ones_position(
            c->names.variadics[name->value_index].ndim, c->names.variadics[name->value_index].sizes);
    case FACTOR_DTYPE: return dv_dtype_key(c->names.dtypes[name->value_index]);
    case FACTOR_FREE_RANK: return t->ndim;
    case FACTOR_FREE_SIZE: return plan_level_get_size_class_of_shape(p, t->ndim, t->shape);
    case FACTOR_FREE_DTYPE: return dv_dtype_key(t->dtype);
    case FACTOR_PRESENT: return v->count ? t->present : NONE;
    case FACTOR_LENGTH: return v->count;
    case FACTOR_SCALAR:
        for (uint32_t l = 0; l < f->nlevels; l++)
            if (p->scalar_levels[f->index][l].type == DV_VALUE_INT && p->scalar_levels[f->index][l].count
                    ? v->type == DV_VALUE_INT && check_plan_size_get_class(p, v->as.i) + 1 == p->scalar_levels[f->index][l].count
                    : plan_level_is_same_scalar(&p->scalar_levels[f->index][l], v, p->op->literals[f->index].is_read))
                return l;
        return NONE;
    case FACTOR_LAYOUT: return t->layout;
    default: return wanted_levels[factor_index] < 0 ? NONE : f->levels[wanted_levels[factor_index]];
    }
}

int check_plan_level_find_index(const planner *p, int factor_index, int64_t level)
{
    int at = NONE;
    for (uint32_t l = 0; l < p->factors[factor_index].nlevels; l++)
        at = p->factors[factor_index].levels[l] == level ? (int)l : at;
    return at;
}

void check_plan_level_set_found(const planner *p, const int *wanted_levels, const check_case *c, int *found_levels)
{
    for (int k = 0; k < p->nfactors; k++) {
        const int64_t level = plan_level_get_of_case(p, wanted_levels, k, c);
        found_levels[k] = level >= 0 ? check_plan_level_find_index(p, k, level) : NONE;
    }
}

int64_t check_plan_level_get_size_class(const planner *p, int factor_index, int level_index)
{
    const factor *f = &p->factors[factor_index];
    if (level_index < 0 || (f->kind != FACTOR_SCALAR && !check_plan_level_is_size(f->kind)))
        return NONE;
    if (f->kind == FACTOR_SCALAR)
        return p->scalar_levels[f->index][level_index].type == DV_VALUE_INT
            ? (int64_t)p->scalar_levels[f->index][level_index].count - 1
            : NONE;
    return f->levels[level_index];
}

bool check_plan_level_is_zero_shape_argument(const planner *p, int factor_index, int level_index)
{
    const factor *f = &p->factors[factor_index];
    const check_value *v = f->kind == FACTOR_SCALAR && level_index >= 0 ? &p->scalar_levels[f->index][level_index] : NULL;
    return v && p->op->literals[f->index].decides_shape && v->type == DV_VALUE_INT && !v->as.i && !v->count;
}

bool check_plan_level_is_masking(const planner *p, int factor_index, int level_index)
{
    const int64_t level = level_index < 0 ? 0 : p->factors[factor_index].levels[level_index];
    switch (p->factors[factor_index].kind) {
    case FACTOR_DIM:
    case FACTOR_VARIADIC_SIZE:
    case FACTOR_FREE_SIZE: return level_index >= 0 && level == SIZE_ZERO;
    case FACTOR_SCALAR:
        return level_index >= 0 && p->scalar_levels[p->factors[factor_index].index][level_index].type == DV_VALUE_INT &&
            check_plan_size_is_extreme_int(p->scalar_levels[p->factors[factor_index].index][level_index].as.i);
    case FACTOR_FILL_MODE: return level != FILL_MODE_PLAIN;
    case FACTOR_CONTENTS: return level >= 3; /* the integers may be invalid indices */
    default: return false;
    }
}
