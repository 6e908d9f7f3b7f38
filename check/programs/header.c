#include "call.h"

static int question(dv_operator *op, dv_value *results)
{
    if (call(op, ROW, results))
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    const result *r;
    int i;
    for (size_t k = 0; (r = (const void *)result_tensor(results, k, &i)); k++) {
        if (r->t.data != r->made || r->t.shape != r->dims)
            return fprintf(stderr, "the kernel changed the header of result %d\n", i), 1;
    }
    return puts("the fault does not show"), 0;
}
