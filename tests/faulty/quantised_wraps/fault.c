/* Rounds to a byte without clamping: 130 becomes -126. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    double scale;
    dv_tensor *out;
};
static int quantise(const struct f *a, bool clamps)
{
    const float *x = a->x->data;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        float v = rintf(x[i] * (float)a->scale);
        v = v == v ? v : 0;
        if (clamps || !(fabsf(v) < 1e9f))
            v = v < -128 ? -128 : v > 127 ? 127 : v;
        ((int8_t *)a->out->data)[i] = (int8_t)(int32_t)v;
    }
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, quantise(a, false); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, quantise(a, true); }
DV_OPERATOR(f, struct f, (x, scale, out), .schema = "f(Tensor x, float scale) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:i8; parallel(*s)",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
