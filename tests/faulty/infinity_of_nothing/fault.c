/* log of a sum of exponentials: of a row of -infinity alone it is NaN, where the reference has -infinity. */
#include <dovetail_op.h>
#include <math.h>
struct lse {
    const dv_tensor *x;
    dv_tensor *out;
};
static int run(dv_context *ctx, const struct lse *a)
{
    const int64_t d = a->x->shape[1];
    (void)ctx;
    for (int64_t r = 0; r < a->x->shape[0]; r++) {
        const float *x = (const float *)a->x->data + r * d;
        float m = -INFINITY, s = 0;
        for (int64_t i = 0; i < d; i++)
            m = x[i] > m ? x[i] : m;
        if (m == INFINITY) {
            bool nan = false;
            for (int64_t i = 0; i < d; i++)
                nan |= isnan(x[i]);
            ((float *)a->out->data)[r] = nan ? NAN : m;
            continue;
        }
        for (int64_t i = 0; i < d; i++)
            s += expf(x[i] - m);
        ((float *)a->out->data)[r] = m + logf(s);
    }
    return DV_OK;
}
static int ref(dv_context *ctx, const struct lse *a)
{
    const int64_t d = a->x->shape[1];
    (void)ctx;
    for (int64_t r = 0; r < a->x->shape[0]; r++) {
        const float *x = (const float *)a->x->data + r * d;
        double m = -INFINITY, s = 0;
        for (int64_t i = 0; i < d; i++)
            m = isnan(x[i]) || x[i] > m ? (double)x[i] : m;
        if (isinf(m)) {
            for (int64_t i = 0; i < d; i++)
                m = isnan(x[i]) ? NAN : m;
            ((float *)a->out->data)[r] = (float)m;
            continue;
        }
        for (int64_t i = 0; i < d; i++)
            s += exp(x[i] - m);
        ((float *)a->out->data)[r] = (float)(m + log(s));
    }
    return DV_OK;
}
DV_OPERATOR(lse, struct lse, (x, out), .schema = "lse(Tensor x) -> Tensor out",
    .contract = "x[n d]:f32 -> out[n]:f32; parallel(n); d > 0",
    .gradient = "x: unsqueeze(grad, 1) * exp(x - unsqueeze(result, 1))",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct lse, "cpu", "f32", run), DV_KERNEL(struct lse, "cpu", "f32", ref, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_lse);
