/* The one expression tree, for contracts and for formulas. A tree lives in the arena that it was parsed into. */
#ifndef DV_LANG_EXPR_H
#define DV_LANG_EXPR_H

#include "base/memory.h"
#include "base/text.h"
#include "lang/lexer.h"

/* X(kind, JSON name). Binary and unary kinds have their operands in args. */
/* clang-format off */
#define DV__EXPR_KINDS(X)                                                                                                     \
    X(INT, "int")         /* i */                                                                                             \
    X(FLOAT, "float")     /* f */                                                                                             \
    X(STRING, "str")      /* name, without quotes */                                                                          \
    X(BOOL, "bool")       /* i: True, False, true, false */                                                                   \
    X(NONE, "none")       /* None */                                                                                          \
    X(NAME, "name")       /* name */                                                                                          \
    X(STAR, "star")       /* *name: a run of dims */                                                                          \
    X(ATTR, "attr")       /* args[0].name */                                                                                  \
    X(INDEX, "index")     /* args[0][args[1]] */                                                                              \
    X(CALL, "call")       /* name(args...), name may hold "ns::f.overload" */                                                 \
    X(KEYWORD, "keyword") /* name=args[0], only inside CALL */                                                                \
    X(LIST, "list")       /* [args...] */                                                                                     \
    X(IN, "in")           /* args[0] in args[1..] */                                                                          \
    X(NEG, "neg") X(NOT, "not") X(ADD, "add") X(SUB, "sub") X(MUL, "mul") X(DIV, "div") X(FLOORDIV, "floordiv") X(MOD, "mod") \
    X(EQ, "eq") X(NE, "ne") X(LT, "lt") X(LE, "le") X(GT, "gt") X(GE, "ge") X(AND, "and") X(OR, "or")
/* clang-format on */

enum dv__expr_kind {
#define DV__EXPR_KIND(name, json) DV__EXPR_##name,
    DV__EXPR_KINDS(DV__EXPR_KIND)
#undef DV__EXPR_KIND
};

/* What a resolved NAME or STAR means. A parser leaves DV__ROLE_NONE; contracts resolve, formulas need not. */
enum dv__expr_role {
    DV__ROLE_NONE,
    DV__ROLE_ARG,
    DV__ROLE_DIM,
    DV__ROLE_ELEMENT,
    DV__ROLE_ELEMENT_RUN,
    DV__ROLE_RUN,
    DV__ROLE_LIST,
    DV__ROLE_DTYPE,
    DV__ROLE_DTYPE_VAR,
    DV__ROLE_INDEX
};

typedef struct dv__expr {
    enum dv__expr_kind kind;
    int32_t ref;    /* set when names are resolved: a slot, a variable, a function; 0 after parsing */
    uint8_t role;   /* enum dv__expr_role */
    uint8_t type;   /* set when names are resolved; 0 after parsing */
    uint16_t depth; /* levels of operands below; at most DV__EXPR_MAX_DEPTH, so walking a tree by recursion is safe */
    uint32_t n;     /* operands */
    struct dv__expr **args;
    const char *name;  /* NUL-terminated, in the arena */
    const char *index; /* of name{i} and *name{i}: i; else NULL */
    int64_t i;
    double f;
    const char *at; /* where it begins in the text: for errors */
} dv__expr;

enum { DV__EXPR_MAX_DEPTH = 200 };

/* Precedence from loose to tight: or; and; not; comparisons and `in` (chained: 0 <= a < b is a conjunction); + -; * / // %;
 * unary -; postfix [i] .name (args) {i}. DV_ESYNTAX at the column. Nesting deeper than 200 is refused (DV_ELIMIT). */
int dv__expr_parse(dv__lexer *lx, dv__arena *arena, dv__expr **out);
/* The whole of a text, which the tree points into; `what` it is, for the error where more follows. */
int dv__expr_parse_all(const char *text, dv__arena *arena, const char *what, dv__expr **out);
/* Only a sum (no comparison), for a dim in a list that is separated by spaces: outside parentheses "(", "[" and a "*" that has a
 * space before and none after it begin the next dim, so "co (h+1)//2 *s" are three. */
int dv__expr_parse_sum(dv__lexer *lx, dv__arena *arena, dv__expr **out);
/* As dv__expr_parse, but a "/" outside parentheses ends it: for lists that are separated by "/". */
int dv__expr_parse_no_div(dv__lexer *lx, dv__arena *arena, dv__expr **out);
/* One operand without operators: a literal, a name, a call. */
int dv__expr_parse_primary(dv__lexer *lx, dv__arena *arena, dv__expr **out);
void dv__expr_print(const dv__expr *e, dv__text *to);      /* with as few parentheses as needed; parses to an equal tree */
void dv__expr_json(const dv__expr *e, dv__text *to);       /* ["add", ["name", "n"], ["int", 2]] */
bool dv__expr_equal(const dv__expr *a, const dv__expr *b); /* structure and what names mean, not places */
/* Floor division and modulo with Python's signs; false on division by zero or overflow. */
bool dv__floordiv(int64_t a, int64_t b, int64_t *out);
bool dv__floormod(int64_t a, int64_t b, int64_t *out);

#endif
