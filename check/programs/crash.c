#include "call.h"

static int question(dv_operator *op, dv_value *results)
{
    if (call(op, ROW, results))
        fprintf(stderr, "%s\n", dv_last_error());
    return puts("the fault does not show"), 0;
}
