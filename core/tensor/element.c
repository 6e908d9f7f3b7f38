/* Elements of every type of the table as doubles. Floats of less than 16 bits are rounded by bisection, to the nearest finite
 * value of the format. Elements of less than a byte are packed, the first in the lowest bits. */
#include "tensor/tensor.h"

#include <math.h>

static uint64_t read_bits(const void *data, int64_t i, unsigned bits)
{
    const uint8_t *bytes = data;
    uint64_t u = 0;
    if (bits >= 8)
        memcpy(&u, bytes + i * (bits / 8), bits / 8);
    for (unsigned k = 0; bits < 8 && k < bits; k++) {
        const int64_t at = i * (int64_t)bits + k;
        u |= (uint64_t)(bytes[at / 8] >> at % 8 & 1) << k;
    }
    return u;
}

static void write_bits(void *data, int64_t i, unsigned bits, uint64_t u)
{
    uint8_t *bytes = data;
    if (bits >= 8)
        memcpy(bytes + i * (bits / 8), &u, bits / 8);
    for (unsigned k = 0; bits < 8 && k < bits; k++) {
        const int64_t at = i * (int64_t)bits + k;
        bytes[at / 8] = (uint8_t)((bytes[at / 8] & ~(1u << at % 8)) | (unsigned)(u >> k & 1) << at % 8);
    }
}

static double small_value(const dv_dtype_row *f, unsigned bits)
{
    const unsigned rest = (unsigned)(f->exponent + f->mantissa), top = (1u << f->exponent) - 1;
    const unsigned mantissa = bits & ((1u << f->mantissa) - 1), exponent = bits >> f->mantissa & top;
    const double sign = f->form != DV_FLOAT_FNU && bits >> rest & 1 ? -1 : 1;
    const bool ones = (bits & ((1u << rest) - 1)) == (1u << rest) - 1;
    if (f->form == DV_FLOAT_IEEE && exponent == top)
        return mantissa ? NAN : sign * INFINITY;
    if (((f->form == DV_FLOAT_FN || f->form == DV_FLOAT_FNU) && ones) || (f->form == DV_FLOAT_FNUZ && bits == 1u << rest))
        return NAN;
    if (!exponent && f->form != DV_FLOAT_FNU)
        return sign * ldexp(mantissa, 1 - f->bias - f->mantissa);
    return sign * ldexp((1u << f->mantissa) + mantissa, (int)exponent - f->bias - f->mantissa);
}

/* The values of bits from 0 grow, up to infinity or NaN. */
static unsigned small_bits(const dv_dtype_row *f, double x)
{
    const unsigned sign = 1u << (f->exponent + f->mantissa);
    const double size = f->form == DV_FLOAT_FNU ? x : fabs(x);
    unsigned low = 0, high = sign;
    if (isnan(x)) {
        while (low <= sign && !isnan(small_value(f, low)))
            low++;
        return low <= sign ? low : 0;
    }
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        *(small_value(f, middle) <= size ? &low : &high) = middle;
    }
    if (high < sign && small_value(f, high) - size < size - small_value(f, low))
        low = high;
    return low && x < 0 ? sign | low : low;
}

static bool is_integer(dv_dtype t) { return t.code == 0 || t.code == 1 || t.code == 6; }

static int64_t signed_integer(const void *data, int64_t i, dv_dtype t)
{
    const uint64_t u = read_bits(data, i, t.bits), sign = (uint64_t)1 << (t.bits - 1);
    return (int64_t)((u ^ sign) - sign);
}

double dv_element_get(const void *data, int64_t i, dv_dtype t)
{
    if (!data)
        return 0;
    t.lanes = 1;
    switch (dv_dtype_key(t)) {
    case DV_DTYPE_f64:
    case DV_DTYPE_f32:
    case DV_DTYPE_f16:
    case DV_DTYPE_bf16: return dv_get_f64(data, i, dv_dtype_key(t));
    case DV_DTYPE_c128: return ((const double *)data)[2 * i];
    case DV_DTYPE_c64: return (double)((const float *)data)[2 * i];
    case DV_DTYPE_c32: return (double)dv_f16_to_f32(((const uint16_t *)data)[2 * i]);
    default: break;
    }
    const dv_dtype_row *row = dv_dtype_find(t);
    if (row && is_integer(t))
        return t.code == 0 ? (double)signed_integer(data, i, t) : (double)read_bits(data, i, t.bits);
    return row && row->form ? small_value(row, (unsigned)read_bits(data, i, t.bits)) : 0;
}

void dv_element_put(void *data, int64_t i, dv_dtype t, double x)
{
    if (!data)
        return;
    t.lanes = 1;
    switch (dv_dtype_key(t)) {
    case DV_DTYPE_f64:
    case DV_DTYPE_f32:
    case DV_DTYPE_f16:
    case DV_DTYPE_bf16: dv_put_f64(data, i, dv_dtype_key(t), x); return;
    case DV_DTYPE_bool: ((uint8_t *)data)[i] = x != 0; return;
    case DV_DTYPE_u64: ((uint64_t *)data)[i] = x < 0x1p63 ? (uint64_t)(int64_t)x : (uint64_t)x; return;
    case DV_DTYPE_c128: ((double *)data)[2 * i] = x, ((double *)data)[2 * i + 1] = 0; return;
    case DV_DTYPE_c64: ((float *)data)[2 * i] = (float)x, ((float *)data)[2 * i + 1] = 0; return;
    case DV_DTYPE_c32: ((uint16_t *)data)[2 * i] = dv_f32_to_f16((float)x), ((uint16_t *)data)[2 * i + 1] = 0; return;
    default: break;
    }
    const dv_dtype_row *row = dv_dtype_find(t);
    if (row && is_integer(t))
        write_bits(data, i, t.bits, (uint64_t)(int64_t)x);
    else if (row && row->form)
        write_bits(data, i, t.bits, small_bits(row, x));
}
