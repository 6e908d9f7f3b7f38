/* The fault: a NaN is cut off to 16 bits, and one whose fraction is in the others becomes infinity. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const uint32_t bits = ((const uint32_t *)a->x->data)[i], finite = (bits & 0x7f800000) != 0x7f800000;
        ((uint16_t *)a->out->data)[i] = (uint16_t)((bits + (finite ? 0x7fff + (bits >> 16 & 1) : 0)) >> 16);
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:bf16",
    .native = "to(x, bf16)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
