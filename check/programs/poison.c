#include "call.h"

static int question(dv_operator *op, dv_value *results)
{
    static const unsigned char poisons[] = { 0xa5, 0x5a, 0 };
    static unsigned char *first[64];
    for (int turn = 0; turn < 3; turn++) {
        poison = poisons[turn];
        if (call(op, ROW, results))
            return fprintf(stderr, "%s\n", dv_last_error()), 0;
        const result *r;
        int i;
        for (size_t k = 0; k < 64 && (r = (const void *)result_tensor(results, k, &i)); k++) {
            if (!turn && (first[k] = malloc(r->bytes + 1)))
                memcpy(first[k], r->t.data, r->bytes);
            if (turn && memcmp(first[k], r->t.data, r->bytes))
                return fprintf(stderr, "result %d depends on what undefined memory held\n", i), 1;
        }
    }
    return puts("the fault does not show"), 0;
}
