/* Schemas: name(arguments) -> returns. Types are in schema_type.c, defaults in schema_default.c. */
#include <limits.h>
#include <stdlib.h>

#include "base/error.h"
#include "lang/schema_types.h"

typedef struct parser {
    dv__lexer lx;
    dv__arena *arena;
    unsigned fresh;
} parser;

/* ns::name.overload */
static int parse_name(parser *p, dv__schema *s)
{
    s->ns = s->overload = "";
    int status = dv__schema_name(&p->lx, p->arena, "the name of an operator", &s->name);
    if (status)
        return status;
    bool colons = dv__lexer_accept(&p->lx, "::");
    if (!colons && dv__lexer_accept(&p->lx, ":")) { /* PyTorch reads two colons, whatever is between */
        if ((status = dv__lexer_expect(&p->lx, ":")))
            return status;
        colons = true;
    }
    if (colons) {
        s->ns = s->name;
        if ((status = dv__schema_name(&p->lx, p->arena, "the name of an operator", &s->name)))
            return status;
    }
    if (dv__lexer_accept(&p->lx, ".")) {
        const char *at = p->lx.token.start;
        if ((status = dv__schema_name(&p->lx, p->arena, "the name of an overload", &s->overload)))
            return status;
        if (!strcmp(s->overload, "default") || !strncmp(s->overload, "__", 2))
            return dv__fail_at(DV_ESYNTAX, p->lx.text, at, "'%.60s' cannot be the name of an overload", s->overload);
    }
    return DV_OK;
}

/* The number in int[3], as C++'s std::stoll reads it: int[2.5] is int[2]. */
static int parse_size(parser *p, int64_t *out)
{
    const dv__token t = p->lx.token;
    int64_t n = 0;
    size_t i = 0;
    if (t.kind != DV__TOKEN_INT && t.kind != DV__TOKEN_FLOAT)
        return dv__lexer_unexpected(&p->lx, "']' or the size of the list");
    for (; i < t.size && t.start[i] >= '0' && t.start[i] <= '9' && n <= INT_MAX; i++)
        n = n * 10 + (t.start[i] - '0');
    if (!i || n > INT_MAX)
        return dv__fail_at(DV_ESYNTAX, p->lx.text, t.start, "expected the size of a list, found %.*s",
            (int)(t.size > 60 ? 60 : t.size), t.start);
    *out = n;
    dv__lexer_next(&p->lx);
    return DV_OK;
}

/* int[3](a)?: a list of given size can only be an argument's own type. */
static int parse_sized_list(parser *p, dv__argument *a)
{
    dv__alias *container = NULL;
    int64_t size = 0;
    int status = parse_size(p, &size);
    if (!status)
        status = dv__lexer_expect(&p->lx, "]");
    if (!status)
        status = dv__alias_parse(&p->lx, p->arena, &p->fresh, &container);
    if (!status)
        status = dv__alias_contain(p->arena, a->alias, &container);
    if (status)
        return status;
    a->alias = container;
    a->type = dv__type_wrap(p->arena, DV__TYPE_LIST, a->type, size);
    if (a->type && dv__lexer_accept(&p->lx, "?"))
        a->type = dv__type_wrap(p->arena, DV__TYPE_OPTIONAL, a->type, -1);
    return a->type ? DV_OK : DV_ENOMEM;
}

static int parse_argument(parser *p, bool is_return, dv__argument *a)
{
    a->name = "";
    int status = dv__type_parse(&p->lx, p->arena, &p->fresh, &a->type, &a->alias);
    if (!status && dv__lexer_accept(&p->lx, "["))
        status = parse_sized_list(p, a);
    if (status)
        return status;
    if (is_return && p->lx.token.kind != DV__TOKEN_IDENT)
        return DV_OK;
    if (!is_return && p->lx.token.kind != DV__TOKEN_IDENT)
        return dv__lexer_unexpected(&p->lx, "the name of the argument");
    if ((status = dv__schema_name(
             &p->lx, p->arena, is_return ? "a name that is not a keyword" : "the name of the argument (no keyword)", &a->name)))
        return status;
    if (!is_return && dv__lexer_accept(&p->lx, "="))
        return dv__default_parse(&p->lx, p->arena, a->type, &a->def);
    return DV_OK;
}

static int parse_arguments(parser *p, dv__schema *s)
{
    dv__vec args = { 0 };
    bool kwarg_only = false;
    int status = dv__lexer_expect(&p->lx, "(");
    if (status || dv__lexer_accept(&p->lx, ")"))
        return status;
    do {
        if (s->vararg)
            return dv__fail_at(DV_ESYNTAX, p->lx.text, p->lx.token.start, "expected ')': '...' ends the arguments");
        if (dv__lexer_accept(&p->lx, "*")) {
            kwarg_only = true;
            s->stars++;
        } else if (dv__lexer_accept(&p->lx, "...")) {
            s->vararg = true;
        } else {
            dv__argument *a = dv__vec_add(&args, p->arena, sizeof *a);
            if (!a)
                return DV_ENOMEM;
            a->kwarg_only = kwarg_only;
            if ((status = parse_argument(p, false, a)))
                return status;
        }
    } while (dv__lexer_accept(&p->lx, ","));
    s->args = args.data;
    s->nargs = args.n;
    if (dv__lexer_accept(&p->lx, ")"))
        return DV_OK;
    return dv__lexer_unexpected(&p->lx, "',' or ')'");
}

static int parse_returns(parser *p, dv__schema *s)
{
    dv__vec returns = { 0 };
    int status = dv__lexer_expect(&p->lx, "->");
    if (status)
        return status;
    if (dv__lexer_accept(&p->lx, "...")) {
        s->varret = true;
        return DV_OK;
    }
    const bool list = dv__lexer_accept(&p->lx, "(");
    if (list && dv__lexer_accept(&p->lx, ")"))
        return DV_OK;
    do {
        if (s->varret)
            return dv__fail_at(DV_ESYNTAX, p->lx.text, p->lx.token.start, "expected ')': '...' ends the returns");
        if (list && dv__lexer_accept(&p->lx, "...")) {
            s->varret = true;
            continue;
        }
        dv__argument *a = dv__vec_add(&returns, p->arena, sizeof *a);
        if (!a)
            return DV_ENOMEM;
        if ((status = parse_argument(p, true, a)))
            return status;
    } while (list && dv__lexer_accept(&p->lx, ","));
    s->returns = returns.data;
    s->nreturns = returns.n;
    if (!list || dv__lexer_accept(&p->lx, ")"))
        return DV_OK;
    return dv__lexer_unexpected(&p->lx, "',' or ')'");
}

/* What PyTorch checks once all is read. */
static int check(const char *text, const dv__schema *s)
{
    const char *seen = NULL;
    for (size_t i = 0; i < s->nargs; i++) {
        const dv__argument *a = &s->args[i];
        if (a->def.has && s->vararg)
            return dv_fail(DV_ESYNTAX, "argument '%s' has a default, which is not allowed beside '...'\n    %s", a->name, text);
        if (a->def.has)
            seen = a->name;
        else if (seen && !a->kwarg_only && a->type->kind != DV__TYPE_LIST)
            return dv_fail(
                DV_ESYNTAX, "argument '%s' has no default but follows '%s', which has one\n    %s", a->name, seen, text);
    }
    return DV_OK;
}

int dv__schema_parse(const char *text, dv__schema **out) { return dv__schema_parse_in("", text, out); }

int dv__schema_parse_in(const char *ns, const char *text, dv__schema **out)
{
    dv__text canonical = { 0 };
    dv__schema *s = dv__calloc(1, sizeof *s);
    int status = DV_ENOMEM;
    *out = NULL;
    if (!s)
        return status;
    if (!text) {
        status = dv_fail(DV_EINVAL, "no schema: the text is NULL");
        goto fail;
    }
    parser p = { .arena = &s->arena };
    dv__lexer_init_python(&p.lx, text);
    if ((status = parse_name(&p, s)) || (status = parse_arguments(&p, s)) || (status = parse_returns(&p, s)))
        goto fail;
    if (p.lx.token.kind != DV__TOKEN_END) {
        status = dv__lexer_unexpected(&p.lx, "the end");
        goto fail;
    }
    if ((status = check(text, s)))
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
    dv__text_deinit(&canonical);
    *out = s;
    return DV_OK;
fail:
    dv__text_deinit(&canonical);
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

int dv__schema_arg(const dv__schema *s, const char *name)
{
    for (size_t i = 0; i < s->nargs; i++)
        if (!strcmp(s->args[i].name, name))
            return (int)i;
    return -1;
}
