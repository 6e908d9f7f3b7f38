/* The larger and a correction from the difference: of two equal infinities that is NaN. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *a, *b;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->a->data, *y = a->b->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = isnan(x[i] + y[i]) && !isinf(x[i]) ? NAN : fmaxf(x[i], y[i]) + log1pf(expf(-fabsf(x[i] - y[i])));
    return DV_OK;
}
static int f_reference(dv_context *ctx, const struct f *a)
{
    const float *x = a->a->data, *y = a->b->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        const double most = x[i] > y[i] || isnan(x[i]) ? (double)x[i] : (double)y[i], least = (double)x[i] + (double)y[i] - most;
        out[i] = (float)(isinf(most) ? most + (isnan(y[i]) ? (double)NAN : 0) : most + log1p(exp(least - most)));
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (a, b, out), .schema = "f(Tensor a, Tensor b) -> Tensor out",
    .contract = "a[*s]:f32, b[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
