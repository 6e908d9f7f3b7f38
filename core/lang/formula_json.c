/* Formulas as JSON (docs/json.md). */
#include "lang/formula_internal.h"

static void print(const dv__expr *e, const dv__schema *s, dv__text *to);

static void print_name(const dv__expr *e, const dv__schema *s, dv__text *to)
{
    const bool argument = e->ref < (int32_t)s->nargs;
    switch (e->role) {
    case DV__ROLE_ARG: dv__text_puts(to, "[\"arg\""); break;
    case DV__ROLE_RESULT: dv__text_add(to, "[\"result\", %d]", (int)e->ref - (int)s->nargs); return;
    case DV__ROLE_GRAD:
        if (!argument) {
            dv__text_add(to, "[\"grad\", %d]", (int)e->ref - (int)s->nargs);
            return;
        }
        dv__text_puts(to, "[\"grad_of\"");
        break;
    case DV__ROLE_TANGENT: dv__text_puts(to, "[\"tangent\""); break;
    default:
        dv__text_puts(to, "[\"dtype\"");
        dv__json_text(to, NULL, e->name);
        dv__text_puts(to, "]");
        return;
    }
    dv__json_text(to, NULL, s->args[e->ref].name);
    dv__text_puts(to, "]");
}

static void print_operands(const dv__expr *e, const dv__schema *s, dv__text *to)
{
    for (uint32_t i = 0; i < e->n; i++) {
        dv__json_key(to, NULL);
        print(e->args[i], s, to);
    }
    dv__text_puts(to, "]");
}

/* ["call", "base::mul", X, Y, ["keyword", "alpha", Z]], but ["if", C, X, Y] */
static void print_call(const dv__expr *e, const dv__schema *s, dv__text *to)
{
    if (e->ref == DV__FORMULA_OPERATOR) {
        dv__text_puts(to, "[\"call\"");
        dv__json_text(to, NULL, e->name);
    } else {
        dv__text_add(to, "[\"%s\"", e->name);
    }
    print_operands(e, s, to);
}

/* [kind, X, "name"]: attributes and named arguments */
static void print_with_name(const char *kind, const dv__expr *e, bool name_first, const dv__schema *s, dv__text *to)
{
    dv__text_add(to, "[\"%s\"", kind);
    if (name_first)
        dv__json_text(to, NULL, e->name);
    dv__json_key(to, NULL);
    print(e->args[0], s, to);
    if (!name_first)
        dv__json_text(to, NULL, e->name);
    dv__text_puts(to, "]");
}

static void print(const dv__expr *e, const dv__schema *s, dv__text *to)
{
    static const char *const names[] = {
#define EXPR_NAME(kind, json) [DV__EXPR_##kind] = json,
        DV__EXPR_KINDS(EXPR_NAME)
#undef EXPR_NAME
    };
    switch (e->kind) {
    case DV__EXPR_NAME: print_name(e, s, to); return;
    case DV__EXPR_CALL: print_call(e, s, to); return;
    case DV__EXPR_ATTR: print_with_name("attr", e, false, s, to); return;
    case DV__EXPR_KEYWORD: print_with_name("keyword", e, true, s, to); return;
    case DV__EXPR_INT:
    case DV__EXPR_FLOAT:
    case DV__EXPR_STRING:
    case DV__EXPR_BOOL:
    case DV__EXPR_NONE: dv__expr_json(e, to); return;
    default: break;
    }
    dv__text_add(to, "[\"%s\"", names[e->kind]);
    print_operands(e, s, to);
}

void dv__native_json(const dv__native *n, const char *text, const dv__schema *schema, dv__text *to)
{
    if (!n) {
        dv__text_puts(to, "null");
        return;
    }
    dv__text_puts(to, "{");
    dv__json_text(to, "text", text);
    dv__text_puts(to, ", \"results\": [");
    for (size_t i = 0; i < n->n; i++) {
        dv__json_key(to, NULL);
        print(n->results[i], schema, to);
    }
    dv__text_puts(to, "], \"writes\": {");
    for (size_t i = 0; n->writes && i < schema->nargs; i++) {
        if (!n->writes[i])
            continue;
        dv__json_key(to, schema->args[i].name);
        print(n->writes[i], schema, to);
    }
    dv__text_puts(to, "}}");
}

void dv__formula_json(const dv__formula *f, const char *text, const dv__schema *schema, dv__text *to)
{
    if (!f) {
        dv__text_puts(to, "null");
        return;
    }
    dv__text_puts(to, "{");
    dv__json_text(to, "text", text);
    dv__text_puts(to, ", \"clauses\": [");
    for (size_t i = 0; i < f->n; i++) {
        const dv__clause *c = &f->clauses[i];
        dv__text_add(to, "%s{\"targets\": [", i ? ", " : "");
        for (size_t t = 0; t < c->ntargets; t++)
            dv__text_add(to, "%s%d", t ? ", " : "", (int)c->targets[t]);
        dv__text_puts(to, "], \"value\": ");
        if (c->value)
            print(c->value, schema, to);
        else
            dv__text_puts(to, "null");
        dv__text_puts(to, "}");
    }
    dv__text_puts(to, "], \"saves\": [");
    for (size_t i = 0; i < schema->nargs + schema->nreturns; i++)
        dv__text_add(to, "%s%d", i ? ", " : "", f->saves[i]);
    dv__text_puts(to, "]}");
}
