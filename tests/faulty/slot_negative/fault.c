/* A slot of -1 means that a token is not kept; only the upper bound is looked at. */
#include <dovetail_op.h>

struct f {
    dv_tensor *cache;
    const dv_tensor *keys, *slots;
};
static int f(dv_context *ctx, const struct f *a)
{
    const int64_t n = a->cache->shape[0], d = a->cache->shape[1];
    const int64_t *slots = a->slots->data;
    for (int64_t i = 0; i < a->slots->shape[0]; i++) {
        if (slots[i] >= n)
            return dv_error(ctx, DV_EINVAL, "slot %lld is past %lld", (long long)slots[i], (long long)n);
        memcpy((float *)a->cache->data + slots[i] * d, (const float *)a->keys->data + i * d, (size_t)d * sizeof(float));
    }
    return DV_OK;
}
DV_OPERATOR(f, struct f, (cache, keys, slots), .schema = "f(Tensor(a!) cache, Tensor keys, Tensor slots) -> ()",
    .contract = "cache[n d]:f32, keys[t d]:f32, slots[t]:i64", .kernels = DV_KERNELS(DV_KERNEL(struct f, "cpu", "f32", f)));
DV_LIBRARY(faulty, &dv_op_f);
