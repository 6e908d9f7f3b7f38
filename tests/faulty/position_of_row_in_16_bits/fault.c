/* The number of a row is kept in 16 bits: from 65536 on they begin again. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    const float *const x = a->x->data, *const y = a->y->data;
    float *const out = a->out->data;
    (void)ctx;
    for (int64_t r = 0; r < m; r++)
        for (int64_t i = 0; i < n; i++)
            out[r * n + i] = x[r * n + i] * y[(uint16_t)r];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, y, out), .schema = "f(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[m n]:f32, y[m]:f32 -> out[m n]:f32", .native = "x * unsqueeze(y, 1)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
