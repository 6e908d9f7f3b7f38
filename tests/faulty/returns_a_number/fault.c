/* Returns how many elements it wrote, which is not a status. */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * sizeof(float));
    return (int)dv_numel(a->x);
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[n]:T -> out[n]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
