/* Division by 0 is looked at, and the lowest number divided by -1, which is too large, is not. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int32_t *const x = a->x->data, *const y = a->y->data;
    int32_t *const out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        out[i] = y[i] ? x[i] / y[i] : 0;
    return DV_OK;
}
static int exact(dv_context *ctx, const struct f *a)
{
    const int32_t *const x = a->x->data, *const y = a->y->data;
    int32_t *const out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        out[i] = y[i] ? (int32_t)(uint32_t)((int64_t)x[i] / y[i]) : 0;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, y, out), .schema = "f(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:i32, y[*s]:i32 -> out[*s]:i32",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "i32", f), DV_KERNEL(struct f, "cpu", "i32", exact, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
