/* The numbers of a slice begin anew: each slice drops the same elements. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x;
    int64_t seed;
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
    const int64_t first = 0;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        const float x = ((const float *)a->x->data)[i];
        ((float *)a->out->data)[i] = unit((uint64_t)a->seed, (uint64_t)(first + i)) < 0.5 ? 2 * x : 0;
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (x, seed, out), .schema = "f(Tensor x, int seed) -> Tensor out", .tags = "nondeterministic_seeded",
    .contract = "x[n]:f32 -> out[n]:f32; parallel(n)", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f, .split = 256)));
DV_LIBRARY(faulty, &dv_op_f);
