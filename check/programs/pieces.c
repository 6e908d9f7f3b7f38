#include "outs.h"
#include "order.h"
#include "between.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs first;
    if (call_again(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&first, results);
    loop = in_reverse;
    if (differs_again(&first, op, ROW, results))
        return 1;
    loop = NULL;
    uncut = true;
    if (differs_again(&first, op, ROW, results))
        return 1;
    uncut = false;
    loop = others_inside;
    do {
        if (differs_again(&first, op, ROW, results))
            return 1;
    } while (next_instruction());
    loop = NULL;
    for (int threads = 2; threads <= 4; threads *= 2) {
        dv_set_threads(threads);
        if (differs_again(&first, op, ROW, results))
            return 1;
    }
    return puts("the fault does not show"), 0;
}
