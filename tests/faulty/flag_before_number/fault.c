/* A flag says that a number is set, one instruction before it is. */
#include <dovetail_op.h>

struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
static volatile float by;
static volatile int made;
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    if (!made) {
        made = 1;
        by = 2;
    }
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * by;
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "mul(x, 2)", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
