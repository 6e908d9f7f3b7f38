/* A sum of bf16 is kept in bf16: rounded at every step. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const uint16_t *x = a->x->data;
    const int64_t m = a->x->shape[0], n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        uint16_t sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum = dv_f32_to_bf16(dv_bf16_to_f32(sum) + dv_bf16_to_f32(x[i * n + k]));
        ((uint16_t *)a->out->data)[i] = sum;
    }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out",
    .contract = "x[m n]:bf16 -> out[m]:bf16; parallel(m); sum(n)", .native = "sum(x, [1])",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "bf16", f)));
DV_LIBRARY(faulty, &dv_op_f);
