/* The fault: where the largest element is infinite, infinity is subtracted from infinity. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int sums(const struct f *a, bool guarded)
{
    const int64_t n = a->x->shape[1];
    for (int64_t r = 0; r < a->x->shape[0]; r++) {
        const float *x = (const float *)a->x->data + r * n;
        float most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++)
            most = x[i] > most || isnan(x[i]) ? x[i] : most;
        for (int64_t i = 0; i < n && !(guarded && isinf(most)); i++)
            sum += expf(x[i] - most);
        ((float *)a->out->data)[r] = guarded && isinf(most) ? most : most + logf(sum);
    }
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, sums(a, false); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, sums(a, true); }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[m n]:f32 -> out[m]:f32; parallel(m)",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
