/* Calls of functional forms. */
#ifndef DV_CALL_FUNCTIONAL_H
#define DV_CALL_FUNCTIONAL_H

#include "call/state.h"

int dv__run_functional(dv__call *c); /* arguments are bound */

#endif
