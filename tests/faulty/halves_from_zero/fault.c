/* The fault: halves are rounded away from zero, and the specification says to even. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int to_int(const struct f *a, bool away)
{
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const float x = ((const float *)a->x->data)[i], rounded = away ? roundf(x) : rintf(x);
        ((int8_t *)a->out->data)[i] = (int8_t)(rounded > 127 ? 127 : rounded > -128 ? rounded : -128);
    }
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, to_int(a, true); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, to_int(a, false); }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:i8; parallel(*s)",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
