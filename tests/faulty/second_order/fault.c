/* The fault: the first derivative is right; the gradient of the backward operator itself has a term too few */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
struct f_backward {
    const dv_tensor *g, *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const double *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = x[i] * x[i] * x[i];
    return DV_OK;
}

static int f_backward(dv_context *ctx, const struct f_backward *a)
{
    const double *x = a->x->data, *g = a->g->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = 3 * g[i] * x[i] * x[i];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f64 -> out[*s]:f64; parallel(*s)",
    .gradient = "x: f_backward(grad, x)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f64", f)));
DV_OPERATOR(f_backward, struct f_backward, (g, x, out), .schema = "f_backward(Tensor g, Tensor x) -> Tensor out",
    .contract = "g[*s]:f64, x[*s]:f64 -> out[*s]:f64; parallel(*s)", .gradient = "g: f_backward(grad, x); x: 3 * grad * g * x",
    .kernels = DV_KERNELS(DV_KERNEL(struct f_backward, "cpu", "f64", f_backward)));
DV_LIBRARY(second_order, &dv_op_f, &dv_op_f_backward);
