/* Calls like one before. */
#ifndef DV_CALL_AGAIN_H
#define DV_CALL_AGAIN_H

#include "call/state.h"

/* If this call equals one that this thread remembers: make it, set *status, and return true. Otherwise only c->decision and where
 * it may be remembered are set. */
bool dv__call_again(dv__call *c, dv_operator *op, const dv_value *args, size_t nargs, dv_value *results, size_t nresults,
    const dv_host *host, int *status);
/* Remember a call that has just succeeded, before its results are passed to the caller. from: the table entry that gave the row.
 */
void dv__remember(dv__call *c, const dv__entry *from, const dv__row *row);

#endif
