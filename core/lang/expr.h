/* The expression tree of contracts and formulas. A tree lives in the arena into which it was parsed. */
#ifndef DV_LANG_EXPR_H
#define DV_LANG_EXPR_H

#include "base/memory.h"
#include "base/strbuf.h"
#include "lang/lexer.h"

/* X(kind, JSON name): the kinds of nodes; each comment says what the node's fields hold. Operators have their operands in
 * args. */
/* clang-format off */
#define DV__EXPR_KINDS(X)                                                                                                     \
    X(INT, "int")         /* i */                                                                                             \
    X(FLOAT, "float")     /* f */                                                                                             \
    X(STRING, "str")      /* name, without quotes */                                                                          \
    X(BOOL, "bool")       /* i: True, False, true, false */                                                                   \
    X(NONE, "none")       /* None */                                                                                          \
    X(NAME, "name")       /* name */                                                                                          \
    X(VARIADIC, "star")       /* *name: variadic dims */                                                                      \
    X(ATTR, "attr")       /* args[0].name */                                                                                  \
    X(SUBSCRIPT, "index")     /* args[0][args[1]] */                                                                          \
    X(CALL, "call")       /* name(args...); the name may be "ns::f.overload" */                                                 \
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

/* Meaning of a name in an expression. DV__ROLE_NONE after parsing. Contracts resolve all names; formulas may leave
 * DV__ROLE_NONE. */
enum dv__expr_role {
    DV__ROLE_NONE,
    DV__ROLE_ARGUMENT,
    DV__ROLE_DIM,
    DV__ROLE_PER_TENSOR_DIM,
    DV__ROLE_PER_TENSOR_VARIADIC,
    DV__ROLE_VARIADIC,
    DV__ROLE_INT_LIST,
    DV__ROLE_DTYPE,
    DV__ROLE_DTYPE_VAR,
    DV__ROLE_LIST_INDEX
};

typedef struct dv__expr {
    enum dv__expr_kind kind;
    int32_t ref;    /* set when names are resolved: a slot, or the index of a variable or function; 0 after parsing */
    uint8_t role;   /* enum dv__expr_role */
    uint8_t type;   /* in contracts: enum dv__type_kind, set when names are resolved; 0 after parsing */
    uint16_t depth; /* the number of levels of operands below the node; at most DV__EXPR_MAX_DEPTH, so that recursion over a tree
                       is safe */
    uint32_t n;     /* the number of operands */
    struct dv__expr **args;
    const char *name;       /* the name, the function or the string, NUL-terminated, in the arena */
    const char *index_name; /* in name{i} and *name{i}: the name of the index, i; else NULL */
    int64_t i;
    double f;
    const char *at; /* where the expression begins in the text, for error messages */
} dv__expr;

enum { DV__EXPR_MAX_DEPTH = 200 };

/* Parses an expression from the current token on. Precedence from loose to tight: or; and; not; comparisons and `in` (chained: 0
 * <= a < b is a conjunction); + -; * / // %; unary -; postfix [i] .name (args) {i}. Fails with DV_ESYNTAX at the column, or with
 * DV_ELIMIT for a nesting deeper than DV__EXPR_MAX_DEPTH. */
int dv__expr_parse(dv__lexer *lx, dv__arena *arena, dv__expr **out);
/* Parses a whole text. The tree points into the text. name_for_message: noun for the text in "expected the end of the ...".
 * Fails with DV_ESYNTAX. */
int dv__expr_parse_text(const char *text, dv__arena *arena, const char *name_for_message, dv__expr **out);
/* Parses one dim of a list that is separated by spaces: a sum without comparisons. Outside of parentheses the next dim begins
 * at a "(" or "[" after a space, and at a "*" with a space before and none after it. So "co (h+1)//2 *s" are three dims. */
int dv__expr_parse_dim(dv__lexer *lx, dv__arena *arena, dv__expr **out);
/* Parses as dv__expr_parse() does, but ends before a "/" outside of parentheses, for lists that are separated by "/". */
int dv__expr_parse_until_slash(dv__lexer *lx, dv__arena *arena, dv__expr **out);
/* Parses one operand without binary operators: a literal, a name, a call. */
int dv__expr_parse_primary(dv__lexer *lx, dv__arena *arena, dv__expr **out);
void dv__expr_print(
    const dv__expr *e, dv__strbuf *to); /* prints a tree with as few parentheses as needed: the text parses to an equal tree */
void dv__expr_json(const dv__expr *e, dv__strbuf *to); /* writes a tree as JSON: ["add", ["name", "n"], ["int", 2]] */
bool dv__exprs_are_equal(
    const dv__expr *a, const dv__expr *b); /* compares structure and the meaning of names, not positions in the text */
/* Floor division and its remainder, as in Python. Return false for a divisor of 0 and for overflow. */
bool dv__int_try_floordiv(int64_t a, int64_t b, int64_t *out);
bool dv__int_try_floormod(int64_t a, int64_t b, int64_t *out);

#endif
