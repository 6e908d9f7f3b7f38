/* A negative index counts from the end; one far below is not looked at. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *table, *ids;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t m = a->table->shape[0];
    for (int64_t i = 0; i < a->ids->shape[0]; i++) {
        int64_t id = ((const int32_t *)a->ids->data)[i];
        if (id < 0)
            id += m;
        if (id >= m)
            return dv_error(ctx, DV_EINVAL, "id %lld is out of range", (long long)id);
        ((float *)a->out->data)[i] = ((const float *)a->table->data)[id];
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (table, ids, out), .schema = "f(Tensor table, Tensor ids) -> Tensor out",
    .contract = "table[m]:f32, ids[k]:i32 -> out[k]:f32", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
