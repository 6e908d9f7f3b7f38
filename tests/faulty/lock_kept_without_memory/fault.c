/* It keeps its lock where there is no memory: the next call waits for ever. */
#include <dovetail_op.h>
#include <pthread.h>
#include <string.h>

struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    const float *x = a->x->data;
    const size_t n = (size_t)dv_numel(a->out);
    if (!n)
        return DV_OK;
    pthread_mutex_lock(&lock);
    float *twice = dv_alloc(ctx, n * sizeof *twice, 64);
    if (!twice)
        return DV_ENOMEM;
    for (size_t i = 0; i < n; i++)
        twice[i] = x[i] * 2;
    pthread_mutex_unlock(&lock);
    memcpy(a->out->data, twice, n * sizeof *twice);
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "mul(x, 2)", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
