/* The row takes bf16 and writes elements of four bytes. */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    const uint16_t *x = a->x->data;
    float *out = a->out->data;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        out[i] = 2 * dv_bf16_to_f32(x[i]);
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[n]:T -> out[n]:T; T in bf16",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "bf16", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
