/* A row in f64 rounds its numbers to f32. */
#include <dovetail_op.h>
struct axpb {
    const dv_tensor *x;
    double a, b;
    dv_tensor *out;
};
static int run(dv_context *ctx, const struct axpb *p)
{
    const float a = (float)p->a, b = (float)p->b;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(p->x); i < n; i++)
        ((double *)p->out->data)[i] = ((const double *)p->x->data)[i] * a + b;
    return DV_OK;
}
DV_OPERATOR(axpb, struct axpb, (x, a, b, out), .schema = "axpb(Tensor x, float a, float b) -> Tensor out",
    .contract = "x[*s]:f64 -> out[*s]:f64; parallel(*s)", .native = "x * a + b",
    .kernels = DV_KERNELS(DV_KERNEL(struct axpb, "cpu", "f64", run)));
DV_LIBRARY(faulty, &dv_op_axpb);
