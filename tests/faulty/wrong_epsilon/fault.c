/* Eps is added after the square root. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    double eps;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        const float *x = (const float *)a->x->data + i * n;
        float *out = (float *)a->out->data + i * n;
        double sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += (double)x[k] * (double)x[k];
        const double scale = 1 / (sqrt(sum / (double)n) + a->eps);
        for (int64_t k = 0; k < n; k++)
            out[k] = (float)((double)x[k] * scale);
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, eps, out), .schema = "f(Tensor x, float eps=0.01) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m n]:f32; parallel(m)", .native = "x * rsqrt(mean(x * x, [-1], True) + eps)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
