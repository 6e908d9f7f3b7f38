/* The count that it returns is not set for tensors without a positive element. */
#include <dovetail_op.h>

struct positive {
    const dv_tensor *x;
    dv_tensor *out;
    int64_t *count;
};

static int positive_f32(dv_context *ctx, const struct positive *a)
{
    const float *x = a->x->data;
    int64_t count = 0;
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {
        ((float *)a->out->data)[i] = x[i] > 0 ? x[i] : 0;
        count += x[i] > 0;
    }
    if (count)
        *a->count = count;
    return DV_OK;
}
DV_OPERATOR(positive, struct positive, (x, out, count), .schema = "positive(Tensor x) -> (Tensor out, int count)",
    .contract = "x[n]:f32 -> out[n]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct positive, "cpu", "f32", positive_f32)));
DV_LIBRARY(faulty, &dv_op_positive);
