/* Elements of every dtype of DV_DTYPES, read and written as doubles. Floats of less than 16 bits are rounded by bisection,
 * to the nearest finite value of the format. Elements of less than a byte are packed, the first in the lowest bits. */
#include "tensor/tensor.h"

#include <math.h>

static uint64_t element_read_bits(const void *data, int64_t i, unsigned width)
{
    const uint8_t *bytes = data;
    uint64_t u = 0;
    if (width >= 8)
        memcpy(&u, bytes + i * (width / 8), width / 8);
    for (unsigned k = 0; width < 8 && k < width; k++) {
        const int64_t at = i * (int64_t)width + k;
        u |= (uint64_t)(bytes[at >> 3] >> (at & 7) & 1) << k;
    }
    return u;
}

static void element_write_bits(void *data, int64_t i, unsigned width, uint64_t value)
{
    uint8_t *bytes = data;
    if (width >= 8)
        memcpy(bytes + i * (width / 8), &value, width / 8);
    for (unsigned k = 0; width < 8 && k < width; k++) {
        const int64_t at = i * (int64_t)width + k;
        bytes[at >> 3] = (uint8_t)((bytes[at >> 3] & ~(1u << (at & 7))) | (unsigned)(value >> k & 1) << (at & 7));
    }
}

static double element_decode_float(const dv_dtype_row *format, unsigned bits)
{
    const unsigned rest = (unsigned)(format->exponent + format->mantissa), top = (1u << format->exponent) - 1;
    const unsigned mantissa = bits & ((1u << format->mantissa) - 1), exponent = bits >> format->mantissa & top;
    const double sign = format->form != DV_FLOAT_FNU && bits >> rest & 1 ? -1 : 1;
    const bool ones = (bits & ((1u << rest) - 1)) == (1u << rest) - 1;
    if (format->form == DV_FLOAT_IEEE && exponent == top)
        return mantissa ? NAN : sign * INFINITY;
    if (((format->form == DV_FLOAT_FN || format->form == DV_FLOAT_FNU) && ones) ||
        (format->form == DV_FLOAT_FNUZ && bits == 1u << rest))
        return NAN;
    if (!exponent && format->form != DV_FLOAT_FNU)
        return sign * ldexp(mantissa, 1 - format->bias - format->mantissa);
    return sign * ldexp((1u << format->mantissa) + mantissa, (int)exponent - format->bias - format->mantissa);
}

/* Returns the bits of the value of a small float format that is nearest to x. NaN gives the first NaN of the format, or 0 if
 * it has none. Positive values grow with their bits, so bisection finds the value. */
static unsigned element_encode_float(const dv_dtype_row *format, double x)
{
    const unsigned sign = 1u << (format->exponent + format->mantissa);
    const double size = format->form == DV_FLOAT_FNU ? x : fabs(x);
    unsigned low = 0, high = sign;
    if (isnan(x)) {
        while (low <= sign && !isnan(element_decode_float(format, low)))
            low++;
        return low <= sign ? low : 0;
    }
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        *(element_decode_float(format, middle) <= size ? &low : &high) = middle;
    }
    if (high < sign && element_decode_float(format, high) - size < size - element_decode_float(format, low))
        low = high;
    return low && x < 0 ? sign | low : low;
}

static bool element_is_integer(dv_dtype t) { return t.code == 0 || t.code == 1 || t.code == 6; }

static int64_t element_read_signed(const void *data, int64_t i, dv_dtype t)
{
    const uint64_t u = element_read_bits(data, i, t.bits), sign = (uint64_t)1 << (t.bits - 1);
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
    if (row && element_is_integer(t))
        return t.code == 0 ? (double)element_read_signed(data, i, t) : (double)element_read_bits(data, i, t.bits);
    return row && row->form ? element_decode_float(row, (unsigned)element_read_bits(data, i, t.bits)) : 0;
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
    if (row && element_is_integer(t))
        element_write_bits(data, i, t.bits, (uint64_t)(int64_t)x);
    else if (row && row->form)
        element_write_bits(data, i, t.bits, element_encode_float(row, x));
}
