/* The place of the nearest element is computed with a ratio that is rounded to 24 bits. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    int64_t size;
    dv_tensor *out;
};
static int64_t place_of(int64_t i, int64_t n, int64_t size) { return i * n / size; }
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[0];
    const float scale = (float)n / (float)a->size;
    (void)ctx;
    for (int64_t i = 0; i < a->size; i++) {
        const int64_t from = (int64_t)((float)i * scale);
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[from < n ? from : n - 1];
    }
    return DV_OK;
}
static int f_reference(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0; i < a->size; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[place_of(i, a->x->shape[0], a->size)];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, size, out), .schema = "f(Tensor x, SymInt size) -> Tensor out",
    .contract = "x[n]:f32 -> out[size]:f32; size > 0; n > 0",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
