/* Nesting of calls: a kernel calls an operator, whose kernel calls an operator, and so on. Without a bound, an operator that
 * calls itself would overflow the stack. */
#ifndef DV_CALL_NESTING_H
#define DV_CALL_NESTING_H

#include "call/state.h"

/* Begins a call of op in this thread. On success the caller ends it with dv__nesting_end(). DV_ELIMIT: the calls are nested too
 * deep, or too little of the thread's stack is left for one more. */
int dv__nesting_begin(const dv_operator *op);
void dv__nesting_end(void); /* ends a call that dv__nesting_begin() began in this thread */

/* Returns the depth of open calls in this thread, for dv__nesting_set_depth() in another thread that works for one of them. */
int dv__nesting_depth(void);
/* Sets the depth of this thread. Returns the depth before. */
int dv__nesting_set_depth(int depth);

#endif
