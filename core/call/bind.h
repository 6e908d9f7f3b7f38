/* Binding: validates and converts the caller's values by the schema, and solves the contract. */
#ifndef DV_CALL_BIND_H
#define DV_CALL_BIND_H

#include "call/call_state.h"

/* Sets c->args to the validated and converted arguments with defaults. Records the span of each tensor that the caller passed,
 * also for results, in c->spans. *keys: the dispatch keys of the arguments' devices. Returns a status. */
int dv__bind_values(dv__call *c, const dv_value *args, size_t nargs, uint32_t *keys);
/* Computes the span of a tensor of the call, and includes the tensor in c->all_contiguous and c->max_numel. Returns false,
 * without a message, if the tensor is invalid. */
bool dv__try_record_tensor_span(dv__call *c, const dv_tensor *t, dv__span *span);
/* Validates the length and the elements of a list that has the slot's type. A list of one number for a fixed size N is
 * replaced in *v by N equal numbers. Returns a status. */
int dv__check_or_extend_list(dv__call *c, size_t slot, dv_value *v);
/* Fails with DV_EINVAL if a string or list that is not empty has the data pointer NULL, or if a string inside a list has it. */
int dv__check_value_has_data(const dv__call *c, size_t slot, const dv_value *v);
/* Validates and converts one argument of dv_infer_partial(), whose value, rank or sizes may be unknown. Returns a status. */
int dv__bind_partial_value(dv__call *c, size_t slot, const dv_value *v, dv_value *out);
bool dv__is_number_type(uint32_t type); /* true for int, float, bool and complex: the enum dv_value_type that a Scalar accepts */
/* Solves the contract for the arguments and sets c->device. Without a contract, fails unless all tensors of the arguments
 * are on one device. */
int dv__call_solve_contract(dv__call *c);

#endif
