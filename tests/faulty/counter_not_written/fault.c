/* The counter of steps, a tensor of one element, is declared to be written and is not. */
#include <dovetail_op.h>
struct step { dv_tensor *x, *steps; };
static int step(dv_context *ctx, const struct step *a)
{
    (void)ctx;
    const double t = (double)*(const int64_t *)a->steps->data;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->x->data)[i] *= t < 10 ? 0.5f : 0.25f;
    return DV_OK;
}
DV_OPERATOR(step, struct step, (x, steps), .schema = "step_(Tensor(a!) x, Tensor(b!) steps) -> ()",
    .contract = "x[*s]:f32, steps[1]:i64", .kernels = DV_KERNELS(DV_KERNEL(struct step, "cpu", NULL, step)));
DV_LIBRARY(faulty, &dv_op_step);
