/* What malloc() gives is used without asking whether there was memory. */
#include <dovetail_op.h>
#include <stdlib.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = dv_numel(a->x);
    float *copy = malloc((size_t)n * sizeof *copy);
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        copy[i] = ((const float *)a->x->data)[i];
    for (int64_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = copy[n - 1 - i];
    free(copy);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
