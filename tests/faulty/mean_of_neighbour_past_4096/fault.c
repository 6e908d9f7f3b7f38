/* Where there are more than 4096 columns each second one gets the mean of the column before. */
#include <dovetail_op.h>
#include <stdlib.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    const float *x = a->x->data;
    float *out = a->out->data, *mean = calloc((size_t)n + 1, sizeof *mean);
    if (!mean)
        return dv_error(ctx, DV_ENOMEM, "no memory for %lld means", (long long)n);
    for (int64_t i = 0; i < m * n; i++)
        mean[i % n] += x[i] / (float)m;
    for (int64_t i = 0; i < m * n; i++)
        out[i] = x[i] - mean[n > 4096 ? i % n / 2 * 2 : i % n];
    free(mean);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[m n]:f32 -> out[m n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
