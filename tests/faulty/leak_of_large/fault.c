/* The fault: a copy that only large tensors need is not freed when an element is NaN. */
#include <dovetail_op.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    const int64_t n = dv_numel(a->x);
    float *copy = n > 4096 ? malloc((size_t)n * sizeof *copy) : NULL, most = -INFINITY;
    if (n > 4096 && !copy)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    for (int64_t i = 0; i < n && !isnan(most); i++)
        most = x[i] > most || isnan(x[i]) ? x[i] : most;
    if (copy)
        memcpy(copy, x, (size_t)n * sizeof *copy);
    *(float *)a->out->data = most;
    if (!isnan(most))
        free(copy);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
