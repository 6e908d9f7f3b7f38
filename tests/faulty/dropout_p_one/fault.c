/* Where all is dropped, what remains is divided by 0. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    double p;
    dv_tensor *out;
};
static uint64_t hash(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static double unit(uint64_t seed, uint64_t at) { return (double)(hash(seed ^ hash(at + 1)) >> 11) * 0x1p-53; }
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = dv_numel(a->x);
    uint64_t seed, offset;
    if (!(a->p >= 0 && a->p <= 1))
        return dv_error(ctx, DV_EINVAL, "f: expected p in 0 to 1, found %g", a->p);
    const int status = dv_random(ctx, NULL, (uint64_t)n, &seed, &offset);
    if (status)
        return status;
    for (int64_t i = 0; i < n; i++) {
        const float x = ((const float *)a->x->data)[i];
        const bool kept = unit(seed, offset + (uint64_t)i) >= a->p;
        ((float *)a->out->data)[i] = x * (float)kept * (float)(1 / (1 - a->p));
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, p, out), .schema = "f(Tensor x, float p) -> Tensor out", .tags = "nondeterministic_seeded",
    .contract = "x[*s]:f32 -> out[*s]:f32; p >= 0; p <= 1", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
