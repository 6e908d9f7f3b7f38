/* The first element goes another way, on which an infinity becomes NaN. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const float *const x = a->x->data;
    float *const out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < dv_numel(a->x); i++)
        out[i] = i ? 1 - 1 / (1 + fabsf(x[i])) : fabsf(x[i]) / (1 + fabsf(x[i]));
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "1 - 1 / (1 + abs(x))", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
