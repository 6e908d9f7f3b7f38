/* A precedence-climbing parser, with a table row for each binary operator. Every node stores its depth, and the parser refuses
 * depths beyond DV__EXPR_MAX_DEPTH, so that printers and evaluators may recurse without further checks. */
#include "lang/expr.h"

#include <float.h>
#include <float.h>
#include <locale.h>
#include <stdlib.h>

#include "base/error.h"

/* The precedence of a construct; parsing at a level accepts constructs of this or a higher precedence. */
enum precedence {
    PRECEDENCE_OR = 1,
    PRECEDENCE_AND,
    PRECEDENCE_NOT,
    PRECEDENCE_COMPARE,
    PRECEDENCE_SUM,
    PRECEDENCE_PRODUCT,
    PRECEDENCE_UNARY,
    PRECEDENCE_POSTFIX
};

static const struct binary_operator {
    const char *text;
    enum dv__expr_kind kind;
    enum precedence precedence;
} binary_operators[] = {
    { "or", DV__EXPR_OR, PRECEDENCE_OR },
    { "and", DV__EXPR_AND, PRECEDENCE_AND },
    { "==", DV__EXPR_EQ, PRECEDENCE_COMPARE },
    { "!=", DV__EXPR_NE, PRECEDENCE_COMPARE },
    { "<", DV__EXPR_LT, PRECEDENCE_COMPARE },
    { "<=", DV__EXPR_LE, PRECEDENCE_COMPARE },
    { ">", DV__EXPR_GT, PRECEDENCE_COMPARE },
    { ">=", DV__EXPR_GE, PRECEDENCE_COMPARE },
    { "+", DV__EXPR_ADD, PRECEDENCE_SUM },
    { "-", DV__EXPR_SUB, PRECEDENCE_SUM },
    { "*", DV__EXPR_MUL, PRECEDENCE_PRODUCT },
    { "/", DV__EXPR_DIV, PRECEDENCE_PRODUCT },
    { "//", DV__EXPR_FLOORDIV, PRECEDENCE_PRODUCT },
    { "%", DV__EXPR_MOD, PRECEDENCE_PRODUCT },
};
enum { NBINARY_OPERATORS = sizeof binary_operators / sizeof *binary_operators };

/* Words that cannot be names, because an operand or an operator begins with them. */
static const char *const reserved_words[] = { "or", "and", "not", "in" };

/* SPACE_SEPARATED: a space may end the expression, as in a list of dims. NO_DIVISION: "/" ends the expression. */
enum { FLAG_SPACE_SEPARATED = 1, FLAG_NO_DIVISION = 2 };

struct expr_parser {
    dv__lexer *lx;
    dv__arena *arena;
    int depth;      /* number of active calls of expr_parse_precedence() */
    unsigned flags; /* FLAG_... for the current bracket level */
};

static int expr_parse_precedence(struct expr_parser *p, enum precedence precedence, dv__expr **out);

/* Fails with DV_ELIMIT at a position of the text, because the expression is nested too deeply. */
static int expr_fail_too_deep(struct expr_parser *p, const char *position_in_text)
{
    return dv__fail_at_column(DV_ELIMIT, p->lx->text, position_in_text, "expression nested deeper than %d", DV__EXPR_MAX_DEPTH);
}

static bool expr_is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
/* True if a space or line break stands before the current token. */
static bool expr_has_space_before(const dv__lexer *lx)
{
    return lx->token.start > lx->text && expr_is_space(lx->token.start[-1]);
}
/* True if a space, line break or the end of the text follows the current token. */
static bool expr_has_space_after(const dv__lexer *lx) { return expr_is_space(*lx->at) || !*lx->at; }

/* Makes a node with n operands in *out. Fails with DV_ELIMIT if it is too deep, or with DV_ENOMEM. */
static int expr_new_node(struct expr_parser *p, enum dv__expr_kind kind, const char *position_in_text, uint32_t n,
    dv__expr *const *args, dv__expr **out)
{
    unsigned depth = 0;
    for (uint32_t i = 0; i < n; i++)
        if (args[i]->depth + 1u > depth)
            depth = args[i]->depth + 1u;
    if (depth > DV__EXPR_MAX_DEPTH)
        return expr_fail_too_deep(p, position_in_text);
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
    e->at = position_in_text;
    e->depth = (uint16_t)depth;
    *out = e;
    return DV_OK;
}

/* Makes a node with a copy of a name of this size, and n operands. Fails with DV_ELIMIT if it is too deep, or with
 * DV_ENOMEM. */
static int expr_new_named_node(struct expr_parser *p, enum dv__expr_kind kind, const char *position_in_text, const char *name,
    size_t size, uint32_t n, dv__expr *const *args, dv__expr **out)
{
    const int status = expr_new_node(p, kind, position_in_text, n, args, out);
    if (status)
        return status;
    (*out)->name = dv__arena_strndup(p->arena, name, size);
    return (*out)->name ? DV_OK : DV_ENOMEM;
}

/* A growing list of operands. Outgrown copies stay in the arena, since lists are short. */
struct expr_list {
    dv__expr **data;
    uint32_t n, capacity;
};

/* Appends an expression to a list. Returns DV_OK or DV_ENOMEM. */
static int expr_list_push(struct expr_parser *p, struct expr_list *list, dv__expr *e)
{
    if (list->n == list->capacity) {
        const uint32_t capacity = list->capacity ? list->capacity * 2 : 4;
        dv__expr **data = DV__ARENA_ARRAY(p->arena, dv__expr *, capacity);
        if (!data)
            return DV_ENOMEM;
        if (list->n)
            memcpy(data, list->data, list->n * sizeof *data);
        list->data = data;
        list->capacity = capacity;
    }
    list->data[list->n++] = e;
    return DV_OK;
}

/* Parses one element of a list: `value` or, if allows_keywords, `name=value`. */
static int expr_parse_list_element(struct expr_parser *p, bool allows_keywords, dv__expr **out)
{
    const dv__token name = p->lx->token;
    dv__lexer ahead = *p->lx;
    if (allows_keywords && name.kind == DV__TOKEN_IDENT && (dv__lexer_next(&ahead), dv__lexer_is_at(&ahead, "="))) {
        dv__lexer_next(&ahead);
        *p->lx = ahead;
        dv__expr *value = NULL;
        const int status = expr_parse_precedence(p, PRECEDENCE_OR, &value);
        return status ? status : expr_new_named_node(p, DV__EXPR_KEYWORD, name.start, name.start, name.size, 1, &value, out);
    }
    return expr_parse_precedence(p, PRECEDENCE_OR, out);
}

/* Parses elements up to the closing bracket, and the bracket. A comma may end the list. *had_comma, unless NULL: whether there
 * was a comma. */
static int expr_parse_list(
    struct expr_parser *p, const char *close, bool allows_keywords, struct expr_list *list, bool *had_comma)
{
    const unsigned outer = p->flags;
    p->flags = 0;
    if (had_comma)
        *had_comma = false;
    while (!dv__lexer_is_at(p->lx, close)) {
        dv__expr *e = NULL;
        int status = expr_parse_list_element(p, allows_keywords, &e);
        if (!status)
            status = expr_list_push(p, list, e);
        if (status)
            return status;
        if (!dv__lexer_try_accept(p->lx, ",")) {
            if (!dv__lexer_is_at(p->lx, close))
                return dv__lexer_fail_expected(p->lx, "',' or '%s'", close);
            break;
        }
        if (had_comma)
            *had_comma = true;
    }
    p->flags = outer;
    dv__lexer_next(p->lx);
    return DV_OK;
}

/* Parses a string literal. A backslash is dropped, and the character after it is taken as it is. */
static int expr_parse_string(struct expr_parser *p, dv__expr **out)
{
    const dv__token t = p->lx->token;
    int status = expr_new_named_node(p, DV__EXPR_STRING, t.start, t.start + 1, t.size - 2, 0, NULL, out);
    if (status)
        return status;
    char *to = (char *)(*out)->name; /* the node's name is a copy, in which backslashes are dropped in place */
    for (const char *from = to; *from; from++) {
        if (*from == '\\' && from[1])
            from++;
        *to++ = *from;
    }
    *to = 0;
    dv__lexer_next(p->lx);
    return DV_OK;
}

/* Parses a real number. strtod() reads the locale's decimal point, and the host program may have set a locale, so the point is
 * replaced first. */
static int expr_parse_float(struct expr_parser *p, dv__expr **out)
{
    const dv__token t = p->lx->token;
    const int status = expr_new_named_node(p, DV__EXPR_FLOAT, t.start, t.start, t.size, 0, NULL, out);
    if (status)
        return status;
    char digits[64];
    if (t.size >= sizeof digits)
        return dv__fail_at_column(
            DV_ESYNTAX, p->lx->text, t.start, "expected a number of at most %zu characters", sizeof digits - 1);
    memcpy(digits, t.start, t.size);
    digits[t.size] = 0;
    char *point = strchr(digits, '.');
    if (point)
        *point = *localeconv()->decimal_point;
    (*out)->f = strtod(digits, NULL);
    if ((*out)->f > DBL_MAX)
        return dv__fail_at_column(
            DV_ESYNTAX, p->lx->text, t.start, "expected a number that fits a double, found %.*s", (int)t.size, t.start);
    dv__lexer_next(p->lx);
    return DV_OK;
}

/* Parses {i} of name{i} or *name{i}, if it follows: the name is that of the tensor at index i of a list. */
static int expr_parse_list_index(struct expr_parser *p, dv__expr *name)
{
    if (!dv__lexer_try_accept(p->lx, "{"))
        return DV_OK;
    const dv__token index = p->lx->token;
    if (index.kind != DV__TOKEN_IDENT)
        return dv__lexer_fail_expected(p->lx, "the list's index");
    if (!(name->index_name = dv__arena_strndup(p->arena, index.start, index.size)))
        return DV_ENOMEM;
    dv__lexer_next(p->lx);
    return dv__lexer_expect(p->lx, "}");
}

/* Parses name, name{i}, ns::name(args) or name.overload(args), and True, False and None. */
static int expr_parse_name(struct expr_parser *p, dv__expr **out)
{
    const dv__token first = p->lx->token;
    for (size_t i = 0; i < sizeof reserved_words / sizeof *reserved_words; i++)
        if (dv__token_is(first, reserved_words[i]))
            return dv__lexer_fail_expected(p->lx, "a value");
    dv__lexer_next(p->lx);
    const char *end = first.start + first.size;
    bool must_call = false;
    while (p->lx->token.start == end && dv__lexer_is_at(p->lx, "::")) {
        dv__lexer_next(p->lx);
        if (p->lx->token.kind != DV__TOKEN_IDENT)
            return dv__lexer_fail_expected(p->lx, "a name after '::'");
        end = p->lx->token.start + p->lx->token.size;
        must_call = true;
        dv__lexer_next(p->lx);
    }
    if (p->lx->token.start == end &&
        dv__lexer_is_at(p->lx, ".")) { /* name.x is an overload only before "("; otherwise x is an attribute */
        dv__lexer ahead = *p->lx;
        dv__lexer_next(&ahead);
        const dv__token overload = ahead.token;
        dv__lexer_next(&ahead);
        if (overload.kind == DV__TOKEN_IDENT && dv__lexer_is_at(&ahead, "(") &&
            ahead.token.start == overload.start + overload.size) {
            *p->lx = ahead;
            end = overload.start + overload.size;
        }
    }
    const bool spaced = (p->flags & FLAG_SPACE_SEPARATED) && p->lx->token.start != end;
    if (dv__lexer_is_at(p->lx, "(") && !spaced) {
        struct expr_list args = { 0 };
        dv__lexer_next(p->lx);
        const int status = expr_parse_list(p, ")", true, &args, NULL);
        return status ? status
                      : expr_new_named_node(
                            p, DV__EXPR_CALL, first.start, first.start, (size_t)(end - first.start), args.n, args.data, out);
    }
    if (must_call)
        return dv__lexer_fail_expected(p->lx, "'(' after '%.*s'", (int)(end - first.start), first.start);
    const bool yes = dv__token_is(first, "True") || dv__token_is(first, "true");
    if (yes || dv__token_is(first, "False") || dv__token_is(first, "false")) {
        const int status = expr_new_node(p, DV__EXPR_BOOL, first.start, 0, NULL, out);
        if (!status)
            (*out)->i = yes;
        return status;
    }
    if (dv__token_is(first, "None"))
        return expr_new_node(p, DV__EXPR_NONE, first.start, 0, NULL, out);
    const int status = expr_new_named_node(p, DV__EXPR_NAME, first.start, first.start, first.size, 0, NULL, out);
    return status ? status : expr_parse_list_index(p, *out);
}

/* Parses parentheses: (value) is the value; (a, b), (a,) and () are lists. */
static int expr_parse_parenthesis(struct expr_parser *p, dv__expr **out)
{
    const char *at = p->lx->token.start;
    struct expr_list list = { 0 };
    bool comma;
    dv__lexer_next(p->lx);
    const int status = expr_parse_list(p, ")", false, &list, &comma);
    if (status)
        return status;
    if (list.n == 1 && !comma) {
        *out = list.data[0];
        return DV_OK;
    }
    return expr_new_node(p, DV__EXPR_LIST, at, list.n, list.data, out);
}

/* Parses one operand without operators: a literal, a name, a call, a list or an expression in parentheses. */
static int expr_parse_operand(struct expr_parser *p, dv__expr **out)
{
    dv__lexer *lx = p->lx;
    const char *at = lx->token.start;
    switch (lx->token.kind) {
    case DV__TOKEN_INT: {
        int64_t i;
        int status = dv__lexer_read_int(lx, &i);
        if (!status)
            status = expr_new_node(p, DV__EXPR_INT, at, 0, NULL, out);
        if (!status)
            (*out)->i = i;
        return status;
    }
    case DV__TOKEN_FLOAT: return expr_parse_float(p, out);
    case DV__TOKEN_STRING: return expr_parse_string(p, out);
    case DV__TOKEN_IDENT: return expr_parse_name(p, out);
    default: break;
    }
    if (dv__lexer_is_at(lx, "("))
        return expr_parse_parenthesis(p, out);
    if (dv__lexer_is_at(lx, "[")) {
        struct expr_list list = { 0 };
        dv__lexer_next(lx);
        const int status = expr_parse_list(p, "]", false, &list, NULL);
        return status ? status : expr_new_node(p, DV__EXPR_LIST, at, list.n, list.data, out);
    }
    if (dv__lexer_try_accept(lx, "*")) {
        const dv__token name = lx->token;
        if (name.kind != DV__TOKEN_IDENT)
            return dv__lexer_fail_expected(lx, "a name after '*'");
        dv__lexer_next(lx);
        const int status = expr_new_named_node(p, DV__EXPR_VARIADIC, at, name.start, name.size, 0, NULL, out);
        return status ? status : expr_parse_list_index(p, *out);
    }
    return dv__lexer_fail_expected(lx, "a value");
}

/* Parses an operand and the [index] and .name that follow. */
static int expr_parse_postfix(struct expr_parser *p, dv__expr **out)
{
    int status = expr_parse_operand(p, out);
    while (!status) {
        const char *at = (*out)->at;
        if ((p->flags & FLAG_SPACE_SEPARATED) && expr_has_space_before(p->lx))
            break;
        if (dv__lexer_try_accept(p->lx, "[")) {
            const unsigned outer = p->flags;
            dv__expr *operand_pair[2] = { *out, NULL };
            p->flags = 0;
            status = expr_parse_precedence(p, PRECEDENCE_OR, &operand_pair[1]);
            if (!status)
                status = dv__lexer_expect(p->lx, "]");
            if (!status)
                status = expr_new_node(p, DV__EXPR_SUBSCRIPT, at, 2, operand_pair, out);
            p->flags = outer;
        } else if (dv__lexer_try_accept(p->lx, ".")) {
            const dv__token name = p->lx->token;
            if (name.kind != DV__TOKEN_IDENT)
                return dv__lexer_fail_expected(p->lx, "a name after '.'");
            dv__lexer_next(p->lx);
            dv__expr *of = *out;
            status = expr_new_named_node(p, DV__EXPR_ATTR, at, name.start, name.size, 1, &of, out);
        } else {
            break;
        }
    }
    return status;
}

/* Parses a unary operator at the current token, and its operand of at least operand_precedence. */
static int expr_parse_unary(struct expr_parser *p, enum dv__expr_kind kind, enum precedence operand_precedence, dv__expr **out)
{
    const char *at = p->lx->token.start;
    dv__expr *inner = NULL;
    dv__lexer_next(p->lx);
    const int status = expr_parse_precedence(p, operand_precedence, &inner);
    if (status)
        return status;
    return expr_new_node(p, kind, at, 1, &inner, out);
}

/* Returns the binary operator at the current token. NULL: there is none, or the token belongs to the next operand. */
static const struct binary_operator *expr_peek_binary_operator(const struct expr_parser *p)
{
    for (int i = 0; i < NBINARY_OPERATORS; i++) {
        if (!dv__lexer_is_at(p->lx, binary_operators[i].text))
            continue;
        if ((p->flags & FLAG_SPACE_SEPARATED) && binary_operators[i].kind == DV__EXPR_MUL && expr_has_space_before(p->lx) &&
            !expr_has_space_after(p->lx))
            return NULL;
        if ((p->flags & FLAG_NO_DIVISION) && binary_operators[i].kind == DV__EXPR_DIV)
            return NULL;
        return &binary_operators[i];
    }
    return NULL;
}

/* True if the current token can begin a value of `x in A B`. */
static bool expr_is_at_value(const dv__lexer *lx)
{
    if (lx->token.kind == DV__TOKEN_IDENT) {
        for (size_t i = 0; i < sizeof reserved_words / sizeof *reserved_words; i++)
            if (dv__token_is(lx->token, reserved_words[i]))
                return false;
        return true;
    }
    return lx->token.kind == DV__TOKEN_INT || lx->token.kind == DV__TOKEN_FLOAT || lx->token.kind == DV__TOKEN_STRING ||
        dv__lexer_is_at(lx, "-");
}

/* Parses `in A B C` or `not in A B` after the operand `left`. Spaces separate the values, and a value has no operators. */
static int expr_parse_in(struct expr_parser *p, dv__expr *left, dv__expr **out)
{
    const char *at = p->lx->token.start;
    const bool negated = dv__lexer_try_accept(p->lx, "not");
    int status = dv__lexer_expect(p->lx, "in");
    if (status)
        return status;
    struct expr_list list = { 0 };
    status = expr_list_push(p, &list, left);
    const unsigned outer = p->flags;
    p->flags |= FLAG_SPACE_SEPARATED;
    if (!status && !expr_is_at_value(p->lx))
        status = dv__lexer_fail_expected(p->lx, "a value after 'in'");
    while (!status && expr_is_at_value(p->lx)) {
        dv__expr *e = NULL;
        status = expr_parse_precedence(p, PRECEDENCE_UNARY, &e);
        if (!status)
            status = expr_list_push(p, &list, e);
    }
    p->flags = outer;
    if (!status)
        status = expr_new_node(p, DV__EXPR_IN, left->at, list.n, list.data, out);
    if (!status && negated) {
        dv__expr *in = *out;
        status = expr_new_node(p, DV__EXPR_NOT, at, 1, &in, out);
    }
    return status;
}

/* True at `in` and at `not in`. */
static bool expr_is_at_in(const dv__lexer *lx)
{
    dv__lexer ahead = *lx;
    return dv__lexer_is_at(lx, "in") || (dv__lexer_try_accept(&ahead, "not") && dv__lexer_is_at(&ahead, "in"));
}

/* Parses a comparison. a < b <= c is (a < b) and (b <= c); `in` does not chain. */
static int expr_parse_comparison(struct expr_parser *p, dv__expr **out)
{
    dv__expr *left = NULL, *all = NULL;
    int status = expr_parse_precedence(p, PRECEDENCE_SUM, &left);
    if (!status && expr_is_at_in(p->lx))
        return expr_parse_in(p, left, out);
    const struct binary_operator *op;
    while (!status && (op = expr_peek_binary_operator(p)) && op->precedence == PRECEDENCE_COMPARE) {
        dv__expr *operand_pair[2] = { left, NULL }, *one = NULL;
        dv__lexer_next(p->lx);
        status = expr_parse_precedence(p, PRECEDENCE_SUM, &operand_pair[1]);
        if (!status)
            status = expr_new_node(p, op->kind, left->at, 2, operand_pair, &one);
        if (!status && all) {
            dv__expr *comparisons[2] = { all, one };
            status = expr_new_node(p, DV__EXPR_AND, all->at, 2, comparisons, &one);
        }
        all = one;
        left = operand_pair[1];
    }
    *out = all ? all : left;
    return status;
}

/* Parses constructs of at least this precedence, without counting the depth. */
static int expr_parse_precedence_level(struct expr_parser *p, enum precedence precedence, dv__expr **out)
{
    if (precedence == PRECEDENCE_NOT && dv__lexer_is_at(p->lx, "not"))
        return expr_parse_unary(p, DV__EXPR_NOT, PRECEDENCE_NOT, out);
    if (precedence == PRECEDENCE_NOT)
        return expr_parse_precedence(p, PRECEDENCE_COMPARE, out);
    if (precedence == PRECEDENCE_COMPARE)
        return expr_parse_comparison(p, out);
    if (precedence == PRECEDENCE_UNARY)
        return dv__lexer_is_at(p->lx, "-") ? expr_parse_unary(p, DV__EXPR_NEG, PRECEDENCE_UNARY, out)
                                           : expr_parse_postfix(p, out);
    int status = expr_parse_precedence(p, precedence + 1, out);
    const struct binary_operator *op;
    while (!status && (op = expr_peek_binary_operator(p)) &&
        op->precedence == precedence) { /* operators of one precedence associate to the left */
        dv__expr *operand_pair[2] = { *out, NULL };
        dv__lexer_next(p->lx);
        status = expr_parse_precedence(p, precedence + 1, &operand_pair[1]);
        if (!status)
            status = expr_new_node(p, op->kind, operand_pair[0]->at, 2, operand_pair, out);
    }
    return status;
}

/* Parses constructs of at least this precedence. A counter limits the C recursion: each level of nesting takes several
 * calls. */
static int expr_parse_precedence(struct expr_parser *p, enum precedence precedence, dv__expr **out)
{
    if (p->depth >= DV__EXPR_MAX_DEPTH * PRECEDENCE_POSTFIX)
        return expr_fail_too_deep(p, p->lx->token.start);
    p->depth++;
    const int status = expr_parse_precedence_level(p, precedence, out);
    p->depth--;
    return status;
}

/* Parses an expression from the current token on. *out is NULL after a failure. */
static int expr_parse_with_flags(dv__lexer *lx, dv__arena *arena, unsigned flags, enum precedence precedence, dv__expr **out)
{
    struct expr_parser p = { lx, arena, 0, flags };
    *out = NULL;
    const int status = expr_parse_precedence(&p, precedence, out);
    if (status)
        *out = NULL;
    return status;
}

int dv__expr_parse(dv__lexer *lx, dv__arena *arena, dv__expr **out)
{
    return expr_parse_with_flags(lx, arena, 0, PRECEDENCE_OR, out);
}
int dv__expr_parse_text(const char *text, dv__arena *arena, const char *name_for_message, dv__expr **out)
{
    dv__lexer lx;
    dv__lexer_init(&lx, text);
    const int status = dv__expr_parse(&lx, arena, out);
    return status || lx.token.kind == DV__TOKEN_END ? status
                                                    : dv__lexer_fail_expected(&lx, "the end of the %s", name_for_message);
}
int dv__expr_parse_dim(dv__lexer *lx, dv__arena *arena, dv__expr **out)
{
    return expr_parse_with_flags(lx, arena, FLAG_SPACE_SEPARATED, PRECEDENCE_SUM, out);
}
int dv__expr_parse_until_slash(dv__lexer *lx, dv__arena *arena, dv__expr **out)
{
    return expr_parse_with_flags(lx, arena, FLAG_NO_DIVISION, PRECEDENCE_OR, out);
}
int dv__expr_parse_primary(dv__lexer *lx, dv__arena *arena, dv__expr **out)
{
    return expr_parse_with_flags(lx, arena, FLAG_SPACE_SEPARATED, PRECEDENCE_UNARY, out);
}

/* Returns the row of a binary operator; NULL: the kind is no binary operator. */
static const struct binary_operator *binary_operator_find_by_kind(enum dv__expr_kind kind)
{
    for (int i = 0; i < NBINARY_OPERATORS; i++)
        if (binary_operators[i].kind == kind)
            return &binary_operators[i];
    return NULL;
}

/* Returns the precedence of the outermost construct of an expression. */
static enum precedence expr_get_precedence(const dv__expr *e)
{
    const struct binary_operator *b = binary_operator_find_by_kind(e->kind);
    if (b)
        return b->precedence;
    return e->kind == DV__EXPR_IN ? PRECEDENCE_COMPARE
        : e->kind == DV__EXPR_NOT ? PRECEDENCE_NOT
        : e->kind == DV__EXPR_NEG ? PRECEDENCE_UNARY
                                  : PRECEDENCE_POSTFIX;
}

/* Prints an operand, in parentheses if its precedence is below least_precedence. */
static void expr_print_operand(const dv__expr *e, enum precedence least_precedence, dv__strbuf *to)
{
    if (expr_get_precedence(e) >= least_precedence) {
        dv__expr_print(e, to);
        return;
    }
    dv__strbuf_append_str(to, "(");
    dv__expr_print(e, to);
    dv__strbuf_append_str(to, ")");
}

/* Prints the operands of e between two brackets, separated by commas. */
static void expr_print_list(const dv__expr *e, const char *open, const char *close, dv__strbuf *to)
{
    dv__strbuf_append_str(to, open);
    for (uint32_t i = 0; i < e->n; i++) {
        dv__strbuf_append_str(to, i ? ", " : "");
        dv__expr_print(e->args[i], to);
    }
    dv__strbuf_append_str(to, close);
}

/* Prints a string literal in double quotes, with escapes. */
static void expr_print_string(const char *text, dv__strbuf *to)
{
    dv__strbuf_append_str(to, "\"");
    for (; *text; text++)
        dv__strbuf_printf(to, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    dv__strbuf_append_str(to, "\"");
}

void dv__expr_print(const dv__expr *e, dv__strbuf *to)
{
    const struct binary_operator *b = binary_operator_find_by_kind(e->kind);
    if (b) {
        const bool comparison = b->precedence == PRECEDENCE_COMPARE;
        expr_print_operand(e->args[0], comparison ? PRECEDENCE_SUM : b->precedence, to);
        dv__strbuf_printf(to, b->precedence == PRECEDENCE_PRODUCT ? "%s" : " %s ", b->text);
        expr_print_operand(e->args[1], b->precedence + 1, to);
        return;
    }
    switch (e->kind) {
    case DV__EXPR_INT: dv__strbuf_printf(to, "%lld", (long long)e->i); break;
    case DV__EXPR_STRING: expr_print_string(e->name, to); break;
    case DV__EXPR_BOOL: dv__strbuf_append_str(to, e->i ? "True" : "False"); break;
    case DV__EXPR_NONE: dv__strbuf_append_str(to, "None"); break;
    case DV__EXPR_ATTR:
        expr_print_operand(e->args[0], PRECEDENCE_POSTFIX, to);
        dv__strbuf_printf(to, ".%s", e->name);
        break;
    case DV__EXPR_SUBSCRIPT:
        expr_print_operand(e->args[0], PRECEDENCE_POSTFIX, to);
        dv__strbuf_append_str(to, "[");
        dv__expr_print(e->args[1], to);
        dv__strbuf_append_str(to, "]");
        break;
    case DV__EXPR_CALL:
        dv__strbuf_append_str(to, e->name);
        expr_print_list(e, "(", ")", to);
        break;
    case DV__EXPR_KEYWORD:
        dv__strbuf_printf(to, "%s=", e->name);
        dv__expr_print(e->args[0], to);
        break;
    case DV__EXPR_LIST: expr_print_list(e, "[", "]", to); break;
    case DV__EXPR_IN:
        expr_print_operand(e->args[0], PRECEDENCE_SUM, to);
        dv__strbuf_append_str(to, " in");
        for (uint32_t i = 1; i < e->n; i++) {
            dv__strbuf_append_str(to, " ");
            expr_print_operand(e->args[i], PRECEDENCE_UNARY, to);
        }
        break;
    case DV__EXPR_NEG:
    case DV__EXPR_NOT:
        dv__strbuf_append_str(to, e->kind == DV__EXPR_NEG ? "-" : "not ");
        expr_print_operand(e->args[0], expr_get_precedence(e), to);
        break;
    default: /* NAME, VARIADIC, FLOAT */
        dv__strbuf_printf(
            to, e->index_name ? "%s%s{%s}" : "%s%s", e->kind == DV__EXPR_VARIADIC ? "*" : "", e->name, e->index_name);
        break;
    }
}

void dv__expr_json(const dv__expr *e, dv__strbuf *to)
{
    static const char *const kinds[] = {
#define KIND(name, json) json,
        DV__EXPR_KINDS(KIND)
#undef KIND
    };
    dv__strbuf_printf(to, "[\"%s\"", kinds[e->kind]);
    switch (e->kind) {
    case DV__EXPR_INT: dv__strbuf_printf(to, ", %lld", (long long)e->i); break;
    case DV__EXPR_FLOAT: { /* as written, but JSON has no "1.", ".5" or "00.5" */
        const char *text = e->name;
        while (*text == '0' && text[1] >= '0' && text[1] <= '9')
            text++;
        const char *point = strchr(text, '.');
        dv__strbuf_append_str(to, point == text ? ", 0" : ", ");
        dv__strbuf_append(to, text, point ? (size_t)(point - text) + 1 : strlen(text));
        if (point)
            dv__strbuf_printf(to, "%s%s", point[1] >= '0' && point[1] <= '9' ? "" : "0", point + 1);
        break;
    }
    case DV__EXPR_BOOL: dv__strbuf_append_str(to, e->i ? ", true" : ", false"); break;
    case DV__EXPR_STRING:
    case DV__EXPR_NAME:
    case DV__EXPR_VARIADIC:
    case DV__EXPR_CALL:
    case DV__EXPR_KEYWORD:
        dv__strbuf_append_str(to, ", ");
        dv__json_write_string(to, e->name, strlen(e->name));
        break;
    default: break;
    }
    for (uint32_t i = 0; i < e->n; i++) {
        dv__strbuf_append_str(to, ", ");
        dv__expr_json(e->args[i], to);
    }
    if (e->kind == DV__EXPR_ATTR) {
        dv__strbuf_append_str(to, ", ");
        dv__json_write_string(to, e->name, strlen(e->name));
    }
    dv__strbuf_append_str(to, "]");
}

/* True if two texts are equal, or both are NULL. */
static bool text_is_equal_or_both_null(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

bool dv__exprs_are_equal(const dv__expr *a, const dv__expr *b)
{
    if (a == b)
        return true;
    if (a->kind != b->kind || a->n != b->n || a->i != b->i || a->role != b->role || a->ref != b->ref)
        return false;
    if (a->kind == DV__EXPR_FLOAT && !(a->f == b->f))
        return false;
    if (a->kind != DV__EXPR_FLOAT && !text_is_equal_or_both_null(a->name, b->name))
        return false;
    if (!text_is_equal_or_both_null(a->index_name, b->index_name))
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!dv__exprs_are_equal(a->args[i], b->args[i]))
            return false;
    return true;
}

bool dv__int_try_floordiv(int64_t a, int64_t b, int64_t *out)
{
    if (!b || (a == INT64_MIN && b == -1))
        return false;
    const int64_t q = a / b, r = a % b;
    *out = q - (r && (r < 0) != (b < 0));
    return true;
}

bool dv__int_try_floormod(int64_t a, int64_t b, int64_t *out)
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
