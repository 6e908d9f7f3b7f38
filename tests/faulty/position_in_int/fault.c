/* The position of the row that a number names is computed in 32 bits. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *table;
    int64_t at;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int n = (int)a->table->shape[1], from = (int)((uint32_t)n * (uint32_t)a->at);
    (void)ctx;
    for (int i = 0; i < n; i++)
        ((int32_t *)a->out->data)[i] = ((const int32_t *)a->table->data)[from + i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (table, at, out), .schema = "f(Tensor table, int at) -> Tensor out",
    .contract = "table[m n]:i32 -> out[n]:i32; 0 <= at < m", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i32", f)));
DV_LIBRARY(faulty, &dv_op_f);
