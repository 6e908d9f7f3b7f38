#include "call.h"

static int question(dv_operator *op, dv_value *results)
{
    static dv_result_spec specs[NRESULTS + 1];
    make_arguments();
    if (!dv_infer(op, args, NARGS, specs, NRESULTS) && call(op, ROW, results))
        return fprintf(stderr, "accepted, and then: %s\n", dv_last_error()), 1;
    return puts("the fault does not show"), 0;
}
