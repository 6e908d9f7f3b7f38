/* A table is made once, as long as the first call needs it. */
#include <dovetail_op.h>
#include <stdlib.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static float *table;
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[0];
    if (!table) {
        if (!(table = malloc((size_t)(n + 1) * sizeof *table)))
            return dv_error(ctx, DV_ENOMEM, "out of memory");
        for (int64_t i = 0; i <= n; i++)
            table[i] = (float)i;
    }
    for (int64_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + table[i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
