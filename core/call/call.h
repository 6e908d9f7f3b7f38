/* A call, from its beginning to its end. */
#ifndef DV_CALL_CALL_H
#define DV_CALL_CALL_H

#include "call/state.h"

int dv__call_init(dv__call *c, dv_operator *op, dv_value *results, size_t nresults, const dv_host *host, uint32_t inner);
/* Ends every call that was begun: on success the results are passed to the caller, on failure the results that the host made are
 * freed; copies of tensors and converted values are freed. Returns the status. */
int dv__call_end(dv__call *c, int status);
int dv__call_values(
    dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults, const dv_host *host, uint32_t inner);
int dv__too_many(const dv__call *c); /* more slots than a call has room for: DV_ELIMIT */
/* The entry for these keys, considering only keys below `below` (DV_KEY_RUNTIME_COUNT: all); never a fallthrough. DV_ENOKERNEL.
 */
int dv__call_entry(const dv__call *c, uint32_t keys, int below, const dv__entry **out);

#endif
