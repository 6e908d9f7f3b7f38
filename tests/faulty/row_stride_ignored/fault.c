/* Rows are taken to lie one after another, as far as the last dim is dense. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m * n; i++)
        out[i] = -x[i];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m n]:f32; last_contiguous(x)", .native = "-x",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
