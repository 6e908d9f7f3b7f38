/* A thread of its own writes the result, and nobody waits for it. */
#include <dovetail_op.h>
#include <pthread.h>
#include <stdlib.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};

struct work {
    const float *x;
    float *out;
    int64_t n;
};
static void *later(void *arg)
{
    struct work w = *(struct work *)arg;
    free(arg);
    for (int64_t i = 0; i < w.n; i++)
        w.out[i] = w.x[i] + 1;
    return NULL;
}
static int f(dv_context *ctx, const struct f *a)
{
    pthread_t thread;
    struct work *w = malloc(sizeof *w);
    if (!w)
        return dv_error(ctx, DV_ENOMEM, "out of memory");
    *w = (struct work){ a->x->data, a->out->data, dv_numel(a->x) };
    if (pthread_create(&thread, NULL, later, w)) {
        free(w);
        return dv_error(ctx, DV_EKERNEL, "no thread");
    }
    pthread_detach(thread);
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .native = "x + 1", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
