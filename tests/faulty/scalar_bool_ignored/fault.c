/* A Scalar is read as a float or an integer, though it may be a boolean. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_scalar alpha;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const double by = a->alpha.kind == DV_SCALAR_INT ? (double)a->alpha.as.i : a->alpha.as.f;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = (float)((double)((const float *)a->x->data)[i] * by);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, alpha, out), .schema = "f(Tensor x, Scalar alpha) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)", .native = "x * alpha",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
