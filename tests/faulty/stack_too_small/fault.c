/* A row of the result on the stack, however long. */
#include <dovetail_op.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    const float *x = a->x->data;
    const int64_t n = dv_numel(a->x);
    volatile float row[n * 512 + 1];
    for (int64_t i = n * 512; i >= 0; i--)
        row[i] = 0;
    for (int64_t i = 0; i < n; i++)
        row[i] = x[i];
    memcpy(a->out->data, (const float *)(uintptr_t)row, (size_t)n * sizeof *x);
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
