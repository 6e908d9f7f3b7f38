/* 32-bit integers are compared as float, which takes several large neighbours for one. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int32_t *x = a->x->data;
    int32_t most = x[0];
    (void)ctx;
    for (int64_t i = 1, n = dv_numel(a->x); i < n; i++)
        most = (float)x[i] > (float)most ? x[i] : most;
    *(int32_t *)a->out->data = most;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:i32 -> out[]:i32; n > 0",
    .native = "amax(x, [0])", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i32", f)));
DV_LIBRARY(faulty, &dv_op_f);
