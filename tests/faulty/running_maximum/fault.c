/* The pieces of a loop compare with the maximum of all, and store theirs, without a lock: another piece's may be lost. */
#include <dovetail_op.h>
#include <math.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
struct loop {
    const float *x;
    float most;
};
static int piece(void *arg, int64_t begin, int64_t end)
{
    struct loop *const l = arg;
    float most = 0;
    for (int64_t i = begin; i < end; i++)
        most = fabsf(l->x[i]) > most ? fabsf(l->x[i]) : most;
    if (most > l->most)
        l->most = most;
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a)
{
    struct loop l = { .x = a->x->data };
    const int status = dv_parallel_for(ctx, 0, dv_numel(a->x), 4, piece, &l);
    *(float *)a->out->data = l.most;
    return status;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out",
    .contract = "x[n]:f32 -> out[]:f32; -1e30 < x.values < 1e30", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
