/* The magnitude of an f16 by its bits, where small numbers are taken for zero. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        const uint16_t bits = ((const uint16_t *)a->x->data)[i] & 0x7fff;
        ((uint16_t *)a->out->data)[i] = bits < 0x400 ? 0 : bits;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f16 -> out[*s]:f16",
    .native = "abs(x)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f16", f)));
DV_LIBRARY(faulty, &dv_op_f);
