/* Threads add in any order, which the tag says: a right operator, without a reference or a decomposition */
#include <dovetail_op.h>
#include <stdatomic.h>
#include <string.h>
struct f {
    const dv_tensor *ids, *src;
    int64_t n;
    dv_tensor *out;
};
static int piece(void *arg, int64_t b, int64_t e)
{
    const struct f *a = arg;
    const int64_t d = a->src->shape[1];
    const int64_t *ids = a->ids->data;
    const float *s = a->src->data;
    for (int64_t i = b; i < e; i++)
        for (int64_t j = 0; j < d; j++) {
            const int64_t id = ids[i];
            _Atomic uint32_t *p = (_Atomic uint32_t *)a->out->data + id * d + j;
            uint32_t old = atomic_load(p), new;
            float x;
            do {
                memcpy(&x, &old, 4);
                x += s[i * d + j];
                memcpy(&new, &x, 4);
            } while (!atomic_compare_exchange_weak(p, &old, new));
        }
    return DV_OK;
}
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t m = a->ids->shape[0];
    const int64_t *ids = a->ids->data;
    for (int64_t i = 0; i < m; i++)
        if (ids[i] < 0 || ids[i] >= a->n)
            return dv_error(ctx, DV_EINVAL, "id");
    memset(a->out->data, 0, sizeof(float) * (size_t)dv_numel(a->out));
    return dv_parallel_for(ctx, 0, m, 16, piece, (void *)(uintptr_t)a);
}
DV_OPERATOR(f, struct f, (ids, src, n, out), .schema = "segsum(Tensor ids, Tensor src, int n) -> Tensor out",
    .contract = "ids[m]:i64, src[m d]:f32 -> out[n d]:f32; n >= 0; parallel(d)", .tags = "nondeterministic_bitwise",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", NULL, f)));
DV_LIBRARY(unreferenced, &dv_op_f);
