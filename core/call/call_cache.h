/* Call cache: a per-thread memo of validated calls. */
#ifndef DV_CALL_CALL_CACHE_H
#define DV_CALL_CALL_CACHE_H

#include "call/call_state.h"

/* Runs the call if this thread's cache has an equal call that can be repeated: sets *status and returns true. Otherwise
 * returns false; then only c->policy_decision, c->cache_slot and c->call_key may be used. */
bool dv__call_cache_try_run(dv__call *c, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const dv_host *host, int *status);
/* Stores a call whose kernel has just succeeded, before the results are passed to the caller. table_entry: the dispatch
 * entry that selected the kernel. A call is stored when a call with its key comes the second time in a row. A call that
 * cannot be cached is not stored. */
void dv__call_cache_store(dv__call *c, const dv__dispatch_entry *table_entry, const dv__kernel *kernel);

#endif
