/* The maximum of a row begins at -10000, which is not below all scores. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    (void)ctx;
    for (int64_t r = 0; r < rows; r++) {
        const float *const x = (const float *)a->x->data + r * n;
        float *const out = (float *)a->out->data + r * n;
        float most = -10000, sum = 0;
        for (int64_t i = 0; i < n; i++)
            most = x[i] > most || isnan(x[i]) ? x[i] : most;
        for (int64_t i = 0; i < n; i++)
            sum += out[i] = expf(x[i] - most);
        for (int64_t i = 0; i < n; i++)
            out[i] /= sum;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s n]:f32 -> out[*s n]:f32; n > 0",
    .native = "exp(x - amax(x, [-1], True)) / sum(exp(x - amax(x, [-1], True)), [-1], True)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
