/* Integers of 64 bits are added in double: past 2^53 the last bits are lost. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((int64_t *)a->out->data)[i] = (int64_t)((double)((const int64_t *)a->x->data)[i] +
            (double)((const int64_t *)a->y->data)[i]);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, y, out), .schema = "f(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:i64, y[*s]:i64 -> out[*s]:i64; parallel(*s)", .native = "x + y",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i64", f)));
DV_LIBRARY(faulty, &dv_op_f);
