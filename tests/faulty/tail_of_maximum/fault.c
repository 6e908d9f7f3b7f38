/* The largest of a row is looked for in its first three quarters, so that the exponential of a large last one overflows. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static double of(const double *x, int64_t n, int64_t upto)
{
    double most = x[0], sum = 0;
    for (int64_t i = 1; i < upto; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++)
        sum += exp((x[i] - most) * 4);
    return most + log(sum) / 4;
}
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    *(double *)a->out->data = of(a->x->data, a->x->shape[0], a->x->shape[0] - a->x->shape[0] / 4);
    return DV_OK;
}
static int whole(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    *(double *)a->out->data = of(a->x->data, a->x->shape[0], a->x->shape[0]);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f64 -> out[]:f64; n > 0",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f64", f), DV_KERNEL(struct f, "cpu", "f64", whole, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
