#include "both.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs a, b;
    both(op, results, &a, &b);
    return differ(&a, &b, SLOT, RTOL, ATOL) ? 1 : (puts("the fault does not show"), 0);
}
