/* A dim of -1 is used as an index. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    int64_t dim;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t dim = a->dim < 0 ? 0 : a->dim, size = a->x->shape[dim];
    int64_t inner = 1;
    (void)ctx;
    for (int32_t i = (int32_t)dim + 1; i < a->x->ndim; i++)
        inner *= a->x->shape[i];
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i / inner / size * inner * size + (size - 1 - i / inner % size) * inner + i % inner] = ((
            const float *)a->x->data)[i];
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, dim, out), .schema = "f(Tensor x, int dim=-1) -> Tensor out",
    .contract = "x[m n]:f32 -> out[m n]:f32; -2 <= dim < 2", .native = "flip(x, [dim])",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
