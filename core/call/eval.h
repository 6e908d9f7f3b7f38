/* Evaluates formulas by calling the operators that they name. */
#ifndef DV_CALL_EVAL_H
#define DV_CALL_EVAL_H

#include "call/call_state.h"

typedef struct dv__eval_memo {
    struct dv__eval_memo *next;
    const dv__expr *call_expr;
    dv_value *results;
    size_t nresults;
} dv__eval_memo;
typedef struct dv__eval_temporary {
    struct dv__eval_temporary *next;
    dv_tensor *tensor;
} dv__eval_temporary;
typedef struct dv__eval {
    dv__call *c;
    const char *formula_kind;    /* how messages name the formula, as "the decomposition" */
    const dv_value *derivatives; /* by slot, for gradients and tangents: its gradient or tangent; NULL: a decomposition */
    const bool *wanted;          /* by argument, for gradients: a gradient is wanted; NULL: for all arguments */
    dv__eval_memo *memos;
    dv__eval_temporary *temporaries; /* tensors to free, newest first, so that a view is freed before its base */
    dv_value *f64_args;              /* the arguments with real tensors converted to f64; NULL: no conversion */
} dv__eval;

/* Evaluates an expression to *out. Tensors and lists in *out live until dv__eval_deinit(). Returns a status. */
int dv__eval_expr(dv__eval *ev, const dv__expr *e, dv_value *out);
/* Evaluates a call of an operator with one result, to *out. into_tensor: receives the result, if the operator can write it
 * there; NULL: the result is a temporary. Returns a status. */
int dv__eval_call_into(dv__eval *ev, const dv__expr *e, const dv_tensor *into_tensor, dv_value *out);
/* Evaluates a call of an operator, or finds an equal call that was evaluated before. *out: the memo with all its results.
 * Returns a status. */
int dv__eval_call_results(dv__eval *ev, const dv__expr *e, const dv_tensor *into_tensor, const dv__eval_memo **out);
/* Sets the message "op: formula_kind: text of e: what" and returns status. */
int dv__eval_fail(const dv__eval *ev, int status, const dv__expr *e, const char *what);
/* Records a call's result, to be freed by dv__eval_deinit(). If memory is out, frees the result and returns DV_ENOMEM. */
int dv__eval_add_temporary(dv__eval *ev, dv_tensor *t);
void dv__eval_deinit(dv__eval *ev); /* frees the temporaries */

#endif
