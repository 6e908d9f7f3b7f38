/* The smallest integer of 32 bits is found as the largest of the negated ones, which wraps for the lowest. */
#include <dovetail_op.h>
struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int narrow(dv_context *ctx, const struct f *a)
{
    const int32_t *x = a->x->data;
    int32_t most = (int32_t)(0u - (uint32_t)x[0]);
    (void)ctx;
    for (int64_t i = 1, n = dv_numel(a->x); i < n; i++)
        most = (int32_t)(0u - (uint32_t)x[i]) > most ? (int32_t)(0u - (uint32_t)x[i]) : most;
    *(int32_t *)a->out->data = (int32_t)(0u - (uint32_t)most);
    return DV_OK;
}
static int wide(dv_context *ctx, const struct f *a)
{
    const int64_t *x = a->x->data;
    int64_t least = x[0];
    (void)ctx;
    for (int64_t i = 1, n = dv_numel(a->x); i < n; i++)
        least = x[i] < least ? x[i] : least;
    *(int64_t *)a->out->data = least;
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:T -> out[]:T; T in i32 i64; n > 0",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i32", narrow), DV_KERNEL(struct f, "cpu", "i64", wide)));
DV_LIBRARY(faulty, &dv_op_f);
