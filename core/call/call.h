/* Functions that begin a call, find its dispatch entry and end it. call_state.h has the call's state. */
#ifndef DV_CALL_CALL_H
#define DV_CALL_CALL_H

#include "call/call_state.h"

/* Initialises a call. Fails if the operator was unloaded, or if results or host are invalid; dv__call_end() must not be
 * called then. */
int dv__call_init(dv__call *c, dv_operator *op, dv_value *results, size_t nresults, const dv_host *host, uint32_t nested_flags);
/* Ends a call. After success the results are passed to the caller; after a failure the results that the host made are freed.
 * Copies of tensors and converted values are freed. Returns status. */
int dv__call_end(dv__call *c, int status);
/* Calls an operator as dv_call() does, also from inside another call. nested_flags: enum dv__nested_flags. Returns a status. */
int dv__call_with_nested_flags(dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const dv_host *host, uint32_t nested_flags);
/* Fails with DV_ELIMIT if the operator has more arguments and results than a dv__call can hold. */
int dv__call_check_slot_count(const dv__call *c);
/* Finds the dispatch entry of the highest of these keys that the operator handles, among keys below `below_key`
 * (DV_KEY_RUNTIME_COUNT: all keys). The entry is never a fallthrough. Fails with DV_ENOKERNEL. */
int dv__call_find_dispatch_entry(const dv__call *c, uint32_t keys, int below_key, const dv__dispatch_entry **out);

#endif
