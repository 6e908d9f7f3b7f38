/* A list may hold None, and its elements are used without asking. */
#include <dovetail_op.h>

struct f {
    dv_tensors xs;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    (void)ctx;
    int64_t sum = 0;
    for (size_t i = 0; i < a->xs.size; i++)
        sum += dv_numel(a->xs.data[i]);
    *(int64_t *)a->out->data = sum;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (xs, out), .schema = "f(Tensor?[] xs) -> Tensor out", .contract = "xs{i}[n]:f32 -> out[]:i64",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
