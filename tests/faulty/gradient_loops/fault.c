/* The backward operator does not end where there are more than two elements. */
#include <dovetail_op.h>

struct square {
    const dv_tensor *x;
    dv_tensor *out;
};
static int square_f64(dv_context *ctx, const struct square *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        ((double *)a->out->data)[i] = ((const double *)a->x->data)[i] * ((const double *)a->x->data)[i];
    return DV_OK;
}
struct square_back {
    const dv_tensor *grad, *x;
    dv_tensor *out;
};
static int square_back_f64(dv_context *ctx, const struct square_back *a)
{
    const int64_t n = dv_numel(a->out);
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        ((double *)a->out->data)[i] = 2 * ((const double *)a->grad->data)[i] * ((const double *)a->x->data)[i];
    for (volatile int more = 1; n > 2 && more;)
        ;
    return DV_OK;
}
DV_OPERATOR(square, struct square, (x, out), .schema = "square(Tensor x) -> Tensor out", .contract = "x[*s]:f64 -> out[*s]:f64",
    .native = "mul(x, x)", .gradient = "x: square_back(grad, x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct square, "cpu", "f64", square_f64)));
DV_OPERATOR(square_back, struct square_back, (grad, x, out), .schema = "square_back(Tensor grad, Tensor x) -> Tensor out",
    .contract = "grad[*s]:f64, x[*s]:f64 -> out[*s]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct square_back, "cpu", "f64", square_back_f64)));
DV_LIBRARY(faulty, &dv_op_square, &dv_op_square_back);
