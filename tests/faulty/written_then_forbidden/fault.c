/* Rows are written before a later index, which the contract forbids and only check mode tests, is refused. */
#include <dovetail_op.h>
struct put_rows {
    dv_tensor *x;
    const dv_tensor *ids, *v;
};
static int run(dv_context *ctx, const struct put_rows *a)
{
    const int64_t n = a->x->shape[0], d = a->x->shape[1];
    for (int64_t i = 0; i < a->ids->shape[0]; i++) {
        const int64_t id = ((const int64_t *)a->ids->data)[i];
        if (id < 0 || id >= n)
            return dv_error(ctx, DV_EINVAL, "ids[%lld] is out of range", (long long)i);
        memcpy((float *)a->x->data + id * d, (const float *)a->v->data + i * d, (size_t)d * 4);
    }
    return DV_OK;
}
DV_OPERATOR(put_rows, struct put_rows, (x, ids, v), .schema = "put_rows(Tensor(a!) x, Tensor ids, Tensor v) -> ()",
    .contract = "x[n d]:f32, ids[k]:i64, v[k d]:f32; 0 <= ids.values < n",
    .kernels = DV_KERNELS(DV_KERNEL(struct put_rows, "cpu", "f32", run)));
DV_LIBRARY(faulty, &dv_op_put_rows);
