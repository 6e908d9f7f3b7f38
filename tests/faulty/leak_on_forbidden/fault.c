/* The kernel refuses an index that the contract forbids, and keeps the memory that it took. */
#include <dovetail_op.h>
#include <stdlib.h>
struct gat {
    const dv_tensor *x, *ids;
    dv_tensor *out;
};
static int run(dv_context *ctx, const struct gat *a)
{
    const int64_t n = a->x->shape[0], k = a->ids->shape[0];
    int64_t *copy = malloc((size_t)(k + 1) * 8);
    if (!copy)
        return dv_error(ctx, DV_ENOMEM, "no memory");
    for (int64_t i = 0; i < k; i++) {
        copy[i] = ((const int64_t *)a->ids->data)[i];
        if (copy[i] < 0 || copy[i] >= n)
            return dv_error(ctx, DV_EINVAL, "ids");
    }
    for (int64_t i = 0; i < k; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[copy[i]];
    free(copy);
    return DV_OK;
}
DV_OPERATOR(gat, struct gat, (x, ids, out), .schema = "gat(Tensor x, Tensor ids) -> Tensor out",
    .contract = "x[n]:f32, ids[k]:i64 -> out[k]:f32; 0 <= ids.values < n", .native = "index_select(x, 0, ids)",
    .kernels = DV_KERNELS(DV_KERNEL(struct gat, "cpu", "f32", run)));
DV_LIBRARY(faulty, &dv_op_gat);
