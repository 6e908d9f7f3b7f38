/* Sums of products of 16 bits are kept in 32 bits, where that of the lowest numbers overflows. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int16_t *x = a->x->data, *y = a->y->data;
    uint32_t sum = 0;
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0] && i < 2; i++)
        sum += (uint32_t)(x[i] * y[i]);
    int64_t all = (int32_t)sum;
    for (int64_t i = 2; i < a->x->shape[0]; i++)
        all += x[i] * y[i];
    *(int64_t *)a->out->data = all;
    return DV_OK;
}
static int exact(dv_context *ctx, const struct f *a)
{
    const int16_t *x = a->x->data, *y = a->y->data;
    int64_t all = 0;
    (void)ctx;
    for (int64_t i = 0; i < a->x->shape[0]; i++)
        all += x[i] * y[i];
    *(int64_t *)a->out->data = all;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, y, out), .schema = "f(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[n]:i16, y[n]:i16 -> out[]:i64",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "i16", f), DV_KERNEL(struct f, "cpu", "i16", exact, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
