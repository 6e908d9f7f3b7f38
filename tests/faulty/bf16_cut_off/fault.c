/* The fault: bf16 results are cut off, and nothing says what they should be */
#include <dovetail_elementwise.h>
#include <string.h>
struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int of_bf16(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const float x = (float)dv_get_f64(a->x->data, i, DV_DTYPE_bf16), y = x * (1 - x) * 0.7f;
        uint32_t bits;
        memcpy(&bits, &y, 4);
        ((uint16_t *)a->out->data)[i] = (uint16_t)(bits >> 16);
    }
    return DV_OK;
}
static int of_f32(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const float x = ((const float *)a->x->data)[i];
        ((float *)a->out->data)[i] = x * (1 - x) * 0.7f;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32 bf16; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "bf16", of_bf16), DV_KERNEL(struct f, "cpu", "f32", of_f32)));
DV_LIBRARY(faulty, &dv_op_f);
