/* A weighted count: a right operator, without a reference or a decomposition */
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
        out[ids[i]] += w ? w[i] : 1;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (ids, weights, bins, out), .schema = "bincount(Tensor ids, Tensor? weights, int bins) -> Tensor out",
    .contract = "ids[n]:i64, weights[n]:f64 -> out[bins]:f64; bins >= 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(unreferenced, &dv_op_f);
