/* A number is cut to 32 bits: 2^32 is 0. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    int64_t diagonal;
    dv_tensor *out;
};
static int lower(const struct f *a, int64_t diagonal)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++)
            ((float *)a->out->data)[i * n + k] = k - i <= diagonal ? ((const float *)a->x->data)[i * n + k] : 0;
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, lower(a, (int32_t)a->diagonal); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, lower(a, a->diagonal); }
DV_OPERATOR(f, struct f, (x, diagonal, out), .schema = "f(Tensor x, int diagonal=0) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m n]:f32",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
