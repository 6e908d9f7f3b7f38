/* Names of element types and devices. The table of types is DV_DTYPES; other common spellings are mapped to its names. */
#include "base/error.h"
#include "base/strbuf.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>

static const dv_dtype_row dtype_rows[] = {
#define ROW(name, code, bits, exponent, mantissa, bias, form, torch, names) \
    { { code, bits, 1 }, #name, names, exponent, mantissa, bias, DV_FLOAT_##form, torch },
    DV_DTYPES(ROW)
#undef ROW
};

const dv_dtype_row *dv_dtype_at(size_t i) { return i < sizeof dtype_rows / sizeof *dtype_rows ? &dtype_rows[i] : NULL; }

const dv_dtype_row *dv_dtype_named(const char *name)
{
    for (size_t i = 0; name && i < sizeof dtype_rows / sizeof *dtype_rows; i++)
        if (!strcmp(dtype_rows[i].name, name))
            return &dtype_rows[i];
    return NULL;
}

const dv_dtype_row *dv_dtype_find(dv_dtype t)
{
    enum {
#define AT(name, ...) AT_##name,
        DV_DTYPES(AT)
#undef AT
    };
    t.lanes = 1;
    switch (dv_dtype_key(t)) {
#define FIND(name, ...) \
    case DV_DTYPE_##name: return &dtype_rows[AT_##name];
        DV_DTYPES(FIND)
#undef FIND
    default: return NULL;
    }
}

const char *dv_dtype_name(dv_dtype t)
{
    static _Thread_local char text[4][48]; /* four buffers, so that one message can name several types */
    static _Thread_local unsigned next;
    const dv_dtype_row *row = dv_dtype_find(t);
    if (row && t.lanes == 1)
        return row->name;
    char *out = text[next++ % 4];
    if (row && t.lanes)
        snprintf(out, sizeof text[0], "%sx%u", row->name, t.lanes);
    else
        snprintf(out, sizeof text[0], "dtype(code %u, bits %u, lanes %u)", t.code, t.bits, t.lanes);
    return out;
}

const char *dv_dtype_long_name(dv_dtype t)
{
    static _Thread_local char text[48];
    const dv_dtype_row *row = dv_dtype_find(t);
    snprintf(text, sizeof text, "%.*s", row ? (int)strcspn(row->names, " ") : 0, row ? row->names : "");
    return text;
}

static bool dtype_name_equals(const char *name, size_t size, const char *word)
{
    return strlen(word) == size && !memcmp(name, word, size);
}

/* Finds the dtype with this short or other name. Returns false if there is none. */
static bool dtype_try_parse_name(const char *name, size_t size, dv_dtype *out)
{
    for (size_t i = 0; i < sizeof dtype_rows / sizeof *dtype_rows; i++)
        if (dtype_name_equals(name, size, dtype_rows[i].name))
            return *out = dtype_rows[i].dtype, true;
    for (size_t i = 0; i < sizeof dtype_rows / sizeof *dtype_rows; i++)
        if (dv__has_word(dtype_rows[i].names, name, size))
            return *out = dtype_rows[i].dtype, true;
    if (!dtype_name_equals(name, size, "float4_e2m1fn_x2")) /* PyTorch's name: two to a byte */
        return false;
    return *out = dv_dtype_from_key(DV_DTYPE_f4_e2m1fn + (1 << 16)), true;
}

int dv_dtype_parse(const char *name, dv_dtype *out)
{
    DV__REQUIRE(out, "pointer for the result");
    memset(out, 0, sizeof *out);
    if (!name)
        return dv_fail(DV_EDTYPE, "no dtype name given");
    const char *base = strncmp(name, "torch.", 6) ? name : name + 6;
    if (dtype_try_parse_name(base, strlen(base), out))
        return DV_OK;
    const char *x = strrchr(base, 'x'); /* f32x4 */
    if (x && x[1] >= '1' && x[1] <= '9') {
        char *end;
        const unsigned long lanes = strtoul(x + 1, &end, 10);
        if (!*end && lanes <= UINT16_MAX && dtype_try_parse_name(base, (size_t)(x - base), out) && out->lanes == 1)
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

/* X(name, DLPack's number) of each device type. The name is PyTorch's if it has one. */
/* clang-format off */
#define DEVICE_TYPES(X)                                                                                                             \
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
        DEVICE_TYPES(NAME)
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
        DEVICE_TYPES(ROW)
#undef ROW
            { "privateuseone", DV_NPU },
        { "hip", DV_ROCM },
    };
    DV__REQUIRE(out, "pointer for the result");
    memset(out, 0, sizeof *out);
    if (!name)
        return dv_fail(DV_EDEVICE, "no device name given");
    const size_t size = strcspn(name, ":");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!dtype_name_equals(name, size, table[i].name))
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
