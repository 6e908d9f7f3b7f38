/* Without elements there is no workspace either, and its first element is written. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data, *sums = ctx->workspace;
    const int64_t n = dv_numel(a->x);
    sums[0] = 0;
    for (int64_t i = 0; i < n; i++)
        sums[i + 1] = sums[i] + x[i];
    for (int64_t i = 0; i < n; i++)
        out[i] = sums[i + 1];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32; workspace = 8*n",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
