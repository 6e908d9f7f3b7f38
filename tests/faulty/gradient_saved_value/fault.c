/* The gradient is written with the argument as it was before the call; the operator has overwritten it by then. */
#include <dovetail_op.h>
struct square_ { dv_tensor *x; };

static int square_f64(dv_context *ctx, const struct square_ *a)
{
    double *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        x[i] *= x[i];
    return DV_OK;
}

DV_OPERATOR(square_, struct square_, (x), .schema = "square_(Tensor(a!) x) -> Tensor(a!)", .contract = "x[*s]:f64",
    .gradient = "x: grad * 2 * x", .kernels = DV_KERNELS(DV_KERNEL(struct square_, "cpu", "f64", square_f64)));
DV_LIBRARY(faulty, &dv_op_square_);
