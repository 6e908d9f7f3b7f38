/* Written for a hidden size of 2048. */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    const float *x = a->x->data;
    float *out = a->out->data;
    for (int64_t row = 0; row < a->x->shape[0]; row++)
        for (int64_t i = 0; i < 2048; i++)
            out[row * 2048 + i] = 2 * x[row * 2048 + i];
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[m n]:T -> out[m n]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
