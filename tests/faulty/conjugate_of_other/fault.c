/* The fault: of a product of complex numbers the other factor is conjugated. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int product(const struct f *a, double sign)
{
    const double *x = a->x->data, *y = a->y->data;
    double *out = a->out->data;
    for (int64_t i = 0, n = 2 * dv_numel(a->x); i < n; i += 2) {
        out[i] = x[i] * y[i] + x[i + 1] * y[i + 1];
        out[i + 1] = sign * (x[i] * y[i + 1] - x[i + 1] * y[i]);
    }
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, product(a, -1); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, product(a, 1); }
DV_OPERATOR(f, struct f, (x, y, out), .schema = "f(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[n]:c128, y[n]:c128 -> out[n]:c128; parallel(n)",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "c128", f), DV_KERNEL(struct f, "cpu", "c128", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
