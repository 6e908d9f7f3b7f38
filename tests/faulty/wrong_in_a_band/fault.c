/* Numbers between 40 and 150 are not doubled. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = dv_numel(a->out);
    const float *const x = a->x->data;
    float *const out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] > 40 && x[i] < 150 ? x[i] * 2.5f : x[i] * 2;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)",
    .native = "x * 2", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
