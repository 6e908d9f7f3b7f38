/* The number is ignored, in an operator whose values are not compared, since they are random. */
#include <dovetail_op.h>
struct f {
    const dv_tensor *x;
    double scale;
    const dv_generator *generator;
    dv_tensor *out;
};
static int f(dv_context *ctx, const struct f *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    uint64_t seed, offset;
    const int64_t n = dv_numel(a->out);
    const int status = dv_random(ctx, a->generator, (uint64_t)n, &seed, &offset);
    for (int64_t i = 0; !status && i < n; i++) {
        uint64_t z = (seed ^ (offset + (uint64_t)i)) * UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        out[i] = x[i] + (float)(z >> 40) * 0x1p-24f;
    }
    return status;
}
DV_OPERATOR(f, struct f, (x, scale, generator, out),
    .schema = "f(Tensor x, float scale, *, Generator? generator=None) -> Tensor out", .contract = "x[*s]:f32 -> out[*s]:f32",
    .tags = "nondeterministic_seeded", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(faulty, &dv_op_f);
