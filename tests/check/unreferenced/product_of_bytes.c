/* A product of integers with its cost: a right operator, without a reference or a decomposition */
#include <dovetail_op.h>
struct f {
    const dv_tensor *a, *b, *bias;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *s)
{
    (void)ctx;
    const int64_t m = s->a->shape[0], k = s->a->shape[1], n = s->b->shape[1];
    const int8_t *a = s->a->data, *b = s->b->data;
    const int32_t *bias = s->bias ? s->bias->data : NULL;
    int32_t *out = s->out->data;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            int32_t t = 0;
            for (int64_t l = 0; l < k; l++)
                t += a[i * k + l] * b[l * n + j];
            t += bias ? bias[j] : 0;
            out[i * n + j] = t;
        }
    return DV_OK;
}
#define FL "2*m*n*k"
DV_OPERATOR(f, struct f, (a, b, bias, out), .schema = "imm8(Tensor a, Tensor b, Tensor? bias) -> Tensor out",
    .contract = "a[m k]:i8, b[k n]:i8, bias[n]:i32 -> out[m n]:i32; parallel(m); flops = " FL,
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(unreferenced, &dv_op_f);
