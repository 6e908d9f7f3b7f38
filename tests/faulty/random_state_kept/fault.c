/* A generator of its own is seeded by the first call alone: the same seed, set again, gives other numbers. */
#include <dovetail_random.h>

struct jitter {
    const dv_tensor *x;
    const dv_generator *generator;
    dv_tensor *out;
};
static uint32_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}
static int jitter(dv_context *ctx, const struct jitter *a)
{
    static _Thread_local uint64_t state;
    const int64_t n = dv_numel(a->x);
    uint64_t seed, offset;
    const int status = dv_random(ctx, a->generator, (uint64_t)n, &seed, &offset);
    if (!state)
        state = (seed ^ offset) | 1;
    for (int64_t i = 0; i < n && !status; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + dv_uniform_f32(next(&state));
    return status;
}
DV_OPERATOR(jitter, struct jitter, (x, generator, out), .schema = "jitter(Tensor x, *, Generator? generator=None) -> Tensor out",
    .tags = "nondeterministic_seeded", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct jitter, "cpu", "f32", jitter)));
DV_LIBRARY(faulty, &dv_op_jitter);
