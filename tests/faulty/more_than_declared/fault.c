/* The positions of positive numbers, and one more for the end: more than the contract says there may be. */
#include <dovetail_op.h>
struct positions {
    const dv_tensor *x;
    dv_tensor *out;
};

static int positions_f32(dv_context *ctx, const struct positions *a)
{
    const float *x = a->x->data;
    const int64_t n = a->x->shape[0];
    int64_t count = 1, k = 0;
    for (int64_t i = 0; i < n; i++)
        count += x[i] > 0;
    const int status = dv_set_output(ctx, a->out, a->out->dtype, 1, &count);
    for (int64_t i = 0; i < n && !status; i++)
        if (x[i] > 0)
            ((int64_t *)a->out->data)[k++] = i;
    if (!status)
        ((int64_t *)a->out->data)[k] = n;
    return status;
}

DV_OPERATOR(positions, struct positions, (x, out), .schema = "positions(Tensor x) -> Tensor out",
    .contract = "x[n]:f32 -> out[u]:i64; u unbacked in 0..n",
    .kernels = DV_KERNELS(DV_KERNEL(struct positions, "cpu", "f32", positions_f32)));
DV_LIBRARY(faulty, &dv_op_positions);
