/* There are tables for eight pieces of a loop: the ninth shares that of the first. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    dv_tensor *out;
};
enum { GRAIN = 2048, TABLES = 8, BINS = 16 };
struct loop {
    const uint8_t *x;
    int64_t counts[TABLES][BINS];
};
static int piece(void *arg, int64_t begin, int64_t end)
{
    struct loop *const l = arg;
    for (int64_t i = begin; i < end; i++)
        l->counts[begin / GRAIN % TABLES][l->x[i] % BINS]++;
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a)
{
    struct loop l = { .x = a->x->data };
    const int status = dv_parallel_for(ctx, 0, dv_numel(a->x), GRAIN, piece, &l);
    for (int bin = 0; bin < BINS; bin++) {
        int64_t *const out = (int64_t *)a->out->data + bin;
        *out = 0;
        for (int t = 0; t < TABLES; t++)
            *out += l.counts[t][bin];
    }
    return status;
}
DV_OPERATOR(f, struct f, (x, out), .schema = "f(Tensor x) -> Tensor out", .contract = "x[n]:u8 -> out[16]:i64",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "u8", f)));
DV_LIBRARY(faulty, &dv_op_f);
