/* Takes rows that lie apart, and writes the mutated argument as if they did not. */
#include <dovetail_op.h>
struct fill {
    dv_tensor *x;
    double value;
};
static int fill_f32(dv_context *ctx, const struct fill *a)
{
    float *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        x[i] = (float)a->value;
    return DV_OK;
}
DV_OPERATOR(fill, struct fill, (x, value), .schema = "fill(Tensor(a!) x, float value) -> ()", .contract = "x[m n]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct fill, "cpu", "f32", fill_f32, .takes = "strided(x)")));
DV_LIBRARY(faulty, &dv_op_fill);
