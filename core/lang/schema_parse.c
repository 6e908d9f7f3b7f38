/* Schemas: name(arguments) -> returns. Types are in schema_type.c, defaults in schema_default.c. */
#include <limits.h>
#include <stdlib.h>

#include "base/error.h"
#include "lang/schema_internal.h"

typedef struct schema_parser {
    dv__lexer lx;
    dv__arena *arena;
    unsigned next_alias_id;
} schema_parser;

/* Parses ns::name.overload. Returns a status. */
static int schema_parse_operator_name(schema_parser *p, dv__schema *s)
{
    s->ns = s->overload = "";
    int status = dv__schema_parse_name(&p->lx, p->arena, "the name of an operator", &s->name);
    if (status)
        return status;
    bool colons = dv__lexer_try_accept(&p->lx, "::");
    if (!colons && dv__lexer_try_accept(&p->lx, ":")) { /* PyTorch accepts space between the two colons */
        if ((status = dv__lexer_expect(&p->lx, ":")))
            return status;
        colons = true;
    }
    if (colons) {
        s->ns = s->name;
        if ((status = dv__schema_parse_name(&p->lx, p->arena, "the name of an operator", &s->name)))
            return status;
    }
    if (dv__lexer_try_accept(&p->lx, ".")) {
        const char *at = p->lx.token.start;
        if ((status = dv__schema_parse_name(&p->lx, p->arena, "the name of an overload", &s->overload)))
            return status;
        if (!strcmp(s->overload, "default") || !strncmp(s->overload, "__", 2))
            return dv__fail_at_column(DV_ESYNTAX, p->lx.text, at, "'%.60s' cannot be the name of an overload", s->overload);
    }
    return DV_OK;
}

/* Parses the number in int[3] as C++'s std::stoll does: int[2.5] is int[2]. Returns a status. */
static int schema_parse_list_size(schema_parser *p, int64_t *out)
{
    const dv__token t = p->lx.token;
    int64_t n = 0;
    size_t i = 0;
    if (t.kind != DV__TOKEN_INT && t.kind != DV__TOKEN_FLOAT)
        return dv__lexer_fail_expected(&p->lx, "']' or the size of the list");
    for (; i < t.size && t.start[i] >= '0' && t.start[i] <= '9' && n <= INT_MAX; i++)
        n = n * 10 + (t.start[i] - '0');
    if (!i || n > INT_MAX)
        return dv__fail_at_column(DV_ESYNTAX, p->lx.text, t.start, "expected the size of a list, found %.*s",
            (int)(t.size > 60 ? 60 : t.size), t.start);
    *out = n;
    dv__lexer_next(&p->lx);
    return DV_OK;
}

/* Parses the rest of int[3](a)? after "[": only an argument's outermost list can have a size. Returns a status. */
static int schema_parse_sized_list(schema_parser *p, dv__argument *a)
{
    dv__alias *container = NULL;
    int64_t size = 0;
    int status = schema_parse_list_size(p, &size);
    if (!status)
        status = dv__lexer_expect(&p->lx, "]");
    if (!status)
        status = dv__alias_parse(&p->lx, p->arena, &p->next_alias_id, &container);
    if (!status)
        status = dv__alias_wrap_element(p->arena, a->alias, &container);
    if (status)
        return status;
    a->alias = container;
    a->type = dv__type_new_container(p->arena, DV__TYPE_LIST, a->type, size);
    if (a->type && dv__lexer_try_accept(&p->lx, "?"))
        a->type = dv__type_new_container(p->arena, DV__TYPE_OPTIONAL, a->type, -1);
    return a->type ? DV_OK : DV_ENOMEM;
}

/* Parses an argument, or a return (is_return), which may have no name and has no default. Returns a status. */
static int schema_parse_argument(schema_parser *p, bool is_return, dv__argument *a)
{
    a->name = "";
    int status = dv__type_parse(&p->lx, p->arena, &p->next_alias_id, &a->type, &a->alias);
    if (!status && dv__lexer_try_accept(&p->lx, "["))
        status = schema_parse_sized_list(p, a);
    if (status)
        return status;
    if (is_return && p->lx.token.kind != DV__TOKEN_IDENT)
        return DV_OK;
    if (!is_return && p->lx.token.kind != DV__TOKEN_IDENT)
        return dv__lexer_fail_expected(&p->lx, "the name of the argument");
    if ((status = dv__schema_parse_name(
             &p->lx, p->arena, is_return ? "a name that is not a keyword" : "the name of the argument (no keyword)", &a->name)))
        return status;
    if (!is_return && dv__lexer_try_accept(&p->lx, "="))
        return dv__default_parse(&p->lx, p->arena, a->type, &a->def);
    return DV_OK;
}

/* Parses the arguments of a schema, in parentheses. Returns a status. */
static int schema_parse_arguments(schema_parser *p, dv__schema *s)
{
    dv__vec args = { 0 };
    bool kwarg_only = false;
    int status = dv__lexer_expect(&p->lx, "(");
    if (status || dv__lexer_try_accept(&p->lx, ")"))
        return status;
    do {
        if (s->vararg)
            return dv__fail_at_column(DV_ESYNTAX, p->lx.text, p->lx.token.start, "expected ')': '...' ends the arguments");
        if (dv__lexer_try_accept(&p->lx, "*")) {
            kwarg_only = true;
            s->nstars++;
        } else if (dv__lexer_try_accept(&p->lx, "...")) {
            s->vararg = true;
        } else {
            dv__argument *a = dv__vec_push(&args, p->arena, sizeof *a);
            if (!a)
                return DV_ENOMEM;
            a->kwarg_only = kwarg_only;
            if ((status = schema_parse_argument(p, false, a)))
                return status;
        }
    } while (dv__lexer_try_accept(&p->lx, ","));
    s->args = args.data;
    s->nargs = args.n;
    if (dv__lexer_try_accept(&p->lx, ")"))
        return DV_OK;
    return dv__lexer_fail_expected(&p->lx, "',' or ')'");
}

/* Parses "->" and the returns of a schema. Returns a status. */
static int schema_parse_returns(schema_parser *p, dv__schema *s)
{
    dv__vec returns = { 0 };
    int status = dv__lexer_expect(&p->lx, "->");
    if (status)
        return status;
    if (dv__lexer_try_accept(&p->lx, "...")) {
        s->varret = true;
        return DV_OK;
    }
    const bool list = dv__lexer_try_accept(&p->lx, "(");
    if (list && dv__lexer_try_accept(&p->lx, ")"))
        return DV_OK;
    do {
        if (s->varret)
            return dv__fail_at_column(DV_ESYNTAX, p->lx.text, p->lx.token.start, "expected ')': '...' ends the returns");
        if (list && dv__lexer_try_accept(&p->lx, "...")) {
            s->varret = true;
            continue;
        }
        dv__argument *a = dv__vec_push(&returns, p->arena, sizeof *a);
        if (!a)
            return DV_ENOMEM;
        if ((status = schema_parse_argument(p, true, a)))
            return status;
    } while (list && dv__lexer_try_accept(&p->lx, ","));
    s->returns = returns.data;
    s->nreturns = returns.n;
    if (!list || dv__lexer_try_accept(&p->lx, ")"))
        return DV_OK;
    return dv__lexer_fail_expected(&p->lx, "',' or ')'");
}

/* Checks the defaults as PyTorch does after parsing: none beside '...', and none before an argument without. Returns a
 * status. */
static int schema_check_defaults(const char *text, const dv__schema *s)
{
    const char *default_name = NULL;
    for (size_t i = 0; i < s->nargs; i++) {
        const dv__argument *a = &s->args[i];
        if (a->def.is_set && s->vararg)
            return dv_fail(DV_ESYNTAX, "argument '%s' has a default, which is not allowed beside '...'\n    %s", a->name, text);
        if (a->def.is_set)
            default_name = a->name;
        else if (default_name && !a->kwarg_only && a->type->kind != DV__TYPE_LIST)
            return dv_fail(
                DV_ESYNTAX, "argument '%s' has no default but follows '%s', which has one\n    %s", a->name, default_name, text);
    }
    return DV_OK;
}

int dv__schema_parse(const char *text, dv__schema **out) { return dv__schema_parse_in_namespace("", text, out); }

int dv__schema_parse_in_namespace(const char *ns, const char *text, dv__schema **out)
{
    dv__strbuf canonical = { 0 };
    dv__schema *s = dv__calloc(1, sizeof *s);
    int status = DV_ENOMEM;
    *out = NULL;
    if (!s)
        return status;
    if (!text) {
        status = dv_fail(DV_EINVAL, "no schema: the text is NULL");
        goto fail;
    }
    schema_parser p = { .arena = &s->arena };
    dv__lexer_init_python(&p.lx, text);
    if ((status = schema_parse_operator_name(&p, s)) || (status = schema_parse_arguments(&p, s)) ||
        (status = schema_parse_returns(&p, s)))
        goto fail;
    if (p.lx.token.kind != DV__TOKEN_END) {
        status = dv__lexer_fail_expected(&p.lx, "the end");
        goto fail;
    }
    if ((status = schema_check_defaults(text, s)))
        goto fail;
    if (!*s->ns && !(s->ns = dv__arena_strndup(&s->arena, ns, strlen(ns)))) {
        status = DV_ENOMEM;
        goto fail;
    }
    dv__schema_print(s, &canonical);
    s->text = canonical.failed ? NULL : dv__arena_strndup(&s->arena, canonical.data, canonical.size);
    status = s->text ? DV_OK : dv_fail(DV_ENOMEM, "out of memory");
    if (status)
        goto fail;
    dv__strbuf_deinit(&canonical);
    *out = s;
    return DV_OK;
fail:
    dv__strbuf_deinit(&canonical);
    dv__schema_free(s);
    return status;
}

void dv__schema_free(dv__schema *s)
{
    if (!s)
        return;
    dv__arena_deinit(&s->arena);
    dv__free(s);
}

int dv__schema_find_argument_index(const dv__schema *s, const char *name)
{
    for (size_t i = 0; i < s->nargs; i++)
        if (!strcmp(s->args[i].name, name))
            return (int)i;
    return -1;
}
