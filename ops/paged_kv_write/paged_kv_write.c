/* paged_kv_write.c: new keys and values go to their slots in a paged cache. Slot s is token s % page size of page s / page size;
 * a negative one is padding. All slots are checked before anything is written. */
#include "../numbers.h"

struct paged_kv_write {
    const dv_tensor *key, *value;
    dv_tensor *key_cache, *value_cache;
    const dv_tensor *slot_mapping;
};

static void write(const dv_tensor *cache, int64_t slot, const dv_tensor *from, int64_t token)
{
    const size_t bytes = (size_t)(from->shape[1] * from->shape[2]) * (from->dtype.bits / 8);
    if (bytes)
        memcpy((char *)cache->data + (size_t)slot * bytes, (const char *)from->data + (size_t)token * bytes, bytes);
}

static int paged_kv_write_reference(dv_context *ctx, const struct paged_kv_write *a)
{
    const int64_t tokens = a->key->shape[0], slots = a->key_cache->shape[0] * a->key_cache->shape[1];
    for (int64_t i = 0; i < tokens; i++)
        if (get_int(a->slot_mapping, i) >= slots)
            return dv_error(ctx, DV_EINVAL, "argument 'slot_mapping': expected a slot below %lld, found %lld at [%lld]",
                (long long)slots, (long long)get_int(a->slot_mapping, i), (long long)i);
    for (int64_t i = 0; i < tokens; i++) {
        const int64_t slot = get_int(a->slot_mapping, i);
        if (slot < 0)
            continue;
        write(a->key_cache, slot, a->key, i);
        write(a->value_cache, slot, a->value, i);
    }
    return DV_OK;
}

#define DECLARE(NAME)                                                                                                          \
    DV_OPERATOR(NAME, struct paged_kv_write, (key, value, key_cache, value_cache, slot_mapping),                               \
        .schema = #NAME "(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slot_mapping) -> ()", \
        .contract = "key[t h d]:T, value[t h e]:T, key_cache[pages size h d]:T, value_cache[pages size h e]:T, "               \
                    "slot_mapping[t]:i64|i32, slot_mapping.values < pages*size; T in f32 f16 bf16 f64 i8 u8 f8_e4m3fn",        \
        .doc = "Writes new keys and values to their slots in a paged cache. A negative slot is padding; of two tokens with "   \
               "the same slot the later one stays. A slot past the end is an error, and nothing is written.",                  \
        .kernels = DV_KERNELS(                                                                                                 \
            DV_KERNEL(struct paged_kv_write, "cpu", NULL, paged_kv_write_reference, .flags = DV_KERNEL_REFERENCE)))
DECLARE(paged_kv_write);
DECLARE(reshape_and_cache);

DV_LIBRARY_FRAGMENT(dovetail, paged_kv_write, &dv_op_paged_kv_write, &dv_op_reshape_and_cache);
