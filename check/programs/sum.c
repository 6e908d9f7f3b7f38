#include "cut.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs whole, part[2];
    if (take_parts(op, results, &whole, part))
        return 0;
    for (int i = 0; i < whole.n; i++)
        for (int64_t k = 0; whole.of[i].slot == SLOT && k < dv_numel(&whole.of[i].t); k++) {
            const double w = element(&whole.of[i].t, k), a = element(&part[0].of[i].t, k), b = element(&part[1].of[i].t, k);
            if (apart(a + b, w, 0, ATOL))
                return fprintf(stderr, "element %lld: %.9g and %.9g, and of the whole %.9g\n", (long long)k, a, b, w), 1;
        }
    return puts("the fault does not show"), 0;
}
