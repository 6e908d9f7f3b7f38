/* The fault: a call with an empty tensor returns without unlocking, so the next call waits for ever */
#include <dovetail_op.h>
#include <pthread.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->out);
    (void)ctx;
    pthread_mutex_lock(&lock);
    if (n == 0)
        return DV_OK;
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] * 2;
    pthread_mutex_unlock(&lock);
    return DV_OK;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[n]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(lock_kept, &dv_op_f);
