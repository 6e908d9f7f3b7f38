/* Results: what each must be, where it comes from, and what becomes of it. */
#ifndef DV_CALL_RESULTS_H
#define DV_CALL_RESULTS_H

#include "call/state.h"

/* A C shape function says what the results are: there is no contract, or it leaves them to one ([...]). */
bool dv__uses_shape(const dv_operator *op);
int dv__run_shape(dv__call *c);      /* the shape function's shape and dtype for each result, into c->outs[].header */
void dv__begin_results(dv__call *c); /* every result is absent, and nothing is made */
int dv__make_results(dv__call *c);
/* A tensor given for result r against the tensor whose new value it will hold. */
int dv__check_given_like(const dv__call *c, size_t r, const dv_value *given, const dv_tensor *like);
bool dv__same_view(const dv_tensor *a, const dv_tensor *b); /* the same elements in the same places */
/* The only end of results: on success they become the caller's, on failure what the host made for them is given back. */
void dv__end_results(dv__call *c, bool success);

#endif
