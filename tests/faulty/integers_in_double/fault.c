/* The largest of 64-bit integers is found in double: past 2^53 the last bits are lost. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t *x = a->x->data;
    double most = (double)x[0];
    (void)ctx;
    for (int64_t i = 1, n = dv_numel(a->x); i < n; i++)
        most = (double)x[i] > most ? (double)x[i] : most;
    *(int64_t *)a->out->data = most >= 0x1p63 ? INT64_MAX : (int64_t)most;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:i64 -> out[]:i64; n > 0",
    .native = "amax(x, [0])", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i64", f)));
DV_LIBRARY(faulty, &dv_op_f);
