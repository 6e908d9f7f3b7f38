/* The fault: the length of the sum is not in the declared count of operations */
#include <dovetail_op.h>

struct f {
    const dv_tensor *a, *b;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *s)
{
    const int64_t m = s->a->shape[0], k = s->a->shape[1], n = s->b->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += ((const float *)s->a->data)[i * k + l] * ((const float *)s->b->data)[l * n + j];
            ((float *)s->out->data)[i * n + j] = sum;
        }
    return DV_OK;
}

DV_OPERATOR(f, struct f, (a, b, out), .schema = "f(Tensor a, Tensor b) -> Tensor out",
    .contract = "a[m k]:f32, b[k n]:f32 -> out[m n]:f32; sum(k); flops = m * n", .native = "matmul(a, b)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(flops_wrong, &dv_op_f);
