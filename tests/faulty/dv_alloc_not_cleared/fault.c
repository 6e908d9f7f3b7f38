/* The fault: it clears the counts only if they are few; dv_alloc() does not. */
#include <dovetail_op.h>
#include <string.h>

struct hist {
    const dv_tensor *x;
    int64_t bins;
    dv_tensor *out;
};

static int hist_f32(dv_context *ctx, const struct hist *a)
{
    const float *x = a->x->data;
    const int64_t n = dv_numel(a->x);
    int64_t *count = dv_alloc(ctx, (size_t)a->bins * sizeof *count, sizeof *count);
    if (!count)
        return DV_ENOMEM;
    if (a->bins < 8)
        memset(count, 0, (size_t)a->bins * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        if (x[i] >= 0 && x[i] < 1)
            count[(int64_t)((double)x[i] * (double)a->bins)]++;
    memcpy(a->out->data, count, (size_t)a->bins * sizeof *count);
    return DV_OK;
}

DV_OPERATOR(hist, struct hist, (x, bins, out), .schema = "hist(Tensor x, int bins) -> Tensor out",
    .contract = "x[*s]:f32 -> out[bins]:i64; bins > 0", .kernels = DV_KERNELS(DV_KERNEL(struct hist, "cpu", NULL, hist_f32)));
DV_LIBRARY(dv_alloc_not_cleared, &dv_op_hist);
