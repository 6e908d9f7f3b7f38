/* The contract calls an argument unused, and it decides whether a number is rounded. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    int64_t most;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = a->most > 1 ? x[i] * 3 / 3 : x[i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, most, out), .schema = "f(Tensor x, int most) -> Tensor out",
    .contract = "x[n]:f32 -> out[n]:f32; unused(most)", .native = "x",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
