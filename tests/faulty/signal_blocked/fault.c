/* Blocks a signal while it works, and forgets to let it through again where there is one element. */
#define _GNU_SOURCE
#include <dovetail_op.h>
#include <signal.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    const float *x = a->x->data;
    float *out = a->out->data;
    sigset_t interrupts, before;
    sigemptyset(&interrupts);
    sigaddset(&interrupts, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &interrupts, &before);
    const int64_t n = dv_numel(a->out);
    for (int64_t i = 0; i < n; i++)
        out[i] = 2 * x[i];
    if (n == 1)
        return DV_OK;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
