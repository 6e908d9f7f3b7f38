#include "slope.h"

static int question(dv_operator *op, dv_value *results)
{
    static outs o;
    int differs = 0, smooth = 0;
    (void)results;
    forward(op, &o);
    for (int turn = 0; turn < 8; turn++) {
        double slope, allowed, sum = 0;
        weights = draw_some(elements_of(&o));
        direction = draw_some(dv_numel(tensor(TENSOR)));
        if (!find_slope(op, &slope, &allowed))
            continue;
        backward(op, wants);
        for (int64_t k = 0, n = gradient() ? dv_numel(gradient()) : 0; k < n; k++)
            sum += element(gradient(), k) * direction[k];
        smooth++;
        differs += !(fabs(sum - slope) <= allowed);
        fprintf(stderr, "the gradient gives %.9g, and finite differences %.9g\n", sum, slope);
    }
    if (2 * differs > smooth)
        return 1;
    return puts("the fault does not show"), 0;
}
