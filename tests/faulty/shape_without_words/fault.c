/* A shape function that refuses, and does not say why. */
#include <dovetail_op.h>
struct keep {
    const dv_tensor *x;
    int64_t n;
    dv_tensor *out;
};
static int keep_shape(dv_context *ctx, const void *frame)
{
    const struct keep *a = frame;
    if (a->n < 0 || a->n > a->x->shape[0])
        return DV_ESHAPE;
    return dv_set_output(ctx, a->out, a->x->dtype, 1, &a->n);
}
static int keep_f32(dv_context *ctx, const struct keep *a)
{
    (void)ctx;
    memcpy(a->out->data, a->x->data, (size_t)a->n * sizeof(float));
    return DV_OK;
}
DV_OPERATOR(keep, struct keep, (x, n, out), .schema = "keep(Tensor x, int n) -> Tensor out",
    .contract = "x[k]:T -> out[...]:T; T in f32", .shape = keep_shape,
    .kernels = DV_KERNELS(DV_KERNEL(struct keep, "cpu", "f32", keep_f32)));
DV_LIBRARY(faulty, &dv_op_keep);
