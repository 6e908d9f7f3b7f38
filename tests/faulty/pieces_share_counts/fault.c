/* Pieces of a parallel loop count into the same result without atomic operations. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
struct counts {
    const int8_t *x;
    volatile int64_t *of;
};
static int count(void *arg, int64_t begin, int64_t end)
{
    const struct counts *c = arg;
    for (int64_t i = begin; i < end; i++)
        c->of[c->x[i] < 0] = c->of[c->x[i] < 0] + 1;
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a)
{
    struct counts c = { a->x->data, a->out->data };
    c.of[0] = c.of[1] = 0;
    return dv_parallel_for(ctx, 0, dv_numel(a->x), 4000, count, &c);
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[*s]:i8 -> out[2]:i64",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "i8", f)));
DV_LIBRARY(faulty, &dv_op_f);
