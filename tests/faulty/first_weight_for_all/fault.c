/* The fault: the first weight is taken for all, and nothing says what it should be */
#include <dovetail_op.h>
#include <string.h>
struct f {
    const dv_tensor *ids, *weights;
    int64_t bins;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->ids->shape[0];
    const int64_t *ids = a->ids->data;
    double *out = a->out->data;
    const double *w = a->weights ? a->weights->data : NULL;
    memset(out, 0, sizeof(double) * (size_t)a->bins);
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= a->bins)
            return dv_error(ctx, DV_EINVAL, "id %lld is outside", (long long)ids[i]);
        out[ids[i]] += w ? w[0] : 1;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (ids, weights, bins, out), .schema = "bincount(Tensor ids, Tensor? weights, int bins) -> Tensor out",
    .contract = "ids[n]:i64, weights[n]:f64 -> out[bins]:f64; bins >= 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
