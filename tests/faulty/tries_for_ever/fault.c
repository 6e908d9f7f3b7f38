/* Where malloc() gives nothing, it tries again for as long as the thread lives. */
#include <dovetail_op.h>
#include <stdlib.h>
#include <string.h>

struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    static _Thread_local int failed;
    const float *x = a->x->data;
    const size_t n = (size_t)dv_numel(a->out);
    float *twice;
    (void)ctx;
    while (failed || !(twice = malloc((n + 1) * sizeof *twice)))
        failed = 1;
    for (size_t i = 0; i < n; i++)
        twice[i] = x[i] * 2;
    if (n)
        memcpy(a->out->data, twice, n * sizeof *twice);
    free(twice);
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "mul(x, 2)", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
