/* Trusts the indices, and does not declare what they must be. */
#include <dovetail_op.h>
struct pick {
    const dv_tensor *table, *ids;
    dv_tensor *out;
};
static int pick_f32(dv_context *ctx, const struct pick *a)
{
    const float *table = a->table->data;
    const int64_t *ids = a->ids->data;
    float *out = a->out->data;
    const int64_t n = a->ids->shape[0], d = a->table->shape[1];
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        memcpy(out + i * d, table + ids[i] * d, (size_t)d * sizeof *out);
    return DV_OK;
}
DV_OPERATOR(pick, struct pick, (table, ids, out), .schema = "pick(Tensor table, Tensor ids) -> Tensor out",
    .contract = "table[m d]:T, ids[n]:i64 -> out[n d]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct pick, "cpu", "f32", pick_f32)));
DV_LIBRARY(faulty, &dv_op_pick);
