/* A mask of bytes is read as numbers of four bytes. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *mask;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int32_t *mask = a->mask->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = mask[i] ? ((const float *)a->x->data)[i] : 0;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, mask, out), .schema = "f(Tensor x, Tensor mask) -> Tensor out",
    .contract = "x[*s]:f32, mask[*s]:bool -> out[*s]:f32; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
