/* The elements after the last whole vector get another formula. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->x);
    (void)ctx;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int64_t k = 0; k < 8; k++)
            out[i + k] = x[i + k] * x[i + k];
    for (; i < n; i++)
        out[i] = x[i] + x[i];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "x * x", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
