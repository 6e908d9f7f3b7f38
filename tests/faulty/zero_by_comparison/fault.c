/* The absolute value by a comparison: of -0 it is -0. */
#include <dovetail_op.h>
struct magnitude {
    const dv_tensor *x;
    dv_tensor *out;
};
static int run(dv_context *ctx, const struct magnitude *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const float x = ((const float *)a->x->data)[i];
        ((float *)a->out->data)[i] = x < 0 ? -x : x;
    }
    return DV_OK;
}
DV_OPERATOR(magnitude, struct magnitude, (x, out), .schema = "magnitude(Tensor x) -> Tensor out",
    .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)", .native = "abs(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct magnitude, "cpu", "f32", run)));
DV_LIBRARY(faulty, &dv_op_magnitude);
