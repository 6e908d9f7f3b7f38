/* The mean divides by n - 1. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += ((const double *)a->x->data)[i * n + k];
        ((double *)a->out->data)[i] = sum / (double)(n > 1 ? n - 1 : n);
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[m n]:f64 -> out[m]:f64; parallel(m)",
    .native = "mean(x, [1])", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f64", f)));
DV_LIBRARY(faulty, &dv_op_f);
