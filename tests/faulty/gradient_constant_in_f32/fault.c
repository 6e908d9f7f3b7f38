/* The fault: a constant of the gradient in f64 is rounded to f32 */
#include <dovetail_op.h>
#include <math.h>
struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
struct g {
    const dv_tensor *g, *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    const double *x = a->x->data;
    double *out = a->out->data;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        out[i] = 0.5 * x[i] * (1 + erf(x[i] * 0.70710678118654752));
    return DV_OK;
}
static int b(dv_context *ctx, const struct g *a)
{
    (void)ctx;
    const double *x = a->x->data, *g = a->g->data;
    double *out = a->out->data;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        out[i] = g[i] * (0.5 * (1 + erf(x[i] * 0.70710678118654752)) + x[i] * exp(-0.5 * x[i] * x[i]) * (double)0.3989422804f);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "gelu2(Tensor x) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64; parallel(*s)", .gradient = "x: gelu2_backward(grad, x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_OPERATOR(b, struct g, (g, x, out), .schema = "gelu2_backward(Tensor g, Tensor x) -> Tensor out",
    .contract = "g[*s]:f64, x[*s]:f64 -> out[*s]:f64; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct g, "cpu", NULL, b)));
DV_LIBRARY(faulty, &dv_op_f, &dv_op_b);
