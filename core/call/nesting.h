/* Nesting of calls: a kernel calls an operator, whose kernel calls an operator, and so on. Without a bound, an operator that
 * calls itself would overflow the stack. */
#ifndef DV_CALL_NESTING_H
#define DV_CALL_NESTING_H

#include "call/call_state.h"

/* Begins a call of op in this thread. After DV_OK the caller must end the call with dv__nesting_end(). Fails with DV_ELIMIT
 * if the calls are nested too deep, or if too little of the thread's stack is left for one more. */
int dv__nesting_begin(const dv_operator *op);
void dv__nesting_end(void); /* ends a call that dv__nesting_begin() began in this thread */

/* Returns the number of open calls in this thread. Another thread that works for one of them passes it to
 * dv__nesting_set_depth(). */
int dv__nesting_get_depth(void);
/* Sets the number of open calls of this thread, and returns the number before. */
int dv__nesting_set_depth(int depth);

#endif
