#include "lang/lexer.h"

#include <stdio.h>

#include "base/error.h"

static bool lexer_is_digit(char c) { return c >= '0' && c <= '9'; }
static bool lexer_is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static const char *const lexer_operators[] = { "...", "->", "//", "==", "!=", "<=", ">=", "<<", "..", "::", "&&", "||" };

static bool lexer_is_hex_digit(char c) { return lexer_is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
static bool lexer_is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

/* Returns the end of the space at p in Python mode. skips_newlines: line breaks are space. Line breaks and comments at the end
 * of the text always are. */
static const char *lexer_find_python_space_end(const dv__lexer *lx, const char *p, bool skips_newlines)
{
    for (;;) {
        if (lexer_is_blank(*p) || (*p == '\n' && skips_newlines))
            p++;
        else if (*p == '\\' && p[1] == '\n')
            p += 2;
        else if (*p == '#' && strncmp(p, "# type:", 7))
            p += strcspn(p, "\n");
        else if (*p == '\n' && !*lexer_find_python_space_end(lx, p, true))
            return p + strlen(p); /* line breaks at the end of the text are space */
        else
            return p;
    }
}

/* Returns the end of the number at p: what strtod() would accept, and perhaps a j. */
static const char *lexer_find_python_number_end(const char *p)
{
    const bool hex = p[0] == '0' && (p[1] | 32) == 'x' && (lexer_is_hex_digit(p[2]) || (p[2] == '.' && lexer_is_hex_digit(p[3])));
    p += hex ? 2 : 0;
    while (hex ? lexer_is_hex_digit(*p) : lexer_is_digit(*p))
        p++;
    if (*p == '.')
        p++;
    while (hex ? lexer_is_hex_digit(*p) : lexer_is_digit(*p))
        p++;
    if ((*p | 32) == (hex ? 'p' : 'e') && (lexer_is_digit(p[1]) || ((p[1] == '+' || p[1] == '-') && lexer_is_digit(p[2]))))
        for (p += 2; lexer_is_digit(*p);)
            p++;
    return p + (*p == 'j');
}

/* Returns the end of the string literal at p. NULL: the literal is not closed. */
static const char *lexer_find_python_string_end(const char *p)
{
    const char quotes[4] = { *p, *p, *p, 0 };
    const size_t n = strncmp(p, quotes, 3) ? 1 : 3;
    for (p += n; *p && strncmp(p, quotes, n); p += *p == '\\' && p[1] ? 2 : 1)
        if (*p == '\n' && n == 1)
            return NULL;
    return *p ? p + n : NULL;
}

/* Returns the number of bytes of the UTF-8 character at p, which is not at the end of the text. */
static size_t lexer_count_character_bytes(const char *p)
{
    size_t n = 1;
    while ((*p & 0x80) && (p[n] & 0xc0) == 0x80 && n < 4)
        n++;
    return n;
}

/* Returns what to write for a character that is often typed in place of ASCII: "; write ->", or "". */
static const char *lexer_get_character_hint(const char *p)
{
    static const char *const hints[][2] = { { "\u2192", "; write ->" }, { "\u21d2", "; write ->" }, { "\u2264", "; write <=" },
        { "\u2265", "; write >=" }, { "\u2260", "; write !=" }, { "\u00d7", "; write *" }, { "\u00b7", "; write *" },
        { "\u2212", "; write -" }, { "\u2013", "; write -" }, { "\u2026", "; write ..." }, { "\u2208", "; write in" },
        { "\u00a0", "; write a space" } };
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (!strncmp(p, hints[i][0], strlen(hints[i][0])))
            return hints[i][1];
    return "";
}

int dv__lexer_check_ascii(const char *text)
{
    char quote = 0;
    for (const char *p = text; *p; p++) {
        if (quote && *p == '\\' && p[1])
            p++;
        else if (quote)
            quote = *p == quote ? 0 : quote;
        else if (*p == '\'' || *p == '"')
            quote = *p;
        else if (*p & 0x80)
            return dv__fail_at_column(DV_ESYNTAX, text, p, "expected ASCII, found '%.*s'%s", (int)lexer_count_character_bytes(p),
                p, lexer_get_character_hint(p));
    }
    return DV_OK;
}

/* Reads the next token into lx->token. */
void dv__lexer_next(dv__lexer *lx)
{
    const char *p = lx->at;
    if (lx->is_python_mode)
        p = lexer_find_python_space_end(lx, p, lx->nesting != 0 || p == lx->text);
    else
        while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')
            p++;
    const char *start = p;
    enum dv__token_kind kind = DV__TOKEN_PUNCT;
    if (!*p) {
        kind = DV__TOKEN_END;
    } else if (lexer_is_name_start(*p)) {
        kind = DV__TOKEN_IDENT;
        while (lexer_is_name_start(*p) || lexer_is_digit(*p))
            p++;
    } else if (lx->is_python_mode && *p == '\n') {
        kind = DV__TOKEN_NEWLINE;
        p++;
    } else if (lx->is_python_mode && (lexer_is_digit(*p) || (*p == '.' && lexer_is_digit(p[1])))) {
        p = lexer_find_python_number_end(p);
        kind = strspn(start, "0123456789") == (size_t)(p - start) ? DV__TOKEN_INT : DV__TOKEN_FLOAT;
    } else if (lx->is_python_mode && (*p == '\'' || *p == '"')) {
        const char *end = lexer_find_python_string_end(p);
        kind = end ? DV__TOKEN_STRING : DV__TOKEN_INVALID;
        p = end ? end : p + 1;
    } else if (lexer_is_digit(*p) || (*p == '.' && lexer_is_digit(p[1]))) {
        kind = DV__TOKEN_INT;
        while (lexer_is_digit(*p))
            p++;
        if (*p == '.' && p[1] != '.') { /* 0..n is a range, not a number */
            kind = DV__TOKEN_FLOAT;
            p++;
            while (lexer_is_digit(*p))
                p++;
        }
        if ((*p == 'e' || *p == 'E') && (lexer_is_digit(p[1]) || ((p[1] == '+' || p[1] == '-') && lexer_is_digit(p[2])))) {
            kind = DV__TOKEN_FLOAT;
            p += 2;
            while (lexer_is_digit(*p))
                p++;
        }
    } else if (*p == '\'' || *p == '"') {
        const char quote = *p++;
        while (*p && *p != quote)
            p += *p == '\\' && p[1] ? 2 : 1;
        kind = *p ? DV__TOKEN_STRING : DV__TOKEN_INVALID;
        p += *p != 0;
    } else {
        size_t n = 0;
        for (size_t i = 0; i < sizeof lexer_operators / sizeof *lexer_operators && !n; i++)
            if (*p == *lexer_operators[i] && !strncmp(p, lexer_operators[i], strlen(lexer_operators[i])))
                n = strlen(lexer_operators[i]);
        if (!n && strchr("()[]{}<>,;:=+-*/%!?|.@&^~", *p))
            n = 1;
        kind = n ? DV__TOKEN_PUNCT : DV__TOKEN_INVALID;
        if (n == 1)
            lx->nesting += (strchr("([{", *p) != NULL) - (strchr(")]}", *p) != NULL);
        p += n ? n : lexer_count_character_bytes(p);
    }
    lx->token.kind = kind;
    lx->token.start = start;
    lx->token.size = (size_t)(p - start);
    lx->at = p;
}

static void lexer_init_and_read_first_token(dv__lexer *lx, const char *text, bool is_python_mode)
{
    memset(lx, 0, sizeof *lx);
    lx->text = lx->at = text;
    lx->is_python_mode = is_python_mode;
    dv__lexer_next(lx);
}

void dv__lexer_init(dv__lexer *lx, const char *text) { lexer_init_and_read_first_token(lx, text, false); }
void dv__lexer_init_python(dv__lexer *lx, const char *text) { lexer_init_and_read_first_token(lx, text, true); }

bool dv__lexer_is_at(const dv__lexer *lx, const char *punct_or_word)
{
    return (lx->token.kind == DV__TOKEN_PUNCT || lx->token.kind == DV__TOKEN_IDENT) && dv__token_is(lx->token, punct_or_word);
}

bool dv__lexer_try_accept(dv__lexer *lx, const char *punct_or_word)
{
    if (!dv__lexer_is_at(lx, punct_or_word))
        return false;
    dv__lexer_next(lx);
    return true;
}

int dv__lexer_fail_expected(dv__lexer *lx, const char *expected, ...)
{
    char wanted[256];
    va_list args;
    va_start(args, expected);
    vsnprintf(wanted, sizeof wanted, expected, args);
    va_end(args);
    const dv__token t = lx->token;
    if (t.kind == DV__TOKEN_END)
        return dv__fail_at_column(DV_ESYNTAX, lx->text, t.start, "expected %s, found the end", wanted);
    if (t.kind == DV__TOKEN_NEWLINE)
        return dv__fail_at_column(DV_ESYNTAX, lx->text, t.start, "expected %s, found the end of the line", wanted);
    return dv__fail_at_column(DV_ESYNTAX, lx->text, t.start, "expected %s, found %s%.*s%s%s", wanted,
        t.kind == DV__TOKEN_STRING ? "" : "'", (int)(t.size > 60 ? 60 : t.size), t.start, t.kind == DV__TOKEN_STRING ? "" : "'",
        lexer_get_character_hint(t.start));
}

int dv__lexer_expect(dv__lexer *lx, const char *punct_or_word)
{
    if (dv__lexer_try_accept(lx, punct_or_word))
        return DV_OK;
    return dv__lexer_fail_expected(lx, "'%s'", punct_or_word);
}

int dv__lexer_read_int(dv__lexer *lx, int64_t *out)
{
    if (lx->token.kind != DV__TOKEN_INT)
        return dv__lexer_fail_expected(lx, "an integer");
    int64_t n = 0;
    for (size_t i = 0; i < lx->token.size; i++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, lx->token.start[i] - '0', &n))
            return dv__fail_at_column(DV_ESYNTAX, lx->text, lx->token.start, "expected an integer that fits 64 bits, found %.*s",
                (int)lx->token.size, lx->token.start);
    dv__lexer_next(lx);
    *out = n;
    return DV_OK;
}
