/* Declarations shared by the formula files: the checker and its types. */
#ifndef DV_LANG_FORMULA_INTERNAL_H
#define DV_LANG_FORMULA_INTERNAL_H

#include "base/error.h"
#include "lang/formula.h"

enum formula_mode { MODE_DECOMPOSITION, MODE_GRADIENT, MODE_TANGENT };

/* The type of an expression. */
enum formula_value_kind {
    VALUE_TYPED,   /* a value of the type in `type` */
    VALUE_UNKNOWN, /* the result of an operator that is not known yet; it fits every type */
    VALUE_NONE,    /* None */
    VALUE_LIST,    /* [elems...] */
    VALUE_TUPLE,   /* a call of `callee`, which has several results */
    VALUE_VOID,    /* a call without results */
};
typedef struct formula_value {
    enum formula_value_kind kind;
    const dv__type *type;
    const struct formula_value *const *elems;
    size_t n;
    const dv__schema *callee;
} formula_value;

typedef struct formula_checker {
    const char *text;
    const dv__schema *schema;
    enum formula_mode mode;
    dv__formula_lookup lookup;
    void *user;
    dv__arena *arena;     /* memory of the tree */
    dv__arena scratch;    /* memory of types, which is freed after the check */
    bool *is_present;     /* by argument: true inside if(present(x), here, ...), where x is given */
    uint8_t *saved_parts; /* by slot: dv__formula.saved_parts, filled by the check; NULL: not wanted */
} formula_checker;

/* Resolves names, checks types, and turns arithmetic on tensors into calls. *e may be replaced. *out: the value's type. Returns
 * a status. */
int dv__formula_check(formula_checker *c, dv__expr **e, const formula_value **out);
bool dv__formula_type_accepts_value(const dv__type *wanted, const formula_value *v);
void dv__formula_value_print_type(const formula_value *v, dv__strbuf *to);
formula_value *dv__formula_value_new(
    formula_checker *c, enum formula_value_kind kind, const dv__type *type); /* NULL: out of memory */
/* Fails with "<message_begin> <wanted>, found <the value's type>" at e. Returns DV_ESCHEMA. */
int dv__formula_fail_wrong_type(
    formula_checker *c, const dv__expr *e, const char *message_begin, const dv__type *wanted, const formula_value *found);
/* Lists the slots that have gradients and tangents: all returns, then written arguments that are not returned. Returns their
 * number. */
size_t dv__formula_list_and_count_outputs(const dv__schema *s, int32_t *slots); /* slots: room for nargs + nreturns entries */
int32_t dv__schema_find_aliased_argument_index(
    const dv__schema *s, size_t return_index); /* returns the slot of the written argument that a return is; -1: none */
dv__expr *dv__formula_expr_new(formula_checker *c, enum dv__expr_kind kind, const char *position_in_text, uint32_t noperands);

#endif
