/* The distance of two bytes: the difference wraps before it is made positive. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int distance(const struct f *a, bool wide)
{
    const uint8_t *x = a->x->data, *y = a->y->data;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        const int apart = wide ? x[i] - y[i] : (int8_t)(uint8_t)(x[i] - y[i]);
        ((uint8_t *)a->out->data)[i] = (uint8_t)(apart < 0 ? -apart : apart);
    }
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, distance(a, false); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, distance(a, true); }
DV_OPERATOR(f, struct f, (x, y, out), .schema = "f(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:u8, y[*s]:u8 -> out[*s]:u8; parallel(*s)",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "u8", f), DV_KERNEL(struct f, "cpu", "u8", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
