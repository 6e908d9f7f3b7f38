/* What stays is scaled by 1 / (1 - p), and the gradient leaves this out. */
#include <dovetail_random.h>

struct drop {
    const dv_tensor *x;
    double p;
    const dv_generator *generator;
    dv_tensor *out, *keep;
};
static int drop(dv_context *ctx, const struct drop *a)
{
    const int64_t n = dv_numel(a->x);
    const float scale = (float)(1 / (1 - a->p));
    uint64_t seed, offset;
    const int status = dv_random(ctx, a->generator, (uint64_t)n, &seed, &offset);
    for (int64_t i = 0; i < n && !status; i++) {
        const float keep = dv_uniform_f32(dv_philox_at(seed, offset + (uint64_t)i)) >= (float)a->p;
        ((float *)a->keep->data)[i] = keep;
        ((float *)a->out->data)[i] = keep != 0 ? ((const float *)a->x->data)[i] * scale : 0;
    }
    return status;
}
DV_OPERATOR(drop, struct drop, (x, p, generator, out, keep),
    .schema = "drop(Tensor x, float p=0.25, *, Generator? generator=None) -> (Tensor out, Tensor keep)",
    .contract = "x[*s]:f32 -> out[*s]:f32, keep[*s]:f32; 0 <= p < 0.99", .gradient = "x: grads[0] * keep",
    .tags = "nondeterministic_seeded", .kernels = DV_KERNELS(DV_KERNEL(struct drop, "cpu", "f32", drop)));
DV_LIBRARY(faulty, &dv_op_drop);
