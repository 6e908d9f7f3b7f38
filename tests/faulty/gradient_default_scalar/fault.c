/* The gradient is that of the default: beta is forgotten. */
#include <dovetail_op.h>
#include <math.h>
struct softplus {
    const dv_tensor *x;
    double beta;
    dv_tensor *out;
};

static int softplus_f64(dv_context *ctx, const struct softplus *a)
{
    const double *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((double *)a->out->data)[i] = log1p(exp(a->beta * x[i]));
    return DV_OK;
}

DV_OPERATOR(softplus, struct softplus, (x, beta, out), .schema = "softplus(Tensor x, float beta=1) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64", .gradient = "x: grad * sigmoid(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct softplus, "cpu", "f64", softplus_f64)));
DV_LIBRARY(faulty, &dv_op_softplus);
