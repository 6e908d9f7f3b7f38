/* Names of element types and devices. The table of types is DV_DTYPES; the other spellings that people use map onto it. */
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>

bool dv__dtype_known(dv_dtype t)
{
    t.lanes = 1;
    switch (dv_dtype_key(t)) {
#define KNOWN(name, code, bits) case DV_DTYPE_##name:
        DV_DTYPES(KNOWN)
#undef KNOWN
        return true;
    default: return false;
    }
}

const char *dv_dtype_name(dv_dtype t)
{
    static _Thread_local char text[4][48]; /* four, so that one message can name several types */
    static _Thread_local unsigned next;
    const char *base = NULL;
    const dv_dtype one = { t.code, t.bits, 1 };
    switch (dv_dtype_key(one)) {
#define NAME(name, code, bits) \
    case DV_DTYPE_##name: base = #name; break;
        DV_DTYPES(NAME)
#undef NAME
    default: break;
    }
    if (base && t.lanes == 1)
        return base;
    char *out = text[next++ % 4];
    if (base && t.lanes)
        snprintf(out, sizeof text[0], "%sx%u", base, t.lanes);
    else
        snprintf(out, sizeof text[0], "dtype(code %u, bits %u, lanes %u)", t.code, t.bits, t.lanes);
    return out;
}

static const struct {
    const char *name;
    uint32_t key;
} aliases[] = {
    { "float16", DV_DTYPE_f16 },
    { "half", DV_DTYPE_f16 },
    { "float32", DV_DTYPE_f32 },
    { "float", DV_DTYPE_f32 },
    { "float64", DV_DTYPE_f64 },
    { "double", DV_DTYPE_f64 },
    { "bfloat16", DV_DTYPE_bf16 },
    { "int1", DV_DTYPE_i1 },
    { "int2", DV_DTYPE_i2 },
    { "int4", DV_DTYPE_i4 },
    { "int8", DV_DTYPE_i8 },
    { "int16", DV_DTYPE_i16 },
    { "short", DV_DTYPE_i16 },
    { "int32", DV_DTYPE_i32 },
    { "int", DV_DTYPE_i32 },
    { "int64", DV_DTYPE_i64 },
    { "long", DV_DTYPE_i64 },
    { "uint1", DV_DTYPE_u1 },
    { "uint2", DV_DTYPE_u2 },
    { "uint4", DV_DTYPE_u4 },
    { "uint8", DV_DTYPE_u8 },
    { "uint16", DV_DTYPE_u16 },
    { "uint32", DV_DTYPE_u32 },
    { "uint64", DV_DTYPE_u64 },
    { "bool_", DV_DTYPE_bool },
    { "complex32", DV_DTYPE_c32 },
    { "chalf", DV_DTYPE_c32 },
    { "complex64", DV_DTYPE_c64 },
    { "cfloat", DV_DTYPE_c64 },
    { "complex128", DV_DTYPE_c128 },
    { "cdouble", DV_DTYPE_c128 },
    { "float8_e3m4", DV_DTYPE_f8_e3m4 },
    { "float8_e4m3", DV_DTYPE_f8_e4m3 },
    { "float8_e4m3b11fnuz", DV_DTYPE_f8_e4m3b11fnuz },
    { "float8_e4m3fn", DV_DTYPE_f8_e4m3fn },
    { "float8_e4m3fnuz", DV_DTYPE_f8_e4m3fnuz },
    { "float8_e5m2", DV_DTYPE_f8_e5m2 },
    { "float8_e5m2fnuz", DV_DTYPE_f8_e5m2fnuz },
    { "float8_e8m0fnu", DV_DTYPE_f8_e8m0fnu },
    { "float6_e2m3fn", DV_DTYPE_f6_e2m3fn },
    { "float6_e3m2fn", DV_DTYPE_f6_e3m2fn },
    { "float4_e2m1fn", DV_DTYPE_f4_e2m1fn },
    { "float4_e2m1fn_x2", DV_DTYPE_f4_e2m1fn + (1 << 16) }, /* PyTorch's name: two to a byte */
};

static bool is(const char *name, size_t size, const char *word) { return strlen(word) == size && !memcmp(name, word, size); }

static bool parse_base(const char *name, size_t size, dv_dtype *out)
{
#define PARSE(word, code_, bits_) \
    if (is(name, size, #word))    \
        return *out = dv_dtype_from_key((uint32_t)DV_DTYPE_##word), true;
    DV_DTYPES(PARSE)
#undef PARSE
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (is(name, size, aliases[i].name))
            return *out = dv_dtype_from_key(aliases[i].key), true;
    return false;
}

int dv_dtype_parse(const char *name, dv_dtype *out)
{
    memset(out, 0, sizeof *out);
    if (!name)
        return dv_fail(DV_EDTYPE, "no dtype name given");
    const char *base = strncmp(name, "torch.", 6) ? name : name + 6;
    if (parse_base(base, strlen(base), out))
        return DV_OK;
    const char *x = strrchr(base, 'x'); /* f32x4 */
    if (x && x[1] >= '1' && x[1] <= '9') {
        char *end;
        const unsigned long lanes = strtoul(x + 1, &end, 10);
        if (!*end && lanes <= UINT16_MAX && parse_base(base, (size_t)(x - base), out) && out->lanes == 1)
            return out->lanes = (uint16_t)lanes, DV_OK;
        memset(out, 0, sizeof *out);
    }
    return dv_fail(DV_EDTYPE, "unknown dtype '%s': expected a name such as f32, bf16, i64 or float32", name);
}

int64_t dv_dtype_bytes(dv_dtype t, int64_t n)
{
    const int64_t bits = (int64_t)t.bits * t.lanes;
    int64_t whole;
    if (n < 0)
        return -1;
    if (bits % 8 == 0)
        return __builtin_mul_overflow(n, bits / 8, &whole) ? -1 : whole;
    if (__builtin_mul_overflow(n / 8, bits, &whole) || __builtin_add_overflow(whole, (n % 8 * bits + 7) / 8, &whole))
        return -1;
    return whole;
}

/* DLPack's numbers with PyTorch's names where it has one. */
/* clang-format off */
#define DEVICES(X)                                                                                                             \
    X("cpu", 1) X("cuda", 2) X("cuda_host", 3) X("opencl", 4) X("vulkan", 7) X("mps", 8) X("vpi", 9) X("rocm", 10)             \
    X("rocm_host", 11) X("npu", 12) X("cuda_managed", 13) X("xpu", 14) X("webgpu", 15) X("hexagon", 16) X("maia", 17)          \
    X("trn", 18) X("meta", 1000)
/* clang-format on */

const char *dv_device_name(int32_t type)
{
    static _Thread_local char text[4][24];
    static _Thread_local unsigned next;
    switch (type) {
#define NAME(name, number) \
    case number: return name;
        DEVICES(NAME)
#undef NAME
    default: break;
    }
    char *out = text[next++ % 4];
    snprintf(out, sizeof text[0], "device %d", (int)type);
    return out;
}

int dv_device_parse(const char *name, dv_device *out)
{
    static const struct {
        const char *name;
        int32_t type;
    } table[] = {
#define ROW(name, number) { name, number },
        DEVICES(ROW)
#undef ROW
            { "privateuseone", DV_NPU },
        { "hip", DV_ROCM },
    };
    memset(out, 0, sizeof *out);
    if (!name)
        return dv_fail(DV_EDEVICE, "no device name given");
    const size_t size = strcspn(name, ":");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!is(name, size, table[i].name))
            continue;
        int32_t id = 0;
        if (name[size]) {
            const char *digits = name + size + 1;
            const size_t n = strspn(digits, "0123456789");
            if (!n || n > 6 || digits[n])
                return dv_fail(DV_EDEVICE, "device '%s': expected a number after '%s:'", name, table[i].name);
            id = (int32_t)strtol(digits, NULL, 10);
        }
        out->type = table[i].type;
        out->id = id;
        return DV_OK;
    }
    return dv_fail(DV_EDEVICE, "unknown device '%s': expected cpu, cuda, npu, meta..., with or without ':<number>'", name);
}
