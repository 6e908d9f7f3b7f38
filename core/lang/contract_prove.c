/* What is proved when a library is loaded, so that no call can find the contract itself wrong:
 *
 * - exactly one case of each group holds;
 * - in every combination of cases each tensor argument and each tensor return has one pattern, and every size, run and dtype that
 * an output or a cost needs is bound by arguments that must be there.
 *
 * It evaluates the program's conditions. They depend on finitely many atoms, each with finitely many distinct values (for a
 * string: the literals that it is compared with, and "any other"), so all assignments are tried, except those that a fact
 * excludes. Binding: one more optional argument never binds less, so it suffices to try each assignment without further
 * optional arguments, and with each one alone. */
#include "lang/contract_build.h"

enum { MAX_ATOMS = 24, MAX_VALUES = 70, MAX_ASSIGNMENTS = 20000, UNKNOWN = -1, NOBODY = -1, ANYBODY = -2 };

enum atom_kind { ATOM_STRING, ATOM_BOOL, ATOM_PRESENT, ATOM_DTYPE, ATOM_RANK };
struct atom {
    enum atom_kind kind;
    int32_t slot;
    int32_t n;
    dv__reg values[MAX_VALUES]; /* of strings and dtypes the last one is any other */
    int32_t value;              /* in the current assignment */
};

struct prover {
    const dv__contract *c;
    dv__builder *b;
    struct atom atoms[MAX_ATOMS];
    int natoms;
    int8_t atom_of[DV__MAX_REGISTERS];  /* the atom that a register holds, or -1 */
    int8_t truth[DV__MAX_REGISTERS];    /* of booleans: 0, 1 or UNKNOWN */
    int32_t cases[DV__MAX_CASE_GROUPS]; /* of the current assignment */
    dv__needs bound, ever;              /* now; in some combination */
    bool any;                           /* some assignment was possible */
};

#define wrong(c, at, ...) dv__fail_at(DV_ECONTRACT, (c)->text, at, __VA_ARGS__)

/* ---- Atoms ------------------------------------------------------------------------------------------------------------- */

static const dv__step *maker(const struct prover *p, dv__operand x)
{
    return x < 0 || p->b->made_by[x] < 0 ? NULL : &p->b->p->steps[p->b->made_by[x]];
}

static bool compares(const dv__step *s) { return s->op >= DV__OP_EQ && s->op <= DV__OP_GE; }

/* The atom of a step's result. False: it is none. */
static bool atom_of(const struct prover *p, const dv__step *s, enum atom_kind *kind, int32_t *slot)
{
    const bool rank = s->op == DV__OP_RANK, tensor = rank || s->op == DV__OP_DTYPE_OF;
    *kind = rank                      ? ATOM_RANK
        : tensor                      ? ATOM_DTYPE
        : s->op == DV__OP_PRESENT     ? ATOM_PRESENT
        : s->type == DV__RTYPE_STRING ? ATOM_STRING
                                      : ATOM_BOOL;
    if (rank && (s = maker(p, s->in[0])) && s->op != DV__OP_SHAPE)
        return false;
    if (tensor && s)
        s = maker(p, s->in[0]);
    *slot = s ? s->slot : 0;
    return s &&
        (tensor ? s->op == DV__OP_TENSOR
                : s->op == DV__OP_PRESENT ||
                    (s->op == DV__OP_ARGUMENT && (s->type == DV__RTYPE_STRING || s->type == DV__RTYPE_BOOL)));
}

/* Those that choosing the cases reads; later steps may read them again. */
static int find_atoms(struct prover *p)
{
    memset(p->atom_of, -1, sizeof p->atom_of);
    for (uint32_t i = 0; i < p->b->p->solve_end; i++) {
        const dv__step *s = &p->b->p->steps[i];
        enum atom_kind kind;
        int32_t slot;
        int k = 0;
        if (s->to < 0 || s->flags & DV__STEP_DEAD || !atom_of(p, s, &kind, &slot))
            continue;
        while (k < p->natoms && (p->atoms[k].kind != kind || p->atoms[k].slot != slot))
            k++;
        if (k == p->natoms && (i >= p->b->p->choose_end || s->flags & DV__STEP_SAY))
            continue;
        if (k == MAX_ATOMS)
            return dv__fail_at(
                DV_ELIMIT, p->c->text, p->c->groups[0].cases[0].at, "cases ask about more than %d things", MAX_ATOMS);
        p->atoms[k].kind = kind, p->atoms[k].slot = slot;
        p->natoms += k == p->natoms;
        p->atom_of[s->to] = (int8_t)k;
    }
    return DV_OK;
}

static struct atom *atom_in(struct prover *p, dv__operand x)
{
    return x < 0 || p->atom_of[x] < 0 ? NULL : &p->atoms[p->atom_of[x]];
}

/* The literals that the atoms are compared with. */
static int collect_values(struct prover *p)
{
    for (uint32_t i = 0; i < p->b->p->solve_end; i++) {
        dv__step s = p->b->p->steps[i];
        for (int side = 0; compares(&s) && side < 2; side++) {
            struct atom *a = atom_in(p, s.in[side]);
            if (!a || s.in[1 - side] >= 0)
                continue;
            const dv__reg literal = p->b->p->constants[-1 - s.in[1 - side]];
            int32_t k = 0;
            s.op = DV__OP_EQ;
            while (k < a->n && !dv__compare(&s, &a->values[k], &literal))
                k++;
            if (k < a->n || (a->kind == ATOM_RANK && (literal.i < 0 || literal.i > DV_MAX_NDIM)))
                continue;
            if (a->n >= MAX_VALUES - 4)
                return dv__fail_at(DV_ELIMIT, p->c->text, p->c->groups[0].cases[0].at,
                    "'%s' is compared with more than %d values", p->c->schema->args[a->slot].name, MAX_VALUES - 4);
            a->values[a->n++] = literal;
        }
    }
    return DV_OK;
}

static void complete_values(struct atom *a)
{
    int64_t most = 1; /* of booleans */
    if (a->kind == ATOM_STRING || a->kind == ATOM_DTYPE) {
        a->n++;
        return;
    }
    if (a->kind == ATOM_RANK) { /* every rank up to two above the literals: enough for each order of the ranks of two tensors */
        most = 0;
        for (int i = 0; i < a->n; i++)
            most = a->values[i].i > most ? a->values[i].i : most;
        most = most + 2 < DV_MAX_NDIM ? most + 2 : DV_MAX_NDIM;
    }
    for (a->n = 0; a->n <= most; a->n++)
        a->values[a->n].i = a->n;
}

/* ---- Conditions over the current assignment ------------------------------------------------------------------------------ */

static bool took(const struct prover *p, dv__when w) { return w.group < 0 || p->cases[w.group] == w.index; }

static int8_t truth(const struct prover *p, dv__operand x) { return x < 0 ? (int8_t)p->b->p->constants[-1 - x].i : p->truth[x]; }

static bool is_other(const struct atom *a)
{
    return a && (a->kind == ATOM_STRING || a->kind == ATOM_DTYPE) && a->value == a->n - 1;
}

static int8_t compare(struct prover *p, const dv__step *s)
{
    const dv__reg *values[2];
    const struct atom *atoms[] = { atom_in(p, s->in[0]), atom_in(p, s->in[1]) };
    for (int i = 0; i < 2; i++) {
        if (!atoms[i] && s->in[i] >= 0)
            return UNKNOWN;
        values[i] = atoms[i] ? &atoms[i]->values[atoms[i]->value] : &p->b->p->constants[-1 - s->in[i]];
    }
    return is_other(atoms[0]) && is_other(atoms[1]) ? UNKNOWN : dv__compare(s, values[0], values[1]);
}

/* Is a value given whose presence no case asks about? */
static int8_t is_given(const struct prover *p, int32_t slot, int32_t given)
{
    if (given == ANYBODY || slot == given)
        return given == ANYBODY ? UNKNOWN : 1;
    for (uint32_t i = 0; i < p->c->npatterns; i++)
        if (p->c->patterns[i].slot == slot && p->c->patterns[i].presence == DV__PRESENT && took(p, p->c->patterns[i].when))
            return 1;
    return 0;
}

static int8_t condition(struct prover *p, const dv__step *s, int32_t given)
{
    const int8_t x = s->nin ? truth(p, s->in[0]) : 0, y = s->nin > 1 ? truth(p, s->in[1]) : 0;
    const int8_t decides = s->op == DV__OP_OR;
    const struct atom *atom = atom_in(p, s->to);
    if (atom)
        return (int8_t)atom->value;
    if (compares(s))
        return compare(p, s);
    switch (s->op) {
    case DV__OP_PRESENT: return is_given(p, s->slot, given);
    case DV__OP_HOLDS: return given == ANYBODY ? UNKNOWN : s->slot == given;
    case DV__OP_NOT: return x < 0 ? x : !x;
    case DV__OP_AND:
    case DV__OP_OR: return x == decides || y == decides ? decides : x < 0 || y < 0 ? UNKNOWN : !decides;
    case DV__OP_SELECT: return x < 0 ? x : x ? y : truth(p, s->in[2]);
    default: return UNKNOWN;
    }
}

/* given: the only optional argument there is of those that no case asks about; ANYBODY: not known. */
static void evaluate(struct prover *p, int32_t given)
{
    const dv__program *program = p->b->p;
    for (uint32_t i = 0; i < program->solve_end; i++) {
        const dv__step *s = &program->steps[i];
        if (s->to >= 0 && program->types[s->to] == DV__RTYPE_BOOL)
            p->truth[s->to] = condition(p, s, given);
    }
    memset(&p->bound, 0, sizeof p->bound);
    for (uint32_t i = 0; i < p->c->ndims; i++)
        p->bound.dims |= (uint64_t)(truth(p, p->b->dims[i]) == 1) << i;
    for (uint32_t i = 0; i < p->c->nruns; i++)
        p->bound.runs |= (uint32_t)(truth(p, p->b->runs[i]) == 1) << i;
    for (uint32_t i = 0; i < p->c->ndtypes; i++)
        p->bound.dtypes |= (uint32_t)(truth(p, p->b->dtypes[i]) == 1) << i;
}

/* "layout == "TND", bias absent" */
static void say_assignment(const struct prover *p, dv__words *w)
{
    bool any = false;
    for (int i = 0; i < p->natoms; i++) {
        const struct atom *a = &p->atoms[i];
        bool said = false; /* a value is present */
        for (int k = 0; k < p->natoms; k++)
            said |= a->kind == ATOM_PRESENT && a->value && k != i && p->atoms[k].slot == a->slot;
        if (said)
            continue;
        const dv__reg *value = &a->values[a->value];
        const char *name = p->c->schema->args[a->slot].name;
        dv__say(w, "%s", any ? ", " : "");
        any = true;
        if (a->kind == ATOM_PRESENT)
            dv__say(w, "%s is %s", name, a->value ? "present" : "absent");
        else if (a->kind == ATOM_BOOL)
            dv__say(w, "%s is %s", name, a->value ? "True" : "False");
        else if (a->kind == ATOM_RANK)
            dv__say(w, "rank(%s) == %d", name, (int)a->value);
        else if (is_other(a))
            dv__say(w, "%s is anything else", name);
        else if (a->kind == ATOM_STRING)
            dv__say(w, "%s == \"%s\"", name, value->s);
        else
            dv__say(w, "dtype(%s) == %s", name, dv_dtype_name(value->dtype));
    }
}

/* ---- Binding ------------------------------------------------------------------------------------------------------------- */

static const char *first_missing(const dv__builder *b, dv__needs needs, dv__needs bound)
{
    dv__variable v = { "?", DV__NEVER };
    needs.dims &= ~bound.dims, needs.runs &= ~bound.runs, needs.dtypes &= ~bound.dtypes;
    dv__next_variable(b, &needs, &v);
    return v.name;
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

static int unbound(const struct prover *p, const char *at, const char *text, dv__needs needs)
{
    dv__words w = { 0 };
    say_case(p, &w);
    return wrong(p->c, at, "%s: '%s' is not bound by any argument that must be present%s", text,
        first_missing(p->b, needs, p->bound), w.data);
}

/* What the builder took for granted. */
static int check_claims(const struct prover *p)
{
    const dv__builder *b = p->b;
    for (uint32_t i = 0; i < b->nclaims; i++)
        if (b->claims[i].message && truth(p, b->claims[i].given) && truth(p, b->claims[i].holds) != 1)
            return wrong(p->c, b->claims[i].at, "%s", b->claims[i].message->text);
    for (uint32_t i = 0; i < p->c->nasides; i++) {
        const dv__aside *a = &p->c->asides[i];
        const dv__item *item = a->pattern < 0 ? NULL : &p->c->patterns[a->pattern].dims.items[a->item];
        if (item && truth(p, b->asides[i].pending))
            return wrong(p->c, item->e->at, "%s cannot be solved for '%s', and nothing else binds it", item->text,
                first_missing(b, item->needs, p->bound));
    }
    return DV_OK;
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
                return wrong(p->c, list[i].at, "%s '%s' has another pattern already: '%s'", output ? "return" : "argument",
                    a->name, first->text);
            first = &list[i];
        }
        if (first)
            continue;
        if (!output &&
            (a->type->kind == DV__TYPE_TENSOR || (a->type->kind == DV__TYPE_LIST && a->type->elems[0]->kind == DV__TYPE_TENSOR)))
            return wrong(p->c, c->text, "argument '%s' has no pattern%s: %s[...] takes any tensor", a->name, w.data, a->name);
        if (output && dv__is_tensors(a->type) && a->type->kind == DV__TYPE_LIST)
            return wrong(p->c, c->text + strlen(c->text),
                "return %zu%s%s%s has no pattern%s: expected {i}[dims]:dtype or {i < count}[dims]:dtype", slot - s->nargs,
                *a->name ? " '" : "", a->name, *a->name ? "'" : "", w.data);
        if (output && dv__is_tensors(a->type))
            return wrong(p->c, c->text + strlen(c->text),
                "return %zu%s%s%s has no pattern%s: [...] leaves it to a C shape function", slot - s->nargs, *a->name ? " '" : "",
                a->name, *a->name ? "'" : "", w.data);
    }
    return DV_OK;
}

static int check_uses(const struct prover *p)
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
        if (!dv__needs_within(needs, p->bound))
            return unbound(p, t->at, t->text, needs);
    }
    const struct {
        const dv__expr *e;
        const char *name;
    } costs[] = { { c->workspace, "workspace" }, { c->flops, "flops" }, { c->bytes, "bytes" } };
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        const dv__needs needs = costs[i].e ? dv__contract_needs(c, costs[i].e) : (dv__needs){ 0, 0, 0 };
        if (!dv__needs_within(needs, p->bound))
            return unbound(p, costs[i].e->at, costs[i].name, needs);
    }
    for (uint32_t i = 0; i < c->nunbacked; i++) {
        const dv__needs needs = dv__needs_or(
            dv__contract_needs(c, c->unbacked[i].min), dv__contract_needs(c, c->unbacked[i].max));
        if (!dv__needs_within(needs, p->bound))
            return unbound(p, c->unbacked[i].at, c->unbacked[i].name, needs);
    }
    return DV_OK;
}

static int prove_combination(struct prover *p)
{
    const dv__contract *c = p->c;
    int status = check_coverage(p);
    for (int32_t i = -1; i < (int32_t)c->npatterns && !status; i++) {
        const dv__pattern *t = i < 0 ? NULL : &c->patterns[i];
        if (t && !(took(p, t->when) && (t->presence == DV__OPTIONAL || t->may_be_empty)))
            continue;
        evaluate(p, t ? t->slot : NOBODY);
        status = check_claims(p);
        if (!status && !t)
            status = check_uses(p);
        p->ever = dv__needs_or(p->ever, p->bound);
    }
    return status;
}

/* ---- All combinations ---------------------------------------------------------------------------------------------------- */

/* May a call simply refuse a value without a case? Yes, if the group lists values of one string, dtype or rank that no other
 * condition uses. */
static bool refused_in_call(struct prover *p, uint32_t g)
{
    const struct atom *a = atom_in(p, p->b->choices[g].subject);
    return a && (a->kind == ATOM_RANK || is_other(a));
}

static int try_assignment(struct prover *p)
{
    const dv__contract *c = p->c;
    evaluate(p, ANYBODY);
    for (uint32_t i = 0; i < p->b->nclaims; i++) {
        const dv__claim *fact = &p->b->claims[i];
        if (!fact->message && truth(p, fact->given) == 1 && !truth(p, fact->holds))
            return DV_OK;
    }
    for (uint32_t g = 0; g < c->ngroups; g++) {
        const dv__group *group = &c->groups[g];
        int found = -1;
        dv__words w = { 0 };
        say_assignment(p, &w);
        for (uint32_t i = 0; i < group->n; i++) {
            const int yes = group->cases[i].e ? truth(p, p->b->choices[g].holds[i]) : found < 0;
            if (yes < 0)
                return wrong(c, group->cases[i].at, "cases can compare with literals only");
            if (yes && found >= 0)
                return wrong(c, group->cases[i].at, "cases overlap: this one and '%s' both hold when %s",
                    group->cases[found].text, w.data);
            found = yes ? (int)i : found;
        }
        if (found < 0)
            return refused_in_call(p, g) ? DV_OK : wrong(c, group->cases[0].at, "no case holds when %s", w.data);
        p->cases[g] = found;
    }
    p->any = true;
    return prove_combination(p);
}

static int prove_cases(struct prover *p)
{
    const dv__contract *c = p->c;
    int status = find_atoms(p), total = 1;
    if (!status)
        status = collect_values(p);
    for (int i = 0; i < p->natoms && !status; i++) {
        complete_values(&p->atoms[i]);
        total = total > MAX_ASSIGNMENTS ? total : total * p->atoms[i].n;
    }
    if (total > MAX_ASSIGNMENTS)
        return dv__fail_at(DV_ELIMIT, c->text, c->groups[0].cases[0].at, "too many combinations of cases to prove: more than %d",
            MAX_ASSIGNMENTS);
    for (int k = 0; k < total && !status; k++) {
        int rest = k;
        for (int i = 0; i < p->natoms; i++) {
            p->atoms[i].value = rest % p->atoms[i].n;
            rest /= p->atoms[i].n;
        }
        status = try_assignment(p);
    }
    return status || p->any ? status : wrong(c, c->text, "the facts exclude every case");
}

static int check_ever(const struct prover *p)
{
    const dv__contract *c = p->c;
    for (uint32_t i = 0; i < c->nconstraints; i++)
        if (!dv__needs_within(c->constraints[i].needs, p->ever))
            return wrong(c, c->constraints[i].at, "'%s': nothing ever binds '%s'", c->constraints[i].text,
                first_missing(p->b, c->constraints[i].needs, p->ever));
    for (uint32_t i = 0; i < c->ndefinitions; i++)
        if (!dv__needs_within(c->definitions[i].needs, p->ever))
            return wrong(c, c->definitions[i].at, "'%s': nothing ever binds '%s'", c->definitions[i].text,
                first_missing(p->b, c->definitions[i].needs, p->ever));
    return DV_OK;
}

static bool has(const dv__item *item, const dv__named *name)
{
    return (name->run ? item->needs.runs : item->needs.dims) >> name->ref & 1;
}

static const char *star_of(const dv__named *name) { return name->run ? "*" : ""; }

/* A parallel dim stands alone in all written tensors, and in every input that has it. */
static int check_parallel_in(const dv__contract *c, const dv__named *name, const dv__pattern *t, bool written)
{
    int alone = 0, inside = 0;
    for (uint32_t i = 0; i < t->dims.n; i++) {
        const dv__item *item = &t->dims.items[i];
        const bool is = item->ref == name->ref && item->kind == (name->run ? DV__ITEM_RUN : DV__ITEM_VAR);
        alone += is;
        inside += !is && has(item, name);
    }
    const char *star = star_of(name);
    if (inside)
        return wrong(c, name->at, "parallel(%s%s): it must stand alone in '%s'", star, name->name, t->text);
    if (alone > 1)
        return wrong(c, name->at, "parallel(%s%s): it stands more than once in '%s'", star, name->name, t->text);
    const bool like = t->like >= 0 && !t->dims.given; /* it has its argument's shape, which is checked itself */
    if (!alone && written && !t->dims.any && !like)
        return wrong(c, name->at, "parallel(%s%s): '%s', which is written, has no such dim", star, name->name, t->text);
    return DV_OK;
}

static int check_parallel(const dv__contract *c)
{
    for (uint32_t n = 0; n < c->nparallel; n++) {
        int status = DV_OK;
        for (uint32_t i = 0; i < c->npatterns && !status; i++)
            if (c->patterns[i].presence != DV__ABSENT && dv__when_meet(c->patterns[i].when, c->parallel[n].when))
                status = check_parallel_in(
                    c, &c->parallel[n], &c->patterns[i], dv__argument_writes(&c->schema->args[c->patterns[i].slot]));
        for (uint32_t i = 0; i < c->noutputs && !status; i++)
            if (c->outputs[i].presence != DV__ABSENT && c->outputs[i].is_argument < 0 &&
                dv__when_meet(c->outputs[i].when, c->parallel[n].when))
                status = check_parallel_in(c, &c->parallel[n], &c->outputs[i], true);
        if (status)
            return status;
    }
    return DV_OK;
}

/* What is summed over is in no result and in some input, and nothing else is written. */
static int check_sums(const dv__contract *c)
{
    for (uint32_t n = 0; n < c->nsums; n++) {
        const dv__named *name = &c->sums[n];
        bool any = false;
        for (uint32_t i = 0; i < c->npatterns + c->noutputs; i++) {
            const bool output = i >= c->npatterns;
            const dv__pattern *t = output ? &c->outputs[i - c->npatterns] : &c->patterns[i];
            if (t->presence == DV__ABSENT || !dv__when_meet(t->when, name->when))
                continue;
            for (uint32_t k = 0; k < t->dims.n; k++)
                if (has(&t->dims.items[k], name)) {
                    any = true;
                    if (output && t->is_argument < 0)
                        return wrong(
                            c, name->at, "sum(%s%s): '%s' has it, so it is not summed over", star_of(name), name->name, t->text);
                }
        }
        if (!any)
            return wrong(c, name->at, "sum(%s%s): no tensor has such a dim", star_of(name), name->name);
        for (size_t i = 0; i < c->schema->nargs; i++)
            if (dv__argument_writes(&c->schema->args[i]))
                return wrong(c, name->at, "sum(%s%s): '%s' is written, and what is written for two parts does not add up",
                    star_of(name), name->name, c->schema->args[i].name);
    }
    return DV_OK;
}

int dv__contract_prove(dv__builder *b)
{
    struct prover *p = dv__calloc(1, sizeof *p);
    if (!p)
        return DV_ENOMEM;
    p->c = b->c;
    p->b = b;
    int status = prove_cases(p);
    if (!status)
        status = check_ever(p);
    dv__free(p);
    if (!status)
        status = check_parallel(b->c);
    return status ? status : check_sums(b->c);
}

/* ---- What needs no program ----------------------------------------------------------------------------------------------- */

static bool has_tensors(const dv__type *t)
{
    while (t->kind == DV__TYPE_OPTIONAL || t->kind == DV__TYPE_LIST)
        t = t->elems[0];
    return t->kind == DV__TYPE_TENSOR;
}

static int check_schema(const dv__contract *c)
{
    const dv__schema *s = c->schema;
    for (size_t i = 0; i < s->nargs; i++) {
        bool found = false;
        for (uint32_t k = 0; k < c->npatterns; k++)
            found |= c->patterns[k].slot == (int32_t)i;
        if (!found && has_tensors(s->args[i].type))
            return wrong(c, c->text, "argument '%s' has no pattern: %s%s[...] takes any tensor", s->args[i].name, s->args[i].name,
                s->args[i].type->kind == DV__TYPE_LIST ? "{i}" : "");
    }
    for (size_t i = 0; i < s->nreturns; i++)
        if (has_tensors(s->returns[i].type) &&
            (!dv__is_tensors(s->returns[i].type) ||
                (s->returns[i].type->kind != DV__TYPE_TENSOR && dv__argument_writes(&s->returns[i]))))
            return wrong(c, c->text,
                "return %zu is a list that may hold None, or an argument that is a list or may be None: a contract cannot "
                "describe it",
                i);
    for (uint32_t i = 0; i < c->ndtypes; i++) {
        bool carried = false;
        for (uint32_t k = 0; k < c->npatterns; k++)
            carried |= c->patterns[k].dtype.kind == DV__DTYPE_VAR && c->patterns[k].dtype.ref == (int16_t)i;
        if (!carried)
            return wrong(c, c->dtypes[i].at, "no input has dtype '%s'", c->dtypes[i].name);
    }
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

int dv__contract_prepare(dv__contract *c)
{
    int status = check_schema(c);
    if (!status)
        status = prepare(c);
    return status ? status : dv__contract_prepare_split(c);
}
