/* Declares one element less than it uses. */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    const float *x = a->x->data;
    float *out = a->out->data, *sums = ctx->workspace;
    const int64_t n = dv_numel(a->x);
    if (!n)
        return DV_OK;
    sums[0] = 0;
    for (int64_t i = 0; i < n; i++)
        sums[i + 1] = sums[i] + x[i];
    for (int64_t i = 0; i < n; i++)
        out[i] = sums[i + 1];
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[n]:T -> out[n]:T; T in f32; workspace = 4*n",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
