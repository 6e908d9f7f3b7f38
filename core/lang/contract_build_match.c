/* Builds the steps for cases and patterns: which case holds; then each input's device, dtype and dims in textual order. A
 * variable that is not bound yet is bound; everything else is compared. Whether a variable is bound depends on cases and on which
 * optional arguments are given, never on a size. */
#include "lang/contract_build.h"

#include <stdio.h>

/* The tensor that is matched: an argument, or an element of a list. A list is matched twice: its first tensor binds variables,
 * then all are checked.
 * FIND: only the positions of its dims are wanted. */
enum phase { BOTH, BIND, CHECK, FIND };
enum { MAX_ITEMS = DV_MAX_NDIM + DV__MAX_RUNS + 64 }; /* of a pattern */
struct subject {
    const dv__pattern *t;
    enum phase phase;
    dv__operand tensor, shape, guard;
    dv__operand index, first; /* CHECK: which element */
    /* CHECK: the variables that the first element has bound up to this item */
    dv__operand dims[DV__MAX_DIM_VARS], runs[DV__MAX_RUNS], device, dtype;
};

/* ---- Who takes part ------------------------------------------------------------------------------------------------------ */

dv__operand dv__case_taken(const dv__builder *b, dv__when when)
{
    return when.group < 0 ? DV__ALWAYS : b->p->taken[when.group][when.index];
}

dv__operand dv__took_part(dv__builder *b, const dv__pattern *t)
{
    if (t->presence == DV__ABSENT)
        return DV__NEVER;
    const dv__operand taken = dv__case_taken(b, t->when);
    return t->presence == DV__REQUIRED ? taken : dv__and(b, taken, dv__present(b, t->slot));
}

dv__part *dv__case_text(dv__builder *b, dv__when when)
{
    return when.group < 0 ? NULL : dv__part_text(b, " when %s", b->c->groups[when.group].cases[when.index].text);
}

/* ---- Messages: who bound what -------------------------------------------------------------------------------------------- */

struct chain {
    struct {
        dv__operand condition;
        const char *who;
    } links[512];
    uint32_t n;
};

static bool link_to(struct chain *chain, dv__operand condition, const char *who) /* false: nothing comes after it */
{
    if (condition == DV__NEVER || chain->n == sizeof chain->links / sizeof *chain->links)
        return true;
    chain->links[chain->n].condition = condition;
    chain->links[chain->n++].who = who;
    return condition != DV__ALWAYS;
}

static bool patterns_with(dv__builder *b, struct chain *chain, bool run, int ref, bool alone)
{
    for (uint32_t i = 0; i < b->c->npatterns; i++) {
        const dv__pattern *t = &b->c->patterns[i];
        bool has = false;
        for (uint32_t k = 0; k < t->dims.n && !has; k++) {
            const dv__item *item = &t->dims.items[k];
            const bool is = run ? item->kind == DV__ITEM_RUN || item->kind == DV__ITEM_ELEMENT_RUN
                                : item->kind == DV__ITEM_VAR || item->kind == DV__ITEM_ELEMENT;
            has = alone ? is && item->ref == ref : !run && item->kind == DV__ITEM_EXPR && item->needs.dims >> ref & 1;
        }
        if (has && !link_to(chain, dv__took_part(b, t), t->name))
            return false;
    }
    return true;
}

/* The argument that binds a variable: of the first pattern where the variable stands alone, else of the first that can be solved
 * for it. */
static void find_binders(dv__builder *b, struct chain *chain, bool run, int ref)
{
    chain->n = 0;
    if (!patterns_with(b, chain, run, ref, true))
        return;
    for (uint32_t i = 0; i < b->c->ndefinitions && !run; i++)
        if (b->c->definitions[i].var == ref && !link_to(chain, dv__case_taken(b, b->c->definitions[i].when), NULL))
            return;
    patterns_with(b, chain, run, ref, false);
}

static dv__part *say_chain(dv__builder *b, const struct chain *chain, const char *before, const char *after)
{
    dv__part *p = NULL;
    for (uint32_t i = chain->n; i-- > 0;)
        p = dv__if_part(b, chain->links[i].condition,
            chain->links[i].who ? dv__part_text(b, "%s%s%s", before, chain->links[i].who, after) : NULL, p);
    return p;
}

dv__part *dv__binder(dv__builder *b, bool run, int ref, const char *before, const char *after)
{
    struct chain chain;
    char front[400], back[40];
    const dv__hush hush = dv__quietly(b);
    find_binders(b, &chain, run, ref);
    snprintf(
        front, sizeof front, "%s'%s%s' is bound by '", before, run ? "*" : "", run ? b->c->runs[ref].name : b->c->dims[ref].name);
    snprintf(back, sizeof back, "'%s", after);
    dv__part *p = say_chain(b, &chain, front, back);
    dv__aloud(b, hush);
    return p;
}

dv__part *dv__bound_by(dv__builder *b, int ref)
{
    struct chain chain;
    const dv__hush hush = dv__quietly(b);
    find_binders(b, &chain, false, ref);
    dv__part *p = say_chain(b, &chain, " (bound by '", "')");
    dv__aloud(b, hush);
    return p;
}

static dv__part *dtype_binder(dv__builder *b, int ref, const char *before, const char *after)
{
    struct chain chain = { .n = 0 };
    char front[300], back[40];
    const dv__hush hush = dv__quietly(b);
    for (uint32_t i = 0; i < b->c->npatterns; i++) {
        const dv__pattern *t = &b->c->patterns[i];
        if (t->dtype.kind == DV__DTYPE_VAR && t->dtype.ref == ref && !link_to(&chain, dv__took_part(b, t), t->name))
            break;
    }
    snprintf(front, sizeof front, "%s'%s' is bound by '", before, b->c->dtypes[ref].name);
    snprintf(back, sizeof back, "'%s", after);
    dv__part *p = say_chain(b, &chain, front, back);
    dv__aloud(b, hush);
    return p;
}

dv__part *dv__binders(dv__builder *b, dv__needs needs)
{
    dv__part *join = dv__join(b, " (", ")");
    for (uint32_t i = 0; i < b->c->nruns; i++)
        if (needs.runs >> i & 1)
            dv__join_add(b, join, dv__binder(b, true, (int)i, "", ""));
    for (uint32_t i = 0; i < b->c->ndims; i++)
        if (needs.dims >> i & 1)
            dv__join_add(b, join, dv__binder(b, false, (int)i, "", ""));
    for (uint32_t i = 0; i < b->c->ndtypes; i++)
        if (needs.dtypes >> i & 1)
            dv__join_add(b, join, dtype_binder(b, (int)i, "", ""));
    return join && join->then ? join : NULL;
}

dv__part *dv__variables(dv__builder *b, dv__needs needs, dv__part *join)
{
    const dv__contract *c = b->c;
    for (uint32_t i = 0; i < c->nruns; i++)
        if (needs.runs >> i & 1) {
            dv__part *p = dv__then(dv__part_text(b, "*%s = [", c->runs[i].name), dv__show(b, dv__run_register(c, (int)i)));
            dv__join_add(b, join, dv__if_part(b, b->runs[i], dv__then(p, dv__part_text(b, "]")), NULL));
        }
    for (uint32_t i = 0; i < c->ndims; i++)
        if (needs.dims >> i & 1) {
            dv__part *p = dv__then(dv__part_text(b, "%s = ", c->dims[i].name), dv__show(b, dv__dim_register((int)i)));
            dv__join_add(b, join, dv__if_part(b, b->dims[i], p, NULL));
        }
    for (uint32_t i = 0; i < c->ndtypes; i++)
        if (needs.dtypes >> i & 1) {
            dv__part *p = dv__then(dv__part_text(b, "%s = ", c->dtypes[i].name), dv__show(b, dv__dtype_register(c, (int)i)));
            dv__join_add(b, join, dv__if_part(b, b->dtypes[i], p, NULL));
        }
    return join;
}

/* ---- What each tensor of a list has of its own --------------------------------------------------------------------------- */

static const dv__item *find_own(const dv__pattern *t, const dv__item *item)
{
    for (uint32_t k = 0; k < t->dims.n; k++)
        if (t->dims.items[k].kind == item->kind && t->dims.items[k].ref == item->ref)
            return &t->dims.items[k];
    return NULL;
}

/* The list that binds n{i} or *s{i}: the first one that has it and takes part; t itself where it is the first. */
static const dv__pattern *own_binder(dv__builder *b, const dv__pattern *t, const dv__item *item)
{
    const dv__operand took = dv__took_part(b, t);
    for (uint32_t i = 0; i < b->c->npatterns && !b->status; i++) {
        const dv__pattern *other = &b->c->patterns[i];
        if (other == t)
            break;
        if (!find_own(other, item) || dv__and(b, took, dv__took_part(b, other)) == DV__NEVER)
            continue;
        if (!dv__implies(b, took, dv__took_part(b, other), 8))
            b->status = dv__fail_at(DV_ECONTRACT, b->c->text, item->e->at,
                "%s%s{%s} is bound by '%s', which may be absent when '%s' is given", item->e->kind == DV__EXPR_STAR ? "*" : "",
                item->e->name, item->e->index, other->name, t->name);
        return other;
    }
    return t;
}

static bool find_positions(dv__builder *b, const struct subject *x, dv__shape_position *positions);
static dv__operand dims_at(dv__builder *b, const struct subject *x, const dv__shape_position *position);
static dv__operand size_at(dv__builder *b, const struct subject *x, const dv__shape_position *position, dv__operand guard);

/* The size or the run that tensor `index` of the binder has for it. */
static dv__operand own_value(
    dv__builder *b, const dv__pattern *binder, const dv__item *item, dv__operand index, dv__operand guard)
{
    dv__shape_position positions[MAX_ITEMS];
    struct subject x = { .t = binder, .phase = FIND, .guard = guard, .index = index };
    x.tensor = dv__emit(b, DV__OP_ELEMENT, DV__RTYPE_TENSOR, guard, 1, &index, binder->slot, NULL);
    x.shape = dv__op1(b, DV__OP_SHAPE, DV__RTYPE_DIMS, guard, x.tensor);
    const dv__item *at = find_own(binder, item);
    if (b->status || !find_positions(b, &x, positions))
        return DV__ALWAYS;
    const dv__shape_position *position = &positions[at - binder->dims.items];
    return item->kind == DV__ITEM_ELEMENT ? size_at(b, &x, position, guard) : dims_at(b, &x, position);
}

/* ---- Messages: an argument ----------------------------------------------------------------------------------------------- */

static dv__part *label(dv__builder *b, const struct subject *x)
{
    if (x->phase != CHECK)
        return dv__part_text(b, "argument '%s': ", x->t->name);
    dv__part *p = dv__then(dv__part_text(b, "argument '%s[", x->t->name), dv__show(b, x->index));
    return dv__then(p, dv__part_text(b, "]': "));
}

/* An item for a message: its sizes if they are known, else its text. */
static dv__part *say_item(dv__builder *b, const dv__item *item, dv__operand guard)
{
    dv__part *text = dv__part_text(b, "%s", item->text);
    const dv__hush hush = dv__quietly(b);
    const dv__operand bound = dv__and(b, guard, dv__bound(b, item->needs));
    const dv__operand value = bound == DV__NEVER ? DV__ALWAYS : dv__value(b, item->e, bound);
    const dv__operand known = bound == DV__NEVER ? bound : dv__and(b, bound, b->valid);
    dv__part *p = known == DV__NEVER      ? text
        : dv__implies(b, guard, known, 6) ? dv__show(b, value)
                                          : dv__if_part(b, known, dv__show(b, value), text);
    dv__aloud(b, hush);
    return p;
}

static bool same_bound(const dv__builder *b, const struct subject *x, dv__needs needs)
{
    for (uint64_t left = needs.dims; left; left &= left - 1)
        if (b->dims[__builtin_ctzll(left)] != x->dims[__builtin_ctzll(left)])
            return false;
    for (uint32_t left = needs.runs; left; left &= left - 1)
        if (b->runs[__builtin_ctz(left)] != x->runs[__builtin_ctz(left)])
            return false;
    return true;
}

/* n{i}, *s{i}: the sizes that another list binds for this tensor, or how it is written. */
static dv__part *say_own(dv__builder *b, const struct subject *x, const dv__item *item)
{
    const dv__pattern *binder = own_binder(b, x->t, item);
    if (binder == x->t || x->phase != CHECK)
        return dv__part_text(b, "%s", item->text);
    const dv__hush hush = dv__quietly(b);
    dv__part *p = dv__show(b, own_value(b, binder, item, x->index, x->guard));
    dv__aloud(b, hush);
    return p;
}

/* " ('*s{i}' is bound by 'xs[1]')", or nothing */
static dv__part *say_own_binder(dv__builder *b, const struct subject *x, const dv__item *item)
{
    const dv__pattern *binder = own_binder(b, x->t, item);
    if (binder == x->t)
        return NULL;
    dv__part *p = dv__part_text(b, " ('%s' is bound by '%s[", item->text, binder->name);
    return dv__then(dv__then(p, dv__show(b, x->index)), dv__part_text(b, "]')"));
}

/* "[4, 2*n]". For the first element of a list only the sizes bound before the list, or by its earlier dims, are known. */
static dv__part *say_items(dv__builder *b, const struct subject *x)
{
    dv__part *join = dv__join(b, "", "");
    const char *where = b->where;
    for (uint32_t i = 0; i < x->t->dims.n; i++) {
        const dv__item *one = &x->t->dims.items[i];
        b->where = one->text;
        if (dv__of_each(one)) {
            dv__join_add(b, join, say_own(b, x, one));
            continue;
        }
        dv__part *p = say_item(b, one, x->guard);
        if (x->phase == CHECK && !same_bound(b, x, one->needs)) {
            dv__operand dims[DV__MAX_DIM_VARS], runs[DV__MAX_RUNS];
            memcpy(dims, b->dims, sizeof dims), memcpy(runs, b->runs, sizeof runs);
            memcpy(b->dims, x->dims, sizeof dims), memcpy(b->runs, x->runs, sizeof runs);
            p = dv__if_part(b, x->first, say_item(b, one, x->guard), p);
            memcpy(b->dims, dims, sizeof dims), memcpy(b->runs, runs, sizeof runs);
        }
        dv__join_add(b, join, p);
    }
    b->where = where;
    return dv__then(dv__then(dv__part_text(b, "["), join), dv__part_text(b, "]"));
}

/* item: the item that does not fit; -1: the number of dims does not. */
static dv__part *wrong_shape(dv__builder *b, const struct subject *x, int32_t item)
{
    dv__part *p = dv__then(label(b, x), dv__part_text(b, "expected shape "));
    p = dv__then(p, say_items(b, x));
    if (item >= 0) {
        const dv__item *one = &x->t->dims.items[item];
        if (one->kind == DV__ITEM_EXPR)
            p = dv__then(p, dv__part_text(b, " with %s", one->text));
        p = dv__then(p, dv__of_each(one) ? say_own_binder(b, x, one) : dv__binders(b, one->needs));
    }
    p = dv__then(p, dv__then(dv__part_text(b, ", found ["), dv__show(b, x->shape)));
    return dv__then(p, dv__part_text(b, "]"));
}

/* The variables are bound where the guard holds, or the message ends with "'n' must be bound before `this`". */
static void must_be_bound(
    dv__builder *b, dv__operand guard, dv__needs needs, const char *at, const char *text, const char *colon, const char *this)
{
    for (dv__variable v; dv__next_variable(b, &needs, &v);)
        if (!dv__implies(b, guard, v.bound, 8))
            dv__claim_that(
                b, guard, v.bound, at, dv__part_text(b, "%s%s'%s' must be bound before %s", text, colon, v.name, this));
}

/* ---- Devices ------------------------------------------------------------------------------------------------------------- */

static dv__part *wrong_device(dv__builder *b, const struct subject *x, dv__operand expected, dv__operand found)
{
    struct chain chain = { .n = 0 };
    const dv__hush hush = dv__quietly(b);
    for (uint32_t i = 0; i < b->c->npatterns && x->t->on == DV__ON_SAME; i++) {
        const dv__pattern *t = &b->c->patterns[i];
        if (t->on == DV__ON_SAME && t->kind != DV__PATTERN_INTS && !link_to(&chain, dv__took_part(b, t), t->name))
            break;
    }
    dv__part *p = dv__then(label(b, x), dv__part_text(b, "expected a tensor on "));
    p = dv__then(p, dv__show(b, expected));
    p = dv__then(p, say_chain(b, &chain, " as '", "' is"));
    dv__aloud(b, hush);
    return dv__then(dv__then(p, dv__part_text(b, ", found one on ")), dv__show(b, found));
}

static void match_device(dv__builder *b, const struct subject *x)
{
    const dv__operand device = dv__device_register(b->c), g = x->guard;
    if (x->t->on == DV__ON_ANY || (x->phase == BIND && x->t->on != DV__ON_SAME))
        return;
    const dv__operand here = dv__op1(b, DV__OP_DEVICE_OF, DV__RTYPE_DEVICE, g, x->tensor);
    if (x->t->on == DV__ON_CPU) {
        const dv__operand fine = dv__op1(b, DV__OP_ON_CPU, DV__RTYPE_BOOL, g, here);
        const dv__operand cpu = dv__literal(b, DV__RTYPE_DEVICE, (dv__reg){ .device = { DV_CPU, 0 } });
        dv__check(b, fine, g, DV_EDEVICE, wrong_device(b, x, cpu, here));
        return;
    }
    const dv__operand compared = dv__and(b, g, b->device);
    if (x->phase != BIND && compared != DV__NEVER) {
        const dv__operand fine = dv__op2(b, DV__OP_SAME_DEVICE, DV__RTYPE_BOOL, compared, device, here);
        dv__check(b, fine, compared, DV_EDEVICE, wrong_device(b, x, device, here));
    }
    if (x->phase != CHECK) {
        dv__assign(b, device, here, dv__and(b, g, dv__not(b, b->device, DV__ALWAYS)));
        b->device = dv__or(b, b->device, g);
    }
}

/* ---- Dtypes -------------------------------------------------------------------------------------------------------------- */

static dv__part *say_dtypes(dv__builder *b, const uint32_t *keys, uint32_t n)
{
    dv__part *p = NULL;
    for (uint32_t i = 0; i < n; i++)
        p = dv__then(p, dv__part_text(b, "%s%s", !i ? "" : i + 1 < n ? ", " : " or ", dv_dtype_name(dv_dtype_from_key(keys[i]))));
    return p;
}

static dv__part *wrong_dtype(dv__builder *b, const struct subject *x, dv__part *expected, dv__operand found)
{
    dv__part *p = dv__then(label(b, x), dv__part_text(b, "expected dtype "));
    return dv__then(dv__then(dv__then(p, expected), dv__part_text(b, ", found ")), dv__show(b, found));
}

static dv__operand one_of(dv__builder *b, dv__operand found, const uint32_t *keys, uint32_t n, dv__operand guard)
{
    dv__operand in[256] = { found };
    for (uint32_t i = 0; i < n && i < 255; i++)
        in[i + 1] = dv__dtype_literal(b, keys[i]);
    return dv__emit(b, DV__OP_ONE_OF, DV__RTYPE_BOOL, guard, (n < 254 ? n : 254) + 1, in, 0, NULL);
}

static void match_dtype_variable(dv__builder *b, const struct subject *x, dv__operand found)
{
    const int ref = x->t->dtype.ref;
    const dv__dtype_var *var = &b->c->dtypes[ref];
    const dv__operand variable = dv__dtype_register(b->c, ref), g = x->guard;
    const dv__operand before = x->phase == CHECK ? x->dtype : b->dtypes[ref];
    const dv__operand first = x->phase == CHECK ? dv__and(b, g, x->first) : g;
    const dv__operand binds = dv__and(b, first, dv__not(b, before, DV__ALWAYS)), compared = dv__and(b, g, b->dtypes[ref]);
    if (x->phase != BIND && binds != DV__NEVER && var->allowed) {
        dv__part *names = dv__then(say_dtypes(b, var->allowed, var->nallowed), dv__part_text(b, " (%s)", var->name));
        dv__check(b, one_of(b, found, var->allowed, var->nallowed, binds), binds, DV_EDTYPE, wrong_dtype(b, x, names, found));
    }
    if (x->phase != BIND && compared != DV__NEVER) {
        const dv__operand same = dv__op2(b, DV__OP_EQ, DV__RTYPE_DTYPE, compared, variable, found);
        dv__check(b, same, compared, DV_EDTYPE,
            wrong_dtype(b, x, dv__then(dv__show(b, variable), dtype_binder(b, ref, " (", ")")), found));
    }
    if (x->phase != CHECK) {
        dv__assign(b, variable, found, dv__and(b, g, dv__not(b, b->dtypes[ref], DV__ALWAYS)));
        b->dtypes[ref] = dv__or(b, b->dtypes[ref], g);
    }
}

static void match_dtype(dv__builder *b, const struct subject *x)
{
    const dv__dtype_spec *spec = &x->t->dtype;
    if (x->phase < CHECK && spec->kind != DV__DTYPE_VAR && spec->n == 1)
        must_be_bound(b, x->guard, dv__contract_needs(b->c, spec->alternatives[0]), spec->alternatives[0]->at, "", "", "this");
    if (spec->kind == DV__DTYPE_ANY || (x->phase == BIND && spec->kind != DV__DTYPE_VAR))
        return;
    const dv__operand g = x->guard, found = dv__op1(b, DV__OP_DTYPE_OF, DV__RTYPE_DTYPE, g, x->tensor);
    if (spec->kind == DV__DTYPE_VAR) {
        match_dtype_variable(b, x, found);
    } else if (spec->kind == DV__DTYPE_SET) {
        uint32_t keys[256];
        const uint32_t n = spec->n < 255 ? spec->n : 255;
        for (uint32_t i = 0; i < n; i++)
            keys[i] = (uint32_t)spec->alternatives[i]->i;
        dv__check(b, one_of(b, found, keys, n, g), g, DV_EDTYPE, wrong_dtype(b, x, say_dtypes(b, keys, n), found));
    } else {
        b->where = x->t->text;
        const dv__operand expected = dv__value(b, spec->alternatives[0], g);
        const dv__operand same = dv__op2(b, DV__OP_EQ, DV__RTYPE_DTYPE, g, found, expected);
        dv__check(b, same, g, DV_EDTYPE, wrong_dtype(b, x, dv__show(b, expected), found));
    }
}

/* ---- Dims ---------------------------------------------------------------------------------------------------------------- */

/* How many dims each item takes. */
struct lengths {
    dv__operand known[MAX_ITEMS]; /* where it is known; 0 elsewhere */
    dv__operand free[MAX_ITEMS];  /* when it is not bound: this run takes the remaining dims */
};

/* The number of dims given by a fact rank(*a) == e. */
static dv__operand told_rank(dv__builder *b, const dv__run_rank *fact, dv__operand guard)
{
    const char *who = b->who, *where = b->where;
    b->who = NULL;
    b->where = fact->text;
    const dv__operand n = dv__value(b, fact->e, guard);
    const dv__operand low = dv__op2(b, DV__OP_GE, DV__RTYPE_INT, guard, n, dv__int(b, 0));
    const dv__operand high = dv__op2(b, DV__OP_LE, DV__RTYPE_INT, guard, n, dv__int(b, DV_MAX_NDIM));
    const dv__operand fine = dv__both(b, guard, low, high);
    if (dv__may_fail(b, fine, guard)) {
        dv__part *p = dv__then(dv__part_place(b), dv__part_text(b, "expected a number of dims, found "));
        dv__check(b, fine, guard, DV_EINVAL, dv__then(p, dv__show(b, n)));
    }
    b->who = who;
    b->where = where;
    return n;
}

static void run_length(dv__builder *b, const struct subject *x, uint32_t i, struct lengths *to)
{
    const dv__item *item = &x->t->dims.items[i];
    const dv__operand zero = dv__int(b, 0), g = x->guard;
    if (item->kind == DV__ITEM_RUNS) {
        b->where = item->text;
        if (x->phase < CHECK)
            must_be_bound(b, g, item->needs, item->e->at, item->text, " stands for several dims: ", "it");
        to->known[i] = dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, g, dv__value(b, item->e, g));
        return;
    }
    if (item->kind == DV__ITEM_ELEMENT_RUN) {
        const dv__pattern *binder = own_binder(b, x->t, item);
        if (binder == x->t)
            to->known[i] = zero, to->free[i] = g;
        else
            to->known[i] = dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, g, own_value(b, binder, item, x->index, g));
        return;
    }
    const dv__operand bound = dv__and(b, g, b->runs[item->ref]);
    const dv__run_rank *fact = &b->c->run_ranks[item->ref];
    const dv__operand unbound = dv__and(b, g, dv__not(b, b->runs[item->ref], DV__ALWAYS));
    const dv__operand told = fact->e ? dv__and(b, unbound, dv__bound(b, fact->needs)) : DV__NEVER;
    to->known[i] = told == DV__NEVER ? zero : told_rank(b, fact, told);
    if (told != unbound)
        to->known[i] = dv__select(b, g, told, to->known[i], zero);
    if (bound != DV__NEVER) {
        const dv__operand rank = dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, bound, dv__run_register(b->c, item->ref));
        to->known[i] = bound == g ? rank : dv__select(b, g, bound, rank, to->known[i]);
    }
    to->free[i] = dv__and(b, unbound, dv__not(b, told, DV__ALWAYS));
}

/* Finds the position of each item in the shape, and checks the number of dims. */
static bool find_positions(dv__builder *b, const struct subject *x, dv__shape_position *positions)
{
    struct lengths lengths;
    const dv__dims *dims = &x->t->dims;
    const dv__operand g = x->guard, one = dv__int(b, 1);
    dv__operand known = dv__int(b, 0), open = DV__NEVER;
    uint32_t first = 0; /* the run that takes the remaining dims */
    if (dims->n > MAX_ITEMS) {
        b->status = dv__fail_at(DV_ELIMIT, b->c->text, x->t->at, "more than %d dims", MAX_ITEMS);
        return false;
    }
    for (uint32_t i = 0; i < dims->n; i++) {
        lengths.known[i] = one;
        lengths.free[i] = DV__NEVER;
        if (dims->items[i].e->type == DV__CTYPE_RUN)
            run_length(b, x, i, &lengths);
        known = dv__add_ints(b, g, known, lengths.known[i]);
        const dv__hush hush = dv__quietly(b);
        const dv__operand both = dv__and(b, open, lengths.free[i]);
        dv__aloud(b, hush);
        if (both != DV__NEVER && x->phase < CHECK) {
            const char *name = dims->items[first].e->name;
            dv__claim_that(b, both, DV__NEVER, dims->items[i].e->at,
                dv__part_text(b, "'*%s' and '*%s' are both unknown here: a fact such as rank(*%s) == ... can tell", name,
                    dims->items[i].e->name, name));
        }
        first = open == DV__NEVER ? i : first;
        open = dv__or(b, open, lengths.free[i]);
    }
    const dv__operand rank = dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, g, x->shape);
    const bool whole = dv__implies(b, g, open, 6) && known < 0 && !b->status && !b->p->constants[-1 - known].i; /* [*s] */
    if (x->phase != BIND && x->phase != FIND && !whole) {
        const dv__operand more = open == DV__NEVER ? open : dv__op2(b, DV__OP_GE, DV__RTYPE_INT, g, rank, known);
        const dv__operand equal = dv__implies(b, g, open, 6) ? more : dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, g, rank, known);
        const dv__operand fits = more == equal ? more : dv__select(b, g, open, more, equal);
        dv__check(b, fits, g, DV_ESHAPE, wrong_shape(b, x, -1));
    }
    dv__operand rest = DV__ALWAYS, at = dv__int(b, 0);
    for (uint32_t i = 0; i < dims->n; i++) {
        uint32_t singles = 0; /* that follow, if nothing else does */
        for (uint32_t k = i; k < dims->n; k++)
            singles = dims->items[k].e->type == DV__CTYPE_RUN ? 0 : singles + 1;
        const bool back = at >= 0 && singles == dims->n - i;
        positions[i].at = back ? dv__int(b, -(int64_t)singles) : at;
        positions[i].start = at;
        positions[i].length = lengths.known[i];
        if (lengths.free[i] != DV__NEVER) {
            if (rest == DV__ALWAYS && known < 0 && !b->status)
                rest = dv__add_ints(b, g, rank, dv__int(b, -b->p->constants[-1 - known].i));
            else if (rest == DV__ALWAYS)
                rest = dv__op2(b, DV__OP_SUB, DV__RTYPE_INT, g, rank, known);
            positions[i].length = dv__implies(b, g, lengths.free[i], 6)
                ? rest
                : dv__select(b, g, lengths.free[i], rest, lengths.known[i]);
        }
        if (i + 1 < dims->n) {
            bool singles_only = true;
            for (uint32_t k = i + 1; k < dims->n; k++)
                singles_only = singles_only && dims->items[k].e->type != DV__CTYPE_RUN;
            at = singles_only && positions[i].length >= 0 ? positions[i].length : dv__add_ints(b, g, at, positions[i].length);
        }
    }
    return true;
}

static dv__operand size_at(dv__builder *b, const struct subject *x, const dv__shape_position *position, dv__operand guard)
{
    return dv__op2(b, DV__OP_AT, DV__RTYPE_INT, guard, x->shape, position->at);
}

static dv__operand dims_at(dv__builder *b, const struct subject *x, const dv__shape_position *position)
{
    return x->t->dims.n == 1 ? x->shape
                             : dv__op3(b, DV__OP_SLICE, DV__RTYPE_DIMS, x->guard, x->shape, position->start, position->length);
}

static void match_variable(dv__builder *b, const struct subject *x, uint32_t i, const dv__shape_position *position)
{
    const int ref = x->t->dims.items[i].ref;
    const dv__operand variable = dv__dim_register(ref), g = x->guard, size = size_at(b, x, position, g);
    const dv__operand compared = dv__and(b, g, b->dims[ref]);
    if (x->phase != BIND && compared != DV__NEVER) {
        const dv__operand same = dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, compared, size, variable);
        dv__check(b, same, compared, DV_ESHAPE, wrong_shape(b, x, (int32_t)i));
    }
    if (x->phase != CHECK) {
        dv__assign(b, variable, size, dv__and(b, g, dv__not(b, b->dims[ref], DV__ALWAYS)));
        b->dims[ref] = dv__or(b, b->dims[ref], g);
    }
}

static void match_run(dv__builder *b, const struct subject *x, uint32_t i, const dv__shape_position *position)
{
    const dv__item *item = &x->t->dims.items[i];
    const dv__operand g = x->guard;
    const dv__operand here = dims_at(b, x, position);
    const bool run = item->kind == DV__ITEM_RUN;
    const dv__operand compared = run ? dv__and(b, g, b->runs[item->ref]) : g;
    if (x->phase != BIND && compared != DV__NEVER) {
        b->where = item->text;
        const dv__operand value = run ? dv__run_register(b->c, item->ref) : dv__value(b, item->e, g);
        const dv__operand same = dv__op2(b, DV__OP_EQ, DV__RTYPE_DIMS, compared, here, value);
        dv__check(b, same, compared, DV_ESHAPE, wrong_shape(b, x, (int32_t)i));
    }
    if (x->phase != CHECK && run) {
        dv__assign(b, dv__run_register(b->c, item->ref), here, dv__and(b, g, dv__not(b, b->runs[item->ref], DV__ALWAYS)));
        b->runs[item->ref] = dv__or(b, b->runs[item->ref], g);
    }
}

/* When these variables are bound for the first tensor of a list, up to this item. */
static dv__operand bound_for_first(dv__builder *b, const struct subject *x, dv__needs needs)
{
    dv__operand all = dv__bound(b, (dv__needs){ .dtypes = needs.dtypes });
    for (uint64_t left = needs.dims; left; left &= left - 1)
        all = dv__and(b, all, x->dims[__builtin_ctzll(left)]);
    for (uint32_t left = needs.runs; left; left &= left - 1)
        all = dv__and(b, all, x->runs[__builtin_ctz(left)]);
    return all;
}

/* When the sizes of a computed dim are bound. One that has no size cannot wait for them. */
static dv__operand bound_here(dv__builder *b, const dv__item *item, enum phase phase, dv__operand guard)
{
    if (item->aside >= 0)
        return dv__bound(b, item->needs);
    if (phase < CHECK)
        must_be_bound(b, guard, item->needs, item->e->at, item->text, ": ", "this");
    return DV__ALWAYS;
}

/* A computed dim: compared if its sizes are bound, else put aside for later. */
static void match_computed(dv__builder *b, const struct subject *x, uint32_t i, const dv__shape_position *position)
{
    const dv__item *item = &x->t->dims.items[i];
    const dv__operand bound = bound_here(b, item, x->phase, x->guard);
    dv__operand g = dv__and(b, x->guard, bound);
    if (x->phase == CHECK && item->aside >= 0) { /* it may have been put aside for the first tensor */
        const dv__operand early = bound_for_first(b, x, item->needs);
        g = early == bound ? g : dv__and(b, g, dv__or(b, dv__not(b, x->first, DV__ALWAYS), early));
    }
    if (x->phase != CHECK && item->aside >= 0) {
        dv__put_aside *a = &b->asides[item->aside];
        a->took = x->guard;
        a->pending = dv__and(b, x->guard, dv__not(b, bound, DV__ALWAYS));
        a->tested = bound;
        a->position = *position;
        a->found = a->pending == DV__NEVER ? DV__ALWAYS : size_at(b, x, position, x->guard);
    }
    if (x->phase == BIND || g == DV__NEVER)
        return;
    b->where = item->text;
    const dv__operand expected = dv__value(b, item->e, g), size = size_at(b, x, position, x->guard);
    dv__check(b, dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, g, size, expected), g, DV_ESHAPE, wrong_shape(b, x, (int32_t)i));
}

/* n{i}: the sum of all. */
static void add_up(
    dv__builder *b, const struct subject *x, const dv__item *item, const dv__shape_position *position, dv__carry *carry)
{
    const dv__operand total = dv__dim_register(item->ref);
    const dv__operand in[] = { total, size_at(b, x, position, x->guard) };
    b->where = item->text;
    const dv__fault *big = dv__fault_new(
        b, DV_ESHAPE, dv__then(dv__part_place(b), dv__part_text(b, "the sum over the list does not fit 64 bits")));
    const dv__operand next = dv__emit(b, DV__OP_ADD, DV__RTYPE_INT, x->guard, 2, in, 0, big);
    *carry = (dv__carry){ total, dv__int(b, 0), next };
}

/* n{i}, *s{i}: the first list that has it binds it, the others are compared with that, tensor by tensor. */
static void match_own(dv__builder *b, const struct subject *x, uint32_t i, const dv__shape_position *position, dv__carry *carries,
    uint32_t *ncarries)
{
    const dv__item *item = &x->t->dims.items[i];
    const dv__pattern *binder = own_binder(b, x->t, item);
    const bool run = item->kind == DV__ITEM_ELEMENT_RUN;
    const dv__operand g = x->guard;
    if (binder == x->t) {
        if (!run && *ncarries < DV_MAX_NDIM)
            add_up(b, x, item, position, &carries[(*ncarries)++]);
        return;
    }
    const dv__operand here = run ? dims_at(b, x, position) : size_at(b, x, position, g);
    const dv__operand same = dv__op2(
        b, DV__OP_EQ, run ? DV__RTYPE_DIMS : DV__RTYPE_INT, g, here, own_value(b, binder, item, x->index, g));
    dv__check(b, same, g, DV_ESHAPE, wrong_shape(b, x, (int32_t)i));
}

static void match_dims(dv__builder *b, struct subject *x, dv__carry *carries, uint32_t *ncarries)
{
    const dv__dims *dims = &x->t->dims;
    dv__shape_position positions[MAX_ITEMS];
    x->shape = dv__op1(b, DV__OP_SHAPE, DV__RTYPE_DIMS, x->guard, x->tensor);
    if (dims->any || !find_positions(b, x, positions))
        return;
    for (uint32_t i = 0; i < dims->n && !b->status; i++) {
        const dv__item *item = &dims->items[i];
        switch (item->kind) {
        case DV__ITEM_VAR: match_variable(b, x, i, &positions[i]); break;
        case DV__ITEM_RUN:
        case DV__ITEM_RUNS: match_run(b, x, i, &positions[i]); break;
        case DV__ITEM_INT:
            if (x->phase != BIND)
                dv__check(b,
                    dv__op2(
                        b, DV__OP_EQ, DV__RTYPE_INT, x->guard, size_at(b, x, &positions[i], x->guard), dv__int(b, item->value)),
                    x->guard, DV_ESHAPE, wrong_shape(b, x, (int32_t)i));
            break;
        case DV__ITEM_EXPR: match_computed(b, x, i, &positions[i]); break;
        default:
            if (x->phase == CHECK)
                match_own(b, x, i, &positions[i], carries, ncarries);
        }
        if (x->phase == CHECK && item->kind == DV__ITEM_VAR)
            x->dims[item->ref] = b->dims[item->ref];
        else if (x->phase == CHECK && item->kind == DV__ITEM_RUN)
            x->runs[item->ref] = b->runs[item->ref];
    }
}

static void match_tensor(dv__builder *b, struct subject *x, dv__carry *carries, uint32_t *ncarries)
{
    x->shape = DV__ALWAYS;
    match_device(b, x);
    match_dtype(b, x);
    match_dims(b, x, carries, ncarries);
}

/* ---- Lists --------------------------------------------------------------------------------------------------------------- */

/* Opens a block that runs for each tensor of a list; x gets its registers. Returns its step's index. */
static uint32_t open_each(dv__builder *b, struct subject *x, dv__operand guard)
{
    x->tensor = dv__new_register(b, DV__RTYPE_TENSOR);
    x->index = dv__new_register(b, DV__RTYPE_INT);
    x->first = dv__new_register(b, DV__RTYPE_BOOL);
    x->guard = DV__ALWAYS;
    x->phase = CHECK;
    const uint32_t at = b->p->nsteps;
    dv__step *s = dv__append(b, DV__OP_EACH, guard);
    if (s) {
        s->slot = x->t->slot;
        s->to = x->tensor;
        s->index = x->index;
        s->first = x->first;
        s->type = DV__RTYPE_TENSOR;
    }
    return at;
}

void dv__close_block(dv__builder *b, uint32_t at)
{
    if (b->status)
        return;
    b->p->steps[at].body = (int32_t)(b->p->nsteps - at - 1);
    for (uint32_t i = at + 1; i < b->p->nsteps; i++)
        b->p->steps[i].flags |= DV__STEP_DEAD;
}

/* Lists with one index are equally long; [...] says nothing, so not that either. */
static void match_count(dv__builder *b, const dv__pattern *t, dv__operand guard)
{
    dv__operand left = guard;
    for (const dv__pattern *other = b->c->patterns; other < t && !t->dims.any && left != DV__NEVER; other++) {
        if (other->kind != DV__PATTERN_LIST || other->dims.any || other->presence == DV__ABSENT || strcmp(other->index, t->index))
            continue;
        const dv__operand took = dv__took_part(b, other), g = dv__and(b, left, took);
        if (g == DV__NEVER)
            continue;
        const dv__operand expected = dv__load(b, DV__OP_LEN, DV__RTYPE_INT, g, other->slot);
        const dv__operand found = dv__load(b, DV__OP_LEN, DV__RTYPE_INT, g, t->slot);
        dv__part *p = dv__part_text(b, "argument '%s': expected as many tensors as '%s' has, ", t->name, other->name);
        p = dv__then(dv__then(p, dv__show(b, expected)), dv__part_text(b, ", found "));
        dv__check(b, dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, g, found, expected), g, DV_EINVAL, dv__then(p, dv__show(b, found)));
        left = dv__and(b, left, dv__not(b, took, DV__ALWAYS));
    }
}

dv__operand dv__own_value(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const bool run = e->role == DV__ROLE_ELEMENT_RUN;
    const dv__item item = {
        .kind = run ? DV__ITEM_ELEMENT_RUN : DV__ITEM_ELEMENT, .ref = (int16_t)e->ref, .e = (dv__expr *)(uintptr_t)e
    };
    return own_value(b, own_binder(b, b->list, &item), &item, b->index, guard);
}

dv__operand dv__own_tensor(dv__builder *b, int32_t slot, dv__operand guard)
{
    if (!b->status && !dv__implies(b, dv__case_taken(b, b->list->when), dv__present(b, slot), 8))
        b->status = dv__fail_at(
            DV_ECONTRACT, b->c->text, b->list->at, "'%s': '%s' may be None", b->list->text, b->c->schema->args[slot].name);
    return dv__emit(b, DV__OP_ELEMENT, DV__RTYPE_TENSOR, guard, 1, &b->index, slot, NULL);
}

dv__operand dv__own_count(dv__builder *b, const dv__pattern *t)
{
    const dv__operand took = dv__case_taken(b, t->when);
    for (int any = 1; any >= 0; any--) /* first what it is like, if that is xs{i}[...] */
        for (const dv__pattern *list = b->c->patterns, *end = list + b->c->npatterns; list < end; list++)
            if (list->kind == DV__PATTERN_LIST && list->presence != DV__ABSENT && !strcmp(list->index, t->index) &&
                list->dims.any == any && (!any || list->slot == t->like || list->slot == t->view_of) &&
                dv__implies(b, took, dv__took_part(b, list), 8))
                return dv__load(b, DV__OP_LEN, DV__RTYPE_INT, DV__ALWAYS, list->slot);
    if (!b->status)
        b->status = dv__fail_at(DV_ECONTRACT, b->c->text, t->at,
            "'%s': its length is unknown: every list with the index %s may be absent", t->text, t->index);
    return DV__ALWAYS;
}

static void match_list(dv__builder *b, const dv__pattern *t, dv__operand guard)
{
    struct subject x = { .t = t, .phase = BIND, .index = dv__int(b, 0) };
    dv__carry carries[DV_MAX_NDIM];
    uint32_t ncarries = 0;
    match_count(b, t, guard);
    dv__operand some = dv__load(b, DV__OP_HOLDS, DV__RTYPE_BOOL, guard, t->slot);
    if (!t->may_be_empty && !t->dims.any) {
        dv__part *p = dv__then(
            dv__part_text(b, "argument '%s': expected at least one tensor", t->name), dv__case_text(b, t->when));
        dv__check(b, some, guard, DV_EINVAL, dv__then(p, dv__part_text(b, ", found an empty list")));
        some = DV__ALWAYS;
    }
    x.guard = dv__and(b, guard, some);
    memcpy(x.dims, b->dims, sizeof x.dims);
    memcpy(x.runs, b->runs, sizeof x.runs);
    x.device = b->device;
    x.dtype = t->dtype.kind == DV__DTYPE_VAR ? b->dtypes[t->dtype.ref] : DV__ALWAYS;
    const dv__operand took = x.guard;
    x.tensor = dv__load(b, DV__OP_TENSOR, DV__RTYPE_TENSOR, took, t->slot);
    match_tensor(b, &x, carries, &ncarries);
    const uint32_t at = open_each(b, &x, took);
    match_tensor(b, &x, carries, &ncarries);
    dv__close_block(b, at);
    dv__carry *kept = ncarries && !b->status ? DV__ARENA_ARRAY(b->arena, dv__carry, ncarries) : NULL;
    if (kept) {
        memcpy(kept, carries, ncarries * sizeof *carries);
        b->p->steps[at].carry = kept;
        b->p->steps[at].ncarry = ncarries;
    }
    for (uint32_t i = 0; i < t->dims.n; i++)
        if (t->dims.items[i].kind == DV__ITEM_ELEMENT)
            b->dims[t->dims.items[i].ref] = dv__or(b, b->dims[t->dims.items[i].ref], took);
        else if (t->dims.items[i].kind == DV__ITEM_ELEMENT_RUN)
            b->runs[t->dims.items[i].ref] = dv__or(b, b->runs[t->dims.items[i].ref], took);
}

/* ---- Lengths of int[] arguments ------------------------------------------------------------------------------------------ */

static dv__part *wrong_length(dv__builder *b, const dv__pattern *t, dv__operand found, dv__operand g)
{
    const dv__item *item = t->dims.items;
    dv__part *p = dv__then(dv__part_text(b, "argument '%s': expected ", t->name), say_item(b, item, g));
    p = dv__then(dv__then(p, dv__part_text(b, " elements")), dv__binders(b, item->needs));
    return dv__then(dv__then(p, dv__part_text(b, ", found ")), dv__show(b, found));
}

static void match_length(dv__builder *b, const dv__pattern *t, dv__operand g)
{
    if (t->dims.any)
        return;
    const dv__item *item = t->dims.items;
    const bool ints = dv__type_of_argument(b->c->schema->args[t->slot].type) == DV__CTYPE_INTS;
    const dv__operand n = ints
        ? dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, g, dv__load(b, DV__OP_ARGUMENT, DV__RTYPE_DIMS, g, t->slot))
        : dv__load(b, DV__OP_LEN, DV__RTYPE_INT, g, t->slot);
    b->where = item->text;
    dv__operand compared = g, expected;
    if (item->kind == DV__ITEM_VAR) {
        expected = dv__dim_register(item->ref);
        compared = dv__and(b, g, b->dims[item->ref]);
    } else if (item->kind == DV__ITEM_INT) {
        expected = dv__int(b, item->value);
    } else {
        const dv__operand bound = bound_here(b, item, BOTH, g);
        compared = dv__and(b, g, bound);
        if (item->aside >= 0)
            b->asides[item->aside] = (dv__put_aside){
                .took = g, .pending = dv__and(b, g, dv__not(b, bound, DV__ALWAYS)), .tested = bound, .found = n
            };
        expected = compared == DV__NEVER ? DV__ALWAYS : dv__value(b, item->e, compared);
    }
    if (compared != DV__NEVER)
        dv__check(
            b, dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, compared, n, expected), compared, DV_EINVAL, wrong_length(b, t, n, compared));
    if (item->kind == DV__ITEM_VAR) {
        dv__assign(b, expected, n, dv__and(b, g, dv__not(b, b->dims[item->ref], DV__ALWAYS)));
        b->dims[item->ref] = dv__or(b, b->dims[item->ref], g);
    }
}

/* ---- Patterns ------------------------------------------------------------------------------------------------------------ */

static dv__part *wrong_presence(dv__builder *b, const dv__pattern *t, const char *expected, dv__part *found)
{
    dv__part *p = dv__then(dv__part_text(b, "argument '%s': expected %s", t->name, expected), dv__case_text(b, t->when));
    return dv__then(dv__then(p, dv__part_text(b, ", found ")), found);
}

/* Read the argument; only in C can its type differ from the schema's. */
static void load_argument(dv__builder *b, const dv__pattern *t, dv__operand guard, enum dv__ctype is)
{
    const enum dv__op op = is == DV__CTYPE_TENSOR ? DV__OP_TENSOR
        : is == DV__CTYPE_TENSORS                 ? DV__OP_HOLDS
        : is == DV__CTYPE_INTS                    ? DV__OP_ARGUMENT
                                                  : DV__OP_LEN;
    const enum dv__rtype type = is == DV__CTYPE_TENSOR ? DV__RTYPE_TENSOR
        : is == DV__CTYPE_TENSORS                      ? DV__RTYPE_BOOL
        : is == DV__CTYPE_INTS                         ? DV__RTYPE_DIMS
                                                       : DV__RTYPE_INT;
    const dv__hush hush = dv__quietly(b);
    const dv__operand given = dv__load(b, DV__OP_PRESENT, DV__RTYPE_BOOL, DV__ALWAYS, t->slot);
    dv__aloud(b, hush);
    dv__part *found = dv__if_part(b, given, dv__part_text(b, "another type"), dv__part_text(b, "None"));
    dv__emit(b, op, type, guard, 0, NULL, t->slot, dv__fault_new(b, DV_EINVAL, wrong_presence(b, t, dv__ctype_text(is), found)));
}

static void match_pattern(dv__builder *b, const dv__pattern *t)
{
    const enum dv__ctype is = dv__type_of_argument(b->c->schema->args[t->slot].type);
    const dv__operand taken = dv__case_taken(b, t->when), there = dv__present(b, t->slot);
    b->who = t->name;
    b->where = t->text;
    if (t->presence == DV__ABSENT) {
        dv__check(b, dv__not(b, there, DV__ALWAYS), taken, DV_EINVAL,
            wrong_presence(b, t, "None", dv__part_text(b, "%s", dv__ctype_text(is))));
        return;
    }
    const dv__operand guard = t->presence == DV__OPTIONAL ? dv__and(b, taken, there) : taken;
    if (guard == DV__NEVER)
        return;
    if (t->presence == DV__PRESENT)
        dv__check(b, there, taken, DV_EINVAL, wrong_presence(b, t, dv__ctype_text(is), dv__part_text(b, "None")));
    load_argument(b, t, guard, is);
    if (t->kind == DV__PATTERN_INTS) {
        match_length(b, t, guard);
    } else if (t->kind == DV__PATTERN_LIST) {
        match_list(b, t, guard);
    } else {
        struct subject x = { .t = t, .phase = BOTH, .guard = guard };
        x.tensor = dv__load(b, DV__OP_TENSOR, DV__RTYPE_TENSOR, guard, t->slot);
        match_tensor(b, &x, NULL, NULL);
    }
}

/* Returns the position of a dim in a tensor of a list: it differs from tensor to tensor where a run is of each tensor. */
static dv__shape_position position_in_each(dv__builder *b, const struct subject *x, uint32_t item, dv__shape_position in_first)
{
    struct subject one = *x;
    dv__shape_position positions[MAX_ITEMS];
    bool own = false;
    for (uint32_t i = 0; i < x->t->dims.n; i++)
        own |= x->t->dims.items[i].kind == DV__ITEM_ELEMENT_RUN;
    one.phase = FIND; /* the number of dims has been checked */
    return own && find_positions(b, &one, positions) ? positions[item] : in_first;
}

/* A computed dim of a list that was put aside: compared for each tensor. */
void dv__check_aside(dv__builder *b, const dv__pattern *t, uint32_t item, dv__operand guard)
{
    const dv__item *one = &t->dims.items[item];
    const dv__put_aside *a = &b->asides[one->aside];
    struct subject x = { .t = t, .phase = BOTH, .guard = guard };
    b->who = t->name;
    b->where = one->text;
    const dv__operand expected = dv__value(b, one->e, guard);
    if (t->kind == DV__PATTERN_INTS) {
        dv__part *p = dv__then(dv__part_text(b, "argument '%s': expected %s = ", t->name, one->text), dv__show(b, expected));
        p = dv__then(dv__then(p, dv__part_text(b, " elements, found ")), dv__show(b, a->found));
        dv__check(b, dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, guard, a->found, expected), guard, DV_EINVAL, p);
        return;
    }
    uint32_t at = 0;
    dv__operand g = guard;
    const bool list = t->kind == DV__PATTERN_LIST;
    if (list) {
        memcpy(x.dims, b->dims, sizeof x.dims);
        memcpy(x.runs, b->runs, sizeof x.runs);
        at = open_each(b, &x, guard);
        g = DV__ALWAYS;
    } else {
        x.tensor = dv__load(b, DV__OP_TENSOR, DV__RTYPE_TENSOR, a->took, t->slot);
    }
    x.shape = dv__op1(b, DV__OP_SHAPE, DV__RTYPE_DIMS, list ? g : a->took, x.tensor);
    const dv__shape_position position = list ? position_in_each(b, &x, item, a->position) : a->position;
    const dv__operand found = list ? size_at(b, &x, &position, g) : a->found;
    dv__check(b, dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, g, found, expected), g, DV_ESHAPE, wrong_shape(b, &x, (int32_t)item));
    if (list)
        dv__close_block(b, at);
}

/* ---- Cases --------------------------------------------------------------------------------------------------------------- */

static dv__part *no_case(dv__builder *b, const dv__group *g, dv__operand found)
{
    const dv__expr *subject = g->subject;
    if (!subject)
        return dv__part_text(b, "no case holds of: when %s", g->cases[0].text);
    const int argument = subject->role == DV__ROLE_ARG         ? subject->ref
        : subject->n && subject->args[0]->role == DV__ROLE_ARG ? subject->args[0]->ref
                                                               : -1;
    dv__part *p = dv__part_text(b, "argument '%s': expected %s", argument >= 0 ? b->c->schema->args[argument].name : "?",
        subject->type == DV__CTYPE_INT ? "rank " : "");
    for (uint32_t i = 0, n = 0; i < g->n; i++)
        for (uint32_t k = 1; g->cases[i].e && k < g->cases[i].e->n; k++, n++) {
            const dv__expr *e = g->cases[i].e->args[k];
            const char *before = !n ? "" : i + 1 == g->n && k + 1 == g->cases[i].e->n ? " or " : ", ";
            if (e->kind == DV__EXPR_STRING)
                p = dv__then(p, dv__part_text(b, "%s\"%s\"", before, e->name));
            else if (e->kind == DV__EXPR_INT)
                p = dv__then(p, dv__part_text(b, "%s%lld", before, (long long)e->i));
            else
                p = dv__then(p, dv__part_text(b, "%s%s", before, e->name ? e->name : e->i ? "True" : "False"));
        }
    p = dv__then(p, dv__part_text(b, ", found "));
    return dv__then(p, found >= 0 ? dv__show(b, found) : dv__part_text(b, "None"));
}

/* The string, rank or dtype whose values a group lists; DV__ALWAYS: there is none. */
static dv__operand subject_of(dv__builder *b, const dv__expr *e)
{
    if (!e || (e->type != DV__CTYPE_STRING && e->type != DV__CTYPE_INT && e->type != DV__CTYPE_DTYPE))
        return DV__ALWAYS;
    const dv__hush hush = dv__quietly(b);
    const dv__operand x = dv__value(b, e, DV__ALWAYS);
    dv__aloud(b, hush);
    return x;
}

/* Which case of each group is taken: the first that holds. The prover shows that no other one holds. */
static void choose_cases(dv__builder *b)
{
    for (uint32_t g = 0; g < b->c->ngroups && !b->status; g++) {
        const dv__group *group = &b->c->groups[g];
        dv__operand *taken = DV__ARENA_ARRAY(b->arena, dv__operand, group->n), any = DV__NEVER;
        dv__choice *choice = &b->choices[g];
        choice->holds = DV__ARENA_ARRAY(b->arena, dv__operand, group->n);
        if (!taken || !choice->holds) {
            b->status = DV_ENOMEM;
            return;
        }
        for (uint32_t i = 0; i < group->n; i++) {
            const dv__operand left = dv__not(b, any, DV__ALWAYS);
            b->who = NULL;
            b->where = group->cases[i].text;
            choice->holds[i] = DV__ALWAYS;
            if (group->cases[i].e)
                choice->holds[i] = dv__value(b, group->cases[i].e, left == DV__NEVER ? DV__ALWAYS : left);
            taken[i] = dv__and(b, left, choice->holds[i]);
            any = dv__or(b, any, taken[i]);
        }
        choice->subject = subject_of(b, group->subject);
        if (any != DV__ALWAYS) { /* after the check, the last case is taken when no other is */
            dv__check(b, any, DV__ALWAYS, DV_EINVAL, no_case(b, group, choice->subject));
            any = DV__NEVER;
            for (uint32_t i = 0; i + 1 < group->n; i++)
                any = dv__or(b, any, taken[i]);
            taken[group->n - 1] = dv__not(b, any, DV__ALWAYS);
        }
        b->p->taken[g] = taken;
    }
    b->p->choose_end = b->p->nsteps;
}

void dv__build_patterns(dv__builder *b)
{
    const dv__contract *c = b->c;
    bool plain = true;
    choose_cases(b);
    for (uint32_t i = 0; i < c->npatterns && !b->status; i++) {
        if (plain && !(i < c->nplain && c->patterns[i].presence == DV__REQUIRED)) {
            plain = false;
            b->p->after_plain = b->fresh = b->p->nsteps;
            b->p->nplain = i;
        }
        match_pattern(b, &c->patterns[i]);
    }
    if (plain) {
        b->p->after_plain = b->fresh = b->p->nsteps;
        b->p->nplain = c->npatterns;
    }
}
