/* Formulas over operator calls: decomposition, gradients, tangents (docs/formula.md).
 *
 * A formula is checked against the schemas of the operators that it calls, if they are known, and stored as a tree. */
#ifndef DV_LANG_FORMULA_H
#define DV_LANG_FORMULA_H

#include "lang/expr.h"
#include "lang/schema.h"

/* A callback that finds the i-th overload for an operator's name in a formula. *out is NULL after the last one, and for i == 0
 * if the operator is not known yet: the call is then stored as written, unchecked. An error status refuses the name, with a
 * message. A name is looked up in the formula's own library, then in the base set, then as "ns::name". Schemas must live until
 * the parse returns. */
typedef int (*dv__formula_lookup)(void *user, const char *name, size_t i, const dv__schema **out);

/* The trees of formulas after parsing. Role and ref of a node give its meaning.
 *
 * - NAME: an argument (ref: its slot), a result (ref: its slot), GRAD (ref: the slot of the output whose gradient it is), TANGENT
 *   (ref: the argument's slot), or a dtype.
 * - CALL of an operator, ref DV__FORMULA_OPERATOR: the name is the operator's full name ("base::mul", "ns::f.out"), or as written
 *   if the operator is not known. Operands are positional arguments, then KEYWORD nodes (ref: index of the callee's argument).
 *   Missing arguments take their defaults.
 * - CALL of a built-in function (enum dv__formula_builtin): if(c, a, b), which evaluates one branch only, present, needs, len.
 * - ATTR of a tensor: shape, ndim, dtype, device, numel. SUBSCRIPT of a list, a shape or a call with several results.
 * - Arithmetic on numbers, as in Python. Arithmetic on tensors has become calls (add, sub, mul, div, neg, rsub, reciprocal).
 *
 * One node may be the operand of several nodes: evaluate it once. */
enum dv__formula_role {
    DV__ROLE_RESULT = 64,
    DV__ROLE_GRAD,
    DV__ROLE_TANGENT
}; /* more values of dv__expr.role, beside enum dv__expr_role */
enum dv__formula_builtin { DV__FORMULA_OPERATOR, DV__FORMULA_IF, DV__FORMULA_PRESENT, DV__FORMULA_NEEDS, DV__FORMULA_LEN };

/* A decomposition: an expression for each return, and for each written argument its new value, also if a return is that
 * argument. written_values has an entry for each argument; NULL: the operator writes nothing. */
typedef struct dv__decomposition {
    const dv__expr *const *results;
    size_t n; /* the number of results */
    const dv__expr *const *written_values;
} dv__decomposition;

/* A clause of a gradient or tangent, such as "gate, up: swiglu_grad(grad, gate, up)". It gives the gradients of all its targets
 * by one call. */
typedef struct dv__formula_clause {
    const int32_t *targets; /* slots of arguments (gradient) or of results (tangent: returns, and written arguments) */
    size_t ntargets;
    const dv__expr *value; /* the clause's expression; NULL: the targets are not differentiable ("x: non_differentiable") */
} dv__formula_clause;
typedef struct dv__formula {
    const dv__formula_clause *clauses;
    size_t n;
    const uint8_t
        *saved_parts; /* by slot, what backward needs of it: 0 nothing, 1 the value, 2 only the shape, dtype or device */
} dv__formula;

int dv__decomposition_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup,
    void *user, dv__arena *arena, dv__decomposition **out);
int dv__gradient_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__formula **out);
int dv__tangent_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__formula **out);
/* Write a formula's JSON (docs/json.md). text: the formula as it was written. A NULL formula gives null. */
void dv__decomposition_json(const dv__decomposition *n, const char *text, const dv__schema *schema, dv__strbuf *to);
void dv__formula_json(const dv__formula *f, const char *text, const dv__schema *schema, dv__strbuf *to);

#endif
