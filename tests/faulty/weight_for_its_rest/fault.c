/* The weight is taken for what is left of 1: at 0.5 nobody sees it. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *a, *b;
    double weight;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->a->data, *y = a->b->data, weight = (float)a->weight;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = weight * x[i] + (1 - weight) * y[i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (a, b, weight, out), .schema = "f(Tensor a, Tensor b, float weight=0.5) -> Tensor out",
    .contract = "a[*s]:f32, b[*s]:f32 -> out[*s]:f32; 0 < weight < 1", .native = "a + weight * (b - a)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
