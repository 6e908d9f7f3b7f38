/* Native forms. */
#ifndef DV_CALL_NATIVE_H
#define DV_CALL_NATIVE_H

#include "call/state.h"

int dv__run_native(dv__call *c); /* arguments are bound and solved */

#endif
