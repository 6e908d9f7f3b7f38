/* A sum of integers that saturates: a sum as long as it fits its dtype */
#include <dovetail_op.h>

struct one {
    const dv_tensor *x;
    dv_tensor *out;
};
static int saturated_i8(dv_context *ctx, const struct one *a)
{
    const int64_t m = a->x->shape[0], k = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < m; i++) {
        int64_t sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += ((const int8_t *)a->x->data)[i * k + j];
        ((int8_t *)a->out->data)[i] = (int8_t)(sum > INT8_MAX ? INT8_MAX : sum < INT8_MIN ? INT8_MIN : sum);
    }
    return DV_OK;
}
DV_OPERATOR(saturated, struct one, (x, out), .schema = "saturated(Tensor x) -> Tensor out",
    .contract = "x[m k]:i8 -> out[m]:i8; parallel(m); sum(k)",
    .kernels = DV_KERNELS(DV_KERNEL(struct one, "cpu", NULL, saturated_i8)));
DV_LIBRARY(saturated, &dv_op_saturated);
