#include "call.h"

static int question(dv_operator *op, dv_value *results)
{
    static dv_result_spec specs[NRESULTS + 1];
    (void)call;
    (void)results;
    make_arguments();
    for (size_t i = 0; i < nbuffers; i++) /* a fake tensor has sizes and no contents */
        if (!buffers[i].fixed)
            mprotect(buffers[i].pages, buffers[i].room, PROT_NONE);
    if (dv_infer(op, args, NARGS, specs, NRESULTS))
        fprintf(stderr, "%s\n", dv_last_error());
    return puts("the fault does not show"), 0;
}
