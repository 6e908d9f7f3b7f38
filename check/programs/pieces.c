#include "outs.h"
#include "order.h"
#include "between.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs first, other;
    if (call_again(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&first, results);
    loop = in_reverse;
    if (!call_again(op, ROW, results))
        take(&other, results);
    loop = NULL;
    if (differ(&first, &other, -1, -1, 0))
        return 1;
    uncut = true;
    if (!call_again(op, ROW, results))
        take(&other, results);
    uncut = false;
    if (differ(&first, &other, -1, -1, 0))
        return 1;
    loop = others_inside;
    do {
        if (!call_again(op, ROW, results))
            take(&other, results);
        if (differ(&first, &other, -1, -1, 0))
            return 1;
    } while (next_instruction());
    loop = NULL;
    for (int threads = 2; threads <= 4; threads *= 2) {
        dv_set_threads(threads);
        if (!call_again(op, ROW, results))
            take(&other, results);
        if (differ(&first, &other, -1, -1, 0))
            return 1;
    }
    return puts("the fault does not show"), 0;
}
