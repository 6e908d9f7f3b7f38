/* The fault: what 512 elements hand on to the next is kept in float, in f64 too */
#include <dovetail_op.h>
struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    const double *x = a->x->data;
    double *out = a->out->data;
    for (int64_t r = 0; r < m; r++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) {
            out[r * n + j] = sum += x[r * n + j];
            sum = j % 512 == 511 ? (float)sum : sum;
        }
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[m n]:f64 -> out[m n]:f64; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f64", f)));
DV_LIBRARY(faulty, &dv_op_f);
