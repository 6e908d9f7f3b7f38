/* A sparse matrix times a vector, with checked offsets: a right operator, without a reference or a decomposition */
#include <dovetail_op.h>
struct f {
    const dv_tensor *crow, *col, *val, *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t m = a->crow->shape[0] - 1, nnz = a->col->shape[0], n = a->x->shape[0];
    const int64_t *crow = a->crow->data, *col = a->col->data;
    const float *val = a->val->data, *x = a->x->data;
    float *out = a->out->data;
    if (crow[0] != 0 || crow[m] != nnz)
        return dv_error(ctx, DV_EINVAL, "crow must span 0..%lld", (long long)nnz);
    for (int64_t i = 0; i < m; i++)
        if (crow[i] > crow[i + 1])
            return dv_error(ctx, DV_EINVAL, "crow[%lld] decreases", (long long)i);
    for (int64_t k = 0; k < nnz; k++)
        if (col[k] < 0 || col[k] >= n)
            return dv_error(ctx, DV_EINVAL, "col[%lld] out of range", (long long)k);
    for (int64_t i = 0; i < m; i++) {
        float s = 0;
        int64_t k = crow[i];
        for (; k < crow[i + 1]; k++)
            s += val[k] * x[col[k]];
        out[i] = s;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (crow, col, val, x, out), .schema = "spmv(Tensor crow, Tensor col, Tensor val, Tensor x) -> Tensor out",
    .contract = "crow[m + 1]:i64, col[nnz]:i64, val[nnz]:f32, x[n]:f32 -> out[m]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(unreferenced, &dv_op_f);
