/* Builds the steps that follow the patterns: deferred checks of computed dims, definitions, unbacked sizes, facts. */
#include "lang/contract_build.h"

/* ---- Deferred checks ----------------------------------------------------------------------------------------------------- */

/* Returns the dim of a pattern that a deferred item stands for. */
static const dv__dim_item *deferred_item_get_dim(const dv__contract *c, const dv__deferred_item *deferred)
{
    return &c->patterns[deferred->pattern].dims.items[deferred->item];
}

/* Emits a definition whose sizes are bound where `ready` holds: binds its variable if it is unbound, else compares. */
static void deferred_emit_definition(dv__builder *b, const dv__definition *definition, dv__operand ready)
{
    b->message_argument = NULL;
    b->message_text = definition->text;
    const dv__operand value = dv__emit_expr(b, definition->e, ready), variable = dv__dim_register(definition->var_index);
    const dv__operand compared = dv__emit_and(b, ready, b->dim_bound[definition->var_index]);
    if (compared != DV__NEVER) {
        const dv__operand is_equal = dv__emit_op2(b, DV__OP_EQ, DV__TYPE_INT, compared, variable, value);
        dv__emit_check(b, is_equal, compared, DV_ESHAPE,
            dv__message(b, "%s: expected %s = %r, found %r%m", definition->text, definition->name, value, variable,
                dv__message_make_bound_by(b, definition->var_index)));
    }
    dv__emit_copy(b, variable, value, dv__emit_and(b, ready, dv__emit_not(b, b->dim_bound[definition->var_index], DV__ALWAYS)));
    b->dim_bound[definition->var_index] = dv__emit_or(b, b->dim_bound[definition->var_index], ready);
}

/* Emits each deferred check whose sizes are bound now, in textual order. Returns false if there is no such check. */
static bool deferred_try_emit_all_ready(dv__builder *b)
{
    const dv__contract *c = b->c;
    bool any = false;
    for (uint32_t k = 0; k < c->ndeferred && !b->status; k++) {
        const dv__deferred_item *a = &c->deferred[k];
        dv__deferred_check *check = &b->deferred[k];
        const dv__operand bound = dv__emit_all_bound(
            b, a->pattern < 0 ? c->definitions[a->item].vars : deferred_item_get_dim(c, a)->vars);
        if (check->is_pending == DV__NEVER || bound == check->bound_at_last_try)
            continue;
        check->bound_at_last_try = bound;
        const dv__operand ready = dv__emit_and(b, check->is_pending, bound);
        if (ready == DV__NEVER)
            continue;
        check->is_pending = dv__emit_and(b, check->is_pending, dv__emit_not(b, bound, DV__ALWAYS));
        if (a->pattern < 0)
            deferred_emit_definition(b, &c->definitions[a->item], ready);
        else
            dv__build_deferred_dim(b, &c->patterns[a->pattern], (uint32_t)a->item, ready);
        any = true;
    }
    return any;
}

/* Returns how many times a size variable occurs in an expression. */
static int expr_count_dim_var(const dv__expr *e, int dim_var)
{
    int n = e->role == DV__ROLE_DIM && e->ref == dim_var;
    for (uint32_t i = 0; i < e->n; i++)
        n += expr_count_dim_var(e->args[i], dim_var);
    return n;
}

/* True if the size variable occurs once in the expression, and only under + - * / and unary -. */
static bool expr_can_solve_for(const dv__expr *e, int dim_var)
{
    if (expr_count_dim_var(e, dim_var) != 1)
        return false;
    for (; e->role != DV__ROLE_DIM; e = expr_count_dim_var(e->args[0], dim_var) ? e->args[0] : e->args[1])
        if (e->kind != DV__EXPR_ADD && e->kind != DV__EXPR_SUB && e->kind != DV__EXPR_MUL && e->kind != DV__EXPR_DIV &&
            e->kind != DV__EXPR_NEG)
            return false;
    return true;
}

/* Returns the message "expected a size for which there is a whole 'n', found 7". */
static dv__message_part *invert_make_no_solution_message(dv__builder *b, int dim_var, dv__operand found)
{
    return dv__message(b, "%mexpected a size for which there is a whole '%s', found %r", dv__message_make_item_prefix(b),
        b->c->dims[dim_var].name, found);
}

/* Emits x / divisor, and a check that fails for a remainder. Returns the register. */
static dv__operand invert_emit_division(
    dv__builder *b, dv__operand x, dv__operand divisor, int dim_var, dv__operand found, dv__operand guard)
{
    const dv__operand is_nonzero = dv__emit_op2(b, DV__OP_NE, DV__TYPE_INT, guard, divisor, dv__builder_int_literal(b, 0));
    const dv__operand d = dv__emit_select(b, guard, is_nonzero, divisor, dv__builder_int_literal(b, 1)), in[] = { x, d };
    const dv__operand is_divisible = dv__emit_op2(
        b, DV__OP_EQ, DV__TYPE_INT, guard, dv__emit_op2(b, DV__OP_MOD, DV__TYPE_INT, guard, x, d), dv__builder_int_literal(b, 0));
    dv__emit_check(b, dv__emit_and_under(b, guard, is_nonzero, is_divisible), guard, DV_ESHAPE,
        invert_make_no_solution_message(b, dim_var, found));
    return dv__emit_op(b, DV__OP_FLOORDIV, DV__TYPE_INT, guard, 2, in, 0,
        dv__step_error_new(b, DV_ESHAPE, invert_make_no_solution_message(b, dim_var, found)));
}

/* Emits the solution of e == found for a size variable: inverts the outermost operation, then continues with its operand.
 * Returns the register. */
static dv__operand invert_emit_solved_value(dv__builder *b, const dv__expr *e, int dim_var, dv__operand found, dv__operand guard)
{
    dv__operand value = found;
    const dv__step_error *overflow_error = dv__step_error_new(b, DV_ESHAPE, invert_make_no_solution_message(b, dim_var, found));
    while (e->role != DV__ROLE_DIM && !b->status) {
        if (e->kind == DV__EXPR_NEG) {
            value = dv__emit_op(b, DV__OP_NEG, DV__TYPE_INT, guard, 1, &value, 0, overflow_error);
            e = e->args[0];
            continue;
        }
        const int side = expr_count_dim_var(e->args[0], dim_var) ? 0 : 1;
        const dv__operand other = dv__emit_expr(b, e->args[1 - side], guard);
        dv__operand in[] = { value, other };
        if (e->kind == DV__EXPR_ADD) {
            value = dv__emit_op(b, DV__OP_SUB, DV__TYPE_INT, guard, 2, in, 0, overflow_error);
        } else if (e->kind == DV__EXPR_SUB) {
            if (side)
                in[0] = other, in[1] = value;
            value = dv__emit_op(b, side ? DV__OP_SUB : DV__OP_ADD, DV__TYPE_INT, guard, 2, in, 0, overflow_error);
        } else if (e->kind == DV__EXPR_MUL) {
            value = invert_emit_division(b, value, other, dim_var, found, guard);
        } else if (side) {
            value = invert_emit_division(b, other, value, dim_var, found, guard);
        } else {
            const dv__operand is_nonzero = dv__emit_op2(b, DV__OP_NE, DV__TYPE_INT, guard, other, dv__builder_int_literal(b, 0));
            dv__emit_check(b, is_nonzero, guard, DV_ESHAPE, invert_make_no_solution_message(b, dim_var, found));
            value = dv__emit_op(b, DV__OP_MUL, DV__TYPE_INT, guard, 2, in, 0, overflow_error);
        }
        e = e->args[side];
    }
    return value;
}

/* Emits the solution of a deferred dim for a size variable, the check that it is not negative, and the variable's binding. */
static void invert_emit_solved_binding(
    dv__builder *b, const dv__deferred_item *deferred, const dv__deferred_check *check, int dim_var, dv__operand guard)
{
    const dv__dim_item *item = deferred_item_get_dim(b->c, deferred);
    b->message_argument = b->c->patterns[deferred->pattern].name;
    b->message_text = item->text;
    const dv__operand value = invert_emit_solved_value(b, item->e, dim_var, check->found_size_reg, guard);
    const dv__operand size = dv__emit_op2(b, DV__OP_GE, DV__TYPE_INT, guard, value, dv__builder_int_literal(b, 0));
    dv__emit_check(b, size, guard, DV_ESHAPE,
        dv__message(b, "%m'%s' would be negative: %r", dv__message_make_item_prefix(b), b->c->dims[dim_var].name, value));
    dv__emit_copy(b, dv__dim_register(dim_var), value, guard);
    b->dim_bound[dim_var] = dv__emit_or(b, b->dim_bound[dim_var], guard);
}

/* Emits the binding of one size variable by the first computed dim that has only one unknown size. In other cases another dim
 * may be the first. Returns false if there is no such dim. */
static bool invert_try_emit_first_solvable(dv__builder *b)
{
    const dv__contract *c = b->c;
    dv__operand solved = DV__NEVER, before[DV__MAX_DIM_VARS];
    memcpy(before, b->dim_bound, sizeof before);
    for (uint32_t k = 0; k < c->ndeferred && !b->status; k++) {
        const dv__deferred_item *a = &c->deferred[k];
        dv__deferred_check *check = &b->deferred[k];
        if (a->pattern < 0)
            continue;
        const dv__dim_item *item = deferred_item_get_dim(c, a);
        for (uint64_t refs = item->vars.dims; refs && check->is_pending != DV__NEVER; refs &= refs - 1) {
            const int ref = __builtin_ctzll(refs);
            if (before[ref] == DV__ALWAYS || !expr_can_solve_for(item->e, ref))
                continue;
            dv__var_set others = item->vars;
            others.dims &= ~(1ull << ref);
            dv__operand g = dv__emit_and(b, check->is_pending, dv__emit_all_bound(b, others));
            g = dv__emit_and(b, g, dv__emit_not(b, before[ref], DV__ALWAYS));
            g = dv__emit_and(b, g, dv__emit_not(b, solved, DV__ALWAYS));
            if (g == DV__NEVER)
                continue;
            invert_emit_solved_binding(b, a, check, ref, g);
            if (c->patterns[a->pattern].kind != DV__PATTERN_LIST) /* in a list, the later tensors must still be compared */
                check->is_pending = dv__emit_and(b, check->is_pending, dv__emit_not(b, g, DV__ALWAYS));
            solved = dv__emit_or(b, solved, g);
        }
        if (solved == DV__ALWAYS)
            break;
    }
    return solved != DV__NEVER;
}

/* Emits all deferred checks and definitions, and solves computed dims for unbound sizes, until no more can be emitted. */
void dv__build_deferred_checks(dv__builder *b)
{
    for (uint32_t i = 0; i < b->c->ndefinitions; i++) {
        const dv__definition *d = &b->c->definitions[i];
        b->deferred[d->deferred_bit] = (dv__deferred_check){ .is_pending = dv__case_get_condition(b, d->when),
            .bound_at_last_try = DV__NEVER };
    }
    for (uint32_t pass = 0; pass <= b->c->ndims && !b->status; pass++) { /* each pass solves for one variable in each call */
        while (deferred_try_emit_all_ready(b))
            continue;
        if (!invert_try_emit_first_solvable(b))
            return;
    }
}

/* ---- Facts --------------------------------------------------------------------------------------------------------------- */

/* Emits the binding of each unbacked size, with its least and greatest value. */
static void facts_emit_unbacked_sizes(dv__builder *b)
{
    for (uint32_t i = 0; i < b->c->nunbacked; i++) {
        const dv__unbacked_size *u = &b->c->unbacked[i];
        b->message_argument = NULL;
        b->message_text = u->name;
        const dv__operand least = dv__emit_expr(b, u->min, DV__ALWAYS), most = dv__emit_expr(b, u->max, DV__ALWAYS);
        dv__step *s = dv__emit_step(b, DV__OP_UNBACKED, DV__ALWAYS);
        if (!s)
            return;
        s->to = dv__dim_register(u->var_index);
        s->type = DV__TYPE_INT;
        s->ninputs = 2;
        s->in[0] = least;
        s->in[1] = most;
        b->dim_bound[u->var_index] = DV__ALWAYS;
    }
}

/* Adds "len(xs) = 2" or "stride(x, 1) = 4" to a JOIN part. */
static void facts_message_add_query_value(dv__builder *b, const dv__expr *e, dv__message_part *join)
{
    const dv__message_scope scope = dv__message_scope_begin(b);
    dv__strbuf text = { 0 };
    dv__expr_print(e, &text);
    const dv__operand is_present = dv__emit_present(b, e->args[0]->ref), n = dv__emit_expr(b, e, is_present);
    dv__message_part *p = dv__message(b, "%s = %r", text.data ? text.data : e->name, n);
    dv__message_join_add(b, join, dv__message_if(b, is_present, p, NULL));
    dv__strbuf_deinit(&text);
    dv__message_scope_end(b, scope);
}

/* True if e is a query about an argument (len(x), size(x, d)), not the argument itself. */
static bool facts_is_argument_query(const dv__expr *e)
{
    const char letter = dv__expr_get_operand_letter(e, 0);
    const bool is_of_tensor = e->type == DV__TYPE_INT && e->n && e->args[0]->type == DV__TYPE_TENSOR;
    return letter == 'L' || (is_of_tensor && (letter == 's' || letter == 'S'));
}

/* Adds the value of each argument and query in an expression to a JOIN part, "n = 3"; an argument is added once. */
static void facts_message_add_arguments(dv__builder *b, const dv__expr *e, dv__message_part *join)
{
    if (facts_is_argument_query(e)) {
        facts_message_add_query_value(b, e, join);
        for (uint32_t i = 1; i < e->n; i++)
            facts_message_add_arguments(b, e->args[i], join);
        return;
    }
    bool is_mentioned = e->role != DV__ROLE_ARGUMENT;
    for (const dv__message_part *p = join ? join->then : NULL; p && !is_mentioned; p = p->next)
        is_mentioned = p->then && p->then->kind == DV__PART_ARGUMENT && p->then->slot == e->ref;
    if (!is_mentioned) {
        dv__message_part *p = dv__message_part_new(b, DV__PART_ARGUMENT);
        if (p)
            p->slot = e->ref;
        dv__message_join_add(b, join, p);
    }
    for (uint32_t i = 0; i < e->n && e->kind != DV__EXPR_ATTR; i++)
        facts_message_add_arguments(b, e->args[i], join);
}

/* Returns the slot of the only argument in an expression; -1: it has none, -2: several. found_before: the answer for what was
 * searched before, at first -1. */
static int expr_find_only_argument_slot(const dv__expr *e, int found_before)
{
    if (e->role == DV__ROLE_ARGUMENT)
        found_before = found_before == -1 || found_before == e->ref ? e->ref : -2;
    for (uint32_t i = 0; i < e->n; i++)
        found_before = expr_find_only_argument_slot(e->args[i], found_before);
    return found_before;
}

/* Returns the message of a fact that does not hold: "expected m >= d, found d = 8, m = 7", with the binders. */
static dv__message_part *facts_make_constraint_message(dv__builder *b, const dv__constraint *constraint)
{
    const int argument = expr_find_only_argument_slot(constraint->e, -1);
    dv__message_part *join = dv__message_join_new(b, "", "");
    dv__message_part *p = argument >= 0 ? dv__message(b, "argument '%s': ", b->c->schema->args[argument].name) : NULL;
    p = dv__message(b, "%mexpected %s%m, found ", p, constraint->text, dv__message_make_case(b, constraint->when));
    facts_message_add_arguments(b, constraint->e, join);
    if (!dv__message_add_variables(b, constraint->vars, join))
        return dv__message(b, "%motherwise", p);
    return dv__message(b, "%m%m%m", p, join, dv__message_make_binders(b, constraint->vars));
}

/* Emits the check of "ids.values < e" or "sorted(ids)" for each element: a block EACH_VALUE. It runs only in check mode and on
 * the CPU. */
static void facts_emit_element_check(dv__builder *b, const dv__constraint *constraint, dv__operand guard)
{
    const dv__operand g = dv__emit_and(b, guard, dv__emit_present(b, constraint->values_slot));
    const dv__operand x = dv__emit_load(b, DV__OP_TENSOR, DV__TYPE_TENSOR, g, constraint->values_slot);
    const uint32_t at = b->p->nsteps;
    b->element = dv__builder_add_register(b, DV__TYPE_NUMBER);
    dv__step *s = dv__emit_step(b, DV__OP_EACH_VALUE, g);
    if (!s)
        return;
    s->to = b->element;
    s->type = DV__TYPE_NUMBER;
    s->ninputs = 1;
    s->in[0] = x;
    b->previous_element_reg = DV__ALWAYS;
    const dv__operand holds = dv__emit_expr(b, constraint->e, DV__ALWAYS);
    b->p->steps[at].index = b->previous_element_reg;
    dv__message_part *p = dv__message(b, "argument '%s': expected %s, found the element %r at %m",
        b->c->schema->args[constraint->values_slot].name, constraint->text, b->element,
        dv__message_part_new(b, DV__PART_ELEMENT_INDEX));
    if (b->previous_element_reg != DV__ALWAYS)
        p = dv__message(b, "%m after %r", p, b->previous_element_reg);
    dv__emit_check(b, holds, DV__ALWAYS, DV_EINVAL,
        dv__message(b, "%m%m", p, dv__message_add_variables(b, constraint->vars, dv__message_join_new(b, ", ", ""))));
    dv__builder_close_block(b, at);
}

/* Emits the check of a condition among the facts. It is skipped where an absent argument leaves one of its variables
 * unbound. */
static void facts_emit_constraint(dv__builder *b, const dv__constraint *constraint)
{
    const dv__operand guard = dv__emit_and(
        b, dv__case_get_condition(b, constraint->when), dv__emit_all_bound(b, constraint->vars));
    b->message_argument = NULL;
    b->message_text = constraint->text;
    if (guard == DV__NEVER)
        return;
    if (constraint->values_slot >= 0) {
        facts_emit_element_check(b, constraint, guard);
        return;
    }
    const dv__operand holds = dv__emit_expr(b, constraint->e, guard);
    if (constraint->when.group < 0)
        dv__obligation_add(b, guard, holds, constraint->at, NULL);
    if (dv__condition_can_fail(b, holds, guard))
        dv__emit_check(b, holds, guard, DV_EINVAL, facts_make_constraint_message(b, constraint));
}

/* Emits the check that an optional argument is None in the cases that have no pattern for it. */
static void facts_emit_case_only_check(dv__builder *b, int slot)
{
    const dv__pattern *case_pattern = NULL;
    dv__operand described = DV__NEVER;
    for (uint32_t k = 0; k < b->c->npatterns; k++)
        if (b->c->patterns[k].slot == slot) {
            case_pattern = &b->c->patterns[k];
            described = dv__emit_or(b, described, dv__case_get_condition(b, case_pattern->when));
        }
    const dv__operand is_valid = dv__emit_or(b, dv__emit_not(b, dv__emit_present(b, slot), DV__ALWAYS), described);
    if (!case_pattern || !dv__condition_can_fail(b, is_valid, DV__ALWAYS))
        return;
    dv__message_part *case_text = NULL;
    for (uint32_t i = b->c->groups[case_pattern->when.group].n; i-- > 0;) {
        const dv__case_ref when = { case_pattern->when.group, (int8_t)i };
        case_text = dv__message_if(b, dv__case_get_condition(b, when), dv__message_make_case(b, when), case_text);
    }
    dv__emit_check(b, is_valid, DV__ALWAYS, DV_EINVAL,
        dv__message(b, "argument '%s': expected None%m, found a value", case_pattern->name, case_text));
}

/* Emits unbacked sizes, the checks of all facts, and the common device of a call without tensors, the CPU. */
void dv__build_facts(dv__builder *b)
{
    facts_emit_unbacked_sizes(b);
    for (uint32_t i = 0; i < b->c->nconstraints && !b->status; i++)
        facts_emit_constraint(b, &b->c->constraints[i]);
    for (uint32_t i = 0; i < b->c->ncase_only_slots && !b->status; i++)
        facts_emit_case_only_check(b, b->c->case_only_slots[i]);
    const dv__operand cpu = dv__builder_add_literal(b, DV__TYPE_DEVICE, (dv__reg){ .device = { DV_CPU, 0 } });
    dv__emit_copy(b, dv__device_register(b->c), cpu, dv__emit_not(b, b->device_bound, DV__ALWAYS));
}
