/* The row for multiples of eight forgets eps. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    double eps;
    dv_tensor *out;
};
static int norm(const struct f *a, double eps)
{
    const int64_t n = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)a->x->data + r * n;
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)x[i] * (double)x[i];
        for (int64_t i = 0; i < n; i++)
            ((float *)a->out->data)[r * n + i] = (float)((double)x[i] / sqrt(sum / (double)n + eps));
    }
    return DV_OK;
}
static int f_eights(dv_context *ctx, const struct f *a) { return (void)ctx, norm(a, 0); }
static int f_any(dv_context *ctx, const struct f *a) { return (void)ctx, norm(a, a->eps); }
DV_OPERATOR(f, struct f, (x, eps, out), .schema = "f(Tensor x, float eps=1e-5) -> Tensor out",
    .contract = "x[*s n]:f32 -> out[*s n]:f32; eps >= 0; parallel(*s)",
    .native = "x * rsqrt(mean(x * x, [-1], keepdim=True) + eps)",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f_eights, .when = "n % 8 == 0"), DV_KERNEL(struct f, "cpu", "f32", f_any)));
DV_LIBRARY(faulty, &dv_op_f);
