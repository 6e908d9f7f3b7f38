/* A boolean result is the bit itself: 4, not 1. */
#include <dovetail_op.h>
struct hb {
    const dv_tensor *x;
    dv_tensor *out;
};
static int run(dv_context *ctx, const struct hb *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((uint8_t *)a->out->data)[i] = ((const uint8_t *)a->x->data)[i] & 4;
    return DV_OK;
}
DV_OPERATOR(hb, struct hb, (x, out), .schema = "hb(Tensor x) -> Tensor out", .contract = "x[*s]:u8 -> out[*s]:bool; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct hb, "cpu", NULL, run)));
DV_LIBRARY(faulty, &dv_op_hb);
