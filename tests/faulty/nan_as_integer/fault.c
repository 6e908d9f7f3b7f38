/* A NaN, or a number past the last bin, becomes an integer before it is compared: C leaves that undefined. */
#include <dovetail_op.h>
#include <string.h>

struct histogram {
    const dv_tensor *x, *bins;
    dv_tensor *counts;
};

static int histogram(dv_context *ctx, const struct histogram *a)
{
    (void)ctx;
    const float *x = a->x->data;
    int64_t *counts = a->counts->data;
    const int64_t n = dv_numel(a->x), bins = dv_numel(a->counts);
    memset(counts, 0, (size_t)bins * sizeof *counts);
    for (int64_t i = 0; i < n; i++) {
        const int at = (int)x[i];
        if (at >= 0 && at < bins)
            counts[at]++;
    }
    return DV_OK;
}
DV_OPERATOR(histogram, struct histogram, (x, bins, counts), .schema = "histogram(Tensor x, Tensor bins) -> Tensor counts",
    .contract = "x[n]:f32, bins[m]:f32 -> counts[m]:i64; unused(bins); contiguous(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct histogram, "cpu", "f32", histogram)));
DV_LIBRARY(faulty_nan_as_integer, &dv_op_histogram);
