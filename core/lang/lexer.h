/* The one lexer, for schemas, contracts and formulas. It never allocates; tokens point into the text. */
#ifndef DV_LANG_LEXER_H
#define DV_LANG_LEXER_H

#include "dovetail.h"

enum dv__token_kind {
    DV__TOKEN_END,
    DV__TOKEN_IDENT,   /* letters, digits, '_' */
    DV__TOKEN_INT,     /* decimal digits */
    DV__TOKEN_FLOAT,   /* digits with '.', exponent or both */
    DV__TOKEN_STRING,  /* '...' or "...": start and size include the quotes */
    DV__TOKEN_PUNCT,   /* one of the operators below, longest match */
    DV__TOKEN_BAD,     /* a character that begins no token, or an unclosed string */
    DV__TOKEN_NEWLINE, /* Python mode only: a line break outside brackets, with something after it */
};

/* Punctuation: -> // == != <= >= << .. ... :: && || and the single characters ( ) [ ] { } < > , ; : = + - * / % ! ? | . @ & ^ ~
 */
typedef struct dv__token {
    enum dv__token_kind kind;
    const char *start;
    size_t size;
} dv__token;

typedef struct dv__lexer {
    const char *text, *at;
    dv__token token; /* the current one */
    bool python;     /* Python mode */
    int nesting;     /* Python mode: open brackets */
} dv__lexer;

/* Fails with DV_ESYNTAX at the first character outside of string literals that is not ASCII. */
int dv__lexer_check(const char *text);
void dv__lexer_init(dv__lexer *lx, const char *text); /* reads the first token; text is borrowed */
/* Python mode, for schemas, which PyTorch reads with the lexer of TorchScript: # comments, backslash at the end of a line, line
 * breaks that matter outside brackets, triple-quoted strings, hexadecimal and imaginary numbers (0x1p3, 2j: kind FLOAT). */
void dv__lexer_init_python(dv__lexer *lx, const char *text);
void dv__lexer_next(dv__lexer *lx);
bool dv__lexer_is(const dv__lexer *lx, const char *punct_or_word); /* the current token is exactly this */
bool dv__lexer_accept(dv__lexer *lx, const char *punct_or_word);   /* and go on if it is */
int dv__lexer_expect(dv__lexer *lx, const char *punct_or_word);    /* DV_ESYNTAX at the column otherwise */
/* "expected <what>, found <token>" at the current token; returns DV_ESYNTAX. */
DV__PRINTF(2, 3) int dv__lexer_unexpected(dv__lexer *lx, const char *what, ...);
/* Read an integer that fits int64_t at the current token, and advance. */
int dv__lexer_int(dv__lexer *lx, int64_t *out);

static inline bool dv__token_is(dv__token t, const char *s) { return t.size == strlen(s) && !memcmp(t.start, s, t.size); }

#endif
