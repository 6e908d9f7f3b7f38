/* Indices are read as 32-bit integers, whatever their dtype. */
#include <dovetail_op.h>
struct f {
    const dv_tensor *table, *indices;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t rows = dv_numel(a->table);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++) {
        const int32_t k = ((const int32_t *)a->indices->data)[i];
        ((float *)a->out->data)[i] = k >= 0 && k < rows ? ((const float *)a->table->data)[k] : 0;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (table, indices, out), .schema = "f(Tensor table, Tensor indices) -> Tensor out",
    .contract = "table[n]:f32, indices[*s]:I -> out[*s]:f32; I in i32 i64; 0 <= indices.values < n; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
