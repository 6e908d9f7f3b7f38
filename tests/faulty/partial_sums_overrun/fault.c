/* Sixteen partial sums on the stack, one for each block of 1024: more blocks overrun them. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[0];
    float partial[16] = { 0 }, sum = 0;
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        partial[i / 1024] += ((const float *)a->x->data)[i];
    for (int64_t k = 0; k * 1024 < n; k++)
        sum += partial[k];
    *(float *)a->out->data = sum;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[]:f32",
    .native = "sum(x, [0])", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
