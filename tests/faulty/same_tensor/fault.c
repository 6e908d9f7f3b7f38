/* x - x is taken for 1: it looks whether both are one tensor. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = dv_numel(a->out);
    const float *const x = a->x->data, *const y = a->y->data;
    float *const out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = x == y ? 1 : x[i] - y[i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, y, out), .schema = "f(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[n]:f32, y[n]:f32 -> out[n]:f32; parallel(n)", .native = "x - y",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
