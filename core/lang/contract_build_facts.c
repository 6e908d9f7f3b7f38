/* Builds the steps that follow the patterns: computed dims that had to wait, definitions, unbacked sizes, facts. */
#include "lang/contract_build.h"

/* ---- What was put aside -------------------------------------------------------------------------------------------------- */

static const dv__item *item_of(const dv__contract *c, const dv__aside *a) { return &c->patterns[a->pattern].dims.items[a->item]; }

static void define(dv__builder *b, const dv__definition *d, dv__operand ready)
{
    b->who = NULL;
    b->where = d->text;
    const dv__operand value = dv__value(b, d->e, ready), variable = dv__dim_register(d->var);
    const dv__operand compared = dv__and(b, ready, b->dims[d->var]);
    if (compared != DV__NEVER) {
        dv__part *p = dv__then(dv__part_text(b, "%s: expected %s = ", d->text, d->name), dv__show(b, value));
        p = dv__then(dv__then(p, dv__part_text(b, ", found ")), dv__show(b, variable));
        dv__check(b, dv__op2(b, DV__OP_EQ, DV__RTYPE_INT, compared, variable, value), compared, DV_ESHAPE,
            dv__then(p, dv__bound_by(b, d->var)));
    }
    dv__assign(b, variable, value, dv__and(b, ready, dv__not(b, b->dims[d->var], DV__ALWAYS)));
    b->dims[d->var] = dv__or(b, b->dims[d->var], ready);
}

/* Add the steps of all waiting items whose sizes are bound now, once, in textual order. False: there were none. */
static bool evaluate(dv__builder *b)
{
    const dv__contract *c = b->c;
    bool any = false;
    for (uint32_t k = 0; k < c->nasides && !b->status; k++) {
        const dv__aside *a = &c->asides[k];
        dv__put_aside *left = &b->asides[k];
        const dv__operand bound = dv__bound(b, a->pattern < 0 ? c->definitions[a->item].needs : item_of(c, a)->needs);
        if (left->pending == DV__NEVER || bound == left->tested)
            continue;
        left->tested = bound;
        const dv__operand ready = dv__and(b, left->pending, bound);
        if (ready == DV__NEVER)
            continue;
        left->pending = dv__and(b, left->pending, dv__not(b, bound, DV__ALWAYS));
        if (a->pattern < 0)
            define(b, &c->definitions[a->item], ready);
        else
            dv__check_aside(b, &c->patterns[a->pattern], (uint32_t)a->item, ready);
        any = true;
    }
    return any;
}

static int mentions(const dv__expr *e, int ref)
{
    int n = e->role == DV__ROLE_DIM && e->ref == ref;
    for (uint32_t i = 0; i < e->n; i++)
        n += mentions(e->args[i], ref);
    return n;
}

/* Does the variable occur once, under + - * / and unary - only? */
static bool can_solve(const dv__expr *e, int ref)
{
    if (mentions(e, ref) != 1)
        return false;
    for (; e->role != DV__ROLE_DIM; e = mentions(e->args[0], ref) ? e->args[0] : e->args[1])
        if (e->kind != DV__EXPR_ADD && e->kind != DV__EXPR_SUB && e->kind != DV__EXPR_MUL && e->kind != DV__EXPR_DIV &&
            e->kind != DV__EXPR_NEG)
            return false;
    return true;
}

static dv__part *unsolvable(dv__builder *b, int ref, dv__operand found)
{
    dv__part *p = dv__part_text(b, "expected a size for which there is a whole '%s', found ", b->c->dims[ref].name);
    return dv__then(dv__then(dv__part_place(b), p), dv__show(b, found));
}

/* x / by; a remainder fails a check. */
static dv__operand divide(dv__builder *b, dv__operand x, dv__operand by, int ref, dv__operand found, dv__operand g)
{
    const dv__operand some = dv__op2(b, DV__OP_NE, DV__RTYPE_INT, g, by, dv__int(b, 0));
    const dv__operand d = dv__select(b, g, some, by, dv__int(b, 1)), in[] = { x, d };
    const dv__operand whole = dv__op2(
        b, DV__OP_EQ, DV__RTYPE_INT, g, dv__op2(b, DV__OP_MOD, DV__RTYPE_INT, g, x, d), dv__int(b, 0));
    dv__check(b, dv__both(b, g, some, whole), g, DV_ESHAPE, unsolvable(b, ref, found));
    return dv__emit(b, DV__OP_FLOORDIV, DV__RTYPE_INT, g, 2, in, 0, dv__fault_new(b, DV_ESHAPE, unsolvable(b, ref, found)));
}

/* Solve e == found for the variable: invert the outermost operation, then continue with its operand. */
static dv__operand invert(dv__builder *b, const dv__expr *e, int ref, dv__operand found, dv__operand g)
{
    dv__operand value = found;
    const dv__fault *big = dv__fault_new(b, DV_ESHAPE, unsolvable(b, ref, found));
    while (e->role != DV__ROLE_DIM && !b->status) {
        if (e->kind == DV__EXPR_NEG) {
            value = dv__emit(b, DV__OP_NEG, DV__RTYPE_INT, g, 1, &value, 0, big);
            e = e->args[0];
            continue;
        }
        const int side = mentions(e->args[0], ref) ? 0 : 1;
        const dv__operand other = dv__value(b, e->args[1 - side], g);
        dv__operand in[] = { value, other };
        if (e->kind == DV__EXPR_ADD) {
            value = dv__emit(b, DV__OP_SUB, DV__RTYPE_INT, g, 2, in, 0, big);
        } else if (e->kind == DV__EXPR_SUB) {
            if (side)
                in[0] = other, in[1] = value;
            value = dv__emit(b, side ? DV__OP_SUB : DV__OP_ADD, DV__RTYPE_INT, g, 2, in, 0, big);
        } else if (e->kind == DV__EXPR_MUL) {
            value = divide(b, value, other, ref, found, g);
        } else if (side) {
            value = divide(b, other, value, ref, found, g);
        } else {
            const dv__operand some = dv__op2(b, DV__OP_NE, DV__RTYPE_INT, g, other, dv__int(b, 0));
            dv__check(b, some, g, DV_ESHAPE, unsolvable(b, ref, found));
            value = dv__emit(b, DV__OP_MUL, DV__RTYPE_INT, g, 2, in, 0, big);
        }
        e = e->args[side];
    }
    return value;
}

static void solve(dv__builder *b, const dv__aside *a, const dv__put_aside *left, int ref, dv__operand g)
{
    const dv__item *item = item_of(b->c, a);
    b->who = b->c->patterns[a->pattern].name;
    b->where = item->text;
    const dv__operand value = invert(b, item->e, ref, left->found, g);
    const dv__operand size = dv__op2(b, DV__OP_GE, DV__RTYPE_INT, g, value, dv__int(b, 0));
    dv__part *p = dv__then(dv__part_place(b), dv__part_text(b, "'%s' would be negative: ", b->c->dims[ref].name));
    dv__check(b, size, g, DV_ESHAPE, dv__then(p, dv__show(b, value)));
    dv__assign(b, dv__dim_register(ref), value, g);
    b->dims[ref] = dv__or(b, b->dims[ref], g);
}

/* Solve the first computed dim that has exactly one unknown size. False: there is no such dim. */
static bool solve_one(dv__builder *b)
{
    const dv__contract *c = b->c;
    dv__operand solved = DV__NEVER, before[DV__MAX_DIM_VARS];
    memcpy(before, b->dims, sizeof before);
    for (uint32_t k = 0; k < c->nasides && !b->status; k++) {
        const dv__aside *a = &c->asides[k];
        dv__put_aside *left = &b->asides[k];
        if (a->pattern < 0)
            continue;
        const dv__item *item = item_of(c, a);
        for (uint64_t refs = item->needs.dims; refs && left->pending != DV__NEVER; refs &= refs - 1) {
            const int ref = __builtin_ctzll(refs);
            if (before[ref] == DV__ALWAYS || !can_solve(item->e, ref))
                continue;
            dv__needs others = item->needs;
            others.dims &= ~(1ull << ref);
            dv__operand g = dv__and(b, left->pending, dv__bound(b, others));
            g = dv__and(b, g, dv__not(b, before[ref], DV__ALWAYS));
            g = dv__and(b, g, dv__not(b, solved, DV__ALWAYS));
            if (g == DV__NEVER)
                continue;
            solve(b, a, left, ref, g);
            if (c->patterns[a->pattern].kind != DV__PATTERN_LIST) /* in a list, the other tensors still have to be compared */
                left->pending = dv__and(b, left->pending, dv__not(b, g, DV__ALWAYS));
            solved = dv__or(b, solved, g);
        }
        if (solved == DV__ALWAYS)
            break;
    }
    return solved != DV__NEVER;
}

void dv__build_settle(dv__builder *b)
{
    for (uint32_t i = 0; i < b->c->ndefinitions; i++) {
        const dv__definition *d = &b->c->definitions[i];
        b->asides[d->aside] = (dv__put_aside){ .pending = dv__case_taken(b, d->when), .tested = DV__NEVER };
    }
    for (uint32_t round = 0; round <= b->c->ndims && !b->status; round++) { /* each solves a variable, for every call that can */
        while (evaluate(b))
            continue;
        if (!solve_one(b))
            return;
    }
}

/* ---- Facts ----------------------------------------------------------------------------------------------------------------- */

static void bind_unbacked(dv__builder *b)
{
    for (uint32_t i = 0; i < b->c->nunbacked; i++) {
        const dv__unbacked *u = &b->c->unbacked[i];
        b->who = NULL;
        b->where = u->name;
        const dv__operand least = dv__value(b, u->min, DV__ALWAYS), most = dv__value(b, u->max, DV__ALWAYS);
        dv__step *s = dv__append(b, DV__OP_UNBACKED, DV__ALWAYS);
        if (!s)
            return;
        s->to = dv__dim_register(u->var);
        s->type = DV__RTYPE_INT;
        s->nin = 2;
        s->in[0] = least;
        s->in[1] = most;
        b->dims[u->var] = DV__ALWAYS;
    }
}

/* "len(xs) = 2", "stride(x, 1) = 4" */
static void say_call(dv__builder *b, const dv__expr *e, dv__part *join)
{
    const dv__hush hush = dv__quietly(b);
    dv__text text = { 0 };
    dv__expr_print(e, &text);
    dv__part *p = dv__part_text(b, "%s = ", text.data ? text.data : e->name);
    dv__text_deinit(&text);
    dv__operand n = dv__value(b, e, dv__present(b, e->args[0]->ref));
    dv__join_add(b, join, dv__if_part(b, dv__present(b, e->args[0]->ref), dv__then(p, dv__show(b, n)), NULL));
    dv__aloud(b, hush);
}

/* Is it what a fact asks of an argument, in place of the argument itself? */
static bool is_asked(const dv__expr *e)
{
    if (e->kind != DV__EXPR_CALL)
        return false;
    const bool extent = e->ref == DV__FN_STRIDE || e->ref == DV__FN_SIZE || e->ref == DV__FN_NUMEL;
    return e->ref == DV__FN_LEN || (extent && e->args[0]->type == DV__CTYPE_TENSOR);
}

static void say_arguments(dv__builder *b, const dv__expr *e, dv__part *join)
{
    if (is_asked(e)) {
        say_call(b, e, join);
        for (uint32_t i = 1; i < e->n; i++)
            say_arguments(b, e->args[i], join);
        return;
    }
    bool said = e->role != DV__ROLE_ARG;
    for (const dv__part *p = join ? join->then : NULL; p && !said; p = p->next)
        said = p->then && p->then->kind == DV__PART_ARGUMENT && p->then->slot == e->ref;
    if (!said) {
        dv__part *p = dv__part_new(b, DV__PART_ARGUMENT);
        if (p)
            p->slot = e->ref;
        dv__join_add(b, join, p);
    }
    for (uint32_t i = 0; i < e->n && e->kind != DV__EXPR_ATTR; i++)
        say_arguments(b, e->args[i], join);
}

static int the_argument(const dv__expr *e, int found) /* -1: none, -2: several */
{
    if (e->role == DV__ROLE_ARG)
        found = found == -1 || found == e->ref ? e->ref : -2;
    for (uint32_t i = 0; i < e->n; i++)
        found = the_argument(e->args[i], found);
    return found;
}

static dv__part *wrong_constraint(dv__builder *b, const dv__constraint *k)
{
    const int argument = the_argument(k->e, -1);
    dv__part *join = dv__join(b, "", "");
    dv__part *p = argument >= 0 ? dv__part_text(b, "argument '%s': ", b->c->schema->args[argument].name) : NULL;
    p = dv__then(p, dv__part_text(b, "expected %s", k->text));
    p = dv__then(dv__then(p, dv__case_text(b, k->when)), dv__part_text(b, ", found "));
    say_arguments(b, k->e, join);
    dv__variables(b, k->needs, join);
    if (join && !join->then)
        return dv__then(p, dv__part_text(b, "otherwise"));
    return dv__then(dv__then(p, join), dv__binders(b, k->needs));
}

/* Builds the check of "ids.values < e" or "sorted(ids)" for every element, if the elements can be read. */
static void check_elements(dv__builder *b, const dv__constraint *k, dv__operand guard)
{
    const dv__operand g = dv__and(b, guard, dv__present(b, k->values));
    const dv__operand x = dv__load(b, DV__OP_TENSOR, DV__RTYPE_TENSOR, g, k->values);
    const uint32_t at = b->p->nsteps;
    b->values = dv__new_register(b, DV__RTYPE_NUMBER);
    dv__step *s = dv__append(b, DV__OP_EACH_VALUE, g);
    if (!s)
        return;
    s->to = b->values;
    s->type = DV__RTYPE_NUMBER;
    s->nin = 1;
    s->in[0] = x;
    b->before = DV__ALWAYS;
    const dv__operand holds = dv__value(b, k->e, DV__ALWAYS);
    b->p->steps[at].index = b->before;
    dv__part *p = dv__part_text(b, "argument '%s': expected %s, found the element ", b->c->schema->args[k->values].name, k->text);
    p = dv__then(dv__then(p, dv__show(b, b->values)), dv__part_text(b, " at "));
    p = dv__then(p, dv__part_new(b, DV__PART_POSITION));
    if (b->before != DV__ALWAYS)
        p = dv__then(dv__then(p, dv__part_text(b, " after ")), dv__show(b, b->before));
    dv__part *join = dv__variables(b, k->needs, dv__join(b, ", ", ""));
    dv__check(b, holds, DV__ALWAYS, DV_EINVAL, join && join->then ? dv__then(p, join) : p);
    dv__close_block(b, at);
}

static void check_fact(dv__builder *b, const dv__constraint *k)
{
    const dv__operand guard = dv__and(b, dv__case_taken(b, k->when), dv__bound(b, k->needs));
    b->who = NULL;
    b->where = k->text;
    if (guard == DV__NEVER)
        return;
    if (k->values >= 0) {
        check_elements(b, k, guard);
        return;
    }
    const dv__operand holds = dv__value(b, k->e, guard);
    if (k->when.group < 0)
        dv__claim_that(b, guard, holds, k->at, NULL);
    if (dv__may_fail(b, holds, guard))
        dv__check(b, holds, guard, DV_EINVAL, wrong_constraint(b, k));
}

/* An optional argument with a pattern only in other cases must be None. */
static void check_case_only(dv__builder *b, int slot)
{
    const dv__pattern *spoken = NULL;
    dv__operand described = DV__NEVER;
    for (uint32_t k = 0; k < b->c->npatterns; k++)
        if (b->c->patterns[k].slot == slot) {
            spoken = &b->c->patterns[k];
            described = dv__or(b, described, dv__case_taken(b, spoken->when));
        }
    const dv__operand fine = dv__or(b, dv__not(b, dv__present(b, slot), DV__ALWAYS), described);
    if (!spoken || !dv__may_fail(b, fine, DV__ALWAYS))
        return;
    dv__part *taken = NULL;
    for (uint32_t i = b->c->groups[spoken->when.group].n; i-- > 0;) {
        const dv__when when = { spoken->when.group, (int8_t)i };
        taken = dv__if_part(b, dv__case_taken(b, when), dv__case_text(b, when), taken);
    }
    dv__part *p = dv__then(dv__part_text(b, "argument '%s': expected None", spoken->name), taken);
    dv__check(b, fine, DV__ALWAYS, DV_EINVAL, dv__then(p, dv__part_text(b, ", found a value")));
}

void dv__build_constraints(dv__builder *b)
{
    bind_unbacked(b);
    for (uint32_t i = 0; i < b->c->nconstraints && !b->status; i++)
        check_fact(b, &b->c->constraints[i]);
    for (uint32_t i = 0; i < b->c->ncase_only && !b->status; i++)
        check_case_only(b, b->c->case_only[i]);
    const dv__operand cpu = dv__literal(b, DV__RTYPE_DEVICE, (dv__reg){ .device = { DV_CPU, 0 } });
    dv__assign(b, dv__device_register(b->c), cpu, dv__not(b, b->device, DV__ALWAYS));
}
