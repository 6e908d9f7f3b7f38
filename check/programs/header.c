#include "call.h"

static int question(dv_operator *op, dv_value *results)
{
    if (call(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    for (int i = 0; i < NRESULTS; i++) {
        const result *r = results[i].type == DV_VALUE_TENSOR ? (const void *)results[i].as.tensor : NULL;
        if (r && (r->t.data != r->made || r->t.shape != r->dims))
            return fprintf(stderr, "the kernel changed the header of result %d\n", i), 1;
    }
    return puts("the fault does not show"), 0;
}
