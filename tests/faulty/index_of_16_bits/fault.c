/* From 65536 elements on a row begins again. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[0];
    const float *const x = a->x->data;
    float *const out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        out[i] = 2 * x[(uint16_t)i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32", .native = "x * 2",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
