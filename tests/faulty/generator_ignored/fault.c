/* The numbers are those of the default generator, not of the one that is given. */
#include <dovetail_random.h>

struct jitter {
    const dv_tensor *x;
    const dv_generator *generator;
    dv_tensor *out;
};
static int jitter(dv_context *ctx, const struct jitter *a)
{
    const int64_t n = dv_numel(a->x);
    uint64_t seed, offset;
    const int status = dv_random(ctx, NULL, (uint64_t)n, &seed, &offset);
    for (int64_t i = 0; i < n && !status; i++)
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] + dv_uniform_f32(dv_philox_at(seed, offset + (uint64_t)i));
    return status;
}
DV_OPERATOR(jitter, struct jitter, (x, generator, out), .schema = "jitter(Tensor x, *, Generator? generator=None) -> Tensor out",
    .tags = "nondeterministic_seeded", .contract = "x[*s]:f32 -> out[*s]:f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct jitter, "cpu", "f32", jitter)));
DV_LIBRARY(faulty, &dv_op_jitter);
