/* The fault: the kernel of the backward operator is wrong; its formula and its names are right */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
struct f_backward {
    const dv_tensor *grad, *out;
    dv_tensor *grad_x;
};

static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = 1 / (1 + exp(-((const double *)a->x->data)[i]));
    return DV_OK;
}

static int f_backward(dv_context *ctx, const struct f_backward *a)
{
    const double *out = a->out->data, *grad = a->grad->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        ((double *)a->grad_x->data)[i] = grad[i] * out[i] * (1 + out[i]);
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f64 -> out[*s]:f64; parallel(*s)",
    .gradient = "x: f_backward(grad, result)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f64", f)));
DV_OPERATOR(f_backward, struct f_backward, (grad, out, grad_x), .schema = "f_backward(Tensor grad, Tensor out) -> Tensor grad_x",
    .contract = "grad[*s]:f64, out[*s]:f64 -> grad_x[*s]:f64; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f_backward, "cpu", "f64", f_backward)));
DV_LIBRARY(backward_kernel_wrong, &dv_op_f, &dv_op_f_backward);
