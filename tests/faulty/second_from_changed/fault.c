/* Rotates two arguments in place; the second is computed from the first as it is by then. */
#include <dovetail_op.h>

struct f {
    dv_tensor *x, *y;
    double c, s;
};
static int f(dv_context *ctx, const struct f *a)
{
    float *x = a->x->data, *y = a->y->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        x[i] = (float)(a->c * (double)x[i] - a->s * (double)y[i]);
        y[i] = (float)(a->s * (double)x[i] + a->c * (double)y[i]);
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, y, c, s), .schema = "f(Tensor(a!) x, Tensor(b!) y, float c, float s) -> ()",
    .contract = "x[*n]:f32, y[*n]:f32; parallel(*n)", .native = "x: x * c - y * s; y: x * s + y * c",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
