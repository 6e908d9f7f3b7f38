/* Makes functional forms of operators that write arguments. A functional form has the operator's arguments, none of them
 * written. It returns the operator's own results, then the new value of each written argument, in the schema's order. A call
 * of the form calls the operator (call/functional_call.c). Declarations about a written argument's value after the call,
 * such as formulas, hold for the new value. */
#include "base/error.h"
#include "registry/registry_internal.h"

typedef struct functional_maker {
    const dv_operator *base;
    dv_operator *op;
    const dv__schema *from;
    dv__schema *to;
    int32_t *slots; /* by slot of the operator: the slot of the functional form with that value after the call */
    struct expr_clone {
        const dv__expr *from;
        dv__expr *to;
        struct expr_clone *next;
    } *clones; /* cloned nodes: a node that is the operand of several others is cloned once */
} functional_maker;

/* Returns the type without Optional: every tensor result may be absent, so a result's type is never optional. */
static const dv__type *functional_strip_optional(const dv__type *t) { return t->kind == DV__TYPE_OPTIONAL ? t->elems[0] : t; }

/* Returns the index of the written argument that a result is itself; -1: the result is no argument. */
static int32_t functional_find_aliased_argument_index(const dv_operator *op, size_t result_index)
{
    const dv__slot *slot = &op->signature->slots[op->signature->nargs + result_index];
    return slot->flags & DV__SLOT_WRITES ? slot->alias : -1;
}

/* True if a result is a view of a written argument, and not the argument itself. */
static bool functional_is_view_of_written_argument(const dv_operator *op, size_t result_index)
{
    const dv__slot *slot = &op->signature->slots[op->signature->nargs + result_index];
    return slot->alias >= 0 && dv__argument_is_written(&op->schema->args[slot->alias]) && !(slot->flags & DV__SLOT_WRITES);
}

/* Makes the returns of the functional form: those of the operator, then the new value of each written argument. Sets m->slots
 * of both. Fails if a result is a view of a written argument. */
static int functional_make_returns(functional_maker *m)
{
    const dv__schema *s = m->from;
    size_t n = s->nreturns;
    for (size_t i = 0; i < s->nargs; i++)
        n += dv__argument_is_written(&s->args[i]);
    dv__argument *returns = DV__ARENA_ARRAY(&m->to->arena, dv__argument, n + 1);
    if (!returns)
        return DV_ENOMEM;
    n = 0;
    for (size_t r = 0; r < s->nreturns; r++) {
        if (functional_is_view_of_written_argument(m->base, r))
            return dv_fail(DV_ENOTSUP,
                "%s: result %zu is a view of an argument that is written: there is no functional form of it", m->base->name, r);
        if (functional_find_aliased_argument_index(m->base, r) >= 0)
            continue;
        m->slots[s->nargs + r] = (int32_t)(s->nargs + n);
        returns[n++] = s->returns[r];
    }
    for (size_t i = 0; i < s->nargs; i++) {
        if (!dv__argument_is_written(&s->args[i]))
            continue;
        dv__strbuf name = { 0 };
        dv__strbuf_printf(&name, "%s_out", s->args[i].name);
        returns[n] = (dv__argument){ .name = name.failed ? NULL : dv__arena_strndup(&m->to->arena, name.data, name.size),
            .type = functional_strip_optional(s->args[i].type) };
        dv__strbuf_deinit(&name);
        if (!returns[n].name)
            return DV_ENOMEM;
        m->slots[i] = (int32_t)(s->nargs + n++);
    }
    for (size_t r = 0; r < s->nreturns; r++)
        if (functional_find_aliased_argument_index(m->base, r) >= 0)
            m->slots[s->nargs + r] = m->slots[functional_find_aliased_argument_index(m->base, r)];
    m->to->returns = returns;
    m->to->nreturns = n;
    return DV_OK;
}

/* Makes the functional form's schema. Types, defaults and other unchanged parts point into the schema of the operator, to
 * which the form holds a reference. Returns a status. */
static int functional_make_schema(functional_maker *m)
{
    const dv__schema *s = m->from;
    dv__schema *to = m->to = m->op->schema = dv__calloc(1, sizeof *to);
    if (!to)
        return DV_ENOMEM;
    const dv__arena arena = to->arena;
    *to = *s;
    to->arena = arena;
    dv__strbuf text = { 0 };
    dv__strbuf_printf(&text, "%s_functional", s->name);
    to->name = text.failed ? NULL : dv__arena_strndup(&to->arena, text.data, text.size);
    dv__strbuf_deinit(&text);
    dv__argument *args = DV__ARENA_ARRAY(&to->arena, dv__argument, s->nargs + 1);
    if (!to->name || !args)
        return DV_ENOMEM;
    for (size_t i = 0; i < s->nargs; i++) {
        args[i] = s->args[i];
        if (dv__argument_is_written(&args[i]))
            args[i].alias = NULL;
    }
    to->args = args;
    const int status = functional_make_returns(m);
    if (status)
        return status;
    dv__schema_print(to, &text);
    to->text = text.failed ? NULL : dv__arena_strndup(&to->arena, text.data, text.size);
    dv__strbuf_deinit(&text);
    return to->text ? DV_OK : DV_ENOMEM;
}

static int functional_make_name(functional_maker *m)
{
    const dv__schema *s = m->to;
    dv__strbuf name = { 0 };
    dv__strbuf_printf(&name, "%s::%s%s%s", s->ns, s->name, *s->overload ? "." : "", s->overload);
    return dv__strbuf_detach(&name, &m->op->name);
}

/* Makes the functional form's contract: the operator's contract, and a pattern like(x) for the new value of each written x.
 * Returns a status. */
static int functional_make_contract(functional_maker *m)
{
    if (!m->base->contract)
        return DV_OK;
    dv__strbuf text = { 0 };
    dv__contract_print_new_results(m->base->contract, &text);
    for (size_t i = 0; i < m->from->nargs; i++) {
        const dv__argument *a = &m->from->args[i];
        if (!dv__argument_is_written(a))
            continue;
        const bool optional = a->type->kind == DV__TYPE_OPTIONAL;
        dv__strbuf_printf(&text, optional ? "; when present(%s): -> %s_out" : "; -> %.0s%s_out", a->name, a->name);
        dv__contract_print_list_index(m->base->contract, i, &text);
        dv__strbuf_printf(&text, optional ? " like(%s) / else: -> %s_out absent" : " like(%s)", a->name, a->name);
    }
    m->op->text.contract = text.failed ? NULL : dv__arena_strndup(&m->op->arena, text.data, text.size);
    dv__strbuf_deinit(&text);
    return m->op->text.contract ? dv__contract_parse(m->op->text.contract, m->op->name, m->to, &m->op->contract) : DV_ENOMEM;
}

/* ---- Formulas ---- */

/* Makes the decomposition of the functional form, from the operator's results and written values, if the operator has one.
 * Returns DV_OK or DV_ENOMEM. */
static int functional_make_decomposition(functional_maker *m)
{
    const dv__decomposition *n = m->base->decomposition;
    if (!n)
        return DV_OK;
    dv__decomposition *to = DV__ARENA_NEW(&m->op->arena, dv__decomposition);
    const dv__expr **results = DV__ARENA_ARRAY(&m->op->arena, const dv__expr *, m->to->nreturns + 1);
    if (!to || !results)
        return DV_ENOMEM;
    for (size_t slot = 0; slot < m->from->nargs + m->from->nreturns; slot++)
        if (m->slots[slot] >= (int32_t)m->from->nargs)
            results[m->slots[slot] - (int32_t)m->from->nargs] = slot < m->from->nargs ? n->written_values[slot]
                                                                                      : n->results[slot - m->from->nargs];
    to->results = results;
    to->n = m->to->nreturns;
    m->op->decomposition = to;
    return DV_OK;
}

/* Clones a formula's expression for the functional form: each slot is replaced by the form's slot that has its value. Tests
 * of presence still name the argument. */
static int functional_clone_and_renumber_expr(functional_maker *m, const dv__expr *e, dv__expr **out)
{
    *out = NULL;
    for (const struct expr_clone *k = m->clones; k; k = k->next)
        if (k->from == e)
            return *out = k->to, DV_OK;
    dv__expr *to = DV__ARENA_NEW(&m->op->arena, dv__expr);
    struct expr_clone *k = DV__ARENA_NEW(&m->op->arena, struct expr_clone);
    if (!to || !k || !(*to = *e, to->args = DV__ARENA_ARRAY(&m->op->arena, dv__expr *, e->n + 1)))
        return DV_ENOMEM;
    const bool is_presence_test = e->kind == DV__EXPR_CALL && (e->ref == DV__FORMULA_PRESENT || e->ref == DV__FORMULA_NEEDS);
    for (uint32_t i = 0; i < e->n; i++) {
        const int status = is_presence_test ? (to->args[i] = e->args[i], DV_OK)
                                            : functional_clone_and_renumber_expr(m, e->args[i], &to->args[i]);
        if (status)
            return status;
    }
    if (e->kind == DV__EXPR_NAME && (e->role == DV__ROLE_ARGUMENT || e->role == DV__ROLE_RESULT || e->role == DV__ROLE_GRAD)) {
        to->ref = m->slots[e->ref];
        if (to->ref >= (int32_t)m->to->nargs && e->role == DV__ROLE_ARGUMENT)
            to->role = DV__ROLE_RESULT;
    }
    *k = (struct expr_clone){ e, to, m->clones };
    m->clones = k;
    return *out = to, DV_OK;
}

/* Makes a gradient or tangent of the functional form from that of the operator; NULL gives none. is_gradient: the targets of
 * clauses are arguments; otherwise the targets are results. Returns a status. */
static int functional_make_formula(functional_maker *m, const dv__formula *base_formula, bool is_gradient, dv__formula **out)
{
    if (!base_formula)
        return DV_OK;
    const size_t nslots = m->from->nargs + m->from->nreturns;
    dv__formula *to = DV__ARENA_NEW(&m->op->arena, dv__formula);
    dv__formula_clause *clauses = DV__ARENA_ARRAY(&m->op->arena, dv__formula_clause, base_formula->n + 1);
    uint8_t *saves = DV__ARENA_ARRAY(&m->op->arena, uint8_t, m->to->nargs + m->to->nreturns + 1);
    if (!to || !clauses || !saves)
        return DV_ENOMEM;
    for (size_t i = 0; i < base_formula->n; i++) {
        int32_t *targets = DV__ARENA_ARRAY(&m->op->arena, int32_t, base_formula->clauses[i].ntargets + 1);
        dv__expr *value = NULL;
        if (!targets ||
            (base_formula->clauses[i].value && functional_clone_and_renumber_expr(m, base_formula->clauses[i].value, &value)))
            return DV_ENOMEM;
        for (size_t t = 0; t < base_formula->clauses[i].ntargets; t++)
            targets[t] = is_gradient ? base_formula->clauses[i].targets[t] : m->slots[base_formula->clauses[i].targets[t]];
        clauses[i] = (dv__formula_clause){ targets, base_formula->clauses[i].ntargets, value };
    }
    for (size_t slot = 0; slot < nslots && base_formula->saved_parts; slot++)
        if (base_formula->saved_parts[slot] && (saves[m->slots[slot]] != 1))
            saves[m->slots[slot]] = base_formula->saved_parts[slot];
    *to = (dv__formula){ clauses, base_formula->n, base_formula->saved_parts ? saves : NULL };
    *out = to;
    return DV_OK;
}

/* ---- The operator ---- */

/* Fills m->op: schema, name, signature, contract and formulas of the functional form. Returns a status. */
static int functional_fill_operator(functional_maker *m)
{
    dv_operator *op = m->op;
    const dv_operator *base = m->base;
    m->slots = DV__ARENA_ARRAY(&op->arena, int32_t, m->from->nargs + m->from->nreturns + 1);
    if (!m->slots)
        return DV_ENOMEM;
    for (size_t i = 0; i < m->from->nargs; i++)
        m->slots[i] = (int32_t)i;
    int status = functional_make_schema(m);
    if (status || (status = functional_make_name(m)) || (status = dv__signature_make(m->to, &op->arena, &op->signature)) ||
        (status = functional_make_contract(m)) || (status = functional_make_decomposition(m)) ||
        (status = functional_make_formula(m, base->gradient, true, &op->gradient)) ||
        (status = functional_make_formula(m, base->tangent, false, &op->tangent)))
        return status;
    const char *contract = op->text.contract;
    op->text = base->text;
    op->text.contract = contract;
    op->line = base->line;
    atomic_init(&op->alive, true);
    return DV_OK;
}

int dv_functional(dv_operator *op, dv_operator **out)
{
    DV__REQUIRE(out, "pointer for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    if (!op->signature->writes_arguments) {
        *out = dv_operator_ref(op);
        return DV_OK;
    }
    functional_maker m = { .base = op, .from = op->schema };
    m.op = dv__calloc(1, sizeof *m.op);
    if (!m.op)
        return DV_ENOMEM;
    atomic_init(&m.op->refs, 1);
    m.op->functional_form_of = dv_operator_ref(op);
    const int status = functional_fill_operator(&m);
    if (status) {
        dv__fail_add_context(status, "the functional form of %s", op->name);
        dv_operator_unref(m.op);
        return status;
    }
    *out = m.op;
    return DV_OK;
}
