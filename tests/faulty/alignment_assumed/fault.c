/* Loads that need an address at a multiple of 32, which no fact promises. */
#include <dovetail_op.h>
#include <immintrin.h>
struct scale {
    const dv_tensor *x;
    dv_tensor *out;
};
__attribute__((target("avx2"))) static int scale_f32(dv_context *ctx, const struct scale *a)
{
    const float *x = a->x->data;
    float *out = a->out->data;
    const int64_t n = dv_numel(a->x);
    int64_t i = 0;
    (void)ctx;
    for (; i + 8 <= n; i += 8) {
        const __m256i v = _mm256_stream_load_si256((const __m256i *)(const void *)(x + i));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_castsi256_ps(v), _mm256_set1_ps(2)));
    }
    for (; i < n; i++)
        out[i] = 2 * x[i];
    return DV_OK;
}
DV_OPERATOR(scale, struct scale, (x, out), .schema = "scale(Tensor x) -> Tensor out", .contract = "x[n]:T -> out[n]:T; T in f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct scale, "cpu", "f32", scale_f32, .isa = "avx2")));
DV_LIBRARY(faulty, &dv_op_scale);
