#pragma once
#include "call.h"

/* For a fault that shows only after a call with other arguments. */

static void call_before(dv_operator *op, dv_value *results)
{
    const dv_host host = host_of(ROW);
    for (int i = 0; i < NRESULTS; i++)
        results[i] = dv_default();
    make_other_arguments();
    dv_call(op, args, NARGS, results, NRESULTS, &host);
    for (size_t i = 0; i < nbuffers; i++)
        if (!buffers[i].heap) { /* all that was lent for the call is gone */
            mprotect(buffers[i].pages, buffers[i].room, PROT_NONE);
            buffers[i].freed = buffers[i].locked = 1;
        }
}
