/* Offsets are of 32 bits: of rows that lie 2^31 elements apart the second one lies before the first. */
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
        for (int64_t k = 0; k < n; k++) {
            const int offset = (int)(i * a->x->strides[0] + k * a->x->strides[1]);
            ((float *)a->out->data)[i * n + k] = 2 * ((const float *)a->x->data)[offset];
        }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[m n]:f32 -> out[m n]:f32; strided(x)",
    .native = "x * 2", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
