/* Formulas over operator calls: the native form, gradients, tangents (docs/formula.md).
 *
 * A formula is checked against the schemas of the operators that it calls as far as they are known, and kept as a tree. */
#ifndef DV_LANG_FORMULA_H
#define DV_LANG_FORMULA_H

#include "lang/expr.h"
#include "lang/schema.h"

/* Gives the schema of the operator that a formula means by a name, or NULL when it is not known (yet). The order: the formula's own
 * library, the base set, then "ns::name". */
typedef const dv__schema *(*dv__formula_lookup)(void *user, const char *name);

/* One native form: an expression for each return (a tuple of several is written "(a, b)" or "[a, b]"). */
typedef struct dv__native { const dv__expr *const *results; size_t n; } dv__native;

/* "gate, up: swiglu_grad(grad, gate, up); w: f(grad)": each clause gives the gradients of its targets, all by one call. */
typedef struct dv__clause {
    const int32_t *targets; /* slots of arguments (gradient) or of returns (tangent: nargs + i) */
    size_t ntargets;
    const dv__expr *value; /* NULL: the target is not differentiable ("x: non_differentiable") */
} dv__clause;
typedef struct dv__formula {
    const dv__clause *clauses;
    size_t n;
    const uint8_t *saves; /* for each slot, 1: an argument or result that backward needs */
} dv__formula;

int dv__native_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__native **out);
int dv__gradient_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__formula **out);
int dv__tangent_parse(const char *text, const char *op_name, const dv__schema *schema, dv__formula_lookup lookup, void *user,
    dv__arena *arena, dv__formula **out);
void dv__native_json(const dv__native *n, dv__text *to);
void dv__formula_json(const dv__formula *f, const dv__schema *schema, dv__text *to);

#endif
