#include "call.h"

static int question(dv_operator *op, dv_value *results)
{
    static unsigned char *first[NRESULTS + 1];
    for (int turn = 0; turn < 2; turn++) {
        poison = turn ? 0x5a : 0xa5;
        if (call(op, ROW, results))
            return fprintf(stderr, "%s\n", dv_last_error()), 0;
        for (int i = 0; i < NRESULTS; i++) {
            const result *r = results[i].type == DV_VALUE_TENSOR ? (const void *)results[i].as.tensor : NULL;
            if (r && !turn && (first[i] = malloc(r->bytes + 1)))
                memcpy(first[i], r->t.data, r->bytes);
            if (r && turn && memcmp(first[i], r->t.data, r->bytes))
                return fprintf(stderr, "result %d depends on what undefined memory held\n", i), 1;
        }
    }
    return puts("the fault does not show"), 0;
}
