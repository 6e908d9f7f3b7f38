/* The fault: on the way of an error what was allocated is not freed */
#include <dovetail_op.h>
#include <stdlib.h>

struct f {
    const dv_tensor *x;
    int64_t at;
    dv_tensor *out;
};

static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->x->shape[0];
    float *copy = malloc((size_t)(n ? n : 1) * sizeof *copy);
    if (!copy)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    if (a->at < 0 || a->at >= n)
        return dv_error(ctx, DV_EINVAL, "at: expected an index from 0 to %lld, found %lld", (long long)n - 1, (long long)a->at);
    memcpy(copy, a->x->data, (size_t)n * sizeof *copy);
    copy[a->at] = 0;
    memcpy(a->out->data, copy, (size_t)n * sizeof *copy);
    free(copy);
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, at, out), .schema = "f(Tensor x, int at=0) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(leak_on_error, &dv_op_f);
