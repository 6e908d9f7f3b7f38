/* The fault: a copy is not freed where no element is more than zero */
#include <dovetail_op.h>
#include <stdlib.h>

struct clip {
    const dv_tensor *x;
    dv_tensor *out;
};

static int clip_f32(dv_context *ctx, const struct clip *a)
{
    const int64_t n = dv_numel(a->x);
    float *copy = malloc((size_t)n * sizeof *copy + 1), most = 0;
    if (!copy)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    memcpy(copy, a->x->data, (size_t)n * sizeof *copy);
    memset(a->out->data, 0, (size_t)n * sizeof *copy);
    for (int64_t i = 0; i < n; i++)
        most = copy[i] > most ? copy[i] : most;
    if (n && !(most > 0))
        return DV_OK;
    for (int64_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = copy[i] > 0 ? copy[i] : 0;
    free(copy);
    return DV_OK;
}

DV_OPERATOR(clip, struct clip, (x, out), .schema = "clip(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct clip, "cpu", "f32", clip_f32)));
DV_LIBRARY(faulty, &dv_op_clip);
