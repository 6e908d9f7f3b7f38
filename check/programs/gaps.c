#include "call.h"
#include "gaps.h"

static int question(dv_operator *op, dv_value *results)
{
    call(op, ROW, results);
    for (int i = 0; i < NARGS; i++)
        if (args[i].type == DV_VALUE_TENSOR && gap_written(args[i].as.tensor))
            return fprintf(stderr, "a byte between the elements of argument %d was written\n", i), 1;
    return puts("the fault does not show"), 0;
}
