/* Declarations shared by the formula files: the checker and its types. */
#ifndef DV_LANG_FORMULA_INTERNAL_H
#define DV_LANG_FORMULA_INTERNAL_H

#include "base/error.h"
#include "lang/formula.h"

enum formula_mode { MODE_NATIVE, MODE_GRADIENT, MODE_TANGENT };

/* The type of an expression. */
enum value_kind {
    VALUE_KNOWN,   /* type */
    VALUE_UNKNOWN, /* the result of an operator that is not known yet: fits everything */
    VALUE_NONE,    /* None */
    VALUE_LIST,    /* [elems...] */
    VALUE_TUPLE,   /* a call with several results, of this callee */
    VALUE_NOTHING, /* a call without results */
};
typedef struct value {
    enum value_kind kind;
    const dv__type *type;
    const struct value *const *elems;
    size_t n;
    const dv__schema *callee;
} value;

typedef struct checker {
    const char *text;
    const dv__schema *schema;
    enum formula_mode mode;
    dv__formula_lookup lookup;
    void *user;
    dv__arena *arena;  /* of the tree */
    dv__arena scratch; /* of types */
    bool *present;     /* for each argument: inside if(present(x), here, ...) */
    uint8_t *saves;    /* for each slot, or NULL */
} checker;

extern const dv__type dv__formula_types[];
enum { T_TENSOR, T_INT, T_FLOAT, T_BOOL, T_STR, T_DTYPE, T_DEVICE, T_SCALAR, T_INTS };

/* Resolve names, check types, and turn arithmetic on tensors into calls. *e may be replaced. */
int dv__formula_check(checker *c, dv__expr **e, const value **out);
bool dv__formula_fits(const dv__type *wanted, const value *v);
void dv__formula_value_print(const value *v, dv__text *to);
value *dv__formula_value(checker *c, enum value_kind kind, const dv__type *type); /* NULL: out of memory */
/* Fail with "expected <wanted>, found <the value's type>" at e. */
int dv__formula_mismatch(checker *c, const dv__expr *e, const char *what, const dv__type *wanted, const value *found);
/* Slots that have gradients and tangents: returns that are not an argument, then written arguments. */
size_t dv__formula_outputs(const dv__schema *s, int32_t *slots); /* slots has room for nargs + nreturns */
int32_t dv__formula_aliased(const dv__schema *s, size_t ret);    /* the written argument that a return is, or -1 */
dv__expr *dv__formula_node(checker *c, enum dv__expr_kind kind, const char *at, uint32_t n);

#endif
