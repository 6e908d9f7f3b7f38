/* Adds up in an array of the stack, whose first lane is not set to zero. */
#include <dovetail_op.h>
struct total {
    const dv_tensor *x;
    dv_tensor *out;
};

static int total_f32(dv_context *ctx, const struct total *a)
{
    (void)ctx;
    const float *x = a->x->data;
    float lanes[64], sum = 0;
    for (int l = 1; l < 64; l++)
        lanes[l] = 0;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        lanes[i % 64] += x[i];
    for (int l = 0; l < 64; l++)
        sum += lanes[l];
    *(float *)a->out->data = sum;
    return DV_OK;
}

DV_OPERATOR(total, struct total, (x, out), .schema = "total(Tensor x) -> Tensor out", .contract = "x[*s]:T -> out[]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct total, "cpu", "f32", total_f32)));
DV_LIBRARY(faulty, &dv_op_total);
