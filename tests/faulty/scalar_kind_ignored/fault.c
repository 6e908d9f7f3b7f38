/* A number is read as a double, though it may be an integer. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_scalar alpha;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * (float)a->alpha.as.f;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, alpha, out), .schema = "f(Tensor x, Scalar alpha) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)", .native = "x * alpha",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
