#include "outs.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs before, after;
    make_arguments();
    take(&before, results);
    if (!call(op, ROW, results))
        return puts("it is not refused"), 0;
    fprintf(stderr, "%s\n", dv_last_error());
    for (int i = 0; i < NRESULTS; i++)
        results[i] = dv_default();
    take(&after, results);
    if (differ(&before, &after, -1, -1, 0))
        return 1;
    return puts("the fault does not show"), 0;
}
