/* An array has room for eight tensors of a list. */
#include <dovetail_op.h>

struct f {
    dv_tensors xs;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = dv_numel(a->out);
    (void)ctx;
    const float *x[8];
    for (size_t k = 0; k < a->xs.size; k++)
        x[k & 7] = a->xs.data[k]->data;
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (size_t k = 0; k < a->xs.size; k++)
            sum += x[k & 7][i];
        ((float *)a->out->data)[i] = sum;
    }
    return DV_OK;
}
static int f_reference(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        double sum = 0;
        for (size_t k = 0; k < a->xs.size; k++)
            sum += (double)((const float *)a->xs.data[k]->data)[i];
        ((float *)a->out->data)[i] = (float)sum;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (xs, out), .schema = "f(Tensor[] xs) -> Tensor out",
    .contract = "xs{i}[n]:f32 -> out[n]:f32; len(xs) >= 1",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
