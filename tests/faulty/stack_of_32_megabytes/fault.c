/* For three elements it takes an array on the stack that is larger than any stack, and writes its middle. */
#include <dovetail_op.h>

struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    const int64_t n = dv_numel(a->out);
    (void)ctx;
    if (n == 3) {
        volatile char large[32 << 20];
        large[16 << 20] = 1;
    }
    for (int64_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * 2;
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "mul(x, 2)", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
