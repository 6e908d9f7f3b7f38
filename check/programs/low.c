#include "low.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs o, low, wide;
    int differs = 0;
    (void)results;
    forward(op, &o);
    for (int turn = 0; turn < 32; turn++) {
        low.n = wide.n = 0;
        weights = draw_some(elements_of(&o));
        backward(op, wants);
        if (gradient())
            add(&low, 0, gradient());
        change = widen;
        backward(op, wants);
        if (gradient())
            add(&wide, 0, gradient());
        change = NULL;
        int far = low.n != wide.n;
        for (int64_t k = 0; low.n && wide.n && k < dv_numel(&wide.of[0].t); k++)
            far |= apart(element(&low.of[0].t, k), element(&wide.of[0].t, k), 0, ATOL);
        differs += far;
    }
    if (differs >= 2) /* not all weights show it */
        return fprintf(stderr, "the gradient is another one than in f64 at the same numbers\n"), 1;
    return puts("the fault does not show"), 0;
}
