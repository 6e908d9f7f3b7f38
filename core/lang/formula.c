/* Formulas: the clauses around the expressions. formula_check.c has the names and types, formula_json.c the output. */
#include "lang/formula_internal.h"

#include <stdio.h>

/* ---- Outputs ---- */

static bool same_set(const dv__alias *a, const dv__alias *b)
{
    for (size_t i = 0; i < a->nbefore; i++)
        for (size_t j = 0; j < b->nbefore; j++)
            if (!strcmp(a->before[i], b->before[j]) && strcmp(a->before[i], "*") != 0)
                return true;
    return false;
}

int32_t dv__formula_aliased(const dv__schema *s, size_t ret)
{
    const dv__alias *alias = s->returns[ret].alias;
    for (size_t i = 0; alias && i < s->nargs; i++)
        if (dv__argument_writes(&s->args[i]) && same_set(alias, s->args[i].alias))
            return (int32_t)i;
    return -1;
}

size_t dv__formula_outputs(const dv__schema *s, int32_t *slots)
{
    size_t n = 0;
    for (size_t i = 0; i < s->nreturns; i++)
        slots[n++] = (int32_t)(s->nargs + i);
    for (size_t i = 0; i < s->nargs; i++) {
        bool returned = false;
        for (size_t r = 0; r < s->nreturns; r++)
            returned = returned || dv__formula_aliased(s, r) == (int32_t)i;
        if (dv__argument_writes(&s->args[i]) && !returned)
            slots[n++] = (int32_t)i;
    }
    return n;
}

static bool is_output(const dv__schema *s, int32_t slot)
{
    return slot >= (int32_t)s->nargs || dv__argument_writes(&s->args[slot]);
}

/* ---- Targets ---- */

typedef struct parse {
    checker check;
    dv__lexer lx;
    const char *op_name;
    bool *taken; /* for each slot */
    dv__clause *clauses;
    size_t n, room;
} parse;

/* "result", "result1" or a return's name as a slot; -1: none. */
static int32_t find_output(const dv__schema *s, const char *name, size_t size)
{
    for (size_t i = 0; i < s->nreturns; i++) {
        char plain[32];
        if (strlen(s->returns[i].name) == size && size && !memcmp(s->returns[i].name, name, size))
            return (int32_t)(s->nargs + i);
        snprintf(plain, sizeof plain, "result%zu", i);
        if ((strlen(plain) == size && !memcmp(plain, name, size)) ||
            (s->nreturns == 1 && size == 6 && !memcmp("result", name, size)))
            return (int32_t)(s->nargs + i);
    }
    return -1;
}

static int32_t find_argument(const dv__schema *s, const char *name, size_t size)
{
    for (size_t i = 0; i < s->nargs; i++)
        if (strlen(s->args[i].name) == size && !memcmp(s->args[i].name, name, size))
            return (int32_t)i;
    return -1;
}

static int fail_target(parse *p, const dv__token *t)
{
    const dv__schema *s = p->check.schema;
    dv__text names = { 0 };
    for (size_t i = 0; i < s->nargs; i++)
        if (p->check.mode == MODE_GRADIENT || dv__argument_writes(&s->args[i]))
            dv__text_add(&names, "%s%s", names.size ? ", " : "", s->args[i].name);
    for (size_t i = 0; i < s->nreturns && p->check.mode != MODE_GRADIENT; i++) {
        if (*s->returns[i].name)
            dv__text_add(&names, "%s%s", names.size ? ", " : "", s->returns[i].name);
        else if (s->nreturns == 1)
            dv__text_add(&names, "%sresult", names.size ? ", " : "");
        else
            dv__text_add(&names, "%sresult%zu", names.size ? ", " : "", i);
    }
    const int status = dv__fail_at(DV_ESCHEMA, p->lx.text, t->start, "'%.*s' is not %s of the operator; there are: %s",
        (int)t->size, t->start, p->check.mode == MODE_GRADIENT ? "an argument" : "a result", names.size ? names.data : "none");
    dv__text_deinit(&names);
    return status;
}

static bool is_tensors(const dv__type *t)
{
    while (t->kind == DV__TYPE_OPTIONAL || t->kind == DV__TYPE_LIST)
        t = t->elems[0];
    return t->kind == DV__TYPE_TENSOR;
}

static const dv__argument *at_slot(const dv__schema *s, int32_t slot)
{
    return slot < (int32_t)s->nargs ? &s->args[slot] : &s->returns[slot - (int32_t)s->nargs];
}

static int parse_target(parse *p, int32_t *slot)
{
    const dv__schema *s = p->check.schema;
    const dv__token t = p->lx.token;
    if (t.kind != DV__TOKEN_IDENT)
        return dv__lexer_unexpected(&p->lx, p->check.mode == MODE_GRADIENT ? "an argument's name" : "a result's name");
    *slot = -1;
    if (p->check.mode != MODE_GRADIENT)
        *slot = find_output(s, t.start, t.size);
    if (*slot < 0) {
        *slot = find_argument(s, t.start, t.size);
        if (*slot >= 0 && p->check.mode != MODE_GRADIENT && !is_output(s, *slot))
            *slot = -1;
    }
    if (*slot < 0)
        return fail_target(p, &t);
    if (p->taken[*slot])
        return dv__fail_at(DV_ESCHEMA, p->lx.text, t.start, "'%.*s' has a formula already", (int)t.size, t.start);
    if (p->check.mode != MODE_NATIVE && !is_tensors(at_slot(s, *slot)->type)) {
        dv__text type = { 0 };
        dv__type_print(at_slot(s, *slot)->type, &type);
        const int status = dv__fail_at(DV_ESCHEMA, p->lx.text, t.start, "'%.*s' is %s: only tensors have %s", (int)t.size,
            t.start, type.data ? type.data : "?", p->check.mode == MODE_GRADIENT ? "gradients" : "tangents");
        dv__text_deinit(&type);
        return status;
    }
    p->taken[*slot] = true;
    dv__lexer_next(&p->lx);
    return DV_OK;
}

/* Whether the text goes on with "a, b:". */
static bool begins_clause(const dv__lexer *from)
{
    dv__lexer lx = *from;
    for (;;) {
        if (lx.token.kind != DV__TOKEN_IDENT)
            return false;
        dv__lexer_next(&lx);
        if (dv__lexer_is(&lx, ":"))
            return true;
        if (!dv__lexer_accept(&lx, ","))
            return false;
    }
}

/* ---- Values ---- */

/* The type that a target accepts; an absent gradient is None. */
static bool fits_target(parse *p, int32_t slot, const value *v)
{
    const dv__type *type = at_slot(p->check.schema, slot)->type;
    if (dv__formula_fits(type, v))
        return true;
    const dv__type optional = { DV__TYPE_OPTIONAL, -1, NULL, &type, 1 };
    return p->check.mode == MODE_GRADIENT && dv__formula_fits(&optional, v);
}

static const char *name_of(const dv__schema *s, int32_t slot, char *buffer, size_t size)
{
    const dv__argument *a = at_slot(s, slot);
    if (*a->name)
        return a->name;
    snprintf(buffer, size, "result%d", (int)(slot - (int32_t)s->nargs));
    return s->nreturns == 1 ? "result" : buffer;
}

static int check_one(parse *p, int32_t slot, const dv__expr *e, const value *v)
{
    if (fits_target(p, slot, v))
        return DV_OK;
    char number[32], what[256];
    snprintf(what, sizeof what, "'%.200s' takes", name_of(p->check.schema, slot, number, sizeof number));
    return dv__formula_mismatch(&p->check, e, what, at_slot(p->check.schema, slot)->type, v);
}

/* One value for several targets: a call with that many results, or a list of that length. */
static int check_value(parse *p, const int32_t *targets, size_t n, const dv__expr *e, const value *v)
{
    if (v->kind == VALUE_UNKNOWN)
        return DV_OK;
    if (n == 1 && v->kind != VALUE_TUPLE)
        return check_one(p, targets[0], e, v);
    const size_t results = v->kind == VALUE_TUPLE ? v->callee->nreturns
        : v->kind == VALUE_LIST                   ? v->n
        : v->kind == VALUE_NOTHING                ? 0
                                                  : 1;
    if (results != n)
        return dv__fail_at(DV_ESCHEMA, p->lx.text, e->at, "expected %zu result%s, one for each target, found %zu", n,
            n == 1 ? "" : "s", results);
    for (size_t i = 0; i < n; i++) {
        const value of_call = { .kind = VALUE_KNOWN, .type = v->kind == VALUE_TUPLE ? v->callee->returns[i].type : NULL };
        const int status = check_one(
            p, targets[i], v->kind == VALUE_LIST ? e->args[i] : e, v->kind == VALUE_LIST ? v->elems[i] : &of_call);
        if (status)
            return status;
    }
    return DV_OK;
}

static int parse_value(parse *p, dv__expr **e, const value **v)
{
    const int status = dv__expr_parse(&p->lx, p->check.arena, e);
    return status ? status : dv__formula_check(&p->check, e, v);
}

/* ---- Clauses ---- */

static dv__clause *add_clause(parse *p)
{
    if (p->n == p->room) {
        const size_t room = p->room ? p->room * 2 : 4;
        dv__clause *grown = DV__ARENA_ARRAY(p->check.arena, dv__clause, room);
        if (!grown)
            return NULL;
        if (p->n)
            memcpy(grown, p->clauses, p->n * sizeof *grown);
        p->clauses = grown;
        p->room = room;
    }
    return &p->clauses[p->n++];
}

static int parse_clause(parse *p)
{
    const size_t slots = p->check.schema->nargs + p->check.schema->nreturns;
    int32_t *targets = DV__ARENA_ARRAY(p->check.arena, int32_t, slots);
    dv__clause *clause = add_clause(p);
    if (!targets || !clause)
        return DV_ENOMEM;
    size_t n = 0;
    int status;
    do {
        if ((status = parse_target(p, &targets[n])))
            return status;
        n++;
    } while (dv__lexer_accept(&p->lx, ","));
    if ((status = dv__lexer_expect(&p->lx, ":")))
        return status;
    *clause = (dv__clause){ .targets = targets, .ntargets = n };
    if (p->check.mode != MODE_NATIVE && dv__lexer_accept(&p->lx, "non_differentiable"))
        return DV_OK;
    dv__expr *e;
    const value *v;
    if ((status = parse_value(p, &e, &v)))
        return status;
    clause->value = e;
    return check_value(p, targets, n, e, v);
}

static int parse_clauses(parse *p)
{
    int status = parse_clause(p);
    while (!status && dv__lexer_accept(&p->lx, ";") && p->lx.token.kind != DV__TOKEN_END)
        status = parse_clause(p);
    if (!status && p->lx.token.kind != DV__TOKEN_END)
        status = dv__lexer_unexpected(&p->lx, "';' or the end");
    return status;
}

/* ---- The three entries ---- */

static int begin(parse *p, enum formula_mode mode, const char *text, const char *op_name, const dv__schema *schema,
    dv__formula_lookup lookup, void *user, dv__arena *arena)
{
    const size_t slots = schema->nargs + schema->nreturns;
    memset(p, 0, sizeof *p);
    p->check = (checker){ .text = text, .schema = schema, .mode = mode, .lookup = lookup, .user = user, .arena = arena };
    p->op_name = op_name;
    p->taken = DV__ARENA_ARRAY(&p->check.scratch, bool, slots);
    p->check.present = DV__ARENA_ARRAY(&p->check.scratch, bool, slots);
    p->check.saves = DV__ARENA_ARRAY(arena, uint8_t, slots);
    if (!p->taken || !p->check.present || !p->check.saves)
        return DV_ENOMEM;
    dv__lexer_init(&p->lx, text);
    return DV_OK;
}

static int end(parse *p, int status, const char *what)
{
    dv__arena_deinit(&p->check.scratch);
    return status ? dv__fail_in(status, "operator %s: %s", p->op_name, what) : DV_OK;
}

static int parse_formula(enum formula_mode mode, const char *what, const char *text, const char *op_name,
    const dv__schema *schema, dv__formula_lookup lookup, void *user, dv__arena *arena, dv__formula **out)
{
    *out = NULL;
    parse p;
    int status = begin(&p, mode, text, op_name, schema, lookup, user, arena);
    if (!status)
        status = parse_clauses(&p);
    dv__formula *f = status ? NULL : DV__ARENA_NEW(arena, dv__formula);
    if (!status && !f)
        status = DV_ENOMEM;
    if (f) {
        *f = (dv__formula){ p.clauses, p.n, p.check.saves };
        *out = f;
    }
    return end(&p, status, what);
}

int dv__gradient_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__formula **out)
{
    return parse_formula(MODE_GRADIENT, "gradient", text, op_name, schema, lookup, user, arena, out);
}

int dv__tangent_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__formula **out)
{
    return parse_formula(MODE_TANGENT, "tangent", text, op_name, schema, lookup, user, arena, out);
}

/* ---- Native ---- */

/* The i-th of several results of one expression. */
static dv__expr *part(parse *p, dv__expr *e, const value *v, size_t i)
{
    if (v->kind == VALUE_LIST)
        return e->args[i];
    dv__expr *index = dv__formula_node(&p->check, DV__EXPR_INDEX, e->at, 2);
    dv__expr *number = dv__formula_node(&p->check, DV__EXPR_INT, e->at, 0);
    if (!index || !number)
        return NULL;
    number->i = (int64_t)i;
    index->args[0] = e;
    index->args[1] = number;
    index->depth = (uint16_t)(e->depth + 1);
    return index;
}

/* "a * b", "(a, b)", "a, b": one expression for each return. */
static int parse_results(parse *p, const dv__expr **outputs)
{
    const dv__schema *s = p->check.schema;
    int32_t *slots = DV__ARENA_ARRAY(&p->check.scratch, int32_t, s->nargs + s->nreturns);
    if (!slots)
        return DV_ENOMEM;
    size_t n = dv__formula_outputs(s, slots);
    if (s->nreturns)
        n = s->nreturns; /* other written arguments have their own clauses */
    else if (n != 1)
        return dv__fail_at(DV_ESCHEMA, p->lx.text, p->lx.text,
            n ? "expected 'name: ...' for each argument that is written"
              : "an operator that neither returns nor writes anything has no native form");
    dv__expr *e;
    const value *v;
    int status = parse_value(p, &e, &v);
    size_t i = 0;
    if (!status && !dv__lexer_is(&p->lx, ",") && n > 1) { /* one expression for all */
        if ((status = check_value(p, slots, n, e, v)))
            return status;
        for (; i < n; i++)
            if (!(outputs[slots[i]] = part(p, e, v, i)))
                return DV_ENOMEM;
    }
    while (!status && i < n) {
        if ((status = check_value(p, &slots[i], 1, e, v)))
            return status;
        outputs[slots[i++]] = e;
        if (i < n && !(status = dv__lexer_expect(&p->lx, ",")))
            status = parse_value(p, &e, &v);
    }
    if (!status && p->lx.token.kind != DV__TOKEN_END)
        status = dv__lexer_unexpected(&p->lx, dv__lexer_is(&p->lx, ",") ? "the end: there are no more results" : "the end");
    return status;
}

static int native_clauses(parse *p, const dv__expr **outputs)
{
    int status = parse_clauses(p);
    for (size_t i = 0; i < p->n && !status; i++) {
        const dv__clause *c = &p->clauses[i];
        for (size_t t = 0; t < c->ntargets; t++) {
            dv__expr *e = (dv__expr *)c->value;
            const value several = { .kind = e->kind == DV__EXPR_LIST ? VALUE_LIST : VALUE_TUPLE };
            outputs[c->targets[t]] = c->ntargets == 1 ? e : part(p, e, &several, t);
            if (!outputs[c->targets[t]])
                return DV_ENOMEM;
        }
    }
    return status;
}

/* A return that is a written argument has one formula, for both. */
static int complete(parse *p, const dv__expr **outputs)
{
    const dv__schema *s = p->check.schema;
    for (size_t i = 0; i < s->nreturns; i++) {
        const int32_t argument = dv__formula_aliased(s, i);
        const size_t slot = s->nargs + i;
        if (argument >= 0 && !outputs[slot])
            outputs[slot] = outputs[argument];
        if (argument >= 0 && !outputs[argument])
            outputs[argument] = outputs[slot];
    }
    for (size_t slot = 0; slot < s->nargs + s->nreturns; slot++) {
        char number[32];
        if (outputs[slot] || !is_output(s, (int32_t)slot))
            continue;
        const char *name = name_of(s, (int32_t)slot, number, sizeof number);
        return dv__fail_at(DV_ESCHEMA, p->lx.text, p->lx.token.start, "'%s', which is %s, has no clause; expected '%s: ...'",
            name, slot < s->nargs ? "written" : "returned", name);
    }
    return DV_OK;
}

int dv__native_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__native **out)
{
    *out = NULL;
    parse p;
    int status = begin(&p, MODE_NATIVE, text, op_name, schema, lookup, user, arena);
    dv__native *native = DV__ARENA_NEW(arena, dv__native);
    const dv__expr **outputs = DV__ARENA_ARRAY(arena, const dv__expr *, schema->nargs + schema->nreturns);
    if (!native || !outputs)
        status = DV_ENOMEM;
    if (!status)
        status = begins_clause(&p.lx) ? native_clauses(&p, outputs) : parse_results(&p, outputs);
    if (!status)
        status = complete(&p, outputs);
    if (!status) {
        bool writes = false;
        for (size_t i = 0; i < schema->nargs; i++)
            writes = writes || outputs[i];
        *native = (dv__native){ outputs + schema->nargs, schema->nreturns, writes ? outputs : NULL };
        *out = native;
    }
    return end(&p, status, "native");
}
