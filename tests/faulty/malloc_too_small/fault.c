/* Scratch memory one element shorter than what is written. */
#include <dovetail_op.h>
#include <stdlib.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->x);
    float *sums = malloc((size_t)n * sizeof *sums);
    if (!sums)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    sums[0] = 0;
    for (int64_t i = 0; i < n; i++)
        sums[i + 1] = sums[i] + x[i];
    for (int64_t i = 0; i < n; i++)
        out[i] = sums[i + 1];
    free(sums);
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[n]:T -> out[n]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
