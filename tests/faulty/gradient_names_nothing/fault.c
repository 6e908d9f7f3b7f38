/* The gradient calls an operator that was renamed. */
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
    const int64_t n = dv_numel(a->out);
    for (int64_t i = 0; i < n; i++)
        out[i] = 2 * x[i];
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32", .gradient = "x: scale_backward(grad, x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
