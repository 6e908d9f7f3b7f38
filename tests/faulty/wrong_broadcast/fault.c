/* A bias for columns is added to rows: right only for one row or column. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *bias;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data, *bias = a->bias->data;
    float *out = a->out->data;
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++)
            out[i * n + k] = x[i * n + k] + bias[i % n];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, bias, out), .schema = "f(Tensor x, Tensor bias) -> Tensor out",
    .contract = "x[m n]:f32, bias[n]:f32 -> out[m n]:f32", .native = "x + bias",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
