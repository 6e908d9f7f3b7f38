/* A partial sum for each 1024 elements, of which there is memory for 256. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
enum { EACH = 1024, SLOTS = 256 };
struct loop {
    const float *x;
    double *sums;
};
static int piece(void *arg, int64_t begin, int64_t end)
{
    const struct loop *l = arg;
    double sum = 0;
    for (int64_t i = begin; i < end; i++)
        sum += (double)l->x[i];
    l->sums[begin / EACH] = sum;
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a)
{
    struct loop l = { a->x->data, dv_alloc(ctx, SLOTS * sizeof(double), 64) };
    if (!l.sums)
        return DV_ENOMEM;
    memset(l.sums, 0, SLOTS * sizeof(double));
    const int status = dv_parallel_for(ctx, 0, dv_numel(a->x), EACH, piece, &l);
    double sum = 0;
    for (int64_t i = 0; i < SLOTS; i++)
        sum += l.sums[i];
    *(float *)a->out->data = (float)sum;
    return status;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:f32 -> out[]:f32",
    .native = "sum(x, [0])", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
