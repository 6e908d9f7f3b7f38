#include "outs.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs a, b;
    if (call(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&a, results);
    error_before = ERANGE; /* as an earlier call may leave it */
    if (call(op, ROW, results))
        return fprintf(stderr, "with another errno before it: %s\n", dv_last_error()), 1;
    take(&b, results);
    if (differ(&a, &b, -1, -1, 0))
        return 1;
    return puts("the fault does not show"), 0;
}
