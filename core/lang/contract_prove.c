/* What is proved when a library is loaded, so that no call can find the contract itself wrong:
 *
 * - cases ask only about strings, booleans, presence, dtypes and ranks; exactly one case of each group holds;
 * - in every combination of cases each tensor argument and each tensor return has one pattern, and every size, run and dtype that
 * an output or a cost needs is bound by arguments that must be there.
 *
 * It reads the trees, not the program: there the first case that holds is taken and a check covers the rest, so cases that
 * overlap or leave a gap make a program that is as good as any other.
 *
 * Cases: the conditions depend on finitely many atoms, each with finitely many distinct values (for a string: the literals that
 * it is compared with, and "any other"), so all assignments are tried. Binding: one more optional argument never binds less, so
 * it suffices to try each combination without optional arguments, and with each one alone. */
#include "lang/contract_internal.h"

enum { MAX_ATOMS = 24, MAX_VALUES = 70, MAX_ASSIGNMENTS = 20000, ANY_OTHER = -1 };

enum atom_kind { ATOM_STRING, ATOM_BOOL, ATOM_PRESENT, ATOM_DTYPE, ATOM_RANK };
struct atom {
    enum atom_kind kind;
    int32_t slot;
    int32_t n;
    int64_t values[MAX_VALUES]; /* bool, rank, dtype key; strings: index in names; ANY_OTHER last for strings and dtypes */
    const char *names[MAX_VALUES];
    int64_t value; /* in the current assignment */
};

struct prover {
    dv__contract *c;
    struct atom atoms[MAX_ATOMS];
    int natoms;
    int32_t cases[DV__MAX_CASE_GROUPS]; /* of the current assignment */
    bool any;                           /* some assignment was possible */
    dv__needs ever;                     /* bound in some combination */
};

#define wrong(p, at, ...) dv__fail_at(DV_ECONTRACT, (p)->c->text, at, __VA_ARGS__)

/* ---- Atoms ------------------------------------------------------------------------------------------------------------- */

static int find_atom(const struct prover *p, enum atom_kind kind, int32_t slot)
{
    for (int i = 0; i < p->natoms; i++)
        if (p->atoms[i].kind == kind && p->atoms[i].slot == slot)
            return i;
    return -1;
}

/* The atom of a tree, or -1. kind and slot are also set for a new atom; for a tree that is not an atom, slot is unchanged. */
static int atom_of(const struct prover *p, const dv__expr *e, enum atom_kind *kind, int32_t *slot)
{
    if (e->role == DV__ROLE_ARG && (e->type == DV__CTYPE_STRING || e->type == DV__CTYPE_BOOL)) {
        *kind = e->type == DV__CTYPE_STRING ? ATOM_STRING : ATOM_BOOL;
        *slot = e->ref;
    } else if (e->kind == DV__EXPR_CALL && (e->ref == DV__FN_PRESENT || e->ref == DV__FN_ABSENT)) {
        *kind = ATOM_PRESENT;
        *slot = e->args[0]->ref;
    } else if (e->kind == DV__EXPR_CALL && (e->ref == DV__FN_RANK || e->ref == DV__FN_DTYPE) &&
        e->args[0]->type == DV__CTYPE_TENSOR) {
        *kind = e->ref == DV__FN_RANK ? ATOM_RANK : ATOM_DTYPE;
        *slot = e->args[0]->ref;
    } else {
        return -1;
    }
    return find_atom(p, *kind, *slot);
}

static int add_value(struct prover *p, struct atom *a, const dv__expr *literal)
{
    const int64_t value = a->kind == ATOM_STRING ? a->n : literal->i;
    for (int i = 0; i < a->n; i++)
        if (a->kind == ATOM_STRING ? !strcmp(a->names[i], literal->name) : a->values[i] == value)
            return DV_OK;
    if (a->n >= MAX_VALUES - 4 || (a->kind == ATOM_RANK && (value < 0 || value > DV_MAX_NDIM)))
        return wrong(p, literal->at, "this value is out of the range that cases can test");
    a->names[a->n] = literal->name;
    a->values[a->n++] = value;
    return DV_OK;
}

static bool is_literal(const dv__expr *e)
{
    return e->kind == DV__EXPR_STRING || e->kind == DV__EXPR_INT || e->kind == DV__EXPR_BOOL || e->role == DV__ROLE_DTYPE;
}

/* Make the atoms of a case's condition; refuse other terms. */
static int collect(struct prover *p, const dv__expr *e)
{
    enum atom_kind kind;
    int32_t slot = -1;
    const int known = atom_of(p, e, &kind, &slot);
    if (e->role == DV__ROLE_ARG && e->type != DV__CTYPE_STRING && e->type != DV__CTYPE_BOOL)
        return wrong(p, e->at, "'when' tests strings, booleans, presence, dtypes and ranks, never a size: found '%s'", e->name);
    if (e->role == DV__ROLE_DTYPE_VAR)
        return wrong(p, e->at, "cases are chosen before anything is bound: expected dtype(argument), found '%s'", e->name);
    if (known >= 0)
        return DV_OK;
    if (slot >= 0) {
        if ((kind == ATOM_RANK || kind == ATOM_DTYPE) && p->c->schema->args[slot].type->kind == DV__TYPE_OPTIONAL)
            return wrong(p, e->at, "'%s' is optional: cases can ask for its presence only", p->c->schema->args[slot].name);
        if (p->natoms == MAX_ATOMS)
            return dv__fail_at(DV_ELIMIT, p->c->text, e->at, "cases ask about more than %d things", MAX_ATOMS);
        p->atoms[p->natoms] = (struct atom){ .kind = kind, .slot = slot };
        p->natoms++;
        return DV_OK;
    }
    const bool fine = is_literal(e) || e->kind == DV__EXPR_AND || e->kind == DV__EXPR_OR || e->kind == DV__EXPR_NOT ||
        (e->kind >= DV__EXPR_EQ && e->kind <= DV__EXPR_GE) || e->kind == DV__EXPR_IN;
    if (!fine)
        return wrong(p, e->at, "'when' tests strings, booleans, presence, dtypes and ranks, never a size");
    int status = DV_OK;
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = collect(p, e->args[i]);
    return status;
}

/* The literals that an atom is compared with. */
static int collect_values(struct prover *p, const dv__expr *e)
{
    enum atom_kind kind;
    int32_t slot;
    int status = DV_OK;
    const bool comparison = (e->kind >= DV__EXPR_EQ && e->kind <= DV__EXPR_GE) || e->kind == DV__EXPR_IN;
    if (comparison) {
        const int left = atom_of(p, e->args[0], &kind, &slot), right = atom_of(p, e->args[1], &kind, &slot);
        for (uint32_t i = 1; left >= 0 && i < e->n && !status; i++)
            if (is_literal(e->args[i]))
                status = add_value(p, &p->atoms[left], e->args[i]);
        if (right >= 0 && is_literal(e->args[0]) && !status)
            status = add_value(p, &p->atoms[right], e->args[0]);
    }
    for (uint32_t i = 0; i < e->n && !status; i++)
        status = collect_values(p, e->args[i]);
    return status;
}

static void complete_values(struct atom *a)
{
    int64_t most = 0;
    switch (a->kind) {
    case ATOM_BOOL:
    case ATOM_PRESENT:
        a->n = 2;
        a->values[0] = 0, a->values[1] = 1;
        break;
    case ATOM_RANK: /* every rank up to two above the literals: enough for each order of the ranks of two tensors */
        for (int i = 0; i < a->n; i++)
            most = a->values[i] > most ? a->values[i] : most;
        a->n = 0;
        for (int64_t r = 0; r <= most + 2 && r <= DV_MAX_NDIM; r++)
            a->values[a->n++] = r;
        break;
    default: a->values[a->n++] = ANY_OTHER;
    }
}

/* ---- Conditions over the current assignment: 0, 1, or -1: not known ------------------------------------------------------ */

static bool value_of(const struct prover *p, const dv__expr *e, int64_t *value, const char **name)
{
    enum atom_kind kind;
    int32_t slot;
    const int atom = atom_of(p, e, &kind, &slot);
    *name = NULL;
    if (atom >= 0) {
        const struct atom *a = &p->atoms[atom];
        *value = a->value;
        *name = a->kind == ATOM_STRING && a->value != ANY_OTHER ? a->names[a->value] : NULL;
        if (e->kind == DV__EXPR_CALL && e->ref == DV__FN_ABSENT)
            *value = !*value;
        return true;
    }
    *value = e->i;
    *name = e->name;
    return is_literal(e);
}

static int compare(const struct prover *p, enum dv__expr_kind kind, const dv__expr *a, const dv__expr *b)
{
    int64_t x, y;
    const char *s, *t;
    if (!value_of(p, a, &x, &s) || !value_of(p, b, &y, &t))
        return -1;
    int order;
    if (a->type == DV__CTYPE_STRING || a->type == DV__CTYPE_DTYPE) {
        const bool unknown = a->type == DV__CTYPE_STRING ? !s && !t : x == ANY_OTHER && y == ANY_OTHER;
        if (unknown)
            return -1;
        order = a->type == DV__CTYPE_STRING ? !s || !t || strcmp(s, t) != 0 : x != y;
    } else {
        order = (x > y) - (x < y);
    }
    switch (kind) {
    case DV__EXPR_NE: return order != 0;
    case DV__EXPR_LT: return order < 0;
    case DV__EXPR_LE: return order <= 0;
    case DV__EXPR_GT: return order > 0;
    case DV__EXPR_GE: return order >= 0;
    default: return order == 0;
    }
}

static int holds(const struct prover *p, const dv__expr *e)
{
    int64_t value;
    const char *name;
    int a, b;
    switch (e->kind) {
    case DV__EXPR_NOT: a = holds(p, e->args[0]); return a < 0 ? a : !a;
    case DV__EXPR_AND:
    case DV__EXPR_OR: {
        const int decides = e->kind == DV__EXPR_OR;
        a = holds(p, e->args[0]);
        b = holds(p, e->args[1]);
        return a == decides || b == decides ? decides : a < 0 || b < 0 ? -1 : !decides;
    }
    case DV__EXPR_IN:
        a = 0;
        for (uint32_t i = 1; i < e->n && a != 1; i++) {
            b = compare(p, DV__EXPR_EQ, e->args[0], e->args[i]);
            a = b ? b : a;
        }
        return a;
    case DV__EXPR_EQ:
    case DV__EXPR_NE:
    case DV__EXPR_LT:
    case DV__EXPR_LE:
    case DV__EXPR_GT:
    case DV__EXPR_GE: return compare(p, e->kind, e->args[0], e->args[1]);
    default: return value_of(p, e, &value, &name) ? value != 0 : -1;
    }
}

/* "layout == "TND", bias absent" */
static void say_assignment(const struct prover *p, dv__words *w)
{
    for (int i = 0; i < p->natoms; i++) {
        const struct atom *a = &p->atoms[i];
        const char *name = p->c->schema->args[a->slot].name;
        dv__say(w, "%s", i ? ", " : "");
        if (a->kind == ATOM_PRESENT)
            dv__say(w, "%s is %s", name, a->value ? "present" : "absent");
        else if (a->kind == ATOM_BOOL)
            dv__say(w, "%s is %s", name, a->value ? "True" : "False");
        else if (a->kind == ATOM_RANK)
            dv__say(w, "rank(%s) == %lld", name, (long long)a->value);
        else if (a->value == ANY_OTHER)
            dv__say(w, "%s is anything else", name);
        else if (a->kind == ATOM_STRING)
            dv__say(w, "%s == \"%s\"", name, a->names[a->value]);
        else
            dv__say(w, "dtype(%s) == %s", name, dv_dtype_name(dv_dtype_from_key((uint32_t)a->value)));
    }
}

/* ---- Binding ------------------------------------------------------------------------------------------------------------- */

static bool took(const struct prover *p, dv__when w) { return w.group < 0 || p->cases[w.group] == w.index; }

/* Does the pattern apply if `extra` is the only optional argument given, among those whose presence is unknown? */
static bool takes_part(const struct prover *p, const dv__pattern *t, int32_t extra)
{
    if (!took(p, t->when) || t->presence == DV__ABSENT)
        return false;
    if (t->presence != DV__OPTIONAL && !t->may_be_empty)
        return true;
    const int atom = find_atom(p, ATOM_PRESENT, t->slot);
    return atom >= 0 && !t->may_be_empty ? p->atoms[atom].value != 0 : t->slot == extra;
}

static const char *first_missing(const dv__contract *c, dv__needs needs, dv__needs bound)
{
    needs.dims &= ~bound.dims, needs.runs &= ~bound.runs, needs.dtypes &= ~bound.dtypes;
    return needs.dims  ? c->dims[__builtin_ctzll(needs.dims)].name
        : needs.runs   ? c->runs[__builtin_ctz(needs.runs)].name
        : needs.dtypes ? c->dtypes[__builtin_ctz(needs.dtypes)].name
                       : NULL;
}

/* " (when ...)", or nothing when there are no cases. */
static void say_case(const struct prover *p, dv__words *w)
{
    if (!p->natoms)
        return;
    dv__say(w, " (when ");
    say_assignment(p, w);
    dv__say(w, ")");
}

static int unbound(const struct prover *p, const char *at, const char *text, dv__needs needs, dv__needs bound)
{
    dv__words w = { 0 };
    say_case(p, &w);
    return wrong(
        p, at, "%s: '%s' is not bound by any argument that must be present%s", text, first_missing(p->c, needs, bound), w.data);
}

static int bind_pattern(const struct prover *p, const dv__pattern *t, dv__needs *bound, uint64_t *aside)
{
    const dv__contract *c = p->c;
    const char *unknown = NULL;
    for (uint32_t i = 0; i < t->dims.n; i++) { /* the number of dims comes first */
        const dv__item *item = &t->dims.items[i];
        if (item->kind == DV__ITEM_RUNS && !dv__needs_within(item->needs, *bound))
            return wrong(p, item->e->at, "%s stands for several dims: '%s' must be bound before it", item->text,
                first_missing(c, item->needs, *bound));
        if ((item->kind != DV__ITEM_RUN && item->kind != DV__ITEM_ELEMENT_RUN) || bound->runs >> item->ref & 1)
            continue;
        const dv__run_rank *fact = &c->run_ranks[item->ref];
        if (fact->e && dv__needs_within(fact->needs, *bound))
            continue;
        if (unknown)
            return wrong(p, item->e->at, "'*%s' and '*%s' are both unknown here: a fact such as rank(*%s) == ... can tell",
                unknown, c->runs[item->ref].name, unknown);
        unknown = c->runs[item->ref].name;
    }
    for (uint32_t i = 0; i < t->dtype.n; i++) {
        const dv__needs needs = dv__contract_needs(c, t->dtype.alternatives[i]);
        if (t->dtype.kind == DV__DTYPE_VAR)
            bound->dtypes |= 1u << t->dtype.ref;
        else if (!dv__needs_within(needs, *bound))
            return wrong(p, t->dtype.alternatives[i]->at, "'%s' must be bound before this", first_missing(c, needs, *bound));
    }
    for (uint32_t i = 0; i < t->dims.n; i++) {
        const dv__item *item = &t->dims.items[i];
        if (item->kind == DV__ITEM_VAR || item->kind == DV__ITEM_ELEMENT)
            bound->dims |= 1ull << item->ref;
        else if (item->kind == DV__ITEM_RUN || item->kind == DV__ITEM_ELEMENT_RUN)
            bound->runs |= 1u << item->ref;
        else if (item->kind == DV__ITEM_EXPR && !dv__needs_within(item->needs, *bound) && item->aside >= 0)
            *aside |= 1ull << item->aside;
        else if (item->kind == DV__ITEM_EXPR && !dv__needs_within(item->needs, *bound))
            return wrong(p, item->e->at, "%s: '%s' must be bound before this", item->text, first_missing(c, item->needs, *bound));
    }
    return DV_OK;
}

/* The same procedure as in contract_build_facts.c, on bit masks. */
static int settle(const struct prover *p, dv__needs *bound, uint64_t aside)
{
    const dv__contract *c = p->c;
    for (uint32_t i = 0; i < c->ndefinitions; i++)
        if (took(p, c->definitions[i].when))
            aside |= 1ull << c->definitions[i].aside;
    for (bool progress = true; aside && progress;) {
        progress = false;
        for (uint64_t left = aside; left; left &= left - 1) {
            const int bit = __builtin_ctzll(left);
            const dv__aside *a = &c->asides[bit];
            const dv__needs needs = a->pattern < 0 ? c->definitions[a->item].needs
                                                   : c->patterns[a->pattern].dims.items[a->item].needs;
            if (!dv__needs_within(needs, *bound))
                continue;
            if (a->pattern < 0)
                bound->dims |= 1ull << c->definitions[a->item].var;
            aside &= ~(1ull << bit);
            progress = true;
        }
        for (uint64_t left = aside; left && !progress; left &= left - 1) {
            const dv__aside *a = &c->asides[__builtin_ctzll(left)];
            const int ref = a->pattern < 0 ? -1 : dv__solvable_for(&c->patterns[a->pattern].dims.items[a->item], *bound);
            if (ref >= 0)
                bound->dims |= 1ull << ref, progress = true;
        }
    }
    for (uint64_t left = aside; left; left &= left - 1) {
        const dv__aside *a = &c->asides[__builtin_ctzll(left)];
        if (a->pattern < 0)
            continue;
        const dv__item *item = &c->patterns[a->pattern].dims.items[a->item];
        return wrong(p, item->e->at, "%s cannot be solved for '%s', and nothing else binds it", item->text,
            first_missing(c, item->needs, *bound));
    }
    return DV_OK;
}

static int bind_all(const struct prover *p, int32_t extra, dv__needs *bound)
{
    uint64_t aside = 0;
    int status = DV_OK;
    memset(bound, 0, sizeof *bound);
    for (uint32_t i = 0; i < p->c->npatterns && !status; i++)
        if (takes_part(p, &p->c->patterns[i], extra))
            status = bind_pattern(p, &p->c->patterns[i], bound, &aside);
    if (!status)
        status = settle(p, bound, aside);
    for (uint32_t i = 0; i < p->c->nunbacked; i++)
        bound->dims |= 1ull << p->c->unbacked[i].var;
    return status;
}

/* ---- One combination of cases -------------------------------------------------------------------------------------------- */

static int check_coverage(const struct prover *p)
{
    const dv__contract *c = p->c;
    const dv__schema *s = c->schema;
    dv__words w = { 0 };
    say_case(p, &w);
    for (size_t slot = 0; slot < s->nargs + s->nreturns; slot++) {
        const bool output = slot >= s->nargs;
        const dv__argument *a = output ? &s->returns[slot - s->nargs] : &s->args[slot];
        const dv__pattern *list = output ? c->outputs : c->patterns, *first = NULL;
        for (uint32_t i = 0; i < (output ? c->noutputs : c->npatterns); i++) {
            if (list[i].slot != (int32_t)slot || !took(p, list[i].when))
                continue;
            if (first)
                return wrong(p, list[i].at, "%s '%s' has another pattern already: '%s'", output ? "return" : "argument", a->name,
                    first->text);
            first = &list[i];
        }
        if (first)
            continue;
        if (!output &&
            (a->type->kind == DV__TYPE_TENSOR || (a->type->kind == DV__TYPE_LIST && a->type->elems[0]->kind == DV__TYPE_TENSOR)))
            return wrong(p, c->text, "argument '%s' has no pattern%s: %s[...] takes any tensor", a->name, w.data, a->name);
        if (output && dv__is_tensors(a->type) && a->type->kind == DV__TYPE_LIST)
            return wrong(p, c->text + strlen(c->text),
                "return %zu%s%s%s has no pattern%s: expected {i}[dims]:dtype or {i < count}[dims]:dtype", slot - s->nargs,
                *a->name ? " '" : "", a->name, *a->name ? "'" : "", w.data);
        if (output && dv__is_tensors(a->type))
            return wrong(p, c->text + strlen(c->text), "return %zu%s%s%s has no pattern%s: [...] leaves it to a C shape function",
                slot - s->nargs, *a->name ? " '" : "", a->name, *a->name ? "'" : "", w.data);
    }
    return DV_OK;
}

static int check_uses(const struct prover *p, dv__needs bound)
{
    const dv__contract *c = p->c;
    for (uint32_t i = 0; i < c->noutputs; i++) {
        const dv__pattern *t = &c->outputs[i];
        dv__needs needs = { 0, 0, 0 };
        if (!took(p, t->when) || t->is_argument >= 0)
            continue;
        needs = t->count_needs;
        for (uint32_t k = 0; k < t->dims.n; k++)
            needs = dv__needs_or(needs, t->dims.items[k].needs);
        for (uint32_t k = 0; k < t->strides.n; k++)
            needs = dv__needs_or(needs, t->strides.items[k].needs);
        for (uint32_t k = 0; k < t->dtype.n; k++)
            needs = dv__needs_or(needs, dv__contract_needs(c, t->dtype.alternatives[k]));
        if (t->transform)
            needs = dv__needs_or(needs, dv__contract_needs(c, t->transform));
        if (t->offset)
            needs = dv__needs_or(needs, dv__contract_needs(c, t->offset));
        if (!dv__needs_within(needs, bound))
            return unbound(p, t->at, t->text, needs, bound);
    }
    const struct {
        const dv__expr *e;
        const char *name;
    } costs[] = { { c->workspace, "workspace" }, { c->flops, "flops" }, { c->bytes, "bytes" } };
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        const dv__needs needs = costs[i].e ? dv__contract_needs(c, costs[i].e) : (dv__needs){ 0, 0, 0 };
        if (!dv__needs_within(needs, bound))
            return unbound(p, costs[i].e->at, costs[i].name, needs, bound);
    }
    for (uint32_t i = 0; i < c->nunbacked; i++) {
        const dv__needs needs = dv__needs_or(
            dv__contract_needs(c, c->unbacked[i].min), dv__contract_needs(c, c->unbacked[i].max));
        if (!dv__needs_within(needs, bound))
            return unbound(p, c->unbacked[i].at, c->unbacked[i].name, needs, bound);
    }
    return DV_OK;
}

static int prove_combination(struct prover *p)
{
    dv__contract *c = p->c;
    dv__needs bound;
    int status = check_coverage(p);
    if (!status)
        status = bind_all(p, -1, &bound);
    if (!status)
        status = check_uses(p, bound);
    if (status)
        return status;
    p->ever = dv__needs_or(p->ever, bound);
    for (uint32_t i = 0; i < c->npatterns && !status; i++) {
        const dv__pattern *t = &c->patterns[i];
        if (takes_part(p, t, -1) || !takes_part(p, t, t->slot))
            continue;
        status = bind_all(p, t->slot, &bound);
        p->ever = dv__needs_or(p->ever, bound);
    }
    return status;
}

/* ---- All combinations ---------------------------------------------------------------------------------------------------- */

/* May a call simply refuse a value without a case? Yes, if the group lists values of one string, dtype or rank that no other
 * condition uses. */
static bool refused_in_call(const struct prover *p, const dv__group *g)
{
    enum atom_kind kind;
    int32_t slot;
    const int i = g->subject ? atom_of(p, g->subject, &kind, &slot) : -1;
    return i >= 0 &&
        (p->atoms[i].kind == ATOM_RANK ||
            ((p->atoms[i].kind == ATOM_STRING || p->atoms[i].kind == ATOM_DTYPE) && p->atoms[i].value == ANY_OTHER));
}

/* A call may skip a fact about a size, since the size's argument may be absent. */
static bool speaks_of_no_size(const dv__constraint *k) { return dv__needs_within(k->needs, (dv__needs){ 0, 0, 0 }); }

static int try_assignment(struct prover *p)
{
    const dv__contract *c = p->c;
    for (uint32_t i = 0; i < c->nconstraints; i++)
        if (c->constraints[i].when.group < 0 && speaks_of_no_size(&c->constraints[i]) && !holds(p, c->constraints[i].e))
            return DV_OK; /* the facts exclude it */
    for (uint32_t g = 0; g < c->ngroups; g++) {
        const dv__group *group = &c->groups[g];
        int found = -1;
        dv__words w = { 0 };
        say_assignment(p, &w);
        for (uint32_t i = 0; i < group->n; i++) {
            const int yes = group->cases[i].e ? holds(p, group->cases[i].e) : found < 0;
            if (yes < 0)
                return wrong(p, group->cases[i].at, "cases can compare with literals only");
            if (yes && found >= 0)
                return wrong(p, group->cases[i].at, "cases overlap: this one and '%s' both hold when %s",
                    group->cases[found].text, w.data);
            found = yes ? (int)i : found;
        }
        if (found < 0 && refused_in_call(p, group))
            return DV_OK;
        if (found < 0)
            return wrong(p, group->cases[0].at, "no case holds when %s", w.data);
        p->cases[g] = found;
    }
    p->any = true;
    return prove_combination(p);
}

static int prove_cases(struct prover *p)
{
    dv__contract *c = p->c;
    int status = DV_OK, total = 1;
    for (uint32_t g = 0; g < c->ngroups; g++)
        for (uint32_t i = 0; i < c->groups[g].n && !status; i++)
            if (c->groups[g].cases[i].e)
                status = collect(p, c->groups[g].cases[i].e);
    for (uint32_t g = 0; g < c->ngroups; g++)
        for (uint32_t i = 0; i < c->groups[g].n && !status; i++)
            if (c->groups[g].cases[i].e)
                status = collect_values(p, c->groups[g].cases[i].e);
    for (uint32_t i = 0; i < c->nconstraints && !status; i++)
        status = collect_values(p, c->constraints[i].e);
    if (status)
        return status;
    for (int i = 0; i < p->natoms; i++) {
        complete_values(&p->atoms[i]);
        total = total > MAX_ASSIGNMENTS ? total : total * p->atoms[i].n;
    }
    if (total > MAX_ASSIGNMENTS)
        return dv__fail_at(DV_ELIMIT, c->text, c->groups[0].cases[0].at, "too many combinations of cases to prove: more than %d",
            MAX_ASSIGNMENTS);
    for (int k = 0; k < total && !status; k++) {
        int rest = k;
        for (int i = 0; i < p->natoms; i++) {
            p->atoms[i].value = p->atoms[i].values[rest % p->atoms[i].n];
            rest /= p->atoms[i].n;
        }
        status = try_assignment(p);
    }
    if (!status && !p->any)
        status = wrong(p, c->text, "the facts exclude every case");
    return status;
}

/* ---- What needs no cases ------------------------------------------------------------------------------------------------- */

static bool has_tensors(const dv__type *t)
{
    while (t->kind == DV__TYPE_OPTIONAL || t->kind == DV__TYPE_LIST)
        t = t->elems[0];
    return t->kind == DV__TYPE_TENSOR;
}

static int check_schema(const struct prover *p)
{
    const dv__contract *c = p->c;
    const dv__schema *s = c->schema;
    for (size_t i = 0; i < s->nargs; i++) {
        bool found = false;
        for (uint32_t k = 0; k < c->npatterns; k++)
            found |= c->patterns[k].slot == (int32_t)i;
        if (!found && has_tensors(s->args[i].type))
            return wrong(p, c->text, "argument '%s' has no pattern: %s%s[...] takes any tensor", s->args[i].name, s->args[i].name,
                s->args[i].type->kind == DV__TYPE_LIST ? "{i}" : "");
    }
    for (size_t i = 0; i < s->nreturns; i++)
        if (has_tensors(s->returns[i].type) &&
            (!dv__is_tensors(s->returns[i].type) ||
                (s->returns[i].type->kind != DV__TYPE_TENSOR && dv__argument_writes(&s->returns[i]))))
            return wrong(p, c->text,
                "return %zu is a list that may hold None, or an argument that is a list or may be None: a contract cannot "
                "describe it",
                i);
    for (uint32_t i = 0; i < c->ndtypes; i++) {
        bool carried = false;
        for (uint32_t k = 0; k < c->npatterns; k++)
            carried |= c->patterns[k].dtype.kind == DV__DTYPE_VAR && c->patterns[k].dtype.ref == (int16_t)i;
        if (!carried)
            return wrong(p, c->dtypes[i].at, "no input has dtype '%s'", c->dtypes[i].name);
    }
    return DV_OK;
}

/* A parallel dim stands alone in all written tensors, and in every input that has it. */
static int check_parallel_in(const struct prover *p, const dv__named *name, const dv__pattern *t, bool written)
{
    int alone = 0, inside = 0;
    for (uint32_t i = 0; i < t->dims.n; i++) {
        const dv__item *item = &t->dims.items[i];
        const bool is = item->ref == name->ref && item->kind == (name->run ? DV__ITEM_RUN : DV__ITEM_VAR);
        alone += is;
        inside += !is && (name->run ? item->needs.runs >> name->ref & 1 : item->needs.dims >> name->ref & 1);
    }
    const char *star = name->run ? "*" : "";
    if (inside)
        return wrong(p, name->at, "parallel(%s%s): it must stand alone in '%s'", star, name->name, t->text);
    if (alone > 1)
        return wrong(p, name->at, "parallel(%s%s): it stands more than once in '%s'", star, name->name, t->text);
    const bool like = t->like >= 0 && !t->dims.given; /* it has its argument's shape, which is checked itself */
    if (!alone && written && !t->dims.any && !like)
        return wrong(p, name->at, "parallel(%s%s): '%s', which is written, has no such dim", star, name->name, t->text);
    return DV_OK;
}

static int check_parallel(const struct prover *p)
{
    const dv__contract *c = p->c;
    for (uint32_t n = 0; n < c->nparallel; n++) {
        int status = DV_OK;
        for (uint32_t i = 0; i < c->npatterns && !status; i++)
            if (c->patterns[i].presence != DV__ABSENT)
                status = check_parallel_in(
                    p, &c->parallel[n], &c->patterns[i], dv__argument_writes(&c->schema->args[c->patterns[i].slot]));
        for (uint32_t i = 0; i < c->noutputs && !status; i++)
            if (c->outputs[i].presence != DV__ABSENT && c->outputs[i].is_argument < 0)
                status = check_parallel_in(p, &c->parallel[n], &c->outputs[i], true);
        if (status)
            return status;
    }
    return DV_OK;
}

static int check_ever(const struct prover *p)
{
    const dv__contract *c = p->c;
    for (uint32_t i = 0; i < c->nconstraints; i++)
        if (!dv__needs_within(c->constraints[i].needs, p->ever))
            return wrong(p, c->constraints[i].at, "'%s': nothing ever binds '%s'", c->constraints[i].text,
                first_missing(c, c->constraints[i].needs, p->ever));
    for (uint32_t i = 0; i < c->ndefinitions; i++)
        if (!dv__needs_within(c->definitions[i].needs, p->ever))
            return wrong(p, c->definitions[i].at, "'%s': nothing ever binds '%s'", c->definitions[i].text,
                first_missing(c, c->definitions[i].needs, p->ever));
    return DV_OK;
}

/* ---- What calls look up -------------------------------------------------------------------------------------------------- */

static bool is_plain(const dv__contract *c, const dv__pattern *t, bool output)
{
    uint32_t runs = 0;
    for (uint32_t i = 0; i < t->dims.n; i++) {
        const dv__item *item = &t->dims.items[i];
        const bool run = item->kind == DV__ITEM_RUN;
        if (!run && item->kind != DV__ITEM_VAR && item->kind != DV__ITEM_INT)
            return false;
        if (run && !output && (c->run_ranks[item->ref].e || runs++))
            return false;
    }
    if (output && (t->like >= 0 || t->view_of >= 0 || t->is_argument >= 0 || t->unbacked || t->dtype.kind == DV__DTYPE_ANY))
        return false;
    return t->kind == DV__PATTERN_TENSOR && t->presence != DV__ABSENT && t->on == DV__ON_SAME && !t->dims.any &&
        (t->dtype.kind == DV__DTYPE_ANY || t->dtype.kind == DV__DTYPE_ONE || t->dtype.kind == DV__DTYPE_VAR);
}

static int prepare(dv__contract *c)
{
    for (uint32_t i = 0; i < c->npatterns; i++)
        c->patterns[i].plain = is_plain(c, &c->patterns[i], false);
    while (!c->ngroups && c->nplain < c->npatterns && c->patterns[c->nplain].plain)
        c->nplain++;
    for (uint32_t i = 0; i < c->noutputs; i++)
        c->outputs[i].plain = is_plain(c, &c->outputs[i], true);
    const dv__schema *s = c->schema;
    c->output_of = DV__ARENA_ARRAY(&c->arena, int16_t, s->nreturns);
    c->case_only = DV__ARENA_ARRAY(&c->arena, int16_t, s->nargs);
    if (!c->output_of || !c->case_only)
        return DV_ENOMEM;
    for (size_t i = 0; i < s->nreturns; i++) {
        c->output_of[i] = -1;
        for (uint32_t k = 0; k < c->noutputs; k++)
            if (c->outputs[k].slot == (int32_t)(s->nargs + i))
                c->output_of[i] = (int16_t)(c->outputs[k].when.group < 0 ? (int)k : -2);
    }
    for (size_t i = 0; i < s->nargs; i++) {
        bool always = false;
        for (uint32_t k = 0; k < c->npatterns; k++)
            always |= c->patterns[k].slot == (int32_t)i && c->patterns[k].when.group < 0;
        if (!always && has_tensors(s->args[i].type))
            c->case_only[c->ncase_only++] = (int16_t)i;
    }
    c->matching_only = !c->nasides && !c->nconstraints && !c->nunbacked && !c->ncase_only;
    return DV_OK;
}

int dv__contract_prove(dv__contract *c)
{
    struct prover *p = dv__calloc(1, sizeof *p);
    if (!p)
        return DV_ENOMEM;
    p->c = c;
    int status = check_schema(p);
    if (!status)
        status = prove_cases(p);
    if (!status)
        status = check_ever(p);
    if (!status)
        status = check_parallel(p);
    if (!status)
        status = prepare(c);
    if (!status)
        status = dv__contract_prepare_split(c);
    dv__free(p);
    return status;
}
