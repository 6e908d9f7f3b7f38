#include "outs.h"
#include "cut.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs whole, part, slice;
    if (call(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&whole, results);
    change = cut_arguments;
    for (int i = 0; i < 2; i++) {
        low = i ? AT : 0;
        high = i ? SIZE : AT;
        if (call(op, ROW, results))
            return fprintf(stderr, "%s\n", dv_last_error()), 0;
        take(&part, results);
        slice = whole;
        for (int k = 0; k < slice.n; k++)
            if (slice.of[k].slot == SLOT)
                cut(&slice.of[k].t, AXIS);
        if (differ(&part, &slice, SLOT, 0, ATOL))
            return 1;
    }
    return puts("the fault does not show"), 0;
}
