/* The shape of the result is read out of a tensor: nobody can trace that. */
#include <dovetail_op.h>
struct fill {
    const dv_tensor *n;
    dv_tensor *out;
};
static int fill_shape(dv_context *ctx, const void *frame)
{
    const struct fill *a = frame;
    dv_dtype f32 = dv_dtype_from_key(DV_DTYPE_f32);
    const int64_t size = *(const int64_t *)a->n->data;
    return dv_set_output(ctx, a->out, f32, 1, &size);
}
static int fill_any(dv_context *ctx, const struct fill *a)
{
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        out[i] = 1;
    return DV_OK;
}
DV_OPERATOR(fill, struct fill, (n, out), .schema = "fill(Tensor n) -> Tensor out", .contract = "n[]:i64 -> out[...]:f32",
    .shape = fill_shape, .kernels = DV_KERNELS(DV_KERNEL(struct fill, "cpu", NULL, fill_any)));
DV_LIBRARY(faulty, &dv_op_fill);
