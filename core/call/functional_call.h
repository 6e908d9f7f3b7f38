/* Calls of functional forms. */
#ifndef DV_CALL_FUNCTIONAL_CALL_H
#define DV_CALL_FUNCTIONAL_CALL_H

#include "call/call_state.h"

int dv__functional_run(dv__call *c); /* arguments are bound */

#endif
