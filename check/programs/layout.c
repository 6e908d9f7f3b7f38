#include "outs.h"
#include "cut.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs a, b;
    if (call(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&a, results);
    change = cut_arguments; /* all of them, contiguous */
    if (call(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&b, results);
    if (differ(&a, &b, SLOT, RTOL, ATOL))
        return 1;
    return puts("the fault does not show"), 0;
}
