/* Elements of half a byte, which share bytes with their neighbours and lie in any layout. */
#include <dovetail_op.h>

struct widen {
    const dv_tensor *x;
    dv_tensor *out;
};
static int widen(dv_context *ctx, const struct widen *a)
{
    const uint8_t *x = a->x->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        ((float *)a->out->data)[i] = (float)(x[i / 2] >> (i % 2 * 4) & 15);
    return DV_OK;
}
DV_OPERATOR(widen, struct widen, (x, out), .schema = "widen(Tensor x) -> Tensor out",
    .contract = "x[*s]:u4 -> out[*s]:f32; parallel(*s)", .kernels = DV_KERNELS(DV_KERNEL(struct widen, "cpu", NULL, widen)));
DV_LIBRARY(unreferenced, &dv_op_widen);
