/* Elements of every dtype as doubles. The small floats are formats of (exponent bits, mantissa bits, bias), which differ in what
 * they have instead of infinities; a value is written as the nearest that the format has. */
#include <math.h>
#include <string.h>

#include "check.h"

/* special: 0 IEEE (infinities and NaN at the top exponent); 1 "fn": only all ones is NaN; 2 "fnuz": only -0 is NaN. */
typedef struct small_float {
    int32_t key;
    int exponent, mantissa, bias, special;
} small_float;
static const small_float smalls[] = {
    { DV_DTYPE_f8_e3m4, 3, 4, 3, 0 },
    { DV_DTYPE_f8_e4m3, 4, 3, 7, 0 },
    { DV_DTYPE_f8_e4m3fn, 4, 3, 7, 1 },
    { DV_DTYPE_f8_e4m3fnuz, 4, 3, 8, 2 },
    { DV_DTYPE_f8_e4m3b11fnuz, 4, 3, 11, 2 },
    { DV_DTYPE_f8_e5m2, 5, 2, 15, 0 },
    { DV_DTYPE_f8_e5m2fnuz, 5, 2, 16, 2 },
};

static const small_float *find_small(dv_dtype dtype)
{
    for (size_t i = 0; i < sizeof smalls / sizeof *smalls; i++)
        if ((uint32_t)smalls[i].key == dv_dtype_key(dtype))
            return &smalls[i];
    return NULL;
}

static double small_value(const small_float *f, unsigned bits)
{
    const unsigned mantissa = bits & ((1u << f->mantissa) - 1), exponent = bits >> f->mantissa & ((1u << f->exponent) - 1);
    const unsigned top = (1u << f->exponent) - 1;
    const double sign = bits & 0x80 ? -1 : 1;
    if (f->special == 0 && exponent == top)
        return mantissa ? NAN : sign * INFINITY;
    if ((f->special == 1 && (bits & 0x7f) == 0x7f) || (f->special == 2 && bits == 0x80))
        return NAN;
    if (!exponent)
        return sign * ldexp(mantissa, 1 - f->bias - f->mantissa);
    return sign * ldexp((1u << f->mantissa) + mantissa, (int)exponent - f->bias - f->mantissa);
}

static uint8_t small_bits(const small_float *f, double x)
{
    unsigned best = 0;
    double error = INFINITY;
    for (unsigned bits = 0; bits < 256; bits++) {
        const double v = small_value(f, bits),
                     e = isnan(x) ? (isnan(v) ? 0 : INFINITY)
            : isnan(v)            ? INFINITY
            : v == x              ? 0
                                  : fabs(v - x);
        if (e < error)
            error = e, best = bits;
    }
    return (uint8_t)best;
}

bool check_is_float(dv_dtype d) { return d.code == 2 || d.code == 4 || (d.code >= 7 && d.code <= 17); }
bool check_is_integer(dv_dtype d) { return d.code == 0 || d.code == 1 || d.code == 6; }

void check_put(void *data, int64_t i, dv_dtype dtype, double x)
{
    const small_float *f;
    switch (dv_dtype_key(dtype)) {
    case DV_DTYPE_f64: ((double *)data)[i] = x; break;
    case DV_DTYPE_f32: ((float *)data)[i] = (float)x; break;
    case DV_DTYPE_f16:
    case DV_DTYPE_bf16: dv_put(data, i, dv_dtype_key(dtype), (float)x); break;
    case DV_DTYPE_i8: ((int8_t *)data)[i] = (int8_t)x; break;
    case DV_DTYPE_i16: ((int16_t *)data)[i] = (int16_t)x; break;
    case DV_DTYPE_i32: ((int32_t *)data)[i] = (int32_t)x; break;
    case DV_DTYPE_i64: ((int64_t *)data)[i] = (int64_t)x; break;
    case DV_DTYPE_u8: ((uint8_t *)data)[i] = (uint8_t)(int64_t)x; break;
    case DV_DTYPE_u16: ((uint16_t *)data)[i] = (uint16_t)(int64_t)x; break;
    case DV_DTYPE_u32: ((uint32_t *)data)[i] = (uint32_t)(int64_t)x; break;
    case DV_DTYPE_u64: ((uint64_t *)data)[i] = (uint64_t)(int64_t)x; break;
    case DV_DTYPE_bool: ((uint8_t *)data)[i] = x > 0; break;
    case DV_DTYPE_c64: ((float *)data)[2 * i] = (float)x, ((float *)data)[2 * i + 1] = (float)(-x / 2); break;
    case DV_DTYPE_c128: ((double *)data)[2 * i] = x, ((double *)data)[2 * i + 1] = -x / 2; break;
    default:
        if ((f = find_small(dtype)))
            ((uint8_t *)data)[i] = small_bits(f, x);
        else
            memset((char *)data + i * dv_dtype_bytes(dtype, 1), 0, (size_t)dv_dtype_bytes(dtype, 1));
    }
}

double check_get(const void *data, int64_t i, dv_dtype dtype)
{
    const small_float *f;
    switch (dv_dtype_key(dtype)) {
    case DV_DTYPE_f64:
    case DV_DTYPE_f32:
    case DV_DTYPE_f16:
    case DV_DTYPE_bf16: return dv_get_f64(data, i, dv_dtype_key(dtype));
    case DV_DTYPE_i8: return ((const int8_t *)data)[i];
    case DV_DTYPE_i16: return ((const int16_t *)data)[i];
    case DV_DTYPE_i32: return ((const int32_t *)data)[i];
    case DV_DTYPE_i64: return (double)((const int64_t *)data)[i];
    case DV_DTYPE_u8:
    case DV_DTYPE_bool: return ((const uint8_t *)data)[i];
    case DV_DTYPE_u16: return ((const uint16_t *)data)[i];
    case DV_DTYPE_u32: return ((const uint32_t *)data)[i];
    case DV_DTYPE_u64: return (double)((const uint64_t *)data)[i];
    case DV_DTYPE_c64: return (double)((const float *)data)[2 * i];
    case DV_DTYPE_c128: return ((const double *)data)[2 * i];
    default: return (f = find_small(dtype)) ? small_value(f, ((const uint8_t *)data)[i]) : 0;
    }
}
