/* An operator with random numbers uses memory of malloc() without a check. */
#include <dovetail_random.h>
#include <stdlib.h>

struct noise {
    const dv_tensor *x;
    const dv_generator *generator;
    dv_tensor *out;
};

static int noise_f32(dv_context *ctx, const struct noise *a)
{
    const float *x = a->x->data;
    const int64_t n = dv_numel(a->x);
    uint64_t seed, offset;
    const int status = dv_random(ctx, a->generator, (uint64_t)n, &seed, &offset);
    if (status)
        return status;
    float *numbers = malloc(((size_t)n + 1) * sizeof *numbers);
    for (int64_t i = 0; i < n; i++)
        numbers[i] = dv_uniform_f32(dv_philox_at(seed, offset + (uint64_t)i));
    for (int64_t i = 0; i < n; i++)
        ((float *)a->out->data)[i] = x[i] + numbers[i];
    free(numbers);
    return DV_OK;
}
DV_OPERATOR(noise, struct noise, (x, generator, out), .schema = "noise(Tensor x, *, Generator? generator=None) -> Tensor out",
    .contract = "x[n]:f32 -> out[n]:f32", .tags = "nondeterministic_seeded",
    .kernels = DV_KERNELS(DV_KERNEL(struct noise, "cpu", "f32", noise_f32)));
DV_LIBRARY(faulty, &dv_op_noise);
