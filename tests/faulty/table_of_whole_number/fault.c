/* The fault: the table is kept for all numbers with the same integer part. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    double theta;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    static _Thread_local double table[64];
    static _Thread_local int whole;
    const int64_t n = a->x->shape[0];
    (void)ctx;
    for (int64_t i = 0; i < 64 && whole != (int)a->theta; i++)
        table[i] = pow(a->theta, -(double)i / 64);
    whole = (int)a->theta;
    for (int64_t i = 0; i < n; i++)
        ((double *)a->out->data)[i] = ((const double *)a->x->data)[i] * table[i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, theta, out), .schema = "f(Tensor x, float theta=10000.0) -> Tensor out",
    .contract = "x[n]:f64 -> out[n]:f64; n <= 64; theta > 1; theta < 1e6",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f64", f)));
DV_LIBRARY(faulty, &dv_op_f);
