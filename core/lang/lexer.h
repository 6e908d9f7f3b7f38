/* The lexer of schemas, contracts and formulas. The lexer never allocates; tokens point into the text. */
#ifndef DV_LANG_LEXER_H
#define DV_LANG_LEXER_H

#include "dovetail.h"

enum dv__token_kind {
    DV__TOKEN_END,
    DV__TOKEN_IDENT,   /* letters, digits, '_' */
    DV__TOKEN_INT,     /* decimal digits */
    DV__TOKEN_FLOAT,   /* digits with '.', exponent or both */
    DV__TOKEN_STRING,  /* '...' or "...": start and size include the quotes */
    DV__TOKEN_PUNCT,   /* punctuation: see the comment after this enum; the longest match */
    DV__TOKEN_INVALID, /* a character that begins no token, or an unclosed string */
    DV__TOKEN_NEWLINE, /* Python mode only: a line break outside brackets, with something after it */
};

/* A token points into the text. Tokens of punctuation: -> // == != <= >= << .. ... :: && || and the single characters ( ) [ ] {
 * } < > , ; : = + - * / % ! ? | . @ & ^ ~ */
typedef struct dv__token {
    enum dv__token_kind kind;
    const char *start;
    size_t size;
} dv__token;

typedef struct dv__lexer {
    const char *text, *at; /* the whole text; the position after the current token */
    dv__token token;       /* the current token */
    bool is_python_mode;   /* dv__lexer_init_python() */
    int nesting;           /* Python mode: the number of open brackets */
} dv__lexer;

/* Fails with DV_ESYNTAX at the first character outside of string literals that is not ASCII. */
int dv__lexer_check_ascii(const char *text);
void dv__lexer_init(dv__lexer *lx, const char *text); /* reads the first token; the text is borrowed */
/* Initialises a lexer in Python mode, for schemas, which PyTorch reads with the lexer of TorchScript: # comments, backslash at
 * the end of a line, line breaks that matter outside brackets, triple-quoted strings, hexadecimal and imaginary numbers (0x1p3,
 * 2j: kind FLOAT). */
void dv__lexer_init_python(dv__lexer *lx, const char *text);
void dv__lexer_next(dv__lexer *lx);                                   /* reads the next token */
bool dv__lexer_is_at(const dv__lexer *lx, const char *punct_or_word); /* true if the current token is exactly this */
bool dv__lexer_try_accept(
    dv__lexer *lx, const char *punct_or_word); /* if the current token is this, reads the next one and returns true */
int dv__lexer_expect(
    dv__lexer *lx, const char *punct_or_word); /* reads the next token if the current one is this, else fails with DV_ESYNTAX */
/* Fails with "expected <expected>, found <token>" at the current token. Returns DV_ESYNTAX. */
DV__PRINTF(2, 3) int dv__lexer_fail_expected(dv__lexer *lx, const char *what, ...);
/* Reads the current token, an integer, into *out, and advances to the next token. Fails if the integer does not fit int64_t. */
int dv__lexer_read_int(dv__lexer *lx, int64_t *out);

static inline bool dv__token_is(dv__token t, const char *s) { return t.size == strlen(s) && !memcmp(t.start, s, t.size); }

#endif
