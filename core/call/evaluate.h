/* Evaluates formulas by calling the operators that they name. */
#ifndef DV_CALL_EVALUATE_H
#define DV_CALL_EVALUATE_H

#include "call/state.h"

typedef struct dv__memo {
    struct dv__memo *next;
    const dv__expr *e;
    dv_value *results;
    size_t n;
} dv__memo;
typedef struct dv__owned {
    struct dv__owned *next;
    dv_tensor *t;
} dv__owned;
typedef struct dv__eval {
    dv__call *c;
    const char *what;      /* "native form": for messages */
    const dv_value *given; /* for gradients and tangents: the gradient or tangent of each slot; NULL: a native form */
    const bool *wanted;    /* for gradients: which arguments need one; NULL: all */
    dv__memo *memos;
    dv__owned *temporaries; /* newest first: a view before its base */
    dv_value *wide;         /* the arguments, real tensors as f64; NULL: as they are */
} dv__eval;

int dv__evaluate(dv__eval *ev, const dv__expr *e, dv_value *out);
/* The same for one call of an operator, with its only result in `into`; NULL: a temporary. */
int dv__evaluate_call(dv__eval *ev, const dv__expr *e, const dv_tensor *into, dv_value *out);
/* All results of a call of an operator. */
int dv__evaluate_node(dv__eval *ev, const dv__expr *e, const dv_tensor *into, const dv__memo **out);
int dv__fail_expr(const dv__eval *ev, int status, const dv__expr *e, const char *what);
/* Remember a call's result, to free it later; on failure it is freed at once. */
int dv__eval_keep(dv__eval *ev, dv_tensor *t);
void dv__eval_deinit(dv__eval *ev); /* frees the temporaries that are left */

#endif
