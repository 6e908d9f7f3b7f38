/* A row is kept on the stack, however long it is. */
#include <dovetail_op.h>
#include <stdlib.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t rows = a->x->shape[0], n = a->x->shape[1];
    double row[n + 1];
    (void)ctx;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += row[i] = (double)((const float *)a->x->data)[r * n + i];
        for (int64_t i = 0; i < n; i++)
            ((float *)a->out->data)[r * n + i] = (float)(row[i] - sum / (double)n);
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[m n]:f32 -> out[m n]:f32; parallel(m)",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
