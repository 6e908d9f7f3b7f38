/* A result whose size depends on data becomes larger than its contract says. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    const int64_t n = a->x->shape[0];
    int64_t m = 0, at = 0;
    for (int64_t i = 0; i < n; i++)
        m += 1 + (x[i] > 0);
    const int status = dv_set_output(ctx, a->out, (dv_dtype){ 0, 64, 1 }, 1, &m);
    if (status)
        return status;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 1 + (x[i] > 0); k++)
            ((int64_t *)a->out->data)[at++] = i;
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out",
    .contract = "x[n]:f32 -> out[u]:i64; u unbacked in 0..n", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
