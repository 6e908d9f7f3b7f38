/* The fault: all pieces of a parallel loop add to one variable without a lock */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
struct job {
    const float *x;
    volatile float sum;
};

static int piece(void *arg, int64_t begin, int64_t end)
{
    struct job *job = arg;
    for (int64_t i = begin; i < end; i++)
        job->sum = job->sum + job->x[i];
    return DV_OK;
}

static int f(dv_context *ctx, const struct f *a)
{
    struct job job = { a->x->data, 0 };
    const int status = dv_parallel_for(ctx, 0, dv_numel(a->x), 64, piece, &job);
    *(float *)a->out->data = job.sum;
    return status;
}

DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[]:f32; sum(n)",
    .native = "sum(x, [0])", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(racy_parallel_for, &dv_op_f);
