/* A precedence-climbing parser, with a table row for each binary operator. Every node stores its depth, and the parser refuses
 * depths beyond DV__EXPR_MAX_DEPTH, so that printers and evaluators may recurse without further checks. */
#include "lang/expr.h"

#include <float.h>
#include <float.h>
#include <locale.h>
#include <stdlib.h>

#include "base/error.h"

/* The precedence of a construct; parsing at a level accepts constructs of this or a higher precedence. */
enum level { LEVEL_OR = 1, LEVEL_AND, LEVEL_NOT, LEVEL_COMPARE, LEVEL_SUM, LEVEL_PRODUCT, LEVEL_UNARY, LEVEL_POSTFIX };

static const struct binary {
    const char *text;
    enum dv__expr_kind kind;
    enum level level;
} binaries[] = {
    { "or", DV__EXPR_OR, LEVEL_OR },
    { "and", DV__EXPR_AND, LEVEL_AND },
    { "==", DV__EXPR_EQ, LEVEL_COMPARE },
    { "!=", DV__EXPR_NE, LEVEL_COMPARE },
    { "<", DV__EXPR_LT, LEVEL_COMPARE },
    { "<=", DV__EXPR_LE, LEVEL_COMPARE },
    { ">", DV__EXPR_GT, LEVEL_COMPARE },
    { ">=", DV__EXPR_GE, LEVEL_COMPARE },
    { "+", DV__EXPR_ADD, LEVEL_SUM },
    { "-", DV__EXPR_SUB, LEVEL_SUM },
    { "*", DV__EXPR_MUL, LEVEL_PRODUCT },
    { "/", DV__EXPR_DIV, LEVEL_PRODUCT },
    { "//", DV__EXPR_FLOORDIV, LEVEL_PRODUCT },
    { "%", DV__EXPR_MOD, LEVEL_PRODUCT },
};
enum { NBINARIES = sizeof binaries / sizeof *binaries };

/* Words that cannot be names, because an operand or an operator begins with them. */
static const char *const reserved[] = { "or", "and", "not", "in" };

enum { IN_LIST = 1 /* spaces separate */, NO_DIV = 2 };

struct parser {
    dv__lexer *lx;
    dv__arena *arena;
    int depth;
    unsigned flags; /* of the current bracket level */
};

static int parse_level(struct parser *p, enum level level, dv__expr **out);

static int too_deep(struct parser *p, const char *at)
{
    return dv__fail_at(DV_ELIMIT, p->lx->text, at, "expression nested deeper than %d", DV__EXPR_MAX_DEPTH);
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static bool space_before(const dv__lexer *lx) { return lx->token.start > lx->text && is_space(lx->token.start[-1]); }
static bool space_after(const dv__lexer *lx) { return is_space(*lx->at) || !*lx->at; }

static int make(struct parser *p, enum dv__expr_kind kind, const char *at, uint32_t n, dv__expr *const *args, dv__expr **out)
{
    unsigned depth = 0;
    for (uint32_t i = 0; i < n; i++)
        if (args[i]->depth + 1u > depth)
            depth = args[i]->depth + 1u;
    if (depth > DV__EXPR_MAX_DEPTH)
        return too_deep(p, at);
    dv__expr *e = DV__ARENA_NEW(p->arena, dv__expr);
    if (!e)
        return DV_ENOMEM;
    if (n) {
        e->args = DV__ARENA_ARRAY(p->arena, dv__expr *, n);
        if (!e->args)
            return DV_ENOMEM;
        memcpy(e->args, args, n * sizeof *args);
    }
    e->kind = kind;
    e->n = n;
    e->at = at;
    e->depth = (uint16_t)depth;
    *out = e;
    return DV_OK;
}

static int make_named(struct parser *p, enum dv__expr_kind kind, const char *at, const char *name, size_t size, uint32_t n,
    dv__expr *const *args, dv__expr **out)
{
    const int status = make(p, kind, at, n, args, out);
    if (status)
        return status;
    (*out)->name = dv__arena_strndup(p->arena, name, size);
    return (*out)->name ? DV_OK : DV_ENOMEM;
}

/* A growing list of operands. The arena keeps the smaller copies; lists are short. */
struct operands {
    dv__expr **data;
    uint32_t n, room;
};

static int push(struct parser *p, struct operands *list, dv__expr *e)
{
    if (list->n == list->room) {
        const uint32_t room = list->room ? list->room * 2 : 4;
        dv__expr **data = DV__ARENA_ARRAY(p->arena, dv__expr *, room);
        if (!data)
            return DV_ENOMEM;
        if (list->n)
            memcpy(data, list->data, list->n * sizeof *data);
        list->data = data;
        list->room = room;
    }
    list->data[list->n++] = e;
    return DV_OK;
}

/* One element of an argument list: `value` or `name=value`. */
static int parse_element(struct parser *p, bool keywords, dv__expr **out)
{
    const dv__token name = p->lx->token;
    dv__lexer ahead = *p->lx;
    if (keywords && name.kind == DV__TOKEN_IDENT && (dv__lexer_next(&ahead), dv__lexer_is(&ahead, "="))) {
        dv__lexer_next(&ahead);
        *p->lx = ahead;
        dv__expr *value = NULL;
        const int status = parse_level(p, LEVEL_OR, &value);
        return status ? status : make_named(p, DV__EXPR_KEYWORD, name.start, name.start, name.size, 1, &value, out);
    }
    return parse_level(p, LEVEL_OR, out);
}

/* Elements up to the closing bracket, which is consumed. A comma may end the list. comma, if not NULL: whether there was one. */
static int parse_elements(struct parser *p, const char *close, bool keywords, struct operands *list, bool *comma)
{
    const unsigned outer = p->flags;
    p->flags = 0;
    if (comma)
        *comma = false;
    while (!dv__lexer_is(p->lx, close)) {
        dv__expr *e = NULL;
        int status = parse_element(p, keywords, &e);
        if (!status)
            status = push(p, list, e);
        if (status)
            return status;
        if (!dv__lexer_accept(p->lx, ",")) {
            if (!dv__lexer_is(p->lx, close))
                return dv__lexer_unexpected(p->lx, "',' or '%s'", close);
            break;
        }
        if (comma)
            *comma = true;
    }
    p->flags = outer;
    dv__lexer_next(p->lx);
    return DV_OK;
}

static int parse_string(struct parser *p, dv__expr **out)
{
    const dv__token t = p->lx->token;
    int status = make_named(p, DV__EXPR_STRING, t.start, t.start + 1, t.size - 2, 0, NULL, out);
    if (status)
        return status;
    char *to = (char *)(*out)->name; /* our own copy: drop the escapes in place */
    for (const char *from = to; *from; from++) {
        if (*from == '\\' && from[1])
            from++;
        *to++ = *from;
    }
    *to = 0;
    dv__lexer_next(p->lx);
    return DV_OK;
}

/* strtod reads the locale's decimal point, and the host program may have set a locale. */
static int parse_float(struct parser *p, dv__expr **out)
{
    const dv__token t = p->lx->token;
    const int status = make_named(p, DV__EXPR_FLOAT, t.start, t.start, t.size, 0, NULL, out);
    if (status)
        return status;
    char local[64];
    if (t.size >= sizeof local)
        return dv__fail_at(DV_ESYNTAX, p->lx->text, t.start, "expected a number of at most %zu characters", sizeof local - 1);
    memcpy(local, t.start, t.size);
    local[t.size] = 0;
    char *point = strchr(local, '.');
    if (point)
        *point = *localeconv()->decimal_point;
    (*out)->f = strtod(local, NULL);
    if ((*out)->f > DBL_MAX)
        return dv__fail_at(
            DV_ESYNTAX, p->lx->text, t.start, "expected a number that fits a double, found %.*s", (int)t.size, t.start);
    dv__lexer_next(p->lx);
    return DV_OK;
}

/* name{i}, *name{i}: of the tensor at place i of a list. */
static int parse_place(struct parser *p, dv__expr *e)
{
    if (!dv__lexer_accept(p->lx, "{"))
        return DV_OK;
    const dv__token index = p->lx->token;
    if (index.kind != DV__TOKEN_IDENT)
        return dv__lexer_unexpected(p->lx, "the list's index");
    if (!(e->index = dv__arena_strndup(p->arena, index.start, index.size)))
        return DV_ENOMEM;
    dv__lexer_next(p->lx);
    return dv__lexer_expect(p->lx, "}");
}

/* name, name{i}, ns::name(args), name.overload(args); True, False, None. */
static int parse_name(struct parser *p, dv__expr **out)
{
    const dv__token first = p->lx->token;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (dv__token_is(first, reserved[i]))
            return dv__lexer_unexpected(p->lx, "a value");
    dv__lexer_next(p->lx);
    const char *end = first.start + first.size;
    bool must_call = false;
    while (p->lx->token.start == end && dv__lexer_is(p->lx, "::")) {
        dv__lexer_next(p->lx);
        if (p->lx->token.kind != DV__TOKEN_IDENT)
            return dv__lexer_unexpected(p->lx, "a name after '::'");
        end = p->lx->token.start + p->lx->token.size;
        must_call = true;
        dv__lexer_next(p->lx);
    }
    if (p->lx->token.start == end && dv__lexer_is(p->lx, ".")) { /* an overload only if it is called: else it is an attribute */
        dv__lexer ahead = *p->lx;
        dv__lexer_next(&ahead);
        const dv__token overload = ahead.token;
        dv__lexer_next(&ahead);
        if (overload.kind == DV__TOKEN_IDENT && dv__lexer_is(&ahead, "(") &&
            ahead.token.start == overload.start + overload.size) {
            *p->lx = ahead;
            end = overload.start + overload.size;
        }
    }
    const bool spaced = (p->flags & IN_LIST) && p->lx->token.start != end;
    if (dv__lexer_is(p->lx, "(") && !spaced) {
        struct operands args = { 0 };
        dv__lexer_next(p->lx);
        const int status = parse_elements(p, ")", true, &args, NULL);
        return status
            ? status
            : make_named(p, DV__EXPR_CALL, first.start, first.start, (size_t)(end - first.start), args.n, args.data, out);
    }
    if (must_call)
        return dv__lexer_unexpected(p->lx, "'(' after '%.*s'", (int)(end - first.start), first.start);
    const bool yes = dv__token_is(first, "True") || dv__token_is(first, "true");
    if (yes || dv__token_is(first, "False") || dv__token_is(first, "false")) {
        const int status = make(p, DV__EXPR_BOOL, first.start, 0, NULL, out);
        if (!status)
            (*out)->i = yes;
        return status;
    }
    if (dv__token_is(first, "None"))
        return make(p, DV__EXPR_NONE, first.start, 0, NULL, out);
    const int status = make_named(p, DV__EXPR_NAME, first.start, first.start, first.size, 0, NULL, out);
    return status ? status : parse_place(p, *out);
}

/* (value) is value; (a, b) and () are lists. */
static int parse_parenthesis(struct parser *p, dv__expr **out)
{
    const char *at = p->lx->token.start;
    struct operands list = { 0 };
    bool comma;
    dv__lexer_next(p->lx);
    const int status = parse_elements(p, ")", false, &list, &comma);
    if (status)
        return status;
    if (list.n == 1 && !comma) {
        *out = list.data[0];
        return DV_OK;
    }
    return make(p, DV__EXPR_LIST, at, list.n, list.data, out);
}

static int parse_operand(struct parser *p, dv__expr **out)
{
    dv__lexer *lx = p->lx;
    const char *at = lx->token.start;
    switch (lx->token.kind) {
    case DV__TOKEN_INT: {
        int64_t i;
        int status = dv__lexer_int(lx, &i);
        if (!status)
            status = make(p, DV__EXPR_INT, at, 0, NULL, out);
        if (!status)
            (*out)->i = i;
        return status;
    }
    case DV__TOKEN_FLOAT: return parse_float(p, out);
    case DV__TOKEN_STRING: return parse_string(p, out);
    case DV__TOKEN_IDENT: return parse_name(p, out);
    default: break;
    }
    if (dv__lexer_is(lx, "("))
        return parse_parenthesis(p, out);
    if (dv__lexer_is(lx, "[")) {
        struct operands list = { 0 };
        dv__lexer_next(lx);
        const int status = parse_elements(p, "]", false, &list, NULL);
        return status ? status : make(p, DV__EXPR_LIST, at, list.n, list.data, out);
    }
    if (dv__lexer_accept(lx, "*")) {
        const dv__token name = lx->token;
        if (name.kind != DV__TOKEN_IDENT)
            return dv__lexer_unexpected(lx, "a name after '*'");
        dv__lexer_next(lx);
        const int status = make_named(p, DV__EXPR_STAR, at, name.start, name.size, 0, NULL, out);
        return status ? status : parse_place(p, *out);
    }
    return dv__lexer_unexpected(lx, "a value");
}

static int parse_postfix(struct parser *p, dv__expr **out)
{
    int status = parse_operand(p, out);
    while (!status) {
        const char *at = (*out)->at;
        if ((p->flags & IN_LIST) && space_before(p->lx))
            break;
        if (dv__lexer_accept(p->lx, "[")) {
            const unsigned outer = p->flags;
            dv__expr *both[2] = { *out, NULL };
            p->flags = 0;
            status = parse_level(p, LEVEL_OR, &both[1]);
            if (!status)
                status = dv__lexer_expect(p->lx, "]");
            if (!status)
                status = make(p, DV__EXPR_INDEX, at, 2, both, out);
            p->flags = outer;
        } else if (dv__lexer_accept(p->lx, ".")) {
            const dv__token name = p->lx->token;
            if (name.kind != DV__TOKEN_IDENT)
                return dv__lexer_unexpected(p->lx, "a name after '.'");
            dv__lexer_next(p->lx);
            dv__expr *of = *out;
            status = make_named(p, DV__EXPR_ATTR, at, name.start, name.size, 1, &of, out);
        } else {
            break;
        }
    }
    return status;
}

static int parse_unary(struct parser *p, enum dv__expr_kind kind, enum level operand, dv__expr **out)
{
    const char *at = p->lx->token.start;
    dv__expr *inner = NULL;
    dv__lexer_next(p->lx);
    const int status = parse_level(p, operand, &inner);
    if (status)
        return status;
    return make(p, kind, at, 1, &inner, out);
}

/* The operator at the current token, or NULL, also when the token belongs to the next operand. */
static const struct binary *current_binary(const struct parser *p)
{
    for (int i = 0; i < NBINARIES; i++) {
        if (!dv__lexer_is(p->lx, binaries[i].text))
            continue;
        if ((p->flags & IN_LIST) && binaries[i].kind == DV__EXPR_MUL && space_before(p->lx) && !space_after(p->lx))
            return NULL;
        if ((p->flags & NO_DIV) && binaries[i].kind == DV__EXPR_DIV)
            return NULL;
        return &binaries[i];
    }
    return NULL;
}

static bool begins_value(const dv__lexer *lx)
{
    if (lx->token.kind == DV__TOKEN_IDENT) {
        for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
            if (dv__token_is(lx->token, reserved[i]))
                return false;
        return true;
    }
    return lx->token.kind == DV__TOKEN_INT || lx->token.kind == DV__TOKEN_FLOAT || lx->token.kind == DV__TOKEN_STRING ||
        dv__lexer_is(lx, "-");
}

/* `x in A B C`, `x not in A B`: values separated by spaces, each without operators. */
static int parse_in(struct parser *p, dv__expr *left, dv__expr **out)
{
    const char *at = p->lx->token.start;
    const bool negated = dv__lexer_accept(p->lx, "not");
    int status = dv__lexer_expect(p->lx, "in");
    if (status)
        return status;
    struct operands list = { 0 };
    status = push(p, &list, left);
    const unsigned outer = p->flags;
    p->flags |= IN_LIST;
    if (!status && !begins_value(p->lx))
        status = dv__lexer_unexpected(p->lx, "a value after 'in'");
    while (!status && begins_value(p->lx)) {
        dv__expr *e = NULL;
        status = parse_level(p, LEVEL_UNARY, &e);
        if (!status)
            status = push(p, &list, e);
    }
    p->flags = outer;
    if (!status)
        status = make(p, DV__EXPR_IN, left->at, list.n, list.data, out);
    if (!status && negated) {
        dv__expr *in = *out;
        status = make(p, DV__EXPR_NOT, at, 1, &in, out);
    }
    return status;
}

static bool at_in(const dv__lexer *lx)
{
    dv__lexer ahead = *lx;
    return dv__lexer_is(lx, "in") || (dv__lexer_accept(&ahead, "not") && dv__lexer_is(&ahead, "in"));
}

/* a < b <= c is (a < b) and (b <= c); `in` does not chain. */
static int parse_comparison(struct parser *p, dv__expr **out)
{
    dv__expr *left = NULL, *all = NULL;
    int status = parse_level(p, LEVEL_SUM, &left);
    if (!status && at_in(p->lx))
        return parse_in(p, left, out);
    const struct binary *op;
    while (!status && (op = current_binary(p)) && op->level == LEVEL_COMPARE) {
        dv__expr *both[2] = { left, NULL }, *one = NULL;
        dv__lexer_next(p->lx);
        status = parse_level(p, LEVEL_SUM, &both[1]);
        if (!status)
            status = make(p, op->kind, left->at, 2, both, &one);
        if (!status && all) {
            dv__expr *pair[2] = { all, one };
            status = make(p, DV__EXPR_AND, all->at, 2, pair, &one);
        }
        all = one;
        left = both[1];
    }
    *out = all ? all : left;
    return status;
}

static int parse_level_(struct parser *p, enum level level, dv__expr **out)
{
    if (level == LEVEL_NOT && dv__lexer_is(p->lx, "not"))
        return parse_unary(p, DV__EXPR_NOT, LEVEL_NOT, out);
    if (level == LEVEL_NOT)
        return parse_level(p, LEVEL_COMPARE, out);
    if (level == LEVEL_COMPARE)
        return parse_comparison(p, out);
    if (level == LEVEL_UNARY)
        return dv__lexer_is(p->lx, "-") ? parse_unary(p, DV__EXPR_NEG, LEVEL_UNARY, out) : parse_postfix(p, out);
    int status = parse_level(p, level + 1, out);
    const struct binary *op;
    while (!status && (op = current_binary(p)) && op->level == level) { /* left to right */
        dv__expr *both[2] = { *out, NULL };
        dv__lexer_next(p->lx);
        status = parse_level(p, level + 1, &both[1]);
        if (!status)
            status = make(p, op->kind, both[0]->at, 2, both, out);
    }
    return status;
}

/* Each level of nesting takes several levels of C recursion; this counter limits them. */
static int parse_level(struct parser *p, enum level level, dv__expr **out)
{
    if (p->depth >= DV__EXPR_MAX_DEPTH * LEVEL_POSTFIX)
        return too_deep(p, p->lx->token.start);
    p->depth++;
    const int status = parse_level_(p, level, out);
    p->depth--;
    return status;
}

static int parse(dv__lexer *lx, dv__arena *arena, unsigned flags, enum level level, dv__expr **out)
{
    struct parser p = { lx, arena, 0, flags };
    *out = NULL;
    const int status = parse_level(&p, level, out);
    if (status)
        *out = NULL;
    return status;
}

int dv__expr_parse(dv__lexer *lx, dv__arena *arena, dv__expr **out) { return parse(lx, arena, 0, LEVEL_OR, out); }
int dv__expr_parse_all(const char *text, dv__arena *arena, const char *what, dv__expr **out)
{
    dv__lexer lx;
    dv__lexer_init(&lx, text);
    const int status = dv__expr_parse(&lx, arena, out);
    return status || lx.token.kind == DV__TOKEN_END ? status : dv__lexer_unexpected(&lx, "the end of the %s", what);
}
int dv__expr_parse_sum(dv__lexer *lx, dv__arena *arena, dv__expr **out) { return parse(lx, arena, IN_LIST, LEVEL_SUM, out); }
int dv__expr_parse_no_div(dv__lexer *lx, dv__arena *arena, dv__expr **out) { return parse(lx, arena, NO_DIV, LEVEL_OR, out); }
int dv__expr_parse_primary(dv__lexer *lx, dv__arena *arena, dv__expr **out)
{
    return parse(lx, arena, IN_LIST, LEVEL_UNARY, out);
}

static const struct binary *binary_of(enum dv__expr_kind kind)
{
    for (int i = 0; i < NBINARIES; i++)
        if (binaries[i].kind == kind)
            return &binaries[i];
    return NULL;
}

static enum level level_of(const dv__expr *e)
{
    const struct binary *b = binary_of(e->kind);
    if (b)
        return b->level;
    return e->kind == DV__EXPR_IN ? LEVEL_COMPARE
        : e->kind == DV__EXPR_NOT ? LEVEL_NOT
        : e->kind == DV__EXPR_NEG ? LEVEL_UNARY
                                  : LEVEL_POSTFIX;
}

static void print_at(const dv__expr *e, enum level level, dv__text *to)
{
    if (level_of(e) >= level) {
        dv__expr_print(e, to);
        return;
    }
    dv__text_puts(to, "(");
    dv__expr_print(e, to);
    dv__text_puts(to, ")");
}

static void print_list(const dv__expr *e, const char *open, const char *close, dv__text *to)
{
    dv__text_puts(to, open);
    for (uint32_t i = 0; i < e->n; i++) {
        dv__text_puts(to, i ? ", " : "");
        dv__expr_print(e->args[i], to);
    }
    dv__text_puts(to, close);
}

static void print_string(const char *s, dv__text *to)
{
    dv__text_puts(to, "\"");
    for (; *s; s++)
        dv__text_add(to, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
    dv__text_puts(to, "\"");
}

void dv__expr_print(const dv__expr *e, dv__text *to)
{
    const struct binary *b = binary_of(e->kind);
    if (b) {
        const bool comparison = b->level == LEVEL_COMPARE;
        print_at(e->args[0], comparison ? LEVEL_SUM : b->level, to);
        dv__text_add(to, b->level == LEVEL_PRODUCT ? "%s" : " %s ", b->text);
        print_at(e->args[1], b->level + 1, to);
        return;
    }
    switch (e->kind) {
    case DV__EXPR_INT: dv__text_add(to, "%lld", (long long)e->i); break;
    case DV__EXPR_STRING: print_string(e->name, to); break;
    case DV__EXPR_BOOL: dv__text_puts(to, e->i ? "True" : "False"); break;
    case DV__EXPR_NONE: dv__text_puts(to, "None"); break;
    case DV__EXPR_ATTR:
        print_at(e->args[0], LEVEL_POSTFIX, to);
        dv__text_add(to, ".%s", e->name);
        break;
    case DV__EXPR_INDEX:
        print_at(e->args[0], LEVEL_POSTFIX, to);
        dv__text_puts(to, "[");
        dv__expr_print(e->args[1], to);
        dv__text_puts(to, "]");
        break;
    case DV__EXPR_CALL:
        dv__text_puts(to, e->name);
        print_list(e, "(", ")", to);
        break;
    case DV__EXPR_KEYWORD:
        dv__text_add(to, "%s=", e->name);
        dv__expr_print(e->args[0], to);
        break;
    case DV__EXPR_LIST: print_list(e, "[", "]", to); break;
    case DV__EXPR_IN:
        print_at(e->args[0], LEVEL_SUM, to);
        dv__text_puts(to, " in");
        for (uint32_t i = 1; i < e->n; i++) {
            dv__text_puts(to, " ");
            print_at(e->args[i], LEVEL_UNARY, to);
        }
        break;
    case DV__EXPR_NEG:
    case DV__EXPR_NOT:
        dv__text_puts(to, e->kind == DV__EXPR_NEG ? "-" : "not ");
        print_at(e->args[0], level_of(e), to);
        break;
    default: /* NAME, STAR, FLOAT */
        dv__text_add(to, e->index ? "%s%s{%s}" : "%s%s", e->kind == DV__EXPR_STAR ? "*" : "", e->name, e->index);
        break;
    }
}

void dv__expr_json(const dv__expr *e, dv__text *to)
{
    static const char *const kinds[] = {
#define KIND(name, json) json,
        DV__EXPR_KINDS(KIND)
#undef KIND
    };
    dv__text_add(to, "[\"%s\"", kinds[e->kind]);
    switch (e->kind) {
    case DV__EXPR_INT: dv__text_add(to, ", %lld", (long long)e->i); break;
    case DV__EXPR_FLOAT: { /* as written, but JSON has no "1.", ".5" or "00.5" */
        const char *text = e->name;
        while (*text == '0' && text[1] >= '0' && text[1] <= '9')
            text++;
        const char *point = strchr(text, '.');
        dv__text_puts(to, point == text ? ", 0" : ", ");
        dv__text_put(to, text, point ? (size_t)(point - text) + 1 : strlen(text));
        if (point)
            dv__text_add(to, "%s%s", point[1] >= '0' && point[1] <= '9' ? "" : "0", point + 1);
        break;
    }
    case DV__EXPR_BOOL: dv__text_puts(to, e->i ? ", true" : ", false"); break;
    case DV__EXPR_STRING:
    case DV__EXPR_NAME:
    case DV__EXPR_STAR:
    case DV__EXPR_CALL:
    case DV__EXPR_KEYWORD:
        dv__text_puts(to, ", ");
        dv__text_json(to, e->name, strlen(e->name));
        break;
    default: break;
    }
    for (uint32_t i = 0; i < e->n; i++) {
        dv__text_puts(to, ", ");
        dv__expr_json(e->args[i], to);
    }
    if (e->kind == DV__EXPR_ATTR) {
        dv__text_puts(to, ", ");
        dv__text_json(to, e->name, strlen(e->name));
    }
    dv__text_puts(to, "]");
}

static bool same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

bool dv__expr_equal(const dv__expr *a, const dv__expr *b)
{
    if (a == b)
        return true;
    if (a->kind != b->kind || a->n != b->n || a->i != b->i || a->role != b->role || a->ref != b->ref)
        return false;
    if (a->kind == DV__EXPR_FLOAT && !(a->f == b->f))
        return false;
    if (a->kind != DV__EXPR_FLOAT && !same_text(a->name, b->name))
        return false;
    if (!same_text(a->index, b->index))
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!dv__expr_equal(a->args[i], b->args[i]))
            return false;
    return true;
}

bool dv__floordiv(int64_t a, int64_t b, int64_t *out)
{
    if (!b || (a == INT64_MIN && b == -1))
        return false;
    const int64_t q = a / b, r = a % b;
    *out = q - (r && (r < 0) != (b < 0));
    return true;
}

bool dv__floormod(int64_t a, int64_t b, int64_t *out)
{
    if (!b)
        return false;
    if (b == -1) {
        *out = 0;
        return true;
    }
    const int64_t r = a % b;
    *out = r && (r < 0) != (b < 0) ? r + b : r;
    return true;
}
