/* The offset is ignored, so every call drops the same elements. */
#include <dovetail_random.h>

struct drop {
    const dv_tensor *x;
    double p;
    const dv_generator *generator;
    dv_tensor *out, *mask;
};
static int drop(dv_context *ctx, const struct drop *a)
{
    const float scale = a->p < 1 ? (float)(1 / (1 - a->p)) : 0;
    const int64_t n = dv_numel(a->x);
    uint64_t seed, offset;
    const int status = dv_random(ctx, a->generator, (uint64_t)n, &seed, &offset);
    for (int64_t i = 0; i < n && !status; i++) {
        const float kept = dv_uniform_f32(dv_philox_at(seed, (uint64_t)i)) < (float)a->p ? 0 : scale;
        ((float *)a->mask->data)[i] = kept;
        ((float *)a->out->data)[i] = ((const float *)a->x->data)[i] * kept;
    }
    return status;
}
DV_OPERATOR(drop, struct drop, (x, p, generator, out, mask),
    .schema = "drop(Tensor x, float p=0.5, *, Generator? generator=None) -> (Tensor out, Tensor mask)",
    .tags = "nondeterministic_seeded", .gradient = "x: grads[0] * mask",
    .contract = "x[*s]:f32 -> out[*s]:f32, mask[*s]:f32; 0 <= p <= 1; parallel(*s)",
    .kernels = DV_KERNELS(DV_KERNEL(struct drop, "cpu", "f32", drop, .split = 4096)));
DV_LIBRARY(faulty, &dv_op_drop);
