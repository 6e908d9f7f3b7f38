/* A child process is made that nobody waits for. */
#include <dovetail_op.h>
#include <sys/wait.h>
#include <unistd.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const pid_t pid = fork();
    if (!pid)
        _exit(0);
    if (pid < 0)
        return dv_error(ctx, DV_EKERNEL, "f: fork failed");
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        ((float *)a->out->data)[i] = -((const float *)a->x->data)[i];
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32; parallel(*s)",
    .native = "neg(x)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
