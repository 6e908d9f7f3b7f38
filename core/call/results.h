/* Results: expected shape and dtype, allocation, release. */
#ifndef DV_CALL_RESULTS_H
#define DV_CALL_RESULTS_H

#include "call/state.h"

/* Does a C shape function describe the results? It does without a contract, or where the contract says [...]. */
bool dv__uses_shape(const dv_operator *op);
int dv__run_shape(dv__call *c); /* the shape function's shape and dtype for each result, into c->outs[].header */
/* Result r by the contract, without memory. place: of a list; DV__WHOLE: it is one tensor. A view must lie inside its argument.
 */
int dv__describe_result(dv__call *c, size_t r, int64_t place, dv__output *o);
void dv__begin_results(dv__call *c); /* mark every result as absent, before any is made */
int dv__make_results(dv__call *c);
/* Make a list of n new tensors for result r. describe() fills *o for each, and may keep the strides in the array it is given. */
typedef int (*dv__describe_fn)(dv__call *c, size_t r, size_t place, dv__output *o, int64_t *strides);
int dv__make_list(dv__call *c, size_t r, size_t n, dv__describe_fn describe);
/* Check a tensor given for result r against the tensor whose new value it will hold. */
int dv__check_given_like(const dv__call *c, size_t r, const dv_value *given, const dv_tensor *like);
bool dv__same_view(const dv_tensor *a, const dv_tensor *b); /* the same elements in the same places */
/* The one place that ends results: on success they are passed to the caller, on failure the tensors that the host made are freed.
 */
void dv__end_results(dv__call *c, bool success);

#endif
