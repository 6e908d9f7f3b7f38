/* Elements of every type are taken, and copied in words of 32 bits. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    memcpy(a->out->data, a->x->data, (size_t)dv_numel(a->x) * sizeof(int32_t));
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s] -> out like(x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
