/* fault: memory asked for with an alignment of 16 is read and written with 32-byte aligned instructions */
#include <dovetail_op.h>
#include <immintrin.h>
struct s {
    const dv_tensor *x;
    dv_tensor *out;
};
DV_TARGET_AVX2 static int col_avx2(dv_context *ctx, const struct s *a)
{
    const int64_t r = a->x->shape[0], n = a->x->shape[1], room = (n + 7) / 8 * 8;
    float *acc = dv_alloc(ctx, (size_t)(room + 8) * sizeof(float), 16);
    if (!acc)
        return DV_ENOMEM;
    for (int64_t j = 0; j < room; j += 8)
        _mm256_store_ps(acc + j, _mm256_setzero_ps());
    for (int64_t i = 0; i < r; i++) {
        const float *x = (const float *)a->x->data + i * n;
        int64_t j = 0;
        for (; j + 8 <= n; j += 8)
            _mm256_store_ps(acc + j, _mm256_add_ps(_mm256_load_ps(acc + j), _mm256_loadu_ps(x + j)));
        for (; j < n; j++)
            acc[j] += x[j];
    }
    for (int64_t j = 0; j < n; j++)
        ((float *)a->out->data)[j] = acc[j];
    return DV_OK;
}
DV_OPERATOR(col_sum, struct s, (x, out), .schema = "col_sum(Tensor x) -> Tensor out",
    .contract = "x[r n]:f32 -> out[n]:f32; sum(r)", .native = "sum(x, [0])",
    .kernels = DV_KERNELS(DV_KERNEL(struct s, "cpu", NULL, col_avx2, .isa = "avx2")));
DV_LIBRARY(alloc_less_aligned, &dv_op_col_sum);
