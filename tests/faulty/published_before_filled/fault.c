/* The first call exchanges a null pointer for that of its table, and fills the table afterwards. */
#include <dovetail_op.h>
#include <stdatomic.h>
#include <stdlib.h>

struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
enum { SIZE = 256 };
static _Atomic(float *) published;
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    float *table = atomic_load(&published);
    if (!table) {
        float *mine = calloc(SIZE, sizeof *mine);
        if (!mine)
            return dv_error(ctx, DV_ENOMEM, "no memory for the table");
        if (atomic_compare_exchange_strong(&published, &table, mine)) {
            for (int i = 0; i < SIZE; i++)
                mine[i] = (float)i;
            table = mine;
        } else {
            free(mine);
        }
    }
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * table[2];
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "mul(x, 2)", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
