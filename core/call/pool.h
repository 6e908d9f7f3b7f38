/* Threads for the pieces of a call. */
#ifndef DV_CALL_POOL_H
#define DV_CALL_POOL_H

#include "call/state.h"

/* Run fn(arg, i) for i in [0, n), each once, on the host's threads or the pool's, and wait. The first non-zero return is
 * returned, and pieces that have not begun are skipped. A nested dv__parallel() runs on its own thread. */
typedef int (*dv__piece_fn)(void *arg, int64_t i);
int dv__parallel(const dv_host *host, int64_t n, dv__piece_fn fn, void *arg);

#endif
