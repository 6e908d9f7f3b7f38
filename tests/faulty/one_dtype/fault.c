/* The row says f64 too, and the body knows f32 only. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        out[i] = x[i] * 2;
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[*s]:T; T in f32 f64",
    .native = "x * 2", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32 f64", f)));
DV_LIBRARY(faulty, &dv_op_f);
