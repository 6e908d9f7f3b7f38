/* Builds the steps of expressions. A check before an operation covers its possible errors, so the operation itself always has a
 * value and may be computed or skipped under a guard. */
#include "lang/contract_build.h"

static const dv__argument *argument(const dv__builder *b, int32_t slot) { return &b->c->schema->args[slot]; }

/* The message for arithmetic whose result does not fit 64 bits. */
static const dv__fault *too_big(dv__builder *b)
{
    if (b->quiet)
        return NULL;
    if (!b->too_big || b->big_who != b->who || b->big_where != b->where) {
        b->too_big = dv__fault_new(
            b, DV_ESHAPE, dv__then(dv__part_place(b), dv__part_text(b, "the result does not fit 64 bits")));
        b->big_who = b->who;
        b->big_where = b->where;
    }
    return b->too_big;
}

static void check_here(dv__builder *b, dv__operand condition, dv__operand guard, dv__part *what)
{
    dv__check(b, condition, guard, DV_ESHAPE, dv__then(dv__part_place(b), what));
}

/* ---- Arguments --------------------------------------------------------------------------------------------------------- */

dv__operand dv__present(dv__builder *b, int32_t slot)
{
    return argument(b, slot)->type->kind == DV__TYPE_OPTIONAL ? dv__load(b, DV__OP_PRESENT, DV__RTYPE_BOOL, DV__ALWAYS, slot)
                                                              : DV__ALWAYS;
}

/* "argument 'dim': expected an integer for dim + 1, found None" */
static dv__part *no_value(dv__builder *b, int32_t slot, const char *wanted)
{
    dv__part *p = dv__part_text(b, "argument '%s': expected %s for %s, found ", argument(b, slot)->name, wanted, b->where);
    dv__part *found = dv__part_new(b, DV__PART_IF);
    if (found) {
        found->a = dv__load(b, DV__OP_PRESENT, DV__RTYPE_BOOL, DV__ALWAYS, slot);
        found->then = dv__part_text(b, "another type");
        found->other = dv__part_text(b, "None");
    }
    return dv__then(p, found);
}

/* For messages, a value that may be absent needs a replacement. */
static dv__operand or_nothing(dv__builder *b, dv__operand there, dv__operand value, dv__operand guard)
{
    if (!b->quiet || there == DV__ALWAYS)
        return value;
    const enum dv__rtype type = dv__type_of(b, value);
    dv__reg nothing = { 0 };
    if (type == DV__RTYPE_DTYPE)
        nothing.dtype = dv_dtype_from_key(DV_DTYPE_bool);
    return dv__select(b, guard, there, value, type == DV__RTYPE_BOOL ? DV__NEVER : dv__literal(b, type, nothing));
}

/* The value of an argument. The step itself checks the type, since only in C can it differ from the schema's. */
static dv__operand load(dv__builder *b, enum dv__op op, enum dv__rtype type, int32_t slot, dv__operand guard, const char *wanted)
{
    const dv__operand there = dv__present(b, slot);
    if (dv__may_fail(b, there, guard)) {
        dv__claim_that(b, guard, there, NULL, NULL);
        dv__check(b, there, guard, DV_EINVAL, no_value(b, slot, wanted));
    }
    const bool was_quiet = b->quiet;
    const dv__hush hush = dv__quietly(b); /* only messages read it */
    const dv__fault *fault = was_quiet ? NULL : dv__fault_new(b, DV_EINVAL, no_value(b, slot, wanted));
    dv__aloud(b, hush);
    for (uint32_t i = b->fresh; i < b->p->nsteps && !b->status; i++) { /* once is enough */
        const dv__step *s = &b->p->steps[i];
        if (s->op == op && s->slot == slot && s->type == type && s->fault && !(s->flags & DV__STEP_DEAD) &&
            dv__implies(b, guard, s->guard, 6))
            fault = s->fault;
    }
    const dv__operand value = dv__emit(b, op, type, dv__and(b, guard, there), 0, NULL, slot, fault);
    return or_nothing(b, there, value, guard);
}

static dv__operand load_ints(dv__builder *b, int32_t slot, dv__operand guard)
{
    return load(b, DV__OP_ARGUMENT, DV__RTYPE_DIMS, slot, guard, "a list of integers");
}

/* Apply `op` to a tensor argument, to the first tensor of a list, or to the one at the place of the result's. */
static dv__operand of_tensor(dv__builder *b, enum dv__op op, enum dv__rtype type, const dv__expr *e, dv__operand guard)
{
    const bool list = e->type == DV__CTYPE_TENSORS;
    if (e->index)
        return dv__op1(b, op, type, guard, dv__own_tensor(b, e->ref, guard));
    const dv__operand there = list ? dv__load(b, DV__OP_HOLDS, DV__RTYPE_BOOL, DV__ALWAYS, e->ref) : dv__present(b, e->ref);
    if (dv__may_fail(b, there, guard))
        dv__check(b, there, guard, DV_EINVAL,
            dv__part_text(b, "argument '%s': expected a tensor for %s, found None", e->name, b->where));
    const dv__operand g = dv__and(b, guard, there);
    const dv__operand x = dv__load(b, DV__OP_TENSOR, DV__RTYPE_TENSOR, g, e->ref);
    return or_nothing(b, there, dv__op1(b, op, type, b->quiet ? g : guard, x), guard);
}

/* The sizes of a tensor argument, of the first tensor of a list, or of a run. */
static dv__operand extent(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    return e->type == DV__CTYPE_RUN ? dv__value(b, e, guard) : of_tensor(b, DV__OP_SHAPE, DV__RTYPE_DIMS, e, guard);
}

static dv__operand rank_of(dv__builder *b, dv__operand dims, dv__operand guard)
{
    return dv__op1(b, DV__OP_RANK, DV__RTYPE_INT, guard, dims);
}

/* ---- Dims by number ---------------------------------------------------------------------------------------------------- */

/* "expected a dim from -2 to 1, found 3": of max(rank, 1). */
static dv__part *no_axis(dv__builder *b, dv__part *who, dv__operand rank, dv__part *found, dv__operand guard)
{
    const dv__hush hush = dv__quietly(b);
    const dv__operand n = dv__op2(b, DV__OP_MAX, DV__RTYPE_INT, guard, rank, dv__int(b, 1));
    const dv__operand low = dv__op1(b, DV__OP_NEG, DV__RTYPE_INT, guard, n);
    const dv__operand high = dv__op2(b, DV__OP_SUB, DV__RTYPE_INT, guard, n, dv__int(b, 1));
    dv__aloud(b, hush);
    dv__part *p = dv__then(who, dv__part_text(b, ": expected a dim from "));
    p = dv__then(p, dv__show(b, low));
    p = dv__then(p, dv__part_text(b, " to "));
    p = dv__then(p, dv__show(b, high));
    return dv__then(dv__then(p, dv__part_text(b, ", found ")), found);
}

dv__operand dv__axis(dv__builder *b, dv__operand dim, dv__operand rank, dv__operand guard, dv__part *who)
{
    const dv__operand is = dv__op2(b, DV__OP_IS_AXIS, DV__RTYPE_BOOL, guard, dim, rank);
    if (dv__may_fail(b, is, guard))
        dv__check(b, is, guard, DV_EINVAL, no_axis(b, who, rank, dv__show(b, dim), guard));
    return dv__op2(b, DV__OP_AXIS, DV__RTYPE_INT, guard, dim, rank);
}

static dv__part *who_is(dv__builder *b, const dv__expr *e)
{
    return e->role == DV__ROLE_ARG ? dv__part_text(b, "argument '%s'", e->name) : dv__part_text(b, "%s", b->where);
}

static dv__operand axis(dv__builder *b, const dv__expr *e, dv__operand rank, dv__operand guard)
{
    const dv__operand dim = dv__value(b, e, guard);
    return dv__axis(b, dim, rank, guard, who_is(b, e));
}

/* Check the dims in an int[]: each must exist, and none may repeat. */
static void check_axes(dv__builder *b, const dv__expr *e, dv__operand axes, dv__operand rank, dv__operand guard)
{
    const dv__operand are = dv__op2(b, DV__OP_ARE_AXES, DV__RTYPE_BOOL, guard, axes, rank);
    if (dv__may_fail(b, are, guard)) {
        dv__part *found = dv__part_new(b, DV__PART_WRONG_AXIS);
        if (found)
            found->a = axes, found->b = rank;
        dv__check(b, are, guard, DV_EINVAL, no_axis(b, who_is(b, e), rank, found, guard));
    }
    const dv__operand once = dv__op2(b, DV__OP_DISTINCT_AXES, DV__RTYPE_BOOL, guard, axes, rank);
    if (dv__may_fail(b, once, guard)) {
        dv__part *found = dv__part_new(b, DV__PART_TWICE);
        if (found)
            found->a = axes, found->b = rank;
        dv__part *p = dv__then(dv__part_text(b, "argument '%s': dim ", e->name ? e->name : b->where), found);
        dv__check(b, once, guard, DV_EINVAL, dv__then(p, dv__part_text(b, " appears more than once")));
    }
}

/* ---- Runs of dims ------------------------------------------------------------------------------------------------------ */

static dv__operand broadcast(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand shapes[256] = { 0 };
    const uint32_t n = e->n < 255 ? e->n : 255;
    if (e->n > 255)
        b->status = dv__fail_at(DV_ELIMIT, b->c->text, e->at, "more than 255 operands");
    for (uint32_t i = 0; i < n; i++)
        shapes[i] = dv__value(b, e->args[i], guard);
    const dv__operand fit = dv__emit(b, DV__OP_BROADCASTS, DV__RTYPE_BOOL, guard, n, shapes, 0, NULL);
    if (dv__may_fail(b, fit, guard)) {
        dv__part *p = dv__part_text(b, "shapes "), *conflict = dv__part_new(b, DV__PART_CONFLICT);
        for (uint32_t i = 0; i < n; i++) {
            p = dv__then(p, dv__part_text(b, i ? " and [" : "["));
            p = dv__then(p, dv__show(b, shapes[i]));
            p = dv__then(p, dv__part_text(b, "]"));
            if (e->args[i]->role == DV__ROLE_RUN)
                p = dv__then(p, dv__binder(b, true, e->args[i]->ref, " (", ")"));
        }
        if (conflict) {
            conflict->many = dv__keep(b, shapes, n);
            conflict->nmany = (uint8_t)n;
        }
        p = dv__then(dv__then(p, dv__part_text(b, " do not broadcast: ")), conflict);
        check_here(b, fit, guard, p);
    }
    return dv__emit(b, DV__OP_BROADCAST, DV__RTYPE_DIMS, guard, n, shapes, 0, NULL);
}

/* dim may be an int, an int[], or None and empty for all, as in torch.sum. */
static dv__operand reduced(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const dv__expr *which = e->args[1];
    const dv__operand from = dv__value(b, e->args[0], guard), keep = dv__value(b, e->args[2], guard);
    const dv__operand there = which->role == DV__ROLE_ARG ? dv__present(b, which->ref) : DV__ALWAYS;
    const dv__operand named = dv__and(b, guard, there), rank = rank_of(b, from, guard);
    dv__operand axes = which->type == DV__CTYPE_INTS ? load_ints(b, which->ref, named) : dv__value(b, which, named);
    if (which->type != DV__CTYPE_INTS)
        axes = dv__op1(b, DV__OP_PACK, DV__RTYPE_DIMS, named, axes);
    check_axes(b, which, axes, rank, named);
    axes = dv__select(b, guard, there, axes, dv__literal(b, DV__RTYPE_DIMS, (dv__reg){ 0 }));
    return dv__op3(b, DV__OP_REDUCED, DV__RTYPE_DIMS, guard, from, axes, keep);
}

static dv__operand permuted(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const dv__operand from = dv__value(b, e->args[0], guard), rank = rank_of(b, from, guard);
    if (e->ref == DV__FN_SWAP) {
        const dv__operand x = dv__value(b, e->args[1], guard), y = dv__value(b, e->args[2], guard);
        const dv__operand i = dv__axis(b, x, rank, guard, who_is(b, e->args[1]));
        const dv__operand k = dv__axis(b, y, rank, guard, who_is(b, e->args[2]));
        return dv__op3(b, DV__OP_SWAP, DV__RTYPE_DIMS, guard, from, i, k);
    }
    const dv__expr *list = e->args[1];
    const dv__operand order = load_ints(b, list->ref, guard), n = rank_of(b, order, guard);
    const dv__operand fits = dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, guard, n, rank);
    if (dv__may_fail(b, fits, guard)) {
        dv__part *p = dv__then(dv__part_text(b, "argument '%s': expected ", list->name), dv__show(b, rank));
        p = dv__then(dv__then(p, dv__part_text(b, " dims, found ")), dv__show(b, n));
        dv__check(b, fits, guard, DV_EINVAL, p);
    }
    check_axes(b, list, order, rank, guard);
    return dv__op2(b, DV__OP_PERMUTE, DV__RTYPE_DIMS, guard, from, order);
}

static dv__operand list_of_sizes(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const dv__operand list = load_ints(b, e->ref, guard), n = rank_of(b, list, guard);
    const dv__operand fits = dv__op2(b, DV__OP_LE, DV__RTYPE_INT, guard, n, dv__int(b, DV_MAX_NDIM));
    if (dv__may_fail(b, fits, guard))
        dv__check(b, fits, guard, DV_ESHAPE,
            dv__then(dv__part_text(b, "argument '%s': expected at most %d dims, found ", e->name, DV_MAX_NDIM), dv__show(b, n)));
    return list;
}

static dv__operand run(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    if (e->role == DV__ROLE_RUN)
        return dv__run_register(b->c, e->ref);
    if (e->role == DV__ROLE_ELEMENT_RUN)
        return dv__own_value(b, e, guard);
    if (e->role == DV__ROLE_LIST)
        return list_of_sizes(b, e, guard);
    switch (e->ref) {
    case DV__FN_BROADCAST: return broadcast(b, e, guard);
    case DV__FN_REDUCED: return reduced(b, e, guard);
    case DV__FN_SHAPE: return extent(b, e->args[0], guard);
    default: return permuted(b, e, guard);
    }
}

/* ---- Integers ---------------------------------------------------------------------------------------------------------- */

static dv__operand index_of(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const dv__expr *list = e->args[0];
    const dv__operand sizes = load_ints(b, list->ref, guard), i = dv__value(b, e->args[1], guard);
    const dv__operand n = rank_of(b, sizes, guard);
    dv__operand wanted, back;
    const dv__operand zero = dv__int(b, 0), one = dv__int(b, 1);
    dv__operand fits;
    if (e->args[1]->kind == DV__EXPR_INT) {
        wanted = dv__int(b, e->args[1]->i + 1);
        fits = dv__op2(b, DV__OP_GE, DV__RTYPE_INT, guard, n, wanted);
    } else { /* i is valid if -n <= i < n; so the list needs max(i + 1, -i) elements */
        back = dv__op1(b, DV__OP_NEG, DV__RTYPE_INT, guard, n);
        const dv__operand low = dv__op2(b, DV__OP_GE, DV__RTYPE_INT, guard, i, back);
        const dv__operand high = dv__op2(b, DV__OP_LT, DV__RTYPE_INT, guard, i, n);
        fits = dv__both(b, guard, low, high);
        const dv__hush hush = dv__quietly(b);
        back = dv__op1(b, DV__OP_NEG, DV__RTYPE_INT, guard, i);
        const dv__operand next = dv__op2(b, DV__OP_ADD, DV__RTYPE_INT, guard, i, one);
        const dv__operand below = dv__op2(b, DV__OP_LT, DV__RTYPE_INT, guard, i, zero);
        wanted = dv__select(b, guard, below, back, next);
        dv__aloud(b, hush);
    }
    if (dv__may_fail(b, fits, guard)) {
        dv__part *p = dv__then(dv__part_text(b, "argument '%s': expected at least ", list->name), dv__show(b, wanted));
        p = dv__then(dv__then(p, dv__part_text(b, " elements for %s, found ", b->where)), dv__show(b, n));
        dv__check(b, fits, guard, DV_EINVAL, p);
    }
    return dv__op2(b, DV__OP_AT, DV__RTYPE_INT, guard, sizes, i);
}

/* size(x, d), stride(x, d) */
static dv__operand size_of(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    const dv__operand shape = extent(b, e->args[0], guard), rank = rank_of(b, shape, guard);
    const dv__operand dim = axis(b, e->args[1], rank, guard);
    const dv__operand some = dv__op2(b, DV__OP_GT, DV__RTYPE_INT, guard, rank, dv__int(b, 0));
    if (dv__may_fail(b, some, guard))
        check_here(b, some, guard, dv__part_text(b, "expected at least one dim, found none"));
    if (e->ref == DV__FN_SIZE)
        return dv__op2(b, DV__OP_AT, DV__RTYPE_INT, guard, shape, dim);
    const dv__operand strides = of_tensor(b, DV__OP_STRIDES, DV__RTYPE_DIMS, e->args[0], guard);
    return dv__op2(b, DV__OP_AT, DV__RTYPE_INT, guard, strides, dim);
}

/* Check that b is not 0, and replace 0 by 1. */
static dv__operand divisor(dv__builder *b, dv__operand by, dv__operand guard, enum dv__rtype type)
{
    if (by < 0 && type == DV__RTYPE_INT && !b->status && b->p->constants[-1 - by].i)
        return by;
    const dv__operand zero = type == DV__RTYPE_INT ? dv__int(b, 0) : dv__literal(b, type, (dv__reg){ .f = 0, .real = 1 });
    const dv__operand one = type == DV__RTYPE_INT ? dv__int(b, 1) : dv__literal(b, type, (dv__reg){ .f = 1, .real = 1 });
    const dv__operand fine = dv__op2(b, DV__OP_NE, type, guard, by, zero);
    if (dv__may_fail(b, fine, guard))
        check_here(b, fine, guard, dv__part_text(b, "division by zero"));
    return dv__select(b, guard, fine, by, one);
}

static dv__operand exact_division(dv__builder *b, dv__operand x, dv__operand by, dv__operand guard)
{
    const dv__operand d = divisor(b, by, guard, DV__RTYPE_INT), in[] = { x, d };
    const dv__operand rest = dv__op2(b, DV__OP_MOD, DV__RTYPE_INT, guard, x, d);
    const dv__operand whole = dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, guard, rest, dv__int(b, 0));
    if (dv__may_fail(b, whole, guard)) {
        dv__part *p = dv__then(dv__show(b, x), dv__part_text(b, " is not divisible by "));
        check_here(b, whole, guard, dv__then(p, dv__show(b, by)));
    }
    return dv__emit(b, DV__OP_FLOORDIV, DV__RTYPE_INT, guard, 2, in, 0, too_big(b));
}

static enum dv__op operation(enum dv__expr_kind kind)
{
    switch (kind) {
    case DV__EXPR_ADD: return DV__OP_ADD;
    case DV__EXPR_SUB: return DV__OP_SUB;
    case DV__EXPR_MUL: return DV__OP_MUL;
    case DV__EXPR_DIV: return DV__OP_DIV;
    case DV__EXPR_FLOORDIV: return DV__OP_FLOORDIV;
    case DV__EXPR_MOD: return DV__OP_MOD;
    case DV__EXPR_EQ:
    case DV__EXPR_IN: return DV__OP_EQ;
    case DV__EXPR_NE: return DV__OP_NE;
    case DV__EXPR_LT: return DV__OP_LT;
    case DV__EXPR_LE: return DV__OP_LE;
    case DV__EXPR_GT: return DV__OP_GT;
    default: return DV__OP_GE;
    }
}

static dv__operand arithmetic(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand in[2] = { dv__value(b, e->args[0], guard), 0 };
    if (e->kind == DV__EXPR_NEG)
        return dv__emit(b, DV__OP_NEG, DV__RTYPE_INT, guard, 1, in, 0, too_big(b));
    in[1] = dv__value(b, e->args[1], guard);
    if (e->kind == DV__EXPR_DIV)
        return exact_division(b, in[0], in[1], guard);
    if (e->kind == DV__EXPR_FLOORDIV || e->kind == DV__EXPR_MOD)
        in[1] = divisor(b, in[1], guard, DV__RTYPE_INT);
    return dv__emit(b, operation(e->kind), DV__RTYPE_INT, guard, 2, in, 0, too_big(b));
}

static dv__operand choose(
    dv__builder *b, const dv__expr *e, dv__operand guard, dv__operand (*value)(dv__builder *, const dv__expr *, dv__operand))
{
    const dv__operand c = dv__value(b, e->args[0], guard);
    const dv__operand yes = dv__and(b, guard, c), no = dv__and(b, guard, dv__not(b, c, guard));
    if (yes == DV__NEVER || no == DV__NEVER)
        return value(b, e->args[yes == DV__NEVER ? 2 : 1], guard);
    const dv__operand x = value(b, e->args[1], yes), y = value(b, e->args[2], no);
    return dv__select(b, guard, c, x, y);
}

static dv__operand extreme(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand most = dv__value(b, e->args[0], guard);
    for (uint32_t i = 1; i < e->n; i++)
        most = dv__op2(
            b, e->ref == DV__FN_MIN ? DV__OP_MIN : DV__OP_MAX, DV__RTYPE_INT, guard, most, dv__value(b, e->args[i], guard));
    return most;
}

static dv__operand length(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    if (e->type == DV__CTYPE_INTS)
        return rank_of(b, load(b, DV__OP_ARGUMENT, DV__RTYPE_DIMS, e->ref, guard, "a list"), guard);
    return load(b, DV__OP_LEN, DV__RTYPE_INT, e->ref, guard, "a list");
}

static dv__operand int_call(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand in[2];
    switch (e->ref) {
    case DV__FN_MIN:
    case DV__FN_MAX: return extreme(b, e, guard);
    case DV__FN_ABS:
        in[0] = dv__value(b, e->args[0], guard);
        return dv__emit(b, DV__OP_ABS, DV__RTYPE_INT, guard, 1, in, 0, too_big(b));
    case DV__FN_CEILDIV:
        in[0] = dv__value(b, e->args[0], guard);
        in[1] = divisor(b, dv__value(b, e->args[1], guard), guard, DV__RTYPE_INT);
        return dv__emit(b, DV__OP_CEILDIV, DV__RTYPE_INT, guard, 2, in, 0, too_big(b));
    case DV__FN_IF: return choose(b, e, guard, dv__value);
    case DV__FN_LEN: return length(b, e->args[0], guard);
    case DV__FN_RANK: return rank_of(b, extent(b, e->args[0], guard), guard);
    case DV__FN_NUMEL:
        in[0] = extent(b, e->args[0], guard);
        return dv__emit(b, DV__OP_NUMEL, DV__RTYPE_INT, guard, 1, in, 0, too_big(b));
    case DV__FN_SIZE:
    case DV__FN_STRIDE: return size_of(b, e, guard);
    case DV__FN_TOTAL: return dv__dim_register(e->args[0]->ref);
    case DV__FN_AXIS:
        in[0] = dv__value(b, e->args[0], guard);
        in[1] = rank_of(b, extent(b, e->args[1], guard), guard);
        return dv__axis(b, in[0], in[1], guard, who_is(b, e->args[0]));
    default: return dv__op1(b, DV__OP_ITEMSIZE, DV__RTYPE_INT, guard, dv__value(b, e->args[0], guard));
    }
}

static dv__operand integer(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    switch (e->kind) {
    case DV__EXPR_INT: return dv__int(b, e->i);
    case DV__EXPR_NAME:
        return e->role == DV__ROLE_INDEX  ? b->index
            : e->role == DV__ROLE_ELEMENT ? dv__own_value(b, e, guard)
            : e->role == DV__ROLE_ARG     ? load(b, DV__OP_ARGUMENT, DV__RTYPE_INT, e->ref, guard, "an integer")
                                          : dv__dim_register(e->ref);
    case DV__EXPR_INDEX: return index_of(b, e, guard);
    case DV__EXPR_CALL: return int_call(b, e, guard);
    default: return arithmetic(b, e, guard);
    }
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------------- */

static dv__operand number(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    if (e->type == DV__CTYPE_INT)
        return dv__op1(b, DV__OP_TO_NUMBER, DV__RTYPE_NUMBER, guard, dv__value(b, e, guard));
    if (e->kind == DV__EXPR_ATTR)
        return b->values;
    if (e->kind == DV__EXPR_NAME)
        return load(b, DV__OP_ARGUMENT, DV__RTYPE_NUMBER, e->ref, guard, "a real number");
    if (e->kind == DV__EXPR_CALL)
        return choose(b, e, guard, number);
    if (e->kind == DV__EXPR_FLOAT)
        return dv__literal(b, DV__RTYPE_NUMBER, (dv__reg){ .f = e->f, .real = 1 });
    dv__operand in[2] = { number(b, e->args[0], guard), 0 };
    if (e->kind == DV__EXPR_NEG)
        return dv__emit(b, DV__OP_NEG, DV__RTYPE_NUMBER, guard, 1, in, 0, too_big(b));
    in[1] = number(b, e->args[1], guard);
    if (e->kind == DV__EXPR_DIV)
        in[1] = divisor(b, in[1], guard, DV__RTYPE_NUMBER);
    return dv__emit(b, operation(e->kind), DV__RTYPE_NUMBER, guard, 2, in, 0, too_big(b));
}

dv__operand dv__real_value(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand x, y;
    switch (e->kind) {
    case DV__EXPR_INT: return dv__literal(b, DV__RTYPE_REAL, (dv__reg){ .f = (double)e->i });
    case DV__EXPR_FLOAT: return dv__literal(b, DV__RTYPE_REAL, (dv__reg){ .f = e->f });
    case DV__EXPR_NEG: return dv__op1(b, DV__OP_NEG, DV__RTYPE_REAL, guard, dv__real_value(b, e->args[0], guard));
    case DV__EXPR_ADD:
    case DV__EXPR_SUB:
    case DV__EXPR_MUL:
    case DV__EXPR_DIV:
    case DV__EXPR_FLOORDIV:
        x = dv__real_value(b, e->args[0], guard);
        y = dv__real_value(b, e->args[1], guard);
        if (e->kind == DV__EXPR_DIV || e->kind == DV__EXPR_FLOORDIV)
            y = divisor(b, y, guard, DV__RTYPE_REAL);
        return dv__op2(b, operation(e->kind), DV__RTYPE_REAL, guard, x, y);
    case DV__EXPR_CALL:
        if (e->ref == DV__FN_IF)
            return choose(b, e, guard, dv__real_value);
        break;
    default: break;
    }
    return dv__op1(b, DV__OP_TO_REAL, DV__RTYPE_REAL, guard, dv__value(b, e, guard));
}

/* ---- Booleans ---------------------------------------------------------------------------------------------------------- */

static enum dv__rtype compared_as(const dv__expr *a, const dv__expr *x)
{
    switch (a->type) {
    case DV__CTYPE_STRING: return DV__RTYPE_STRING;
    case DV__CTYPE_DTYPE: return DV__RTYPE_DTYPE;
    case DV__CTYPE_BOOL: return DV__RTYPE_BOOL;
    case DV__CTYPE_RUN: return DV__RTYPE_DIMS;
    default: return a->type == DV__CTYPE_INT && x->type == DV__CTYPE_INT ? DV__RTYPE_INT : DV__RTYPE_NUMBER;
    }
}

static dv__operand operand(dv__builder *b, const dv__expr *e, enum dv__rtype type, dv__operand guard)
{
    return type == DV__RTYPE_NUMBER ? number(b, e, guard) : dv__value(b, e, guard);
}

/* One comparison, or those of `in`, of which one must hold. */
static dv__operand comparison(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand any = DV__NEVER;
    for (uint32_t i = 1; i < e->n; i++) {
        const enum dv__rtype type = compared_as(e->args[0], e->args[i]);
        const dv__operand x = operand(b, e->args[0], type, guard);
        const dv__operand left = i > 1 ? dv__and(b, guard, dv__not(b, any, guard)) : guard;
        const bool literal = e->args[i]->n == 0 && e->args[i]->role != DV__ROLE_ARG; /* cannot fail */
        const dv__operand y = operand(b, e->args[i], type, literal ? guard : left);
        const dv__operand one = dv__op2(b, operation(e->kind), type, literal ? guard : left, x, y);
        any = i > 1 ? dv__either(b, guard, any, one) : one;
    }
    return any;
}

static dv__operand boolean(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand x, y;
    switch (e->kind) {
    case DV__EXPR_BOOL: return e->i ? DV__ALWAYS : DV__NEVER;
    case DV__EXPR_NAME: return load(b, DV__OP_ARGUMENT, DV__RTYPE_BOOL, e->ref, guard, "a boolean");
    case DV__EXPR_NOT: return dv__not(b, dv__value(b, e->args[0], guard), guard);
    case DV__EXPR_AND:
        x = dv__value(b, e->args[0], guard);
        y = dv__value(b, e->args[1], dv__and(b, guard, x));
        return dv__both(b, guard, x, y);
    case DV__EXPR_OR:
        x = dv__value(b, e->args[0], guard);
        y = dv__value(b, e->args[1], dv__and(b, guard, dv__not(b, x, guard)));
        return dv__either(b, guard, x, y);
    case DV__EXPR_CALL:
        if (e->ref == DV__FN_IF)
            return choose(b, e, guard, dv__value);
        if (e->ref == DV__FN_SORTED) {
            b->before = b->before == DV__ALWAYS ? dv__new_register(b, DV__RTYPE_NUMBER) : b->before;
            return dv__op2(b, DV__OP_LE, DV__RTYPE_NUMBER, guard, b->before, b->values);
        }
        x = dv__load(b, DV__OP_PRESENT, DV__RTYPE_BOOL, DV__ALWAYS, e->args[0]->ref);
        return e->ref == DV__FN_PRESENT ? x : dv__not(b, x, DV__ALWAYS);
    default: return comparison(b, e, guard);
    }
}

/* ---- Dtypes ------------------------------------------------------------------------------------------------------------ */

enum { SORT_DIMS, SORT_ZERO, SORT_NUMBER, SORT_ABSENT }; /* operands of promote */

/* The highest sort of the tensors that carry this variable. */
static dv__operand sort_of_variable(dv__builder *b, int ref, dv__operand guard)
{
    dv__operand dims = DV__NEVER;
    for (uint32_t i = 0; i < b->c->npatterns; i++) {
        const dv__pattern *t = &b->c->patterns[i];
        if (t->dtype.kind != DV__DTYPE_VAR || t->dtype.ref != ref)
            continue;
        dv__operand took = dv__and(b, dv__took_part(b, t), guard);
        if (t->kind == DV__PATTERN_LIST && t->may_be_empty)
            took = dv__and(b, took, dv__load(b, DV__OP_HOLDS, DV__RTYPE_BOOL, DV__ALWAYS, t->slot));
        const dv__operand x = dv__load(b, DV__OP_TENSOR, DV__RTYPE_TENSOR, took, t->slot);
        const dv__operand rank = rank_of(b, dv__op1(b, DV__OP_SHAPE, DV__RTYPE_DIMS, took, x), took);
        const dv__operand some = dv__op2(b, DV__OP_GT, DV__RTYPE_INT, took, rank, dv__int(b, 0));
        dims = dv__or(b, dims, dv__and(b, took, some));
    }
    return dv__select(b, guard, dims, dv__int(b, SORT_DIMS), dv__int(b, SORT_ZERO));
}

/* A dtype and its sort. */
static void promoted(dv__builder *b, const dv__expr *e, dv__operand guard, dv__operand *type, dv__operand *sort)
{
    *sort = dv__int(b, SORT_DIMS);
    const bool argument = e->role == DV__ROLE_ARG;
    if (argument && e->type == DV__CTYPE_TENSOR) {
        const dv__operand there = e->index ? DV__ALWAYS : dv__present(b, e->ref), g = dv__and(b, guard, there);
        const dv__operand x = e->index ? dv__own_tensor(b, e->ref, g) : dv__load(b, DV__OP_TENSOR, DV__RTYPE_TENSOR, g, e->ref);
        const dv__operand rank = rank_of(b, dv__op1(b, DV__OP_SHAPE, DV__RTYPE_DIMS, g, x), g);
        const dv__operand some = dv__op2(b, DV__OP_GT, DV__RTYPE_INT, g, rank, dv__int(b, 0));
        *type = dv__op1(b, DV__OP_DTYPE_OF, DV__RTYPE_DTYPE, g, x);
        *type = dv__select(b, guard, there, *type, dv__dtype_literal(b, DV_DTYPE_bool));
        *sort = dv__select(b, g, some, dv__int(b, SORT_DIMS), dv__int(b, SORT_ZERO));
        *sort = dv__select(b, guard, there, *sort, dv__int(b, SORT_ABSENT));
    } else if (argument && e->type != DV__CTYPE_DTYPE) {
        const dv__operand there = dv__present(b, e->ref), g = dv__and(b, guard, there);
        *type = dv__load(b, DV__OP_NUMBER_DTYPE, DV__RTYPE_DTYPE, g, e->ref);
        *type = dv__select(b, guard, there, *type, dv__dtype_literal(b, DV_DTYPE_bool));
        *sort = dv__select(b, guard, there, dv__int(b, SORT_NUMBER), dv__int(b, SORT_ABSENT));
    } else {
        *type = dv__value(b, e, guard);
        if (e->role == DV__ROLE_DTYPE_VAR)
            *sort = sort_of_variable(b, e->ref, guard);
    }
}

static dv__operand promote(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    dv__operand in[254] = { 0 };
    const uint32_t n = e->n < 127 ? e->n : 127;
    if (e->n > 127)
        b->status = dv__fail_at(DV_ELIMIT, b->c->text, e->at, "more than 127 operands");
    for (uint32_t i = 0; i < n; i++)
        promoted(b, e->args[i], guard, &in[2 * i], &in[2 * i + 1]);
    const dv__operand fit = dv__emit(b, DV__OP_PROMOTES, DV__RTYPE_BOOL, guard, 2 * n, in, 0, NULL);
    if (dv__may_fail(b, fit, guard)) {
        dv__part *dtypes = dv__part_new(b, DV__PART_DTYPES);
        if (dtypes) {
            dtypes->many = dv__keep(b, in, 2 * n);
            dtypes->nmany = (uint8_t)(2 * n);
        }
        dv__part *p = dv__then(dv__part_text(b, "these dtypes have no common one: "), dtypes);
        dv__check(b, fit, guard, DV_EDTYPE, dv__then(dv__part_place(b), p));
    }
    return dv__emit(b, DV__OP_PROMOTE, DV__RTYPE_DTYPE, guard, 2 * n, in, 0, NULL);
}

static dv__operand dtype(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    if (e->role == DV__ROLE_DTYPE_VAR)
        return dv__dtype_register(b->c, e->ref);
    if (e->role == DV__ROLE_DTYPE)
        return dv__dtype_literal(b, (uint32_t)e->i);
    if (e->role == DV__ROLE_ARG) {
        const dv__operand there = dv__present(b, e->ref);
        if (dv__may_fail(b, there, guard))
            dv__check(b, there, guard, DV_EINVAL, dv__part_text(b, "argument '%s': expected a dtype, found None", e->name));
        const dv__fault *other = dv__fault_new(
            b, DV_EINVAL, dv__part_text(b, "argument '%s': expected a dtype, found another type", e->name));
        return dv__emit(b, DV__OP_ARGUMENT, DV__RTYPE_DTYPE, dv__and(b, guard, there), 0, NULL, e->ref, other);
    }
    switch (e->ref) {
    case DV__FN_PROMOTE: return promote(b, e, guard);
    case DV__FN_ACCUMULATE: return dv__op1(b, DV__OP_ACCUMULATE, DV__RTYPE_DTYPE, guard, dv__value(b, e->args[0], guard));
    case DV__FN_IF: return choose(b, e, guard, dv__value);
    default: return of_tensor(b, DV__OP_DTYPE_OF, DV__RTYPE_DTYPE, e->args[0], guard);
    }
}

dv__operand dv__value(dv__builder *b, const dv__expr *e, dv__operand guard)
{
    if (guard == DV__NEVER) /* never asked for */
        return e->type == DV__CTYPE_BOOL ? DV__NEVER : e->type == DV__CTYPE_INT ? dv__int(b, 0) : DV__ALWAYS;
    switch (e->type) {
    case DV__CTYPE_INT: return integer(b, e, guard);
    case DV__CTYPE_NUMBER: return number(b, e, guard);
    case DV__CTYPE_BOOL: return boolean(b, e, guard);
    case DV__CTYPE_DTYPE: return dtype(b, e, guard);
    case DV__CTYPE_RUN: return run(b, e, guard);
    default:
        if (e->kind == DV__EXPR_STRING)
            return dv__literal(b, DV__RTYPE_STRING, (dv__reg){ .s = e->name, .n = (int32_t)strlen(e->name) });
        return dv__emit(b, DV__OP_ARGUMENT, DV__RTYPE_STRING, guard, 0, NULL, e->ref, NULL);
    }
}
