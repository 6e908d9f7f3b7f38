/* Tensors: names and sizes of element types, headers and their counts, DLPack, overlap and copies against a naive reference. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/dlpack.h"
#include "tensor/tensor.h"

static const dv_device cpu = { DV_CPU, 0 };
static dv_dtype type(uint32_t key) { return dv_dtype_from_key(key); }

static uint64_t seed = 1;
static int64_t below(int64_t n) /* splitmix64 */
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int64_t)((z ^ z >> 31) % (uint64_t)n);
}

#define assert_fails(status, call, fragment)                             \
    do {                                                                 \
        assert_int_equal(call, status);                                  \
        if (!strstr(dv_last_error(), fragment))                          \
            fail_msg("expected '%s' in: %s", fragment, dv_last_error()); \
    } while (0)

/* ---- Element types ---- */

/* Every pattern of a small type is a number of its own, or NaN; the largest numbers are those that ml_dtypes.finfo() tells. */
static void elements(void **state)
{
    (void)state;
    static const struct {
        uint32_t key;
        double max, tiny;
    } rows[] = {
        { DV_DTYPE_f8_e3m4, 15.5, 0.015625 },
        { DV_DTYPE_f8_e4m3, 240, 0x1p-9 },
        { DV_DTYPE_f8_e4m3b11fnuz, 30, 0x1p-13 },
        { DV_DTYPE_f8_e4m3fn, 448, 0x1p-9 },
        { DV_DTYPE_f8_e4m3fnuz, 240, 0x1p-10 },
        { DV_DTYPE_f8_e5m2, 57344, 0x1p-16 },
        { DV_DTYPE_f8_e5m2fnuz, 57344, 0x1p-17 },
        { DV_DTYPE_f8_e8m0fnu, 0x1p127, 0x1p-127 },
        { DV_DTYPE_f6_e2m3fn, 7.5, 0.125 },
        { DV_DTYPE_f6_e3m2fn, 28, 0.0625 },
        { DV_DTYPE_f4_e2m1fn, 6, 0.5 },
        { DV_DTYPE_i4, 7, 1 },
        { DV_DTYPE_u2, 3, 1 },
    };
    uint8_t memory[16] = { 0 };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const dv_dtype t = dv_dtype_from_key(rows[r].key);
        double max = 0, tiny = INFINITY;
        for (unsigned bits = 0; bits < 1u << t.bits; bits++) {
            uint8_t from[4] = { 0 }, to[4] = { 0xff, 0xff, 0xff, 0xff };
            for (unsigned k = 0; k < t.bits; k++) /* the second element */
                from[(t.bits + k) / 8] |= (uint8_t)((bits >> k & 1) << (t.bits + k) % 8);
            const double x = dv_element_get(from, 1, t);
            memcpy(to, from, sizeof to);
            for (unsigned k = 0; k < t.bits; k++)
                to[(t.bits + k) / 8] ^= (uint8_t)(1u << (t.bits + k) % 8);
            dv_element_put(to, 1, t, x);
            if (x != 0 && !isnan(x)) /* zero and NaN have several patterns */
                assert_memory_equal(to, from, (2u * t.bits + 7) / 8);
            max = isfinite(x) ? fmax(max, x) : max;
            tiny = x > 0 ? fmin(tiny, x) : tiny;
        }
        assert_true(max == rows[r].max && tiny == rows[r].tiny);
        if (t.code > 1) { /* also where the distance to each is the same double */
            dv_element_put(memory, 1, t, 1e300);
            assert_true(dv_element_get(memory, 1, t) == max);
        }
    }
    const dv_dtype c32 = dv_dtype_from_key(DV_DTYPE_c32), u64 = dv_dtype_from_key(DV_DTYPE_u64);
    dv_element_put(memory, 1, c32, -1.5);
    assert_true(dv_element_get(memory, 1, c32) == -1.5 && dv_get((uint16_t *)(void *)memory + 2, 1, DV_DTYPE_f16) == 0);
    dv_element_put(memory, 1, u64, 0x1p63);
    assert_true(dv_element_get(memory, 1, u64) == 0x1p63);
    assert_true(dv_element_get(memory, 0, (dv_dtype){ 99, 8, 1 }) == 0);
}

static void names_of_dtypes(void **state)
{
    (void)state;
    int n = 0;
    dv_dtype t;
#define CHECK(name, code, bits, ...)                                  \
    assert_string_equal(dv_dtype_name(type(DV_DTYPE_##name)), #name); \
    assert_int_equal(dv_dtype_parse(#name, &t), 0);                   \
    assert_int_equal(dv_dtype_key(t), DV_DTYPE_##name);               \
    assert_true(dv_dtype_find(t));                                    \
    n++;
    DV_DTYPES(CHECK)
#undef CHECK
    assert_int_equal(n, 34);
    static const struct {
        const char *spelling, *name;
    } rows[] = {
        { "float32", "f32" },
        { "torch.float32", "f32" },
        { "torch.bfloat16", "bf16" },
        { "double", "f64" },
        { "half", "f16" },
        { "int64", "i64" },
        { "torch.long", "i64" },
        { "uint8", "u8" },
        { "torch.bool", "bool" },
        { "bool_", "bool" },
        { "complex64", "c64" },
        { "float8_e4m3fn", "f8_e4m3fn" },
        { "torch.float4_e2m1fn_x2", "f4_e2m1fnx2" },
        { "f32x4", "f32x4" },
        { "float32x8", "f32x8" },
        { "u1x65535", "u1x65535" },
        { "torch.f16", "f16" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(dv_dtype_parse(rows[i].spelling, &t), 0);
        assert_string_equal(dv_dtype_name(t), rows[i].name);
    }
    static const char *const bad[] = { "", "f", "f33", "float33", "f32x", "f32x0", "f32x65536", "f32x4x2", "x4", "f32 ", "torch.",
        "F32", "f4_e2m1fn_x2x2" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(DV_EDTYPE, dv_dtype_parse(bad[i], &t), "unknown dtype");
    assert_fails(DV_EDTYPE, dv_dtype_parse(NULL, &t), "no dtype");
    const dv_dtype odd = { 99, 7, 3 }, none = { 2, 32, 0 };
    assert_string_equal(dv_dtype_name(odd), "dtype(code 99, bits 7, lanes 3)");
    assert_string_equal(dv_dtype_name(none), "dtype(code 2, bits 32, lanes 0)");
}

static void bytes_of_dtypes(void **state)
{
    (void)state;
    static const struct {
        uint32_t key;
        int64_t n, bytes;
    } rows[] = {
        { DV_DTYPE_f32, 0, 0 },
        { DV_DTYPE_f32, 3, 12 },
        { DV_DTYPE_c128, 2, 32 },
        { DV_DTYPE_i4, 0, 0 },
        { DV_DTYPE_i4, 1, 1 },
        { DV_DTYPE_i4, 2, 1 },
        { DV_DTYPE_i4, 3, 2 },
        { DV_DTYPE_u1, 8, 1 },
        { DV_DTYPE_u1, 9, 2 },
        { DV_DTYPE_f6_e2m3fn, 4, 3 },
        { DV_DTYPE_f6_e2m3fn, 5, 4 },
        { DV_DTYPE_f4_e2m1fn + (1 << 16), 3, 3 },
        { DV_DTYPE_f32 + (3 << 16), 2, 32 },
        { DV_DTYPE_i8, INT64_MAX, INT64_MAX },
        { DV_DTYPE_i16, INT64_MAX, -1 },
        { DV_DTYPE_i16, INT64_MAX / 2, INT64_MAX - 1 },
        { DV_DTYPE_u1, INT64_MAX, INT64_MAX / 8 + 1 },
        { DV_DTYPE_i4, INT64_MAX, INT64_MAX / 2 + 1 },
        { DV_DTYPE_f32, -1, -1 },
        { DV_DTYPE_f6_e2m3fn + (65534u << 16), INT64_MAX, -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (dv_dtype_bytes(type(rows[i].key), rows[i].n) != rows[i].bytes)
            fail_msg("row %zu: %lld", i, (long long)dv_dtype_bytes(type(rows[i].key), rows[i].n));
}

static void names_of_devices(void **state)
{
    (void)state;
    dv_device d;
    static const struct {
        const char *name;
        int32_t type, id;
    } rows[] = {
        { "cpu", 1, 0 },
        { "cuda", 2, 0 },
        { "cuda:1", 2, 1 },
        { "npu:15", 12, 15 },
        { "meta", 1000, 0 },
        { "privateuseone:2", 12, 2 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(dv_device_parse(rows[i].name, &d), 0);
        assert_int_equal(d.type, rows[i].type);
        assert_int_equal(d.id, rows[i].id);
    }
    assert_string_equal(dv_device_name(DV_CUDA), "cuda");
    assert_string_equal(dv_device_name(77), "device 77");
    static const char *const bad[] = { "", "gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:99999999", "CPU", "cpu " };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(DV_EDEVICE, dv_device_parse(bad[i], &d), "device");
    assert_fails(DV_EDEVICE, dv_device_parse(NULL, &d), "no device");
}

/* ---- Headers ---- */

static void init(void **state)
{
    (void)state;
    dv_tensor t;
    int64_t strides[DV_MAX_NDIM + 1], shape[DV_MAX_NDIM + 1];
    float data[24];
    const int64_t s234[] = { 2, 3, 4 }, s_huge[] = { INT64_MAX / 4, 2 }, s_zero_huge[] = { 0, INT64_MAX, 2 }, s_neg[] = { 2, -1 };
    const int64_t wild[] = { INT64_MAX, 1, 1 }, back[] = { -12, -4, -1 };
    assert_int_equal(dv_tensor_init(&t, data, type(DV_DTYPE_f32), cpu, 3, s234, NULL, strides), 0);
    assert_int_equal(t.strides[0], 12);
    assert_int_equal(t.strides[2], 1);
    assert_int_equal(dv_numel(&t), 24);
    assert_true(dv_tensor_is_contiguous(&t));
    assert_int_equal(dv_tensor_init(&t, data + 23, type(DV_DTYPE_f32), cpu, 3, s234, back, NULL), 0);
    assert_false(dv_tensor_is_contiguous(&t));
    assert_int_equal(dv_tensor_init(&t, data, type(DV_DTYPE_f32), cpu, 0, NULL, NULL, NULL), 0);
    assert_non_null(t.strides);
    assert_non_null(t.shape);
    assert_int_equal(dv_numel(&t), 1);
    assert_true(dv_tensor_is_contiguous(&t));
    assert_fails(DV_EINVAL, dv_tensor_init(&t, data, type(DV_DTYPE_f32), cpu, 3, s234, NULL, NULL), "strides");
    assert_fails(DV_ESHAPE, dv_tensor_init(&t, data, type(DV_DTYPE_f32), cpu, 2, s_neg, NULL, strides), "negative size -1");
    assert_fails(DV_ESHAPE, dv_tensor_init(&t, data, type(DV_DTYPE_f32), cpu, 2, s_huge, NULL, strides), "overflows");
    assert_fails(DV_ESHAPE, dv_tensor_init(&t, data, type(DV_DTYPE_u1), cpu, 3, s_zero_huge, NULL, strides), "overflows");
    assert_fails(DV_ESHAPE, dv_tensor_init(&t, data, type(DV_DTYPE_f32), cpu, 3, s234, wild, NULL), "address");
    assert_fails(DV_ESHAPE, dv_tensor_init(&t, data, type(DV_DTYPE_f32), cpu, -1, s234, NULL, strides), "not -1");
    for (int i = 0; i <= DV_MAX_NDIM; i++)
        shape[i] = 1;
    assert_int_equal(dv_tensor_init(&t, data, type(DV_DTYPE_f32), cpu, DV_MAX_NDIM, shape, NULL, strides), 0);
    assert_fails(DV_ESHAPE, dv_tensor_init(&t, data, type(DV_DTYPE_f32), cpu, DV_MAX_NDIM + 1, shape, NULL, strides), "not 65");
    assert_fails(DV_EINVAL, dv_tensor_init(&t, data, type(DV_DTYPE_f32), cpu, 2, NULL, NULL, strides), "NULL");
    const dv_dtype odd = { 2, 33, 1 }, no_lanes = { 2, 32, 0 };
    assert_fails(DV_EDTYPE, dv_tensor_init(&t, data, odd, cpu, 1, s234, NULL, strides), "element type");
    assert_fails(DV_EDTYPE, dv_tensor_init(&t, data, no_lanes, cpu, 1, s234, NULL, strides), "lanes 0");
}

static void new_and_view(void **state)
{
    (void)state;
    dv_tensor *t, *v, *w;
    const int64_t shape[] = { 3, 4 }, column[] = { 3 }, step[] = { 4 }, reversed[] = { -1 }, zero[] = { 0 }, zeros[] = { 0, 0 },
                  four[] = { 4 }, none[] = { 0 };
    assert_int_equal(dv_tensor_new(type(DV_DTYPE_f32), 2, shape, &t), 0);
    assert_int_equal((uintptr_t)t->data % 64, 0);
    float *x = t->data;
    for (int i = 0; i < 12; i++) {
        assert_true(x[i] == 0);
        x[i] = (float)i;
    }
    assert_int_equal(dv_tensor_view(t, 1, column, step, 2, &v), 0);
    assert_true(((float *)v->data)[4] == 6);
    assert_int_equal(dv_tensor_view(v, 1, column, reversed, 2, &w), DV_OK); /* inside the extent of v: 0 to 8 */
    assert_true(((float *)w->data)[0] == 4);
    dv_tensor_unref(t);
    dv_tensor_unref(v); /* w keeps both alive */
    assert_true(((float *)w->data)[-2] == 2);
    assert_fails(DV_ESHAPE, dv_tensor_view(w, 1, column, reversed, 1, &v), "outside its base");
    assert_null(v);
    assert_int_equal(dv_tensor_view(w, 1, four, zero, -2, &v), 0); /* an expanded element */
    dv_tensor_unref(v);
    assert_fails(DV_ESHAPE, dv_tensor_view(w, 1, four, zero, -3, &v), "outside");
    assert_fails(DV_ESHAPE, dv_tensor_view(w, 1, four, zero, INT64_MIN, &v), "outside");
    assert_int_equal(dv_tensor_view(w, 1, none, NULL, 1, &v), 0); /* nothing, one past the end */
    dv_tensor_unref(v);
    dv_tensor_unref(w);
    assert_int_equal(dv_tensor_new(type(DV_DTYPE_i64), 2, zeros, &t), 0);
    assert_int_equal(dv_tensor_view(t, 1, none, NULL, 0, &v), 0);
    dv_tensor_unref(v);
    assert_fails(DV_ESHAPE, dv_tensor_view(t, 0, NULL, NULL, 0, &v), "outside");
    dv_tensor_unref(t);
    dv_tensor_unref(NULL);
    const int64_t ten[] = { 10 };
    assert_int_equal(dv_tensor_new(type(DV_DTYPE_i4), 1, ten, &t), 0);
    assert_int_equal(dv_tensor_view(t, 1, four, NULL, 2, &v), 0);
    assert_ptr_equal(v->data, (char *)t->data + 1);
    dv_tensor_unref(v);
    assert_fails(DV_ENOTSUP, dv_tensor_view(t, 1, four, NULL, 3, &v), "whole byte");
    dv_tensor_unref(t);
    float mine[12] = { 0 }; /* a base that is the caller's own */
    dv_tensor base;
    int64_t strides[2];
    assert_int_equal(dv_tensor_init(&base, mine, type(DV_DTYPE_f32), cpu, 2, shape, NULL, strides), 0);
    assert_false(dv__tensor_is_counted(&base));
    assert_int_equal(dv_tensor_view(&base, 1, column, step, 1, &v), 0);
    assert_true(dv__tensor_is_counted(v));
    assert_ptr_equal(v->data, mine + 1);
    dv_tensor_unref(v);
    const int64_t back[] = { -4, 1 };
    assert_int_equal(dv__tensor_new_strided(type(DV_DTYPE_f32), 2, shape, back, true, &t), 0);
    ((float *)t->data)[-8] = 1; /* the last row is the first in memory */
    dv_tensor_unref(t);
    assert_fails(DV_ENOTSUP, dv__tensor_new_strided(type(DV_DTYPE_i4), 2, shape, back, true, &t), "negative strides");
}

/* ---- DLPack ---- */

static int deleted;
static void count_deleted(DLManagedTensorVersioned *m)
{
    (void)m;
    deleted++;
}

static void dlpack_import(void **state)
{
    (void)state;
    float data[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    int64_t shape[] = { 2, 3 }, strides[] = { 1, 2 }, bad_shape[] = { 2, -3 };
    const DLManagedTensorVersioned good = { { 1, 0 }, NULL, count_deleted, 0,
        { data, { kDLCPU, 0 }, 2, { kDLFloat, 32, 1 }, shape, NULL, 8 } };
    DLManagedTensorVersioned m = good;
    dv_tensor *t, *v;
    deleted = 0;
    assert_int_equal(dv_tensor_from_dlpack(&m, &t), 0);
    assert_ptr_equal(t->data, data + 2);
    assert_int_equal(t->byte_offset, 0);
    assert_int_equal(t->strides[0], 3);
    assert_false(dv__tensor_is_read_only(t));
    assert_int_equal(dv_tensor_view(t, 0, NULL, NULL, 5, &v), 0);
    dv_tensor_unref(t);
    assert_int_equal(deleted, 0);
    assert_true(*(float *)v->data == 7);
    dv_tensor_unref(v);
    assert_int_equal(deleted, 1);

    m = good;
    m.version.minor = 99; /* any minor */
    m.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    m.dl_tensor.strides = strides;
    assert_int_equal(dv_tensor_from_dlpack(&m, &t), 0);
    assert_true(dv__tensor_is_read_only(t));
    assert_int_equal(t->strides[1], 2);
    assert_int_equal(dv_tensor_view(t, 0, NULL, NULL, 0, &v), 0);
    assert_true(dv__tensor_is_read_only(v));
    dv_tensor_unref(v);
    assert_fails(DV_EINVAL, (dv_tensor_new(type(DV_DTYPE_f32), 2, shape, &v), dv_tensor_copy(t, v)), "read-only");
    dv_tensor_unref(v);
    DLManagedTensorVersioned *out;
    assert_int_equal(dv_tensor_to_dlpack(t, &out), 0);
    assert_int_equal(out->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    out->deleter(out);
    dv_tensor_unref(t);

    struct {
        const char *fragment;
        int status;
        DLManagedTensorVersioned m;
    } rows[] = {
        { "DLPack 2.0", DV_EABI, good },
        { "negative", DV_ESHAPE, good },
        { "not 65", DV_ESHAPE, good },
        { "element type", DV_EDTYPE, good },
        { "padded", DV_ENOTSUP, good },
        { "byte offset", DV_ENOTSUP, good },
        { "not -2", DV_ESHAPE, good },
        { "found NULL", DV_EINVAL, good },
    };
    rows[0].m.version.major = 2;
    rows[1].m.dl_tensor.shape = bad_shape;
    rows[2].m.dl_tensor.ndim = 65;
    rows[3].m.dl_tensor.dtype.bits = 31;
    rows[4].m.dl_tensor.dtype = (DLDataType){ kDLFloat4_e2m1fn, 4, 1 };
    rows[4].m.flags = DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
    rows[5].m.dl_tensor.device.device_type = kDLOpenCL;
    rows[6].m.dl_tensor.ndim = -2;
    rows[7].m.dl_tensor.shape = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        deleted = 0;
        assert_fails(rows[i].status, dv_tensor_from_dlpack(&rows[i].m, &t), rows[i].fragment);
        assert_int_equal(deleted, 1); /* taken in every case */
        assert_null(t);
    }
    assert_fails(DV_EINVAL, dv_tensor_from_dlpack(NULL, &t), "NULL");
    m = good;
    m.deleter = NULL;
    assert_int_equal(dv_tensor_from_dlpack(&m, &t), 0);
    dv_tensor_unref(t);
}

static void dlpack_export(void **state)
{
    (void)state;
    const int64_t shape[] = { 2, 3 }, none[] = { 2, 0 };
    dv_tensor *t, *back;
    DLManagedTensorVersioned *m;
    assert_int_equal(sizeof(DLTensor), sizeof(dv_tensor));
    assert_int_equal(dv_tensor_new(type(DV_DTYPE_f8_e4m3fn), 2, shape, &t), 0);
    assert_int_equal(dv_tensor_to_dlpack(t, &m), 0);
    ((char *)t->data)[5] = 42;
    dv_tensor_unref(t); /* the managed tensor keeps it */
    assert_int_equal(m->version.major, 1);
    assert_int_equal(m->dl_tensor.dtype.code, kDLFloat8_e4m3fn);
    assert_int_equal(m->dl_tensor.strides[0], 3);
    assert_int_equal(dv_tensor_from_dlpack(m, &back), 0);
    assert_int_equal(((char *)back->data)[5], 42);
    dv_tensor_unref(back);
    assert_int_equal(dv_tensor_new(type(DV_DTYPE_f32), 2, none, &t), 0);
    assert_int_equal(dv_tensor_to_dlpack(t, &m), 0);
    assert_null(m->dl_tensor.data);
    m->deleter(m);
    dv_tensor_unref(t);
    dv_tensor mine;
    float x = 0;
    assert_int_equal(dv_tensor_init(&mine, &x, type(DV_DTYPE_f32), cpu, 0, NULL, NULL, NULL), 0);
    assert_fails(DV_EINVAL, dv_tensor_to_dlpack(&mine, &m), "nothing owns");
}

/* ---- Properties, against a reference that visits every element ---- */

enum { BUFFER = 512, REACH = 160, GUARD = 16 }; /* elements stay within REACH of the start that random_view() chooses */

typedef struct view {
    dv_tensor t;
    int64_t shape[4], strides[4];
} view;

static void random_view(view *v, unsigned char *buffer, dv_dtype dtype, const view *like)
{
    const int64_t size = dv_dtype_bytes(dtype, 1);
    for (;;) {
        int32_t ndim = like ? like->t.ndim : (int32_t)below(5);
        const int64_t widest = below(4) ? 5 : 2;
        for (int32_t i = 0; i < ndim; i++) {
            v->shape[i] = like ? like->shape[i] : below(12) ? 1 + below(widest) : 0;
            v->strides[i] = below(5) ? below(20) - 5 : below(3);
        }
        if (below(3) == 0) { /* permuted contiguous, with a gap now and then */
            int64_t step = below(3) ? 1 : 2;
            bool done[4] = { false };
            for (int32_t k = 0; k < ndim; k++) {
                int32_t i = (int32_t)below(ndim);
                while (done[i])
                    i = (i + 1) % ndim;
                done[i] = true;
                v->strides[i] = below(4) ? step : -step;
                step *= v->shape[i] + !below(4);
            }
        }
        int64_t low, high;
        assert_true(dv__try_find_element_range(ndim, v->shape, v->strides, &low, &high));
        int64_t n = 1;
        for (int32_t i = 0; i < ndim; i++)
            n *= v->shape[i];
        if (high - low >= REACH || n > REACH / 4)
            continue;
        const int64_t start = (GUARD + below(40) - low) * size;
        assert_int_equal(dv_tensor_init(&v->t, buffer + start, dtype, cpu, ndim, v->shape, v->strides, NULL), 0);
        return;
    }
}

/* Of the element with this index in row-major order. */
static int64_t offset_of(const dv_tensor *t, int64_t index)
{
    int64_t offset = 0;
    for (int32_t i = t->ndim; i-- > 0;) {
        offset += index % t->shape[i] * t->strides[i];
        index /= t->shape[i];
    }
    return offset;
}

static void overlap_is_never_missed(void **state)
{
    (void)state;
    static unsigned char buffer[BUFFER * 16], count[2][BUFFER * 16];
    int missed = 0, exact = 0, apart = 0, self = 0, self_exact = 0;
    for (int round = 0; round < 60000; round++) {
        view v[2];
        static const uint32_t keys[] = { DV_DTYPE_u8, DV_DTYPE_i16, DV_DTYPE_f32, DV_DTYPE_c128 };
        for (int k = 0; k < 2; k++) {
            const dv_dtype dtype = type(keys[below(4)]);
            const int64_t size = dv_dtype_bytes(dtype, 1);
            random_view(&v[k], buffer, dtype, NULL);
            memset(count[k], 0, sizeof count[k]);
            bool twice = false;
            for (int64_t i = 0, n = dv_numel(&v[k].t); i < n; i++) {
                unsigned char *at = count[k] + ((unsigned char *)v[k].t.data - buffer) + offset_of(&v[k].t, i) * size;
                twice |= *at != 0;
                memset(at, 1, (size_t)size);
            }
            if (twice && !dv_tensor_overlaps_itself(&v[k].t))
                missed++;
            self += !twice;
            self_exact += !twice && !dv_tensor_overlaps_itself(&v[k].t);
        }
        bool shared = false;
        for (size_t i = 0; i < sizeof count[0]; i++)
            shared |= count[0][i] && count[1][i];
        const bool said = dv_tensor_overlaps(&v[0].t, &v[1].t);
        assert_int_equal(said, dv_tensor_overlaps(&v[1].t, &v[0].t));
        missed += shared && !said;
        apart += !shared;
        exact += !shared && !said;
        if (dv_tensor_is_contiguous(&v[0].t) && dv_tensor_is_contiguous(&v[1].t))
            assert_int_equal(said, shared);
    }
    assert_int_equal(missed, 0);
    assert_true(exact * 10 > apart * 7); /* conservative, but of use */
    assert_true(self_exact * 10 > self * 7);
}

static void interleaved_slices_are_apart(void **state)
{
    (void)state;
    static float data[4 * 6 * 10];
    const int64_t strides[] = { 60, 10, 1 };
    for (int64_t from = 0; from <= 10; from++)
        for (int64_t to = 0; to <= 10; to++) { /* [..., :to] and [..., from:] */
            dv_tensor a, b;
            const int64_t sa[] = { 4, 6, to }, sb[] = { 4, 6, 10 - from };
            assert_int_equal(dv_tensor_init(&a, data, type(DV_DTYPE_f32), cpu, 3, sa, strides, NULL), 0);
            assert_int_equal(dv_tensor_init(&b, data + from, type(DV_DTYPE_f32), cpu, 3, sb, strides, NULL), 0);
            assert_int_equal(dv_tensor_overlaps(&a, &b), to > from);
        }
    dv_tensor even, odd; /* x[::2] and x[1::2] */
    const int64_t n[] = { 20 }, two[] = { 2 };
    assert_int_equal(dv_tensor_init(&even, data, type(DV_DTYPE_f32), cpu, 1, n, two, NULL), 0);
    assert_int_equal(dv_tensor_init(&odd, data + 1, type(DV_DTYPE_f32), cpu, 1, n, two, NULL), 0);
    assert_false(dv_tensor_overlaps(&even, &odd));
    odd.data = (char *)odd.data - 2;
    assert_true(dv_tensor_overlaps(&even, &odd));
    odd.device.type = DV_CUDA;
    assert_false(dv_tensor_overlaps(&even, &odd));
}

/* Bit by bit, in a wide enough reference: src[i] lands at dst[i], and nothing else changes. */
static bool bit(const unsigned char *data, int64_t i) { return data[i >> 3] >> (i & 7) & 1; }

static void copies(void **state)
{
    (void)state;
    static unsigned char from[BUFFER * 16], to[BUFFER * 16], expected[BUFFER * 16];
    static const uint32_t keys[] = { DV_DTYPE_u8, DV_DTYPE_i16, DV_DTYPE_f32, DV_DTYPE_f64, DV_DTYPE_c128,
        DV_DTYPE_f32 + (2 << 16), DV_DTYPE_i4, DV_DTYPE_u1, DV_DTYPE_f6_e3m2fn, DV_DTYPE_i2 };
    for (int round = 0; round < 20000; round++) {
        const dv_dtype dtype = type(keys[below((int64_t)(sizeof keys / sizeof *keys))]);
        const int64_t bits = (int64_t)dtype.bits * dtype.lanes;
        view src, dst;
        random_view(&src, from, dtype, NULL);
        do
            random_view(&dst, to, dtype, &src);
        while (dv_tensor_overlaps_itself(&dst.t));
        for (size_t i = 0; i < sizeof from; i++) {
            from[i] = (unsigned char)below(256);
            to[i] = expected[i] = (unsigned char)below(256);
        }
        for (int64_t i = 0, n = dv_numel(&dst.t); i < n; i++)
            for (int64_t b = 0; b < bits; b++) {
                const int64_t s = ((unsigned char *)src.t.data - from) * 8 + offset_of(&src.t, i) * bits + b;
                const int64_t d = ((unsigned char *)dst.t.data - to) * 8 + offset_of(&dst.t, i) * bits + b;
                expected[d >> 3] = (unsigned char)((expected[d >> 3] & ~(1 << (d & 7))) | bit(from, s) << (d & 7));
            }
        assert_int_equal(dv_tensor_copy(&dst.t, &src.t), 0);
        assert_memory_equal(to, expected, sizeof to);
    }
}

static void big_transposed_copy(void **state)
{
    (void)state;
    const int64_t shape[] = { 3, 67, 131 }, turned[] = { 67 * 131, 1, 67 };
    dv_tensor *a, *b;
    assert_int_equal(dv__tensor_new_strided(type(DV_DTYPE_i32), 3, shape, turned, true, &a), 0);
    assert_int_equal(dv_tensor_new(type(DV_DTYPE_i32), 3, shape, &b), 0);
    for (int32_t i = 0; i < 3 * 67 * 131; i++)
        ((int32_t *)a->data)[i] = i;
    assert_int_equal(dv_tensor_copy(b, a), 0);
    for (int64_t i = 0; i < 3 * 67 * 131; i++)
        assert_int_equal(((int32_t *)b->data)[i], offset_of(a, i));
    memset(a->data, 0, sizeof(int32_t) * 3 * 67 * 131);
    assert_int_equal(dv_tensor_copy(a, b), 0);
    for (int32_t i = 0; i < 3 * 67 * 131; i++)
        assert_int_equal(((int32_t *)a->data)[i], i);
    dv_tensor_unref(a);
    dv_tensor_unref(b);
}

static void refused_copies(void **state)
{
    (void)state;
    float x[16] = { 0 };
    const int64_t s4[] = { 4 }, s5[] = { 5 }, s22[] = { 2, 2 }, one[] = { 1 }, zero[] = { 0 };
    dv_tensor a, b;
    int64_t strides[2];
    const dv_dtype f32 = type(DV_DTYPE_f32);
    dv_tensor_init(&a, x, f32, cpu, 1, s4, one, NULL);
    dv_tensor_init(&b, x + 8, f32, cpu, 2, s22, NULL, strides);
    assert_fails(DV_ESHAPE, dv_tensor_copy(&a, &b), "2 dims");
    dv_tensor_init(&b, x + 8, f32, cpu, 1, s5, one, NULL);
    assert_fails(DV_ESHAPE, dv_tensor_copy(&a, &b), "size 5");
    dv_tensor_init(&b, x + 8, type(DV_DTYPE_i32), cpu, 1, s4, one, NULL);
    assert_fails(DV_EDTYPE, dv_tensor_copy(&a, &b), "from i32 to f32");
    dv_tensor_init(&b, x + 8, f32, cpu, 1, s4, one, NULL);
    b.device.type = DV_CUDA;
    assert_fails(DV_EDEVICE, dv_tensor_copy(&a, &b), "from cuda");
    dv_tensor_init(&b, x + 2, f32, cpu, 1, s4, one, NULL);
    assert_fails(DV_EALIAS, dv_tensor_copy(&a, &b), "overlap");
    dv_tensor_init(&b, x + 8, f32, cpu, 1, s4, zero, NULL);
    assert_fails(DV_EALIAS, dv_tensor_copy(&b, &a), "two elements");
    assert_int_equal(dv_tensor_copy(&a, &b), 0); /* expanded sources are fine */
    assert_int_equal(dv_tensor_copy(&a, &a), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_dtypes),
        cmocka_unit_test(elements),
        cmocka_unit_test(bytes_of_dtypes),
        cmocka_unit_test(names_of_devices),
        cmocka_unit_test(init),
        cmocka_unit_test(new_and_view),
        cmocka_unit_test(dlpack_import),
        cmocka_unit_test(dlpack_export),
        cmocka_unit_test(overlap_is_never_missed),
        cmocka_unit_test(interleaved_slices_are_apart),
        cmocka_unit_test(copies),
        cmocka_unit_test(big_transposed_copy),
        cmocka_unit_test(refused_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
