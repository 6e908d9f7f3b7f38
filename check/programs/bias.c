#include "both.h"

/* The mean of the errors, in units in the last place, away from zero. */
static double bias(const dv_tensor *x, const dv_tensor *y)
{
    const double unit = x->dtype.code == 4 ? 0x1p-7 : x->dtype.bits == 16 ? 0x1p-10 : 0x1p-3;
    double sum = 0, n = 0;
    for (int64_t k = 0; k < dv_numel(x) && k < dv_numel(y); k++) {
        const double a = element(x, k), b = element(y, k), off = (a - b) / ldexp(unit, ilogb(b)) * (b < 0 ? -1 : 1);
        if (!isfinite(b) || fabs(b) < 0x1p-10 || fabs(off) > 2)
            continue;
        sum += off;
        n++;
    }
    return n > 0 ? sum / n : 0;
}

static int question(dv_operator *op, dv_value *results)
{
    static outs a, b;
    both(op, results, &a, &b);
    for (int i = 0; i < a.n && i < b.n; i++)
        if (a.of[i].slot == SLOT && fabs(bias(&a.of[i].t, &b.of[i].t)) > 0.06)
            return fprintf(stderr, "the errors are %.2f units in the last place in the mean\n", bias(&a.of[i].t, &b.of[i].t)), 1;
    return puts("the fault does not show"), 0;
}
