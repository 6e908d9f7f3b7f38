/* The result lies like x, in any order of dims, and is written as if it were contiguous. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++)
            ((float *)a->out->data)[i * n + k] = -((const float *)a->x->data)[i * a->x->strides[0] + k * a->x->strides[1]];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m n]:f32 like(x); strided(x); strided(out)", .native = "-x",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
