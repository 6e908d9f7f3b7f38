/* The caller's values against the schema and the contract. */
#ifndef DV_CALL_VALUES_H
#define DV_CALL_VALUES_H

#include "call/state.h"

/* Complete and check the arguments into c->args, look at each tensor that the caller gave, also for results (c->spans), and find
 * the keys of the devices that the arguments are on. */
int dv__bind_values(dv__call *c, const dv_value *args, size_t nargs, uint32_t *keys);
/* A tensor's span; its size and layout are added to what the call knows. False: it is not sound. */
bool dv__look_at(dv__call *c, const dv_tensor *t, dv__span *span);
/* A list of the right type: its length and elements. */
int dv__check_list(dv__call *c, size_t slot, dv_value *v);
/* Checks that a string or list that is not empty has a data pointer, and each string of a list, too. */
int dv__check_data(const dv__call *c, size_t slot, const dv_value *v);
/* One argument of a call of which not everything is known (dv_infer_partial()). */
int dv__bind_partly_known(dv__call *c, size_t slot, const dv_value *v, dv_value *to);
bool dv__is_number(uint32_t type); /* does a value of this type fill a Scalar? */
/* Solve the contract; without one, find that all tensors are on one device. */
int dv__solve(dv__call *c);

#endif
