/* The fault: what is masked gets the infinity of the other sign. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x, *mask;
    dv_tensor *out;
};
static int masked(const struct f *a, float by)
{
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const bool *)a->mask->data)[i] ? by : ((const float *)a->x->data)[i];
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, masked(a, INFINITY); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, masked(a, -INFINITY); }
DV_OPERATOR(f, struct f, (x, mask, out), .schema = "f(Tensor x, Tensor mask) -> Tensor out",
    .contract = "x[n]:f32, mask[n]:bool -> out[n]:f32; parallel(n)",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
