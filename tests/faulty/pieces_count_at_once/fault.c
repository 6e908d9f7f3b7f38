/* The fault: pieces of a loop count in the same memory. Each count is one instruction, but two threads can run it at once. */
#include <dovetail_op.h>

struct tally {
    const dv_tensor *x;
    dv_tensor *counts;
};
static int count(void *arg, int64_t begin, int64_t end)
{
    const struct tally *a = arg;
    for (int64_t i = begin; i < end; i++)
        ((int64_t *)a->counts->data)[((const uint8_t *)a->x->data)[i] % 4]++;
    return DV_OK;
}
static int tally_u8(dv_context *ctx, const struct tally *a)
{
    memset(a->counts->data, 0, 4 * sizeof(int64_t));
    return dv_parallel_for(ctx, 0, dv_numel(a->x), 300, count, (void *)(uintptr_t)a);
}
DV_OPERATOR(tally, struct tally, (x, counts), .schema = "tally(Tensor x) -> Tensor counts",
    .contract = "x[*s]:u8 -> counts[4]:i64", .kernels = DV_KERNELS(DV_KERNEL(struct tally, "cpu", "u8", tally_u8)));
DV_LIBRARY(faulty, &dv_op_tally);
