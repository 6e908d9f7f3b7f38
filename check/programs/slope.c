#include "slope.h"

static double gradient_along(dv_operator *op)
{
    double sum = 0;
    backward(op, wants);
    for (int64_t k = 0, n = gradient() ? dv_numel(gradient()) : 0; k < n; k++)
        sum += element(gradient(), k) * direction[k];
    return sum;
}

static int question(dv_operator *op, dv_value *results) { return (void)results, ask(op, gradient_along, "gradient"); }
