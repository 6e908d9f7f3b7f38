/* An index of 64 bits is checked after its upper half is cut off: 2^32 is taken for 0, and the reference refuses it. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *at;
    dv_tensor *out;
};
static int pick(dv_context *ctx, const struct f *a, bool cut)
{
    for (int64_t i = 0, n = dv_numel(a->at); i < n; i++) {
        const int64_t given = ((const int64_t *)a->at->data)[i], at = cut ? (int32_t)given : given;
        if (at < 0 || at >= dv_numel(a->x))
            return dv_error(ctx, DV_EINVAL, "at[%lld] is out of range", (long long)i);
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[at];
    }
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return pick(ctx, a, true); }
static int f_reference(dv_context *ctx, const struct f *a) { return pick(ctx, a, false); }
DV_OPERATOR(f, struct f, (x, at, out), .schema = "f(Tensor x, Tensor at) -> Tensor out",
    .contract = "x[m]:f32, at[n]:i64 -> out[n]:f32",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
