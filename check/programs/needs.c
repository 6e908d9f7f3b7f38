#include "gradient.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs o, all, some;
    (void)results;
    forward(op, &o);
    weights = draw_some(elements_of(&o));
    backward(op, wants);
    if (gradient())
        add(&all, 0, gradient());
    for (uint32_t set = 1; set < 1u << (NARGS < 12 ? NARGS : 12); set++) {
        bool wanted[NARGS + 1] = { false };
        for (int i = 0; i < NARGS && i < 12; i++)
            wanted[i] = wants[i] && set >> i & 1;
        if (!wanted[TENSOR_SLOT])
            continue;
        backward(op, wanted);
        some.n = 0;
        if (gradient())
            add(&some, 0, gradient());
        if (some.n != all.n || differ(&all, &some, -1, RTOL, ATOL))
            return fprintf(stderr, "the gradient is another one when not all are wanted\n"), 1;
    }
    return puts("the fault does not show"), 0;
}
