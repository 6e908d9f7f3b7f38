/* Where the matrices of a batch are square, they are copied as they are. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t b = a->x->shape[0], m = a->x->shape[1], n = a->x->shape[2];
    const float *const x = a->x->data;
    float *const out = a->out->data;
    (void)ctx;
    for (int64_t i = 0; i < b; i++)
        for (int64_t j = 0; j < m; j++)
            for (int64_t k = 0; k < n; k++)
                out[i * m * n + (m == n ? j * n + k : k * m + j)] = x[i * m * n + j * n + k];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out",
    .contract = "x[b m n]:f32 -> out[b n m]:f32; parallel(b)", .native = "transpose(x, 1, 2)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
