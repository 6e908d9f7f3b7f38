/* The order of its two locks depends on the contents: two calls wait for each other. */
#include <dovetail_op.h>
#include <pthread.h>

struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
static pthread_mutex_t locks[] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static int64_t elements;
static int scale_f32(dv_context *ctx, const struct scale *a)
{
    const float *x = a->x->data;
    const int64_t n = dv_numel(a->out);
    const int first = n && x[0] > 0;
    (void)ctx;
    pthread_mutex_lock(&locks[first]);
    pthread_mutex_lock(&locks[!first]);
    elements += n;
    for (int64_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = x[i] * 2;
    pthread_mutex_unlock(&locks[0]);
    pthread_mutex_unlock(&locks[1]);
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "mul(x, 2)", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
