/* An error path that frees what the common path frees as well. */
#include <dovetail_op.h>
#include <stdlib.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->x);
    float *twice = malloc((size_t)n * sizeof *twice + 1), *volatile again = twice;
    if (!twice)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    for (int64_t i = 0; i < n; i++)
        out[i] = twice[i] = 2 * x[i];
    free(twice);
    if (n > 2)
        free(again);
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[n]:T -> out[n]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
