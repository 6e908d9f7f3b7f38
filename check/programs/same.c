#include "outs.h"
#include "order.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs first, elsewhere;
    which = 1; /* other contents at the same addresses */
    call_again(op, ROW, results);
    which = 0;
    if (call_again(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&first, results);
    for (int turn = 0; turn < 8; turn++) { /* elsewhere, at either end of its pages */
        again = 0;
        at_end = !at_end;
        loop = in_order;
        if (!call(op, ROW, results))
            take(&elsewhere, results);
        if (differ(&first, &elsewhere, -1, 0, ATOL))
            return 1;
    }
    loop = NULL;
    if (differs_again(&first, op, ROW, results))
        return 1;
    return puts("the fault does not show"), 0;
}
