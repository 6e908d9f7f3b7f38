/* The functional form of an operator that writes: the same arguments, none of them written; its own results first, then the new
 * value of each written argument, in the schema's order. It is made from the operator's declaration, and calling it calls the
 * operator (call/functional.c). What the operator declares about a written argument's value after the call, above all its
 * formulas, holds for the new value. */
#include "base/error.h"
#include "registry/internal.h"

typedef struct maker {
    const dv_operator *base;
    dv_operator *op;
    const dv__schema *from;
    dv__schema *to;
    int32_t *slots; /* for each slot of the operator, the slot of the functional form that has its value after the call */
    struct clone {
        const dv__expr *from;
        dv__expr *to;
        struct clone *next;
    } *clones; /* one node may be the operand of several */
} maker;

/* Without None: an absent result is None in any case. */
static const dv__type *plain(const dv__type *t) { return t->kind == DV__TYPE_OPTIONAL ? t->elems[0] : t; }

/* The written argument that this result is, or -1. */
static int32_t aliased(const dv_operator *op, size_t r)
{
    const dv__slot *slot = &op->plan->slots[op->plan->nargs + r];
    return slot->flags & DV__SLOT_WRITES ? slot->alias : -1;
}

/* Does the result share memory with a written argument without being that argument? */
static bool is_view_of_written(const dv_operator *op, size_t r)
{
    const dv__slot *slot = &op->plan->slots[op->plan->nargs + r];
    return slot->alias >= 0 && dv__argument_writes(&op->schema->args[slot->alias]) && !(slot->flags & DV__SLOT_WRITES);
}

static int make_returns(maker *m)
{
    const dv__schema *s = m->from;
    size_t n = s->nreturns;
    for (size_t i = 0; i < s->nargs; i++)
        n += dv__argument_writes(&s->args[i]);
    dv__argument *returns = DV__ARENA_ARRAY(&m->to->arena, dv__argument, n + 1);
    if (!returns)
        return DV_ENOMEM;
    n = 0;
    for (size_t r = 0; r < s->nreturns; r++) {
        if (is_view_of_written(m->base, r))
            return dv_fail(DV_ENOTSUP,
                "%s: result %zu is a view of an argument that is written: there is no functional form of it", m->base->name, r);
        if (aliased(m->base, r) >= 0)
            continue;
        m->slots[s->nargs + r] = (int32_t)(s->nargs + n);
        returns[n++] = s->returns[r];
    }
    for (size_t i = 0; i < s->nargs; i++) {
        if (!dv__argument_writes(&s->args[i]))
            continue;
        dv__text name = { 0 };
        dv__text_add(&name, "%s_out", s->args[i].name);
        returns[n] = (dv__argument){ .name = name.failed ? NULL : dv__arena_strndup(&m->to->arena, name.data, name.size),
            .type = plain(s->args[i].type) };
        dv__text_deinit(&name);
        if (!returns[n].name)
            return DV_ENOMEM;
        m->slots[i] = (int32_t)(s->nargs + n++);
    }
    for (size_t r = 0; r < s->nreturns; r++)
        if (aliased(m->base, r) >= 0)
            m->slots[s->nargs + r] = m->slots[aliased(m->base, r)];
    m->to->returns = returns;
    m->to->nreturns = n;
    return DV_OK;
}

/* Types, defaults and other unchanged parts point into the operator's own schema, which lives as long. */
static int make_schema(maker *m)
{
    const dv__schema *s = m->from;
    dv__schema *to = m->to = m->op->schema = dv__calloc(1, sizeof *to);
    if (!to)
        return DV_ENOMEM;
    const dv__arena arena = to->arena;
    *to = *s;
    to->arena = arena;
    dv__text text = { 0 };
    dv__text_add(&text, "%s_functional", s->name);
    to->name = text.failed ? NULL : dv__arena_strndup(&to->arena, text.data, text.size);
    dv__text_deinit(&text);
    dv__argument *args = DV__ARENA_ARRAY(&to->arena, dv__argument, s->nargs + 1);
    if (!to->name || !args)
        return DV_ENOMEM;
    for (size_t i = 0; i < s->nargs; i++) {
        args[i] = s->args[i];
        if (dv__argument_writes(&args[i]))
            args[i].alias = NULL;
    }
    to->args = args;
    const int status = make_returns(m);
    if (status)
        return status;
    dv__schema_print(to, &text);
    to->text = text.failed ? NULL : dv__arena_strndup(&to->arena, text.data, text.size);
    dv__text_deinit(&text);
    return to->text ? DV_OK : DV_ENOMEM;
}

static int make_name(maker *m)
{
    const dv__schema *s = m->to;
    dv__text name = { 0 };
    dv__text_add(&name, "%s::%s%s%s", s->ns, s->name, *s->overload ? "." : "", s->overload);
    return dv__text_take(&name, &m->op->name);
}

/* The operator's contract with an added rule: each new value is like its argument. */
static int make_contract(maker *m)
{
    if (!m->base->contract)
        return DV_OK;
    dv__text text = { 0 };
    dv__contract_own_outputs(m->base->contract, &text);
    for (size_t i = 0; i < m->from->nargs; i++) {
        const dv__argument *a = &m->from->args[i];
        if (!dv__argument_writes(a))
            continue;
        const bool optional = a->type->kind == DV__TYPE_OPTIONAL;
        dv__text_add(&text, optional ? "; when present(%s): -> %s_out" : "; -> %.0s%s_out", a->name, a->name);
        dv__contract_index(m->base->contract, i, &text);
        dv__text_add(&text, optional ? " like(%s) / else: -> %s_out absent" : " like(%s)", a->name, a->name);
    }
    m->op->text.contract = text.failed ? NULL : dv__arena_strndup(&m->op->arena, text.data, text.size);
    dv__text_deinit(&text);
    return m->op->text.contract ? dv__contract_parse(m->op->text.contract, m->op->name, m->to, &m->op->contract) : DV_ENOMEM;
}

/* ---- Formulas ---- */

static int make_native(maker *m)
{
    const dv__native *n = m->base->native;
    if (!n)
        return DV_OK;
    dv__native *to = DV__ARENA_NEW(&m->op->arena, dv__native);
    const dv__expr **results = DV__ARENA_ARRAY(&m->op->arena, const dv__expr *, m->to->nreturns + 1);
    if (!to || !results)
        return DV_ENOMEM;
    for (size_t slot = 0; slot < m->from->nargs + m->from->nreturns; slot++)
        if (m->slots[slot] >= (int32_t)m->from->nargs)
            results[m->slots[slot] - (int32_t)m->from->nargs] = slot < m->from->nargs ? n->writes[slot]
                                                                                      : n->results[slot - m->from->nargs];
    to->results = results;
    to->n = m->to->nreturns;
    m->op->native = to;
    return DV_OK;
}

static int clone(maker *m, const dv__expr *e, dv__expr **out)
{
    *out = NULL;
    for (const struct clone *k = m->clones; k; k = k->next)
        if (k->from == e)
            return *out = k->to, DV_OK;
    dv__expr *to = DV__ARENA_NEW(&m->op->arena, dv__expr);
    struct clone *k = DV__ARENA_NEW(&m->op->arena, struct clone);
    if (!to || !k || !(*to = *e, to->args = DV__ARENA_ARRAY(&m->op->arena, dv__expr *, e->n + 1)))
        return DV_ENOMEM;
    const bool asks = e->kind == DV__EXPR_CALL && (e->ref == DV__FORMULA_PRESENT || e->ref == DV__FORMULA_NEEDS);
    for (uint32_t i = 0; i < e->n; i++) {
        const int status = asks ? (to->args[i] = e->args[i], DV_OK) : clone(m, e->args[i], &to->args[i]);
        if (status)
            return status;
    }
    if (e->kind == DV__EXPR_NAME && (e->role == DV__ROLE_ARG || e->role == DV__ROLE_RESULT || e->role == DV__ROLE_GRAD)) {
        to->ref = m->slots[e->ref];
        if (to->ref >= (int32_t)m->to->nargs && e->role == DV__ROLE_ARG)
            to->role = DV__ROLE_RESULT;
    }
    *k = (struct clone){ e, to, m->clones };
    m->clones = k;
    return *out = to, DV_OK;
}

/* gradient: the targets are arguments; otherwise (tangent) they are results. */
static int make_formula(maker *m, const dv__formula *f, bool gradient, dv__formula **out)
{
    if (!f)
        return DV_OK;
    const size_t nslots = m->from->nargs + m->from->nreturns;
    dv__formula *to = DV__ARENA_NEW(&m->op->arena, dv__formula);
    dv__clause *clauses = DV__ARENA_ARRAY(&m->op->arena, dv__clause, f->n + 1);
    uint8_t *saves = DV__ARENA_ARRAY(&m->op->arena, uint8_t, m->to->nargs + m->to->nreturns + 1);
    if (!to || !clauses || !saves)
        return DV_ENOMEM;
    for (size_t i = 0; i < f->n; i++) {
        int32_t *targets = DV__ARENA_ARRAY(&m->op->arena, int32_t, f->clauses[i].ntargets + 1);
        dv__expr *value = NULL;
        if (!targets || (f->clauses[i].value && clone(m, f->clauses[i].value, &value)))
            return DV_ENOMEM;
        for (size_t t = 0; t < f->clauses[i].ntargets; t++)
            targets[t] = gradient ? f->clauses[i].targets[t] : m->slots[f->clauses[i].targets[t]];
        clauses[i] = (dv__clause){ targets, f->clauses[i].ntargets, value };
    }
    for (size_t slot = 0; slot < nslots && f->saves; slot++)
        if (f->saves[slot] && (saves[m->slots[slot]] != 1))
            saves[m->slots[slot]] = f->saves[slot];
    *to = (dv__formula){ clauses, f->n, f->saves ? saves : NULL };
    *out = to;
    return DV_OK;
}

/* ---- The operator ---- */

static int make(maker *m)
{
    dv_operator *op = m->op;
    const dv_operator *base = m->base;
    m->slots = DV__ARENA_ARRAY(&op->arena, int32_t, m->from->nargs + m->from->nreturns + 1);
    if (!m->slots)
        return DV_ENOMEM;
    for (size_t i = 0; i < m->from->nargs; i++)
        m->slots[i] = (int32_t)i;
    int status = make_schema(m);
    if (status || (status = make_name(m)) || (status = dv__plan_make(m->to, &op->arena, &op->plan)) ||
        (status = make_contract(m)) || (status = make_native(m)) ||
        (status = make_formula(m, base->gradient, true, &op->gradient)) ||
        (status = make_formula(m, base->tangent, false, &op->tangent)))
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
    DV__REQUIRE(out, "place for the result");
    *out = NULL;
    DV__REQUIRE(op, "operator");
    if (!op->plan->writes) {
        *out = dv_operator_ref(op);
        return DV_OK;
    }
    maker m = { .base = op, .from = op->schema };
    m.op = dv__calloc(1, sizeof *m.op);
    if (!m.op)
        return DV_ENOMEM;
    atomic_init(&m.op->refs, 1);
    m.op->functional = dv_operator_ref(op);
    const int status = make(&m);
    if (status) {
        dv__fail_in(status, "the functional form of %s", op->name);
        dv_operator_unref(m.op);
        return status;
    }
    *out = m.op;
    return DV_OK;
}
