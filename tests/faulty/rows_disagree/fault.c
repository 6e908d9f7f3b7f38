/* Two rows, neither a reference nor with a native form: one of them is wrong, and nobody says which. */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static int scale_one(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        ((float *)a->out->data)[i] = 2 * ((const float *)a->x->data)[i];
    return DV_OK;
}
static int scale_two(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        ((float *)a->out->data)[i] = (i % 16 == 15 ? 3 : 2) * ((const float *)a->x->data)[i];
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_one), DV_KERNEL(struct scale, "cpu", "f32", scale_two)));
DV_LIBRARY(faulty, &dv_op_scale);
