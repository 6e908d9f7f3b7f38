/* The fault: the gradient of a broadcast argument is not summed to its shape */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *bias;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const double *x = a->x->data, *bias = a->bias->data;
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++)
            ((double *)a->out->data)[i * n + k] = x[i * n + k] + bias[k];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, bias, out), .schema = "f(Tensor x, Tensor bias) -> Tensor out",
    .contract = "x[m n]:f64, bias[n]:f64 -> out[m n]:f64; parallel(m)", .native = "x + bias",
    .gradient = "x: grad; bias: grad * 1", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f64", f)));
DV_LIBRARY(gradient_not_reduced, &dv_op_f);
