/* Formulas over operator calls: the native form, gradients, tangents (docs/formula.md).
 *
 * A formula is checked against the schemas of the operators that it calls, if they are known, and kept as a tree. */
#ifndef DV_LANG_FORMULA_H
#define DV_LANG_FORMULA_H

#include "lang/expr.h"
#include "lang/schema.h"

/* Finds the i-th candidate (overload) for an operator's name in a formula. *out is NULL past the last, and for i == 0 when the
 * operator is not known (yet): the call is then kept as written, unchecked. An error status refuses the name, with a message. The
 * order: the formula's own library, the base set, then "ns::name". Schemas must live until the parse returns. */
typedef int (*dv__formula_lookup)(void *user, const char *name, size_t i, const dv__schema **out);

/* The trees, after parsing. What names mean is in role and ref:
 *   NAME  ARG (ref: slot), RESULT (ref: slot, nargs + i), GRAD (ref: slot of the output whose gradient it is), TANGENT (ref: slot
 * of the argument), DTYPE (name) CALL  of an operator: name is its full name ("base::mul", "ns::f.out") when it was known, else
 * as written; its operands are positional arguments, then KEYWORD nodes with ref: the callee's argument. Missing ones take their
 * defaults. ref is DV__FORMULA_OPERATOR then. Others are built in (enum dv__formula_builtin): if(c, a, b) evaluates one branch
 * only, present(x), needs(x), len(x). ATTR  of a tensor: shape, ndim, dtype, device, numel INDEX of a list, of a shape, or of a
 * call with several results. One node may be the operand of several: evaluate it once. Arithmetic on tensors has become calls
 * (add, sub, mul, div, neg, rsub, reciprocal); what is left is on numbers, as in Python. */
enum dv__formula_role { DV__ROLE_RESULT = 64, DV__ROLE_GRAD, DV__ROLE_TANGENT }; /* beside enum dv__expr_role's ARG and DTYPE */
enum dv__formula_builtin { DV__FORMULA_OPERATOR, DV__FORMULA_IF, DV__FORMULA_PRESENT, DV__FORMULA_NEEDS, DV__FORMULA_LEN };

/* One native form: an expression for each return, and for each written argument its new value (also when a return is that
 * argument). writes is NULL when nothing is written, else one entry for each argument. */
typedef struct dv__native {
    const dv__expr *const *results;
    size_t n;
    const dv__expr *const *writes;
} dv__native;

/* "gate, up: swiglu_grad(grad, gate, up); w: f(grad)": each clause gives the gradients of its targets, all by one call. */
typedef struct dv__clause {
    const int32_t *targets; /* slots of arguments (gradient) or of outputs (tangent: returns, and written arguments) */
    size_t ntargets;
    const dv__expr *value; /* NULL: the target is not differentiable ("x: non_differentiable") */
} dv__clause;
typedef struct dv__formula {
    const dv__clause *clauses;
    size_t n;
    const uint8_t *saves; /* for each slot what backward needs of it: 0 nothing, 1 its value, 2 only its shape, dtype or device */
} dv__formula;

int dv__native_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__native **out);
int dv__gradient_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__formula **out);
int dv__tangent_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__formula **out);
/* docs/json.md; text: as it was written. NULL formulas give null. */
void dv__native_json(const dv__native *n, const char *text, const dv__schema *schema, dv__text *to);
void dv__formula_json(const dv__formula *f, const char *text, const dv__schema *schema, dv__text *to);

#endif
