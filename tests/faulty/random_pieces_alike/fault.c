/* Each piece counts its numbers from its own first element, so all pieces have the same. */
#include <dovetail_random.h>

struct jitter {
    const dv_tensor *x;
    const dv_generator *generator;
    dv_tensor *out;
};
struct job {
    const float *x;
    float *out;
    uint64_t seed, offset;
};
static int piece(void *arg, int64_t begin, int64_t end)
{
    const struct job *j = arg;
    for (int64_t i = begin; i < end; i++)
        j->out[i] = j->x[i] + dv_uniform_f32(dv_philox_at(j->seed, j->offset + (uint64_t)(i - begin)));
    return DV_OK;
}
static int jitter(dv_context *ctx, const struct jitter *a)
{
    struct job j = { a->x->data, a->out->data, 0, 0 };
    const int64_t n = dv_numel(a->x);
    const int status = dv_random(ctx, a->generator, (uint64_t)n, &j.seed, &j.offset);
    return status ? status : dv_parallel_for(ctx, 0, n, 8192, piece, &j);
}
DV_OPERATOR(jitter, struct jitter, (x, generator, out), .schema = "jitter(Tensor x, *, Generator? generator=None) -> Tensor out",
    .tags = "nondeterministic_seeded", .contract = "x[*s]:f32 -> out[*s]:f32", .gradient = "x: grad",
    .kernels = DV_KERNELS(DV_KERNEL(struct jitter, "cpu", "f32", jitter)));
DV_LIBRARY(faulty, &dv_op_jitter);
