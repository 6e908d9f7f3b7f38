/* The second part of the mask is not looked at: without a gradient of x there is none of y either. */
#include <dovetail_op.h>
struct times {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
struct times_backward {
    const dv_tensor *grad, *x, *y;
    dv_bools mask;
    dv_tensor *grad_x, *grad_y;
};

static int times_f64(dv_context *ctx, const struct times *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = ((const double *)a->x->data)[i] * ((const double *)a->y->data)[i];
    return DV_OK;
}

static int times_backward_f64(dv_context *ctx, const struct times_backward *a)
{
    const double *grad = a->grad->data, *x = a->x->data, *y = a->y->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        ((double *)a->grad_x->data)[i] = a->mask.data[0] ? grad[i] * y[i] : 0;
        ((double *)a->grad_y->data)[i] = a->mask.data[0] ? grad[i] * x[i] : 0;
    }
    return DV_OK;
}

DV_OPERATOR(times, struct times, (x, y, out), .schema = "times(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:f64, y[*s]:f64 -> out[*s]:f64", .gradient = "x, y: times_backward(grad, x, y, [needs(x), needs(y)])",
    .kernels = DV_KERNELS(DV_KERNEL(struct times, "cpu", "f64", times_f64)));
DV_OPERATOR(times_backward, struct times_backward, (grad, x, y, mask, grad_x, grad_y),
    .schema = "times_backward(Tensor grad, Tensor x, Tensor y, bool[2] mask) -> (Tensor grad_x, Tensor grad_y)",
    .contract = "grad[*s]:f64, x[*s]:f64, y[*s]:f64 -> grad_x[*s]:f64, grad_y[*s]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct times_backward, "cpu", "f64", times_backward_f64)));
DV_LIBRARY(faulty, &dv_op_times, &dv_op_times_backward);
