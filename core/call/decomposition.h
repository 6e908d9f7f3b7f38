/* Decompositions. */
#ifndef DV_CALL_DECOMPOSITION_H
#define DV_CALL_DECOMPOSITION_H

#include "call/call_state.h"

int dv__decomposition_run(dv__call *c); /* arguments are bound and solved */

#endif
