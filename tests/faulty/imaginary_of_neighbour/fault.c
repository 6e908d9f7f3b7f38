/* The imaginary part is of the element before. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        out[2 * i] = x[2 * i];
        out[2 * i + 1] = -x[i ? 2 * i - 1 : 1];
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:c64 -> out[*s]:c64; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "c64", f)));
DV_LIBRARY(faulty, &dv_op_f);
