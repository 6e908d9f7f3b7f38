/* What was allocated is not freed on the way out that an empty tensor takes. */
#include <dovetail_op.h>
#include <stdlib.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const size_t n = (size_t)dv_numel(a->x);
    float *copy = malloc((n + 32) * sizeof *copy);
    if (!copy)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    *(volatile float *)copy = 0;
    if (!n)
        return DV_OK;
    memcpy(copy, a->x->data, n * sizeof *copy);
    for (size_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = copy[n - 1 - i];
    free(copy);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
