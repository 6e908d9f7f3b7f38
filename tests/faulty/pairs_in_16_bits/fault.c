/* Two products of bytes are added in 16 bits: of four elements of -128 the sum is wrong. */
#include <dovetail_op.h>

struct dot {
    const dv_tensor *x, *w;
    dv_tensor *out;
};

static int dot_i8(dv_context *ctx, const struct dot *a)
{
    const int64_t m = a->x->shape[0], k = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        const int8_t *x = (const int8_t *)a->x->data + i * k, *w = a->w->data;
        int32_t sum = 0;
        int64_t j = 0;
        for (; j + 2 <= k; j += 2)
            sum += (int16_t)(x[j] * w[j] + x[j + 1] * w[j + 1]);
        for (; j < k; j++)
            sum += x[j] * w[j];
        ((int32_t *)a->out->data)[i] = sum;
    }
    return DV_OK;
}
DV_OPERATOR(dot, struct dot, (x, w, out), .schema = "dot(Tensor x, Tensor w) -> Tensor out",
    .contract = "x[m k]:i8, w[k]:i8 -> out[m]:i32; parallel(m); sum(k)",
    .kernels = DV_KERNELS(DV_KERNEL(struct dot, "cpu", "i8", dot_i8)));
DV_LIBRARY(faulty, &dv_op_dot);
