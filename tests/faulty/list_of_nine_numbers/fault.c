/* Eight weights are kept: the ninth tensor of a list gets the first again. */
#include <dovetail_op.h>

struct f {
    dv_tensors xs;
    dv_floats weights;
    dv_tensor *out;
};
static int sum(const struct f *a, size_t mask)
{
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        double all = 0;
        for (size_t k = 0; k < a->xs.size; k++)
            all += a->weights.data[k & mask] * (double)((const float *)a->xs.data[k]->data)[i];
        ((float *)a->out->data)[i] = (float)all;
    }
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, sum(a, 7); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, sum(a, SIZE_MAX); }
DV_OPERATOR(f, struct f, (xs, weights, out), .schema = "f(Tensor[] xs, float[] weights) -> Tensor out",
    .contract = "xs{i}[n]:f32, weights[len(xs)] -> out[n]:f32; len(xs) > 0",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
