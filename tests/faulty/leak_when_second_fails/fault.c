/* When the second malloc() fails, the first one's memory is not freed. */
#include <dovetail_op.h>
#include <stdlib.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const size_t n = (size_t)dv_numel(a->x) + 1;
    float *copy = malloc(n * sizeof *copy);
    if (!copy)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    float *sums = calloc(n, sizeof *sums);
    if (!sums)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    for (size_t i = 0; i + 1 < n; i++) {
        copy[i] = ((const float *)a->x->data)[i];
        sums[i + 1] = sums[i] + copy[i];
        ((float *)a->out->data)[i] = sums[i + 1];
    }
    free(sums);
    free(copy);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
