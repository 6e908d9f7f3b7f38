/* Formulas: the clauses around the expressions. formula_check.c has the names and types, formula_json.c the output. */
#include "lang/formula_internal.h"

#include <stdio.h>

/* ---- Outputs: results and written arguments ------------------------------------------------------------------------------ */

/* True if two alias annotations have a set in common, the wildcard left out. */
static bool alias_sets_have_common_set(const dv__alias *a, const dv__alias *b)
{
    for (size_t i = 0; i < a->nbefore; i++)
        for (size_t j = 0; j < b->nbefore; j++)
            if (!strcmp(a->before[i], b->before[j]) && strcmp(a->before[i], "*") != 0)
                return true;
    return false;
}

/* Returns the slot of the written argument that a return is; -1: the return is no argument. */
int32_t dv__schema_find_aliased_argument_index(const dv__schema *s, size_t return_index)
{
    const dv__alias *alias = s->returns[return_index].alias;
    for (size_t i = 0; alias && i < s->nargs; i++)
        if (dv__argument_is_written(&s->args[i]) && alias_sets_have_common_set(alias, s->args[i].alias))
            return (int32_t)i;
    return -1;
}

/* Lists the outputs, which have gradients and tangents: all returns, then each written argument that is not returned. Returns
 * their number. */
size_t dv__formula_list_and_count_outputs(const dv__schema *s, int32_t *slots)
{
    size_t n = 0;
    for (size_t i = 0; i < s->nreturns; i++)
        slots[n++] = (int32_t)(s->nargs + i);
    for (size_t i = 0; i < s->nargs; i++) {
        bool returned = false;
        for (size_t r = 0; r < s->nreturns; r++)
            returned = returned || dv__schema_find_aliased_argument_index(s, r) == (int32_t)i;
        if (dv__argument_is_written(&s->args[i]) && !returned)
            slots[n++] = (int32_t)i;
    }
    return n;
}

/* True if the slot is a return or a written argument. */
static bool slot_is_output(const dv__schema *s, int32_t slot)
{
    return slot >= (int32_t)s->nargs || dv__argument_is_written(&s->args[slot]);
}

/* ---- Targets ------------------------------------------------------------------------------------------------------------- */

typedef struct formula_parser {
    formula_checker type_checker;
    dv__lexer lx;
    const char *op_name;
    bool *has_formula; /* by slot: an earlier clause has the slot as a target */
    dv__formula_clause *clauses;
    size_t n, capacity;
} formula_parser;

/* Returns the slot of the result called `result`, `result1` or by a return's name; -1: there is none. */
static int32_t formula_find_result_slot_by_token(const dv__schema *s, const char *name, size_t size)
{
    for (size_t i = 0; i < s->nreturns; i++) {
        char default_name[32];
        if (strlen(s->returns[i].name) == size && size && !memcmp(s->returns[i].name, name, size))
            return (int32_t)(s->nargs + i);
        snprintf(default_name, sizeof default_name, "result%zu", i);
        if ((strlen(default_name) == size && !memcmp(default_name, name, size)) ||
            (s->nreturns == 1 && size == 6 && !memcmp("result", name, size)))
            return (int32_t)(s->nargs + i);
    }
    return -1;
}

/* Returns the slot of the argument with this name; -1: there is none. */
static int32_t formula_find_argument_slot_by_token(const dv__schema *s, const char *name, size_t size)
{
    for (size_t i = 0; i < s->nargs; i++)
        if (strlen(s->args[i].name) == size && !memcmp(s->args[i].name, name, size))
            return (int32_t)i;
    return -1;
}

/* Fails with the message that a token names no target, and the names that do. Returns DV_ESCHEMA. */
static int formula_fail_unknown_target(formula_parser *p, const dv__token *t)
{
    const dv__schema *s = p->type_checker.schema;
    dv__strbuf names = { 0 };
    for (size_t i = 0; i < s->nargs; i++)
        if (p->type_checker.mode == MODE_GRADIENT || dv__argument_is_written(&s->args[i]))
            dv__strbuf_printf(&names, "%s%s", names.size ? ", " : "", s->args[i].name);
    for (size_t i = 0; i < s->nreturns && p->type_checker.mode != MODE_GRADIENT; i++) {
        if (*s->returns[i].name)
            dv__strbuf_printf(&names, "%s%s", names.size ? ", " : "", s->returns[i].name);
        else if (s->nreturns == 1)
            dv__strbuf_printf(&names, "%sresult", names.size ? ", " : "");
        else
            dv__strbuf_printf(&names, "%sresult%zu", names.size ? ", " : "", i);
    }
    const int status = dv__fail_at_column(DV_ESCHEMA, p->lx.text, t->start, "'%.*s' is not %s of the operator; there are: %s",
        (int)t->size, t->start, p->type_checker.mode == MODE_GRADIENT ? "an argument" : "a result",
        names.size ? names.data : "none");
    dv__strbuf_deinit(&names);
    return status;
}

/* Returns the schema's argument or return in a slot. */
static const dv__argument *schema_get_argument_or_return(const dv__schema *s, int32_t slot)
{
    return slot < (int32_t)s->nargs ? &s->args[slot] : &s->returns[slot - (int32_t)s->nargs];
}

/* Parses the name of a clause's target, whose slot *slot receives: an argument in gradients, else an output. Returns a
 * status. */
static int formula_parse_target(formula_parser *p, int32_t *slot)
{
    const dv__schema *s = p->type_checker.schema;
    const dv__token t = p->lx.token;
    if (t.kind != DV__TOKEN_IDENT)
        return dv__lexer_fail_expected(&p->lx, p->type_checker.mode == MODE_GRADIENT ? "an argument's name" : "a result's name");
    *slot = -1;
    if (p->type_checker.mode != MODE_GRADIENT)
        *slot = formula_find_result_slot_by_token(s, t.start, t.size);
    if (*slot < 0) {
        *slot = formula_find_argument_slot_by_token(s, t.start, t.size);
        if (*slot >= 0 && p->type_checker.mode != MODE_GRADIENT && !slot_is_output(s, *slot))
            *slot = -1;
    }
    if (*slot < 0)
        return formula_fail_unknown_target(p, &t);
    if (p->has_formula[*slot])
        return dv__fail_at_column(DV_ESCHEMA, p->lx.text, t.start, "'%.*s' has a formula already", (int)t.size, t.start);
    if (p->type_checker.mode != MODE_DECOMPOSITION && !dv__type_has_tensors(schema_get_argument_or_return(s, *slot)->type)) {
        dv__strbuf type = { 0 };
        dv__type_print(schema_get_argument_or_return(s, *slot)->type, &type);
        const int status = dv__fail_at_column(DV_ESCHEMA, p->lx.text, t.start, "'%.*s' is %s: only tensors have %s", (int)t.size,
            t.start, type.data ? type.data : "?", p->type_checker.mode == MODE_GRADIENT ? "gradients" : "tangents");
        dv__strbuf_deinit(&type);
        return status;
    }
    p->has_formula[*slot] = true;
    dv__lexer_next(&p->lx);
    return DV_OK;
}

/* True if a clause begins here: names separated by commas, and a colon. */
static bool formula_is_at_clause(const dv__lexer *from)
{
    dv__lexer lx = *from;
    for (;;) {
        if (lx.token.kind != DV__TOKEN_IDENT)
            return false;
        dv__lexer_next(&lx);
        if (dv__lexer_is_at(&lx, ":"))
            return true;
        if (!dv__lexer_try_accept(&lx, ","))
            return false;
    }
}

/* ---- Values -------------------------------------------------------------------------------------------------------------- */

/* True if a value may be the formula of a target. A gradient may be None, too. */
static bool formula_target_accepts(formula_parser *p, int32_t slot, const formula_value *v)
{
    const dv__type *type = schema_get_argument_or_return(p->type_checker.schema, slot)->type;
    if (dv__formula_type_accepts_value(type, v))
        return true;
    const dv__type optional = { DV__TYPE_OPTIONAL, -1, NULL, &type, 1 };
    return p->type_checker.mode == MODE_GRADIENT && dv__formula_type_accepts_value(&optional, v);
}

/* Returns the name of a slot for messages; an unnamed result is "result" or "result1", printed to buffer. */
static const char *formula_slot_get_name(const dv__schema *s, int32_t slot, char *buffer, size_t size)
{
    const dv__argument *a = schema_get_argument_or_return(s, slot);
    if (*a->name)
        return a->name;
    snprintf(buffer, size, "result%d", (int)(slot - (int32_t)s->nargs));
    return s->nreturns == 1 ? "result" : buffer;
}

/* Fails unless a value, that of expression e, has a type that the target accepts. */
static int formula_check_value_of_target(formula_parser *p, int32_t slot, const dv__expr *e, const formula_value *v)
{
    if (formula_target_accepts(p, slot, v))
        return DV_OK;
    char number[32], what[256];
    snprintf(what, sizeof what, "'%.200s' takes", formula_slot_get_name(p->type_checker.schema, slot, number, sizeof number));
    return dv__formula_fail_wrong_type(
        &p->type_checker, e, what, schema_get_argument_or_return(p->type_checker.schema, slot)->type, v);
}

/* Checks one value for one or several targets; for several, a call with that many results or a list of that length. Returns a
 * status. */
static int formula_check_value_of_targets(
    formula_parser *p, const int32_t *targets, size_t ntargets, const dv__expr *e, const formula_value *v)
{
    if (v->kind == VALUE_UNKNOWN)
        return DV_OK;
    if (ntargets == 1 && v->kind != VALUE_TUPLE)
        return formula_check_value_of_target(p, targets[0], e, v);
    const size_t results = v->kind == VALUE_TUPLE ? v->callee->nreturns
        : v->kind == VALUE_LIST                   ? v->n
        : v->kind == VALUE_VOID                   ? 0
                                                  : 1;
    if (results != ntargets)
        return dv__fail_at_column(DV_ESCHEMA, p->lx.text, e->at, "expected %zu result%s, one for each target, found %zu",
            ntargets, ntargets == 1 ? "" : "s", results);
    for (size_t i = 0; i < ntargets; i++) {
        const formula_value of_call = { .kind = VALUE_TYPED, .type = v->kind == VALUE_TUPLE ? v->callee->returns[i].type : NULL };
        const int status = formula_check_value_of_target(
            p, targets[i], v->kind == VALUE_LIST ? e->args[i] : e, v->kind == VALUE_LIST ? v->elems[i] : &of_call);
        if (status)
            return status;
    }
    return DV_OK;
}

/* Parses an expression and checks its names and types. *v receives its type. Returns a status. */
static int formula_parse_and_check_value(formula_parser *p, dv__expr **e, const formula_value **v)
{
    const int status = dv__expr_parse(&p->lx, p->type_checker.arena, e);
    return status ? status : dv__formula_check(&p->type_checker, e, v);
}

/* ---- Clauses ------------------------------------------------------------------------------------------------------------- */

/* Returns a new clause at the end of p->clauses. NULL: memory is out. */
static dv__formula_clause *formula_add_clause(formula_parser *p)
{
    if (p->n == p->capacity) {
        const size_t capacity = p->capacity ? p->capacity * 2 : 4;
        dv__formula_clause *grown = DV__ARENA_ARRAY(p->type_checker.arena, dv__formula_clause, capacity);
        if (!grown)
            return NULL;
        if (p->n)
            memcpy(grown, p->clauses, p->n * sizeof *grown);
        p->clauses = grown;
        p->capacity = capacity;
    }
    return &p->clauses[p->n++];
}

/* Parses one clause, "a, b: value" or "a: non_differentiable". Returns a status. */
static int formula_parse_clause(formula_parser *p)
{
    const size_t slots = p->type_checker.schema->nargs + p->type_checker.schema->nreturns;
    int32_t *targets = DV__ARENA_ARRAY(p->type_checker.arena, int32_t, slots);
    dv__formula_clause *clause = formula_add_clause(p);
    if (!targets || !clause)
        return DV_ENOMEM;
    size_t n = 0;
    int status;
    do {
        if ((status = formula_parse_target(p, &targets[n])))
            return status;
        n++;
    } while (dv__lexer_try_accept(&p->lx, ","));
    if ((status = dv__lexer_expect(&p->lx, ":")))
        return status;
    *clause = (dv__formula_clause){ .targets = targets, .ntargets = n };
    if (p->type_checker.mode != MODE_DECOMPOSITION && dv__lexer_try_accept(&p->lx, "non_differentiable"))
        return DV_OK;
    dv__expr *e;
    const formula_value *v;
    if ((status = formula_parse_and_check_value(p, &e, &v)))
        return status;
    clause->value = e;
    return formula_check_value_of_targets(p, targets, n, e, v);
}

/* Parses clauses separated by ';' up to the end. Returns a status. */
static int formula_parse_clauses(formula_parser *p)
{
    int status = formula_parse_clause(p);
    while (!status && dv__lexer_try_accept(&p->lx, ";") && p->lx.token.kind != DV__TOKEN_END)
        status = formula_parse_clause(p);
    if (!status && p->lx.token.kind != DV__TOKEN_END)
        status = dv__lexer_fail_expected(&p->lx, "';' or the end");
    return status;
}

/* ---- Gradients and tangents ---------------------------------------------------------------------------------------------- */

/* Initialises a parser for a formula of this kind. Returns DV_OK or DV_ENOMEM. */
static int formula_parser_init(formula_parser *p, enum formula_mode mode, const char *text, const char *op_name,
    const dv__schema *schema, dv__formula_lookup lookup, void *user, dv__arena *arena)
{
    const size_t slots = schema->nargs + schema->nreturns;
    memset(p, 0, sizeof *p);
    p->type_checker =
        (formula_checker){ .text = text, .schema = schema, .mode = mode, .lookup = lookup, .user = user, .arena = arena };
    p->op_name = op_name;
    p->has_formula = DV__ARENA_ARRAY(&p->type_checker.scratch, bool, slots);
    p->type_checker.is_present = DV__ARENA_ARRAY(&p->type_checker.scratch, bool, slots);
    p->type_checker.saved_parts = DV__ARENA_ARRAY(arena, uint8_t, slots);
    if (!p->has_formula || !p->type_checker.is_present || !p->type_checker.saved_parts)
        return DV_ENOMEM;
    dv__lexer_init(&p->lx, text);
    return DV_OK;
}

/* Frees the parser's memory. Returns the status; an error gets the operator and the kind of formula as context. */
static int formula_parser_finish(formula_parser *p, int status, const char *formula_kind)
{
    dv__arena_deinit(&p->type_checker.scratch);
    return status ? dv__fail_add_context(status, "operator %s: %s", p->op_name, formula_kind) : DV_OK;
}

/* Parses a gradient or tangent in clauses. Returns a status. */
static int formula_parse(enum formula_mode mode, const char *formula_kind, const char *text, const char *op_name,
    const dv__schema *schema, dv__formula_lookup lookup, void *user, dv__arena *arena, dv__formula **out)
{
    *out = NULL;
    formula_parser p;
    int status = formula_parser_init(&p, mode, text, op_name, schema, lookup, user, arena);
    if (!status)
        status = formula_parse_clauses(&p);
    dv__formula *f = status ? NULL : DV__ARENA_NEW(arena, dv__formula);
    if (!status && !f)
        status = DV_ENOMEM;
    if (f) {
        *f = (dv__formula){ p.clauses, p.n, p.type_checker.saved_parts };
        *out = f;
    }
    return formula_parser_finish(&p, status, formula_kind);
}

int dv__gradient_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__formula **out)
{
    return formula_parse(MODE_GRADIENT, "gradient", text, op_name, schema, lookup, user, arena, out);
}

int dv__tangent_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__formula **out)
{
    return formula_parse(MODE_TANGENT, "tangent", text, op_name, schema, lookup, user, arena, out);
}

/* ---- Decompositions ------------------------------------------------------------------------------------------------------ */

/* Returns an expression for one of several results of e: an element of a list, else e[i]. NULL: memory is out. */
static dv__expr *decomposition_new_result_expr(formula_parser *p, dv__expr *e, const formula_value *v, size_t result_index)
{
    if (v->kind == VALUE_LIST)
        return e->args[result_index];
    dv__expr *index = dv__formula_expr_new(&p->type_checker, DV__EXPR_SUBSCRIPT, e->at, 2);
    dv__expr *number = dv__formula_expr_new(&p->type_checker, DV__EXPR_INT, e->at, 0);
    if (!index || !number)
        return NULL;
    number->i = (int64_t)result_index;
    index->args[0] = e;
    index->args[1] = number;
    index->depth = (uint16_t)(e->depth + 1);
    return index;
}

/* Parses a decomposition without clauses, `a * b` or `a, b`: an expression for each return, or for the only written argument.
 * Returns a status. */
static int decomposition_parse_results(formula_parser *p, const dv__expr **outputs)
{
    const dv__schema *s = p->type_checker.schema;
    int32_t *slots = DV__ARENA_ARRAY(&p->type_checker.scratch, int32_t, s->nargs + s->nreturns);
    if (!slots)
        return DV_ENOMEM;
    size_t n = dv__formula_list_and_count_outputs(s, slots);
    if (s->nreturns)
        n = s->nreturns; /* an expression for each return; a written argument that is not returned needs a clause */
    else if (n != 1)
        return dv__fail_at_column(DV_ESCHEMA, p->lx.text, p->lx.text,
            n ? "expected 'name: ...' for each argument that is written"
              : "an operator that neither returns nor writes anything has no decomposition");
    dv__expr *e;
    const formula_value *v;
    int status = formula_parse_and_check_value(p, &e, &v);
    size_t i = 0;
    if (!status && !dv__lexer_is_at(&p->lx, ",") && n > 1) { /* one expression gives all results */
        if ((status = formula_check_value_of_targets(p, slots, n, e, v)))
            return status;
        for (; i < n; i++)
            if (!(outputs[slots[i]] = decomposition_new_result_expr(p, e, v, i)))
                return DV_ENOMEM;
    }
    while (!status && i < n) {
        if ((status = formula_check_value_of_targets(p, &slots[i], 1, e, v)))
            return status;
        outputs[slots[i++]] = e;
        if (i < n && !(status = dv__lexer_expect(&p->lx, ",")))
            status = formula_parse_and_check_value(p, &e, &v);
    }
    if (!status && p->lx.token.kind != DV__TOKEN_END)
        status = dv__lexer_fail_expected(&p->lx, dv__lexer_is_at(&p->lx, ",") ? "the end: there are no more results" : "the end");
    return status;
}

/* Parses a decomposition with clauses, one for each output. outputs: by slot, receives the expressions. Returns a status. */
static int decomposition_parse_clauses(formula_parser *p, const dv__expr **outputs)
{
    int status = formula_parse_clauses(p);
    for (size_t i = 0; i < p->n && !status; i++) {
        const dv__formula_clause *c = &p->clauses[i];
        for (size_t t = 0; t < c->ntargets; t++) {
            dv__expr *e = (dv__expr *)c->value;
            const formula_value several_results = { .kind = e->kind == DV__EXPR_LIST ? VALUE_LIST : VALUE_TUPLE };
            outputs[c->targets[t]] = c->ntargets == 1 ? e : decomposition_new_result_expr(p, e, &several_results, t);
            if (!outputs[c->targets[t]])
                return DV_ENOMEM;
        }
    }
    return status;
}

/* Gives a return that is a written argument the argument's expression, and the reverse. Fails if an output has no
 * expression. */
static int decomposition_copy_aliased_or_fail(formula_parser *p, const dv__expr **outputs)
{
    const dv__schema *s = p->type_checker.schema;
    for (size_t i = 0; i < s->nreturns; i++) {
        const int32_t argument = dv__schema_find_aliased_argument_index(s, i);
        const size_t slot = s->nargs + i;
        if (argument >= 0 && !outputs[slot])
            outputs[slot] = outputs[argument];
        if (argument >= 0 && !outputs[argument])
            outputs[argument] = outputs[slot];
    }
    for (size_t slot = 0; slot < s->nargs + s->nreturns; slot++) {
        char number[32];
        if (outputs[slot] || !slot_is_output(s, (int32_t)slot))
            continue;
        const char *name = formula_slot_get_name(s, (int32_t)slot, number, sizeof number);
        return dv__fail_at_column(DV_ESCHEMA, p->lx.text, p->lx.token.start,
            "'%s', which is %s, has no clause; expected '%s: ...'", name, slot < s->nargs ? "written" : "returned", name);
    }
    return DV_OK;
}

int dv__decomposition_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup,
    void *user, dv__arena *arena, dv__decomposition **out)
{
    *out = NULL;
    formula_parser p;
    int status = formula_parser_init(&p, MODE_DECOMPOSITION, text, op_name, schema, lookup, user, arena);
    dv__decomposition *native = DV__ARENA_NEW(arena, dv__decomposition);
    const dv__expr **outputs = DV__ARENA_ARRAY(arena, const dv__expr *, schema->nargs + schema->nreturns);
    if (!native || !outputs)
        status = DV_ENOMEM;
    if (!status)
        status = formula_is_at_clause(&p.lx) ? decomposition_parse_clauses(&p, outputs)
                                             : decomposition_parse_results(&p, outputs);
    if (!status)
        status = decomposition_copy_aliased_or_fail(&p, outputs);
    if (!status) {
        bool writes = false;
        for (size_t i = 0; i < schema->nargs; i++)
            writes = writes || outputs[i];
        *native = (dv__decomposition){ outputs + schema->nargs, schema->nreturns, writes ? outputs : NULL };
        *out = native;
    }
    return formula_parser_finish(&p, status, "native");
}
