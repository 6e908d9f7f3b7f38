/* A slot past 32767 becomes negative, and its row is skipped. */
#include <dovetail_op.h>
#include <string.h>

struct f {
    const dv_tensor *rows, *slots;
    dv_tensor *cache;
};
static int f(dv_context *ctx, const struct f *a)
{
    const size_t size = (size_t)a->rows->shape[1] * sizeof(float);
    const int64_t *slots = a->slots->data, n = a->cache->shape[0];
    for (int64_t i = 0; i < a->rows->shape[0]; i++)
        if (slots[i] < -1 || slots[i] >= n)
            return dv_error(ctx, DV_EINVAL, "slots[%lld] is %lld", (long long)i, (long long)slots[i]);
    for (int64_t i = 0; i < a->rows->shape[0]; i++) {
        const int16_t at = (int16_t)slots[i];
        if (at >= 0)
            memcpy((char *)a->cache->data + (size_t)at * size, (const char *)a->rows->data + (size_t)i * size, size);
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (rows, slots, cache), .schema = "f(Tensor rows, Tensor slots, Tensor(a!) cache) -> ()",
    .contract = "rows[m d]:f32, slots[m]:i64, cache[n d]:f32; -1 <= slots.values < n",
    .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
