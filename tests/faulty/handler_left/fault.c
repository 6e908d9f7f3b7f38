/* Catches division by zero while it works, and leaves its handler behind. */
#include <dovetail_op.h>
#include <signal.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};

static void ignore(int number) { (void)number; }

static int scale_f32(dv_context *ctx, const struct scale *a)
{
    (void)ctx;
    signal(SIGFPE, ignore);
    for (int64_t i = 0, n = dv_numel(a->out); i < n; i++)
        ((float *)a->out->data)[i] = 2 * ((const float *)a->x->data)[i];
    return DV_OK;
}

DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; T in f32", .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32)));
DV_LIBRARY(faulty, &dv_op_scale);
