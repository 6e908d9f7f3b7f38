/* Formulas as JSON (docs/json.md). */
#include "lang/formula_internal.h"

static void formula_json_expr(const dv__expr *e, const dv__schema *s, dv__strbuf *to);

/* Writes a name by its meaning: ["arg", "x"], ["result", 0], ["grad", 0] and so on. */
static void formula_json_name(const dv__expr *e, const dv__schema *s, dv__strbuf *to)
{
    const bool argument = e->ref < (int32_t)s->nargs;
    switch (e->role) {
    case DV__ROLE_ARGUMENT: dv__strbuf_append_str(to, "[\"arg\""); break;
    case DV__ROLE_RESULT: dv__strbuf_printf(to, "[\"result\", %d]", (int)e->ref - (int)s->nargs); return;
    case DV__ROLE_GRAD:
        if (!argument) {
            dv__strbuf_printf(to, "[\"grad\", %d]", (int)e->ref - (int)s->nargs);
            return;
        }
        dv__strbuf_append_str(to, "[\"grad_of\"");
        break;
    case DV__ROLE_TANGENT: dv__strbuf_append_str(to, "[\"tangent\""); break;
    default:
        dv__strbuf_append_str(to, "[\"dtype\"");
        dv__json_write_member(to, NULL, e->name);
        dv__strbuf_append_str(to, "]");
        return;
    }
    dv__json_write_member(to, NULL, s->args[e->ref].name);
    dv__strbuf_append_str(to, "]");
}

/* Writes the operands and the closing bracket of a node. */
static void formula_json_operands(const dv__expr *e, const dv__schema *s, dv__strbuf *to)
{
    for (uint32_t i = 0; i < e->n; i++) {
        dv__json_write_key(to, NULL);
        formula_json_expr(e->args[i], s, to);
    }
    dv__strbuf_append_str(to, "]");
}

/* Writes a call as ["call", "base::mul", X, Y, ["keyword", "alpha", Z]], of a built-in function as ["if", C, X, Y]. */
static void formula_json_call(const dv__expr *e, const dv__schema *s, dv__strbuf *to)
{
    if (e->ref == DV__FORMULA_OPERATOR) {
        dv__strbuf_append_str(to, "[\"call\"");
        dv__json_write_member(to, NULL, e->name);
    } else {
        dv__strbuf_printf(to, "[\"%s\"", e->name);
    }
    formula_json_operands(e, s, to);
}

/* Writes an attribute, [kind, X, "name"], or a named operand, [kind, "name", X] (name_first). */
static void formula_json_named_operand(const char *kind, const dv__expr *e, bool name_first, const dv__schema *s, dv__strbuf *to)
{
    dv__strbuf_printf(to, "[\"%s\"", kind);
    if (name_first)
        dv__json_write_member(to, NULL, e->name);
    dv__json_write_key(to, NULL);
    formula_json_expr(e->args[0], s, to);
    if (!name_first)
        dv__json_write_member(to, NULL, e->name);
    dv__strbuf_append_str(to, "]");
}

static void formula_json_expr(const dv__expr *e, const dv__schema *s, dv__strbuf *to)
{
    static const char *const names[] = {
#define EXPR_NAME(kind, json) [DV__EXPR_##kind] = json,
        DV__EXPR_KINDS(EXPR_NAME)
#undef EXPR_NAME
    };
    switch (e->kind) {
    case DV__EXPR_NAME: formula_json_name(e, s, to); return;
    case DV__EXPR_CALL: formula_json_call(e, s, to); return;
    case DV__EXPR_ATTR: formula_json_named_operand("attr", e, false, s, to); return;
    case DV__EXPR_KEYWORD: formula_json_named_operand("keyword", e, true, s, to); return;
    case DV__EXPR_INT:
    case DV__EXPR_FLOAT:
    case DV__EXPR_STRING:
    case DV__EXPR_BOOL:
    case DV__EXPR_NONE: dv__expr_json(e, to); return;
    default: break;
    }
    dv__strbuf_printf(to, "[\"%s\"", names[e->kind]);
    formula_json_operands(e, s, to);
}

void dv__decomposition_json(const dv__decomposition *n, const char *text, const dv__schema *schema, dv__strbuf *to)
{
    if (!n) {
        dv__strbuf_append_str(to, "null");
        return;
    }
    dv__strbuf_append_str(to, "{");
    dv__json_write_member(to, "text", text);
    dv__strbuf_append_str(to, ", \"results\": [");
    for (size_t i = 0; i < n->n; i++) {
        dv__json_write_key(to, NULL);
        formula_json_expr(n->results[i], schema, to);
    }
    dv__strbuf_append_str(to, "], \"writes\": {");
    for (size_t i = 0; n->written_values && i < schema->nargs; i++) {
        if (!n->written_values[i])
            continue;
        dv__json_write_key(to, schema->args[i].name);
        formula_json_expr(n->written_values[i], schema, to);
    }
    dv__strbuf_append_str(to, "}}");
}

void dv__formula_json(const dv__formula *f, const char *text, const dv__schema *schema, dv__strbuf *to)
{
    if (!f) {
        dv__strbuf_append_str(to, "null");
        return;
    }
    dv__strbuf_append_str(to, "{");
    dv__json_write_member(to, "text", text);
    dv__strbuf_append_str(to, ", \"clauses\": [");
    for (size_t i = 0; i < f->n; i++) {
        const dv__formula_clause *c = &f->clauses[i];
        dv__strbuf_printf(to, "%s{\"targets\": [", i ? ", " : "");
        for (size_t t = 0; t < c->ntargets; t++)
            dv__strbuf_printf(to, "%s%d", t ? ", " : "", (int)c->targets[t]);
        dv__strbuf_append_str(to, "], \"value\": ");
        if (c->value)
            formula_json_expr(c->value, schema, to);
        else
            dv__strbuf_append_str(to, "null");
        dv__strbuf_append_str(to, "}");
    }
    dv__strbuf_append_str(to, "], \"saves\": [");
    for (size_t i = 0; i < schema->nargs + schema->nreturns; i++)
        dv__strbuf_printf(to, "%s%d", i ? ", " : "", f->saved_parts[i]);
    dv__strbuf_append_str(to, "]}");
}
