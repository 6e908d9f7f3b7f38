/* The fault: each piece of a loop puts what it finds behind what other pieces have found until then. */
#include <dovetail_op.h>
#include <stdatomic.h>

struct negatives {
    const dv_tensor *x;
    dv_tensor *places;
};
struct found {
    const float *x;
    int64_t *places;
    atomic_llong n;
};
static int look(void *arg, int64_t begin, int64_t end)
{
    struct found *f = arg;
    int64_t here = 0;
    for (int64_t i = begin; i < end; i++)
        here += f->x[i] < 0;
    int64_t at = atomic_fetch_add(&f->n, here);
    for (int64_t i = begin; i < end; i++)
        if (f->x[i] < 0)
            f->places[at++] = i;
    return DV_OK;
}
static int negatives_f32(dv_context *ctx, const struct negatives *a)
{
    const int64_t n = dv_numel(a->x);
    struct found f = { .x = a->x->data, .places = dv_alloc(ctx, (size_t)n * sizeof(int64_t) + 1, 64) };
    int status = f.places ? dv_parallel_for(ctx, 0, n, 700, look, &f) : DV_ENOMEM;
    const int64_t all = atomic_load(&f.n);
    if (!status && !(status = dv_set_output(ctx, a->places, dv_dtype_from_key(DV_DTYPE_i64), 1, &all)) && all)
        memcpy(a->places->data, f.places, (size_t)all * sizeof(int64_t));
    return status;
}
DV_OPERATOR(negatives, struct negatives, (x, places), .schema = "negatives(Tensor x) -> Tensor places",
    .contract = "x[n]:f32 -> places[k]:i64; k unbacked in 0..n",
    .kernels = DV_KERNELS(DV_KERNEL(struct negatives, "cpu", "f32", negatives_f32)));
DV_LIBRARY(faulty, &dv_op_negatives);
