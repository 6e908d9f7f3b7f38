#include "call.h"

static int question(dv_operator *op, dv_value *results)
{
    call(op, ROW, results);
    for (size_t i = 0; i < nbuffers; i++)
        if (beside(&buffers[i]))
            return fprintf(stderr, "a byte beside a buffer of %zu bytes was written\n", buffers[i].bytes), 1;
    return puts("the fault does not show"), 0;
}
