/* Proves, when a library is loaded, that the contract itself is right, so that no call can find it wrong:
 *
 * - exactly one case of each group holds;
 * - in every combination of cases each tensor argument and each tensor return has one pattern, and every size, variadic and dtype
 * that a result or a cost needs is bound by arguments that must be there.
 *
 * The prover evaluates the program's conditions. The conditions depend on finitely many atoms, each with finitely many values.
 * The values of a string are the literals that it is compared with, and "any other". So the prover tries all assignments of
 * values, except those that a fact excludes. One more optional argument never binds less. So it suffices to try each assignment
 * without further optional arguments, and with each one alone. */
#include "lang/contract_build.h"

enum { MAX_ATOMS = 24, MAX_VALUES = 70, MAX_ASSIGNMENTS = 20000, TRUTH_UNKNOWN = -1, NO_OPTIONAL = -1, ANY_OPTIONAL = -2 };

enum atom_kind { ATOM_STRING, ATOM_BOOL, ATOM_PRESENT, ATOM_DTYPE, ATOM_RANK };
/* A condition or value of an argument on which the selection of cases depends. */
struct atom {
    enum atom_kind kind;
    int32_t slot;               /* the argument */
    int32_t n;                  /* number of values */
    dv__reg values[MAX_VALUES]; /* the atom's possible values; for a string or dtype the last one is "any other value" */
    int32_t value;              /* index in `values` of the value in the current assignment */
};

struct prover {
    const dv__contract *c;
    dv__builder *b;
    struct atom atoms[MAX_ATOMS];
    int natoms;
    int8_t register_atom[DV__MAX_REGISTERS]; /* by register: index of the atom that it holds; -1: it holds none */
    int8_t truth[DV__MAX_REGISTERS];         /* by boolean register: 0, 1 or TRUTH_UNKNOWN */
    int32_t cases[DV__MAX_CASE_GROUPS];      /* by group: index of the case that is selected under the current assignment */
    dv__var_set bound_vars,
        ever_bound;      /* variables that are certainly bound under the current assignment; under some assignment */
    bool has_assignment; /* some assignment was not excluded by a fact */
};

#define prove_fail(c, at, ...) dv__fail_at_column(DV_ECONTRACT, (c)->text, at, __VA_ARGS__)

/* ---- Atoms --------------------------------------------------------------------------------------------------------------- */

/* Returns the step that writes a register. NULL: a literal, a variable or a register of a block. */
static const dv__step *prover_find_writer(const struct prover *p, dv__operand reg)
{
    return reg < 0 || p->b->writer_step[reg] < 0 ? NULL : &p->b->p->steps[p->b->writer_step[reg]];
}

/* True if the step is one of ==, !=, <, <=, > and >=. */
static bool step_is_comparison(const dv__step *s) { return s->op >= DV__OP_EQ && s->op <= DV__OP_GE; }

/* Finds the atom that a step's result is: its kind and slot. Returns false if the result is no atom. */
static bool step_try_find_atom(const struct prover *p, const dv__step *s, enum atom_kind *kind, int32_t *slot)
{
    const bool rank = s->op == DV__OP_RANK, tensor = rank || s->op == DV__OP_DTYPE_OF;
    *kind = rank                     ? ATOM_RANK
        : tensor                     ? ATOM_DTYPE
        : s->op == DV__OP_PRESENT    ? ATOM_PRESENT
        : s->type == DV__TYPE_STRING ? ATOM_STRING
                                     : ATOM_BOOL;
    if (rank && (s = prover_find_writer(p, s->in[0])) && s->op != DV__OP_SHAPE)
        return false;
    if (tensor && s)
        s = prover_find_writer(p, s->in[0]);
    *slot = s ? s->slot : 0;
    return s &&
        (tensor ? s->op == DV__OP_TENSOR
                : s->op == DV__OP_PRESENT ||
                    (s->op == DV__OP_ARGUMENT && (s->type == DV__TYPE_STRING || s->type == DV__TYPE_BOOL)));
}

/* Collects the atoms that the selection of cases reads; later steps may read these atoms too. Returns a status. */
static int prover_collect_atoms(struct prover *p)
{
    memset(p->register_atom, -1, sizeof p->register_atom);
    for (uint32_t i = 0; i < p->b->p->solve_end_step; i++) {
        const dv__step *s = &p->b->p->steps[i];
        enum atom_kind kind;
        int32_t slot;
        int k = 0;
        if (s->to < 0 || s->flags & DV__STEP_IN_BLOCK || !step_try_find_atom(p, s, &kind, &slot))
            continue;
        while (k < p->natoms && (p->atoms[k].kind != kind || p->atoms[k].slot != slot))
            k++;
        if (k == p->natoms && (i >= p->b->p->cases_end_step || s->flags & DV__STEP_MESSAGE_ONLY))
            continue;
        if (k == MAX_ATOMS)
            return dv__fail_at_column(
                DV_ELIMIT, p->c->text, p->c->groups[0].cases[0].at, "cases depend on more than %d conditions", MAX_ATOMS);
        p->atoms[k].kind = kind, p->atoms[k].slot = slot;
        p->natoms += k == p->natoms;
        p->register_atom[s->to] = (int8_t)k;
    }
    return DV_OK;
}

/* Returns the atom that a register holds. NULL: a literal, or a register that holds no atom. */
static struct atom *operand_find_atom(struct prover *p, dv__operand operand)
{
    return operand < 0 || p->register_atom[operand] < 0 ? NULL : &p->atoms[p->register_atom[operand]];
}

/* Adds to each atom's values the literals with which the program compares it. Returns a status. */
static int prover_collect_literals(struct prover *p)
{
    for (uint32_t i = 0; i < p->b->p->solve_end_step; i++) {
        dv__step s = p->b->p->steps[i];
        for (int side = 0; step_is_comparison(&s) && side < 2; side++) {
            struct atom *a = operand_find_atom(p, s.in[side]);
            if (!a || s.in[1 - side] >= 0)
                continue;
            const dv__reg literal = p->b->p->constants[-1 - s.in[1 - side]];
            int32_t k = 0;
            s.op = DV__OP_EQ;
            while (k < a->n && !dv__eval_comparison(&s, &a->values[k], &literal))
                k++;
            if (k < a->n || (a->kind == ATOM_RANK && (literal.i < 0 || literal.i > DV_MAX_NDIM)))
                continue;
            if (a->n >= MAX_VALUES - 4)
                return dv__fail_at_column(DV_ELIMIT, p->c->text, p->c->groups[0].cases[0].at,
                    "'%s' is compared with more than %d values", p->c->schema->args[a->slot].name, MAX_VALUES - 4);
            a->values[a->n++] = literal;
        }
    }
    return DV_OK;
}

/* Completes an atom's values: "any other value" of a string or dtype, both booleans, all ranks that matter. */
static void atom_add_remaining_values(struct atom *a)
{
    int64_t most = 1; /* the greatest boolean, True */
    if (a->kind == ATOM_STRING || a->kind == ATOM_DTYPE) {
        a->n++;
        return;
    }
    if (a->kind == ATOM_RANK) { /* the ranks up to two above the literals suffice for each order of two tensors' ranks */
        most = 0;
        for (int i = 0; i < a->n; i++)
            most = a->values[i].i > most ? a->values[i].i : most;
        most = most + 2 < DV_MAX_NDIM ? most + 2 : DV_MAX_NDIM;
    }
    for (a->n = 0; a->n <= most; a->n++)
        a->values[a->n].i = a->n;
}

/* ---- Conditions over the current assignment ------------------------------------------------------------------------------ */

/* True if an item outside of cases is meant, or its case is selected under the current assignment. */
static bool case_is_selected(const struct prover *p, dv__case_ref when)
{
    return when.group < 0 || p->cases[when.group] == when.index;
}

/* Returns the truth of a condition under the current assignment: 0, 1 or TRUTH_UNKNOWN. */
static int8_t operand_get_truth(const struct prover *p, dv__operand operand)
{
    return operand < 0 ? (int8_t)p->b->p->constants[-1 - operand].i : p->truth[operand];
}

/* True if the atom's current value is "any other value". False for NULL. */
static bool atom_has_any_other_value(const struct atom *a)
{
    return a && (a->kind == ATOM_STRING || a->kind == ATOM_DTYPE) && a->value == a->n - 1;
}

/* Returns the truth of a comparison under the current assignment: 0, 1 or TRUTH_UNKNOWN. */
static int8_t step_eval_comparison_truth(struct prover *p, const dv__step *s)
{
    const dv__reg *values[2];
    const struct atom *atoms[] = { operand_find_atom(p, s->in[0]), operand_find_atom(p, s->in[1]) };
    for (int i = 0; i < 2; i++) {
        if (!atoms[i] && s->in[i] >= 0)
            return TRUTH_UNKNOWN;
        values[i] = atoms[i] ? &atoms[i]->values[atoms[i]->value] : &p->b->p->constants[-1 - s->in[i]];
    }
    return atom_has_any_other_value(atoms[0]) && atom_has_any_other_value(atoms[1])
        ? TRUTH_UNKNOWN
        : dv__eval_comparison(s, values[0], values[1]);
}

/* Returns the truth of present(slot) for an argument whose presence no case tests: 0, 1 or TRUTH_UNKNOWN. only_present_optional:
 * as for prover_set_condition_truths(). */
static int8_t present_step_get_truth(const struct prover *p, int32_t slot, int32_t only_present_optional)
{
    if (only_present_optional == ANY_OPTIONAL || slot == only_present_optional)
        return only_present_optional == ANY_OPTIONAL ? TRUTH_UNKNOWN : 1;
    for (uint32_t i = 0; i < p->c->npatterns; i++)
        if (p->c->patterns[i].slot == slot && p->c->patterns[i].presence == DV__PRESENCE_PRESENT &&
            case_is_selected(p, p->c->patterns[i].when))
            return 1;
    return 0;
}

/* Returns the truth of a step's result under the current assignment: 0, 1 or TRUTH_UNKNOWN. only_present_optional: as for
 * prover_set_condition_truths(). */
static int8_t step_eval_truth(struct prover *p, const dv__step *s, int32_t only_present_optional)
{
    const int8_t x = s->ninputs ? operand_get_truth(p, s->in[0]) : 0, y = s->ninputs > 1 ? operand_get_truth(p, s->in[1]) : 0;
    const int8_t decides = s->op == DV__OP_OR;
    const struct atom *atom = operand_find_atom(p, s->to);
    if (atom)
        return (int8_t)atom->value;
    if (step_is_comparison(s))
        return step_eval_comparison_truth(p, s);
    switch (s->op) {
    case DV__OP_PRESENT: return present_step_get_truth(p, s->slot, only_present_optional);
    case DV__OP_HOLDS_TENSOR: return only_present_optional == ANY_OPTIONAL ? TRUTH_UNKNOWN : s->slot == only_present_optional;
    case DV__OP_NOT: return x < 0 ? x : !x;
    case DV__OP_AND:
    case DV__OP_OR: return x == decides || y == decides ? decides : x < 0 || y < 0 ? TRUTH_UNKNOWN : !decides;
    case DV__OP_SELECT: return x < 0 ? x : x ? y : operand_get_truth(p, s->in[2]);
    default: return TRUTH_UNKNOWN;
    }
}

/* Evaluates the truth of all conditions and which variables are bound. only_present_optional: of the optional arguments that no
 * case tests, the only one that is present; NO_OPTIONAL: none is; ANY_OPTIONAL: it is not known which are. */
static void prover_set_condition_truths(struct prover *p, int32_t only_present_optional)
{
    const dv__program *program = p->b->p;
    for (uint32_t i = 0; i < program->solve_end_step; i++) {
        const dv__step *s = &program->steps[i];
        if (s->to >= 0 && program->types[s->to] == DV__TYPE_BOOL)
            p->truth[s->to] = step_eval_truth(p, s, only_present_optional);
    }
    memset(&p->bound_vars, 0, sizeof p->bound_vars);
    for (uint32_t i = 0; i < p->c->ndims; i++)
        p->bound_vars.dims |= (uint64_t)(operand_get_truth(p, p->b->dim_bound[i]) == 1) << i;
    for (uint32_t i = 0; i < p->c->nvariadics; i++)
        p->bound_vars.variadics |= (uint32_t)(operand_get_truth(p, p->b->variadic_bound[i]) == 1) << i;
    for (uint32_t i = 0; i < p->c->ndtypes; i++)
        p->bound_vars.dtypes |= (uint32_t)(operand_get_truth(p, p->b->dtype_bound[i]) == 1) << i;
}

/* Prints the current assignment of atoms, as 'layout == "TND", bias absent'. */
static void prover_print_assignment(const struct prover *p, dv__fixed_text *w)
{
    bool any = false;
    for (int i = 0; i < p->natoms; i++) {
        const struct atom *a = &p->atoms[i];
        bool is_implied = false; /* an atom with a value of the argument implies that it is present */
        for (int k = 0; k < p->natoms; k++)
            is_implied |= a->kind == ATOM_PRESENT && a->value && k != i && p->atoms[k].slot == a->slot;
        if (is_implied)
            continue;
        const dv__reg *value = &a->values[a->value];
        const char *name = p->c->schema->args[a->slot].name;
        dv__fixed_text_add(w, "%s", any ? ", " : "");
        any = true;
        if (a->kind == ATOM_PRESENT)
            dv__fixed_text_add(w, "%s is %s", name, a->value ? "present" : "absent");
        else if (a->kind == ATOM_BOOL)
            dv__fixed_text_add(w, "%s is %s", name, a->value ? "True" : "False");
        else if (a->kind == ATOM_RANK)
            dv__fixed_text_add(w, "rank(%s) == %d", name, (int)a->value);
        else if (atom_has_any_other_value(a))
            dv__fixed_text_add(w, "%s is anything else", name);
        else if (a->kind == ATOM_STRING)
            dv__fixed_text_add(w, "%s == \"%s\"", name, value->s);
        else
            dv__fixed_text_add(w, "dtype(%s) == %s", name, dv_dtype_name(value->dtype));
    }
}

/* ---- Binding ------------------------------------------------------------------------------------------------------------- */

/* Returns the name of the first variable of a set that is not in `bound`; "?" if all are. */
static const char *vars_find_unbound_name(const dv__builder *b, dv__var_set vars, dv__var_set bound)
{
    dv__var_binding v = { "?", DV__NEVER };
    vars.dims &= ~bound.dims, vars.variadics &= ~bound.variadics, vars.dtypes &= ~bound.dtypes;
    dv__var_set_try_take_next(b, &vars, &v);
    return v.name;
}

/* Prints " (when ...)" with the current cases; nothing for a contract without cases. */
static void prover_print_case(const struct prover *p, dv__fixed_text *w)
{
    if (!p->natoms)
        return;
    dv__fixed_text_add(w, " (when ");
    prover_print_assignment(p, w);
    dv__fixed_text_add(w, ")");
}

/* Fails with the message that the first unbound variable of a set is not bound by an argument that must be present. */
static int prove_fail_unbound_variable(const struct prover *p, const char *position_in_text, const char *text, dv__var_set vars)
{
    dv__fixed_text w = { 0 };
    prover_print_case(p, &w);
    return prove_fail(p->c, position_in_text, "%s: '%s' is not bound by any argument that must be present%s", text,
        vars_find_unbound_name(p->b, vars, p->bound_vars), w.data);
}

/* Fails unless the builder's proof obligations hold under the current assignment and each deferred dim is checked or solved. */
static int prove_obligations(const struct prover *p)
{
    const dv__builder *b = p->b;
    for (uint32_t i = 0; i < b->nobligations; i++)
        if (b->obligations[i].message && operand_get_truth(p, b->obligations[i].premise) &&
            operand_get_truth(p, b->obligations[i].conclusion) != 1)
            return prove_fail(p->c, b->obligations[i].at, "%s", b->obligations[i].message->text);
    for (uint32_t i = 0; i < p->c->ndeferred; i++) {
        const dv__deferred_item *a = &p->c->deferred[i];
        const dv__dim_item *item = a->pattern < 0 ? NULL : &p->c->patterns[a->pattern].dims.items[a->item];
        if (item && operand_get_truth(p, b->deferred[i].is_pending))
            return prove_fail(p->c, item->e->at, "%s cannot be solved for '%s', and nothing else binds it", item->text,
                vars_find_unbound_name(b, item->vars, p->bound_vars));
    }
    return DV_OK;
}

/* ---- One combination of cases -------------------------------------------------------------------------------------------- */

/* Fails unless each tensor argument and tensor return has exactly one pattern in the selected cases. */
static int prove_patterns_cover_slots(const struct prover *p)
{
    const dv__contract *c = p->c;
    const dv__schema *s = c->schema;
    dv__fixed_text w = { 0 };
    prover_print_case(p, &w);
    for (size_t slot = 0; slot < s->nargs + s->nreturns; slot++) {
        const bool output = slot >= s->nargs;
        const dv__argument *a = output ? &s->returns[slot - s->nargs] : &s->args[slot];
        const dv__pattern *list = output ? c->result_patterns : c->patterns, *first = NULL;
        for (uint32_t i = 0; i < (output ? c->nresult_patterns : c->npatterns); i++) {
            if (list[i].slot != (int32_t)slot || !case_is_selected(p, list[i].when))
                continue;
            if (first)
                return prove_fail(p->c, list[i].at, "%s '%s' has another pattern already: '%s'", output ? "return" : "argument",
                    a->name, first->text);
            first = &list[i];
        }
        if (first)
            continue;
        if (!output &&
            (a->type->kind == DV__TYPE_TENSOR || (a->type->kind == DV__TYPE_LIST && a->type->elems[0]->kind == DV__TYPE_TENSOR)))
            return prove_fail(
                p->c, c->text, "argument '%s' has no pattern%s: %s[...] takes any tensor", a->name, w.data, a->name);
        if (output && dv__type_is_tensor_or_list(a->type) && a->type->kind == DV__TYPE_LIST)
            return prove_fail(p->c, c->text + strlen(c->text),
                "return %zu%s%s%s has no pattern%s: expected {i}[dims]:dtype or {i < count}[dims]:dtype", slot - s->nargs,
                *a->name ? " '" : "", a->name, *a->name ? "'" : "", w.data);
        if (output && dv__type_is_tensor_or_list(a->type))
            return prove_fail(p->c, c->text + strlen(c->text),
                "return %zu%s%s%s has no pattern%s: [...] leaves it to a C shape function", slot - s->nargs, *a->name ? " '" : "",
                a->name, *a->name ? "'" : "", w.data);
    }
    return DV_OK;
}

/* Fails unless each variable that results, costs and bounds of unbacked sizes need is bound under the current assignment. */
static int prove_results_and_costs_bound(const struct prover *p)
{
    const dv__contract *c = p->c;
    for (uint32_t i = 0; i < c->nresult_patterns; i++) {
        const dv__pattern *t = &c->result_patterns[i];
        dv__var_set needs = { 0, 0, 0 };
        if (!case_is_selected(p, t->when) || t->aliased_slot >= 0)
            continue;
        needs = t->list_count_vars;
        for (uint32_t k = 0; k < t->dims.n; k++)
            needs = dv__var_set_union(needs, t->dims.items[k].vars);
        for (uint32_t k = 0; k < t->strides.n; k++)
            needs = dv__var_set_union(needs, t->strides.items[k].vars);
        for (uint32_t k = 0; k < t->dtype.n; k++)
            needs = dv__var_set_union(needs, dv__expr_collect_vars(c, t->dtype.alternatives[k]));
        if (t->view_transform)
            needs = dv__var_set_union(needs, dv__expr_collect_vars(c, t->view_transform));
        if (t->offset)
            needs = dv__var_set_union(needs, dv__expr_collect_vars(c, t->offset));
        if (!dv__var_set_is_subset(needs, p->bound_vars))
            return prove_fail_unbound_variable(p, t->at, t->text, needs);
    }
    const struct {
        const dv__expr *e;
        const char *name;
    } costs[] = { { c->workspace, "workspace" }, { c->flops, "flops" }, { c->bytes, "bytes" } };
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        const dv__var_set needs = costs[i].e ? dv__expr_collect_vars(c, costs[i].e) : (dv__var_set){ 0, 0, 0 };
        if (!dv__var_set_is_subset(needs, p->bound_vars))
            return prove_fail_unbound_variable(p, costs[i].e->at, costs[i].name, needs);
    }
    for (uint32_t i = 0; i < c->nunbacked; i++) {
        const dv__var_set needs = dv__var_set_union(
            dv__expr_collect_vars(c, c->unbacked[i].min), dv__expr_collect_vars(c, c->unbacked[i].max));
        if (!dv__var_set_is_subset(needs, p->bound_vars))
            return prove_fail_unbound_variable(p, c->unbacked[i].at, c->unbacked[i].name, needs);
    }
    return DV_OK;
}

/* Proves the contract for the selected cases: without further optional arguments, and with each one alone. Returns a status. */
static int prove_selected_cases(struct prover *p)
{
    const dv__contract *c = p->c;
    int status = prove_patterns_cover_slots(p);
    for (int32_t i = -1; i < (int32_t)c->npatterns && !status; i++) {
        const dv__pattern *t = i < 0 ? NULL : &c->patterns[i];
        if (t && !(case_is_selected(p, t->when) && (t->presence == DV__PRESENCE_OPTIONAL || t->can_be_empty)))
            continue;
        prover_set_condition_truths(p, t ? t->slot : NO_OPTIONAL);
        status = prove_obligations(p);
        if (!status && !t)
            status = prove_results_and_costs_bound(p);
        p->ever_bound = dv__var_set_union(p->ever_bound, p->bound_vars);
    }
    return status;
}

/* ---- All combinations ---------------------------------------------------------------------------------------------------- */

/* True if a group's cases need not cover all values, so that a call with another value is refused. The group must list values
 * of one string, dtype or rank. */
static bool case_group_may_be_incomplete(struct prover *p, uint32_t group)
{
    const struct atom *a = operand_find_atom(p, p->b->choices[group].switch_value);
    return a && (a->kind == ATOM_RANK || atom_has_any_other_value(a));
}

/* Proves that exactly one case of each group holds under the current assignment, then what these cases need. Does nothing for
 * an assignment that a fact excludes. Returns a status. */
static int prove_assignment(struct prover *p)
{
    const dv__contract *c = p->c;
    prover_set_condition_truths(p, ANY_OPTIONAL);
    for (uint32_t i = 0; i < p->b->nobligations; i++) {
        const dv__obligation *fact = &p->b->obligations[i];
        if (!fact->message && operand_get_truth(p, fact->premise) == 1 && !operand_get_truth(p, fact->conclusion))
            return DV_OK;
    }
    for (uint32_t g = 0; g < c->ngroups; g++) {
        const dv__case_group *group = &c->groups[g];
        int found = -1;
        dv__fixed_text w = { 0 };
        prover_print_assignment(p, &w);
        for (uint32_t i = 0; i < group->n; i++) {
            const int yes = group->cases[i].e ? operand_get_truth(p, p->b->choices[g].case_conditions[i]) : found < 0;
            if (yes < 0)
                return prove_fail(c, group->cases[i].at, "cases can compare with literals only");
            if (yes && found >= 0)
                return prove_fail(c, group->cases[i].at, "cases overlap: this one and '%s' both hold when %s",
                    group->cases[found].text, w.data);
            found = yes ? (int)i : found;
        }
        if (found < 0)
            return case_group_may_be_incomplete(p, g) ? DV_OK
                                                      : prove_fail(c, group->cases[0].at, "no case holds when %s", w.data);
        p->cases[g] = found;
    }
    p->has_assignment = true;
    return prove_selected_cases(p);
}

/* Proves the contract for all assignments of the atoms' values. Returns a status. */
static int prove_all_assignments(struct prover *p)
{
    const dv__contract *c = p->c;
    int status = prover_collect_atoms(p), total = 1;
    if (!status)
        status = prover_collect_literals(p);
    for (int i = 0; i < p->natoms && !status; i++) {
        atom_add_remaining_values(&p->atoms[i]);
        total = total > MAX_ASSIGNMENTS ? total : total * p->atoms[i].n;
    }
    if (total > MAX_ASSIGNMENTS)
        return dv__fail_at_column(DV_ELIMIT, c->text, c->groups[0].cases[0].at,
            "too many combinations of cases to prove: more than %d", MAX_ASSIGNMENTS);
    for (int k = 0; k < total && !status; k++) {
        int rest = k;
        for (int i = 0; i < p->natoms; i++) {
            p->atoms[i].value = rest % p->atoms[i].n;
            rest /= p->atoms[i].n;
        }
        status = prove_assignment(p);
    }
    return status || p->has_assignment ? status : prove_fail(c, c->text, "the facts exclude every case");
}

/* Fails if a condition or definition has a variable that no combination of cases binds. */
static int prove_facts_can_be_bound(const struct prover *p)
{
    const dv__contract *c = p->c;
    for (uint32_t i = 0; i < c->nconstraints; i++)
        if (!dv__var_set_is_subset(c->constraints[i].vars, p->ever_bound))
            return prove_fail(c, c->constraints[i].at, "'%s': nothing ever binds '%s'", c->constraints[i].text,
                vars_find_unbound_name(p->b, c->constraints[i].vars, p->ever_bound));
    for (uint32_t i = 0; i < c->ndefinitions; i++)
        if (!dv__var_set_is_subset(c->definitions[i].vars, p->ever_bound))
            return prove_fail(c, c->definitions[i].at, "'%s': nothing ever binds '%s'", c->definitions[i].text,
                vars_find_unbound_name(p->b, c->definitions[i].vars, p->ever_bound));
    return DV_OK;
}

/* True if the item, alone or in an expression, uses the size or variadic that a dim fact names. */
static bool dim_item_uses_dim(const dv__dim_item *item, const dv__dim_fact *dim)
{
    return (dim->is_variadic ? item->vars.variadics : item->vars.dims) >> dim->ref & 1;
}

/* Returns "*" if the dim fact names a variadic, else "", for messages. */
static const char *dim_fact_get_star(const dv__dim_fact *fact) { return fact->is_variadic ? "*" : ""; }

/* Fails unless a parallel dim is an item by itself in the pattern, at most once, and at least once if the tensor is written. */
static int parallel_check_pattern(const dv__contract *c, const dv__dim_fact *fact, const dv__pattern *pattern, bool is_written)
{
    int alone = 0, inside = 0;
    for (uint32_t i = 0; i < pattern->dims.n; i++) {
        const dv__dim_item *item = &pattern->dims.items[i];
        const bool is = item->ref == fact->ref && item->kind == (fact->is_variadic ? DV__DIM_VARIADIC : DV__DIM_VAR);
        alone += is;
        inside += !is && dim_item_uses_dim(item, fact);
    }
    const char *star = dim_fact_get_star(fact);
    if (inside)
        return prove_fail(c, fact->at, "parallel(%s%s): it must stand alone in '%s'", star, fact->name, pattern->text);
    if (alone > 1)
        return prove_fail(c, fact->at, "parallel(%s%s): it stands more than once in '%s'", star, fact->name, pattern->text);
    const bool like = pattern->like_slot >= 0 &&
        !pattern->dims.is_written; /* the result has its argument's shape, whose pattern is checked itself */
    if (!alone && is_written && !pattern->dims.is_any_shape && !like)
        return prove_fail(
            c, fact->at, "parallel(%s%s): '%s', which is written, has no such dim", star, fact->name, pattern->text);
    return DV_OK;
}

/* Checks the names in all parallel(...) facts against all patterns that may apply in the same call. Returns a status. */
static int parallel_check_facts(const dv__contract *c)
{
    for (uint32_t n = 0; n < c->nparallel_dims; n++) {
        int status = DV_OK;
        for (uint32_t i = 0; i < c->npatterns && !status; i++)
            if (c->patterns[i].presence != DV__PRESENCE_ABSENT &&
                dv__case_refs_can_both_hold(c->patterns[i].when, c->parallel_dims[n].when))
                status = parallel_check_pattern(
                    c, &c->parallel_dims[n], &c->patterns[i], dv__argument_is_written(&c->schema->args[c->patterns[i].slot]));
        for (uint32_t i = 0; i < c->nresult_patterns && !status; i++)
            if (c->result_patterns[i].presence != DV__PRESENCE_ABSENT && c->result_patterns[i].aliased_slot < 0 &&
                dv__case_refs_can_both_hold(c->result_patterns[i].when, c->parallel_dims[n].when))
                status = parallel_check_pattern(c, &c->parallel_dims[n], &c->result_patterns[i], true);
        if (status)
            return status;
    }
    return DV_OK;
}

/* Checks the names in all sum(...) facts. Fails unless each is in some input and in no result, and the operator writes no
 * argument. */
static int sum_check_facts(const dv__contract *c)
{
    for (uint32_t n = 0; n < c->nsummed_dims; n++) {
        const dv__dim_fact *name = &c->summed_dims[n];
        bool any = false;
        for (uint32_t i = 0; i < c->npatterns + c->nresult_patterns; i++) {
            const bool output = i >= c->npatterns;
            const dv__pattern *t = output ? &c->result_patterns[i - c->npatterns] : &c->patterns[i];
            if (t->presence == DV__PRESENCE_ABSENT || !dv__case_refs_can_both_hold(t->when, name->when))
                continue;
            for (uint32_t k = 0; k < t->dims.n; k++)
                if (dim_item_uses_dim(&t->dims.items[k], name)) {
                    any = true;
                    if (output && t->aliased_slot < 0)
                        return prove_fail(c, name->at, "sum(%s%s): '%s' has it, so it is not summed over",
                            dim_fact_get_star(name), name->name, t->text);
                }
        }
        if (!any)
            return prove_fail(c, name->at, "sum(%s%s): no tensor has such a dim", dim_fact_get_star(name), name->name);
        for (size_t i = 0; i < c->schema->nargs; i++)
            if (dv__argument_is_written(&c->schema->args[i]))
                return prove_fail(c, name->at, "sum(%s%s): '%s' is written, and partial results that are written cannot be added",
                    dim_fact_get_star(name), name->name, c->schema->args[i].name);
    }
    return DV_OK;
}

/* Proves the built contract. Fails with DV_ECONTRACT, or with DV_ELIMIT if there are too many combinations. */
int dv__contract_prove(dv__builder *b)
{
    struct prover *p = dv__calloc(1, sizeof *p);
    if (!p)
        return DV_ENOMEM;
    p->c = b->c;
    p->b = b;
    int status = prove_all_assignments(p);
    if (!status)
        status = prove_facts_can_be_bound(p);
    dv__free(p);
    if (!status)
        status = parallel_check_facts(b->c);
    return status ? status : sum_check_facts(b->c);
}

/* ---- Checks without the program ------------------------------------------------------------------------------------------ */

/* Fails unless each argument with tensors has a pattern, each return can be described, and each dtype variable is some input's
 * dtype. */
static int analyze_check_all_described(const dv__contract *c)
{
    const dv__schema *s = c->schema;
    for (size_t i = 0; i < s->nargs; i++) {
        bool found = false;
        for (uint32_t k = 0; k < c->npatterns; k++)
            found |= c->patterns[k].slot == (int32_t)i;
        if (!found && dv__type_has_tensors(s->args[i].type))
            return prove_fail(c, c->text, "argument '%s' has no pattern: %s%s[...] takes any tensor", s->args[i].name,
                s->args[i].name, s->args[i].type->kind == DV__TYPE_LIST ? "{i}" : "");
    }
    for (size_t i = 0; i < s->nreturns; i++)
        if (dv__type_has_tensors(s->returns[i].type) &&
            (!dv__type_is_tensor_or_list(s->returns[i].type) ||
                (s->returns[i].type->kind != DV__TYPE_TENSOR && dv__argument_is_written(&s->returns[i]))))
            return prove_fail(c, c->text,
                "return %zu is a list that may hold None, or an argument that is a list or may be None: a contract cannot "
                "describe it",
                i);
    for (uint32_t i = 0; i < c->ndtypes; i++) {
        bool carried = false;
        for (uint32_t k = 0; k < c->npatterns; k++)
            carried |= c->patterns[k].dtype.kind == DV__DTYPE_SPEC_VAR && c->patterns[k].dtype.ref == (int16_t)i;
        if (!carried)
            return prove_fail(c, c->dtypes[i].at, "no input has dtype '%s'", c->dtypes[i].name);
    }
    return DV_OK;
}

/* ---- Tables for calls ---------------------------------------------------------------------------------------------------- */

/* True for one tensor on the common device, with names, literals and at most one variadic as dims and an uncomputed dtype. A
 * result must be new and have a dtype. */
static bool pattern_is_simple(const dv__contract *c, const dv__pattern *pattern, bool is_result)
{
    uint32_t runs = 0;
    for (uint32_t i = 0; i < pattern->dims.n; i++) {
        const dv__dim_item *item = &pattern->dims.items[i];
        const bool run = item->kind == DV__DIM_VARIADIC;
        if (!run && item->kind != DV__DIM_VAR && item->kind != DV__DIM_LITERAL)
            return false;
        if (run && !is_result && (c->variadic_ranks[item->ref].e || runs++))
            return false;
    }
    if (is_result &&
        (pattern->like_slot >= 0 || pattern->viewed_slot >= 0 || pattern->aliased_slot >= 0 || pattern->is_unbacked ||
            pattern->dtype.kind == DV__DTYPE_SPEC_ANY))
        return false;
    return pattern->kind == DV__PATTERN_TENSOR && pattern->presence != DV__PRESENCE_ABSENT &&
        pattern->device_spec == DV__DEVICE_SPEC_COMMON && !pattern->dims.is_any_shape &&
        (pattern->dtype.kind == DV__DTYPE_SPEC_ANY || pattern->dtype.kind == DV__DTYPE_SPEC_LITERAL ||
            pattern->dtype.kind == DV__DTYPE_SPEC_VAR);
}

/* Fills the contract's tables for calls: simple patterns, each return's only pattern, slots with patterns in some cases.
 * Returns a status. */
static int analyze_build_tables(dv__contract *c)
{
    for (uint32_t i = 0; i < c->npatterns; i++)
        c->patterns[i].is_simple = pattern_is_simple(c, &c->patterns[i], false);
    while (!c->ngroups && c->nsimple_patterns < c->npatterns && c->patterns[c->nsimple_patterns].is_simple)
        c->nsimple_patterns++;
    for (uint32_t i = 0; i < c->nresult_patterns; i++)
        c->result_patterns[i].is_simple = pattern_is_simple(c, &c->result_patterns[i], true);
    const dv__schema *s = c->schema;
    c->result_pattern_index = DV__ARENA_ARRAY(&c->arena, int16_t, s->nreturns);
    c->case_only_slots = DV__ARENA_ARRAY(&c->arena, int16_t, s->nargs);
    if (!c->result_pattern_index || !c->case_only_slots)
        return DV_ENOMEM;
    for (size_t i = 0; i < s->nreturns; i++) {
        c->result_pattern_index[i] = -1;
        for (uint32_t k = 0; k < c->nresult_patterns; k++)
            if (c->result_patterns[k].slot == (int32_t)(s->nargs + i))
                c->result_pattern_index[i] = (int16_t)(c->result_patterns[k].when.group < 0 ? (int)k : -2);
    }
    for (size_t i = 0; i < s->nargs; i++) {
        bool always = false;
        for (uint32_t k = 0; k < c->npatterns; k++)
            always |= c->patterns[k].slot == (int32_t)i && c->patterns[k].when.group < 0;
        if (!always && dv__type_has_tensors(s->args[i].type))
            c->case_only_slots[c->ncase_only_slots++] = (int16_t)i;
    }
    c->is_match_only = !c->ndeferred && !c->nconstraints && !c->nunbacked && !c->ncase_only_slots;
    return DV_OK;
}

/* Checks what needs no program and fills the contract's tables for calls. Returns a status. */
int dv__contract_analyze(dv__contract *c)
{
    int status = analyze_check_all_described(c);
    if (!status)
        status = analyze_build_tables(c);
    return status ? status : dv__contract_analyze_split(c);
}
