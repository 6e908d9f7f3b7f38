#include "call.h"

static int question(dv_operator *op, dv_value *results)
{
    static dv_result_spec specs[NRESULTS + 1];
    make_arguments();
    if (!dv_infer(op, args, NARGS, specs, NRESULTS))
        return 0;
    if (!call(op, ROW, results) || kernel_ran)
        return fprintf(stderr, "dv_infer() refuses this, and it was run\n"), 1;
    if (!strstr(dv_last_error(), OPERATOR) || strstr(dv_last_error(), "no message"))
        return fprintf(stderr, "an error that says nothing: %s\n", dv_last_error()), 1;
    return puts("the fault does not show"), 0;
}
