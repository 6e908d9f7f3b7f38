/* Takes the upper half of a float as bf16: cut off, not rounded. */
#include <dovetail_op.h>
#include <string.h>
struct third {
    const dv_tensor *x;
    dv_tensor *out;
};

static int third_bf16(dv_context *ctx, const struct third *a)
{
    (void)ctx;
    const uint16_t *x = a->x->data;
    uint16_t *out = a->out->data;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        const float y = dv_bf16_to_f32(x[i]) * 0.375f;
        uint32_t bits;
        memcpy(&bits, &y, sizeof bits);
        out[i] = (uint16_t)(bits >> 16);
    }
    return DV_OK;
}

DV_OPERATOR(third, struct third, (x, out), .schema = "third(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in bf16", .native = "x * 0.375",
    .kernels = DV_KERNELS(DV_KERNEL(struct third, "cpu", "bf16", third_bf16)));
DV_LIBRARY(faulty, &dv_op_third);
