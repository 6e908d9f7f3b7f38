/* Results: expected shape and dtype, allocation, release. */
#ifndef DV_CALL_RESULTS_H
#define DV_CALL_RESULTS_H

#include "call/call_state.h"

/* True if a C shape function describes the results: the operator has no contract, or its contract has [...] for a result. */
bool dv__needs_shape_function(const dv_operator *op);
/* Runs the shape function, which sets c->outs[].descriptor to the metadata of each result; returns a status. */
int dv__run_shape_function(dv__call *c);
/* Describes a result by the contract, without allocating it. element_index: the tensor's index in a result that is a list;
 * DV__NO_ELEMENT: the result is one tensor. metadata->ndim -1: the result is absent. Fails if a view lies outside its
 * argument. */
int dv__describe_result(dv__call *c, size_t result_index, int64_t element_index, dv__result_metadata *metadata);
/* Marks every result as ABSENT and sets c->nouts, so that dv__transfer_or_free_results() may be called at any later time. */
void dv__mark_results_absent(dv__call *c);
/* Makes all results before the kernel runs: checks the tensors that the caller passed, and allocates the others. Returns a
 * status. */
int dv__make_results(dv__call *c);
/* Makes a result that is a list of `length` new tensors. describe(): fills *o for each tensor; o->strides may point to the
 * array `strides`. Returns a status. */
typedef int (*dv__describe_fn)(dv__call *c, size_t r, size_t element_index, dv__result_metadata *o, int64_t *strides);
int dv__make_result_list(dv__call *c, size_t result_index, size_t length, dv__describe_fn describe);
/* Validates the value that the caller passed for a tensor result. Fails if it is not a tensor, or if its dtype, device or
 * shape is not that of `expected`. Strides are not compared. */
int dv__check_passed_result(const dv__call *c, size_t result_index, const dv_value *passed, const dv_tensor *expected);
/* True if both have one dtype and shape, and the same address of each element. */
bool dv__tensors_are_same_view(const dv_tensor *a, const dv_tensor *b);
/* Ends a call's results. success: they are passed to the caller; otherwise the tensors that the host made for them are
 * freed. */
void dv__transfer_or_free_results(dv__call *c, bool success);

#endif
