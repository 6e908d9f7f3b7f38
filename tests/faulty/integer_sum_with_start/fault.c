/* Each sum of integers begins with 1, so partial sums have a 1 each. */
#include <dovetail_op.h>

struct row_sum {
    const dv_tensor *x;
    dv_tensor *out;
};

static int row_sum_i8(dv_context *ctx, const struct row_sum *a)
{
    const int8_t *x = a->x->data;
    int8_t *out = a->out->data;
    const int64_t m = a->x->shape[0], k = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        int sum = 1;
        for (int64_t j = 0; j < k; j++)
            sum += x[i * k + j];
        out[i] = (int8_t)(sum > 127 ? 127 : sum < -128 ? -128 : sum);
    }
    return DV_OK;
}
DV_OPERATOR(row_sum, struct row_sum, (x, out), .schema = "row_sum(Tensor x) -> Tensor out",
    .contract = "x[m k]:i8 -> out[m]:i8; parallel(m); sum(k)",
    .kernels = DV_KERNELS(DV_KERNEL(struct row_sum, "cpu", "i8", row_sum_i8)));
DV_LIBRARY(faulty, &dv_op_row_sum);
