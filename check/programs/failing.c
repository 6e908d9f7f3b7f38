#include "heap.h"
#include "outs.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs whole, now;
    if (call(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&whole, results);
    const int n = allocations;
    for (fail_at = 1; fail_at <= n; fail_at++) {
        const int status = call(op, ROW, results);
        if (!status) {
            take(&now, results);
            if (differ(&whole, &now, -1, -1, 0))
                return 1;
        } else if (!*dv_last_error() || strstr(dv_last_error(), "and no message")) {
            return fprintf(stderr, "an allocation fails, and the error says nothing: %s\n", dv_last_error()), 1;
        }
        for (int i = 0; i < NRESULTS && status; i++)
            if (results[i].type != DV_VALUE_DEFAULT)
                return fprintf(stderr, "an allocation fails, and a result is given all the same\n"), 1;
        int grows = 0;
        for (int turn = 0; turn < 3 && status; turn++) {
            const int before = kept_blocks();
            call(op, ROW, results);
            grows += kept_blocks() > before;
        }
        if (grows == 3)
            return fprintf(stderr, "an allocation fails, and what malloc() gave is not given back\n"), 1;
    }
    return puts("the fault does not show"), 0;
}
