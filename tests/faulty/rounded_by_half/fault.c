/* Rounds by adding a half and cutting off: wrong for negative numbers. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int to_int(const struct f *a, bool cuts)
{
    const float *x = a->x->data;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const float v = x[i] > -1e6f && x[i] < 1e6f ? x[i] : 0;
        ((int32_t *)a->out->data)[i] = (int32_t)(cuts ? v + 0.5f : floorf(v + 0.5f));
    }
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a) { return (void)ctx, to_int(a, true); }
static int f_reference(dv_context *ctx, const struct f *a) { return (void)ctx, to_int(a, false); }
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:i32; parallel(*s)",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct f, "cpu", "f32", f), DV_KERNEL(struct f, "cpu", "f32", f_reference, .flags = DV_KERNEL_REFERENCE)));
DV_LIBRARY(faulty, &dv_op_f);
