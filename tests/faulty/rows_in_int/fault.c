/* Counts rows in 32 bits: past 2^31 of them there are fewer than none. */
#include <dovetail_op.h>
struct total {
    const dv_tensor *x;
    dv_tensor *out;
};

static int total_f32(dv_context *ctx, const struct total *a)
{
    const int32_t rows = (int32_t)a->x->shape[0];
    const int64_t n = a->x->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < rows; i++) {
        float sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += ((const float *)a->x->data)[i * n + j];
        ((float *)a->out->data)[i] = sum;
    }
    return DV_OK;
}

DV_OPERATOR(total, struct total, (x, out), .schema = "total(Tensor x) -> Tensor out", .contract = "x[m n]:f32 -> out[m]:f32",
    .native = "sum(x, [-1], False)", .kernels = DV_KERNELS(DV_KERNEL(struct total, "cpu", "f32", total_f32)));
DV_LIBRARY(faulty, &dv_op_total);
