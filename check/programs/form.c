#include "gradient.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs o;
    (void)results;
    forward(op, &o);
    weights = draw_some(elements_of(&o));
    backward(op, wants);
    const dv_tensor *g = gradient(), *t = tensor(TENSOR);
    if (g && (g->ndim != t->ndim || memcmp(g->shape, t->shape, sizeof *g->shape * (size_t)g->ndim)))
        return fprintf(stderr, "the gradient has another shape than the argument\n"), 1;
    if (g && AXIS && dv_dtype_key(g->dtype) != dv_dtype_key(t->dtype))
        return fprintf(stderr, "the gradient is %s, and the argument %s\n", dv_dtype_name(g->dtype), dv_dtype_name(t->dtype)), 1;
    return puts("the fault does not show"), 0;
}
