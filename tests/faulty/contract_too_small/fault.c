/* The contract forgets that the result has a row for each head. */
#include <dovetail_op.h>
struct heads {
    const dv_tensor *x;
    int64_t h;
    dv_tensor *out;
};
static int heads_f32(dv_context *ctx, const struct heads *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = a->x->shape[0];
    (void)ctx;
    for (int64_t k = 0; k < a->h; k++)
        for (int64_t i = 0; i < n; i++)
            out[k * n + i] = x[i] * (float)k;
    return DV_OK;
}
DV_OPERATOR(heads, struct heads, (x, h, out), .schema = "heads(Tensor x, int h) -> Tensor out",
    .contract = "x[n]:T -> out[n]:T; T in f32; h > 0", .kernels = DV_KERNELS(DV_KERNEL(struct heads, "cpu", "f32", heads_f32)));
DV_LIBRARY(faulty, &dv_op_heads);
