/* The nesting of calls: a kernel calls an operator, whose kernel calls an operator, and so on. Without a bound, an operator that
 * calls itself would overflow the stack. */
#ifndef DV_CALL_NESTING_H
#define DV_CALL_NESTING_H

#include "call/state.h"

/* Begins a call of op in this thread. DV_ELIMIT: the calls are nested too deep, or too little of the thread's stack is left for
 * one more. On success dv__nesting_end() ends it. */
int dv__nesting_begin(const dv_operator *op);
void dv__nesting_end(void);

/* The depth of this thread, for another thread that works for one of its calls. Returns the depth before. */
int dv__nesting_depth(void);
int dv__nesting_set_depth(int depth);

#endif
