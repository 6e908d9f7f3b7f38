#include "cut.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs whole, part[2], slice;
    if (take_parts(op, results, &whole, part))
        return 0;
    for (int i = 0; i < 2; i++) {
        low = i ? AT : 0;
        high = i ? SIZE : AT;
        slice = whole;
        for (int k = 0; k < slice.n; k++)
            if (slice.of[k].slot == SLOT)
                cut(&slice.of[k].t, AXIS);
        if (differ(&part[i], &slice, SLOT, 0, ATOL))
            return 1;
    }
    return puts("the fault does not show"), 0;
}
