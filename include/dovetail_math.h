/* dovetail_math.h: elementary functions for kernels, in forms that gcc and clang turn into vector code.
 *
 * A call to expf() in a loop is a call to libm for each element. These are straight-line C: no branch, no table, no call, so a loop
 * over them vectorises at -O3 -fno-math-errno -fno-trapping-math for whatever instruction set the function around it has. They want
 * -ffp-contract=fast (so that a*b + c is one instruction where there is FMA); `dovetail build` passes all of these. They do not want
 * -ffast-math, and are wrong under it.
 *
 * Every function takes and gives NaN, infinities and denormals as the C library does. The error written beside each is the largest
 * one measured by tests/core/test_math.c, against the correctly rounded result, over all floats (f32) or many millions of points
 * (f64), with and without FMA; in units in the last place.
 */
#ifndef DOVETAIL_MATH_H
#define DOVETAIL_MATH_H

#include "dovetail_op.h"

DV_INLINE double dv__f64_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
DV_INLINE uint64_t dv__bits_of_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
DV_INLINE float dv_fabsf(float x) { return dv__f32_from_bits(dv__bits_of_f32(x) & 0x7fffffffu); }
DV_INLINE double dv_fabs(double x) { return dv__f64_from_bits(dv__bits_of_f64(x) & 0x7fffffffffffffffu); }

/* ---- exp and its family ---------------------------------------------------------------------------------------------------- */

/* e^y is e * scale, where scale is a power of two that is multiplied with last: e has its full precision also where e^y is a
 * denormal or nearly infinite. -150 <= y <= 150. The idea: e^y = 2^n e^r with |r| <= ln(2)/2; adding 1.5 * 2^23 rounds to an
 * integer and leaves it in the low bits. */
typedef struct dv__exp_f32 { float e, scale; } dv__exp_f32;
DV_INLINE dv__exp_f32 dv__expf_parts(float y)
{
    const float shifted = y * 0x1.715476p+0f + 0x1.8p23f, n = shifted - 0x1.8p23f;
    const float r = (y - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    const int32_t k = (int32_t)(dv__bits_of_f32(shifted) - 0x4b400000u), half = k >> 1;
    const float q = 0.4999999343f + r * (0.1666652040f + r * (0.04166839047f + r * (0.008368745253f + r * 0.001381455828f)));
    const dv__exp_f32 parts = { (1.0f + (r + r * r * q)) * dv__f32_from_bits((uint32_t)(half + 127) << 23),
        dv__f32_from_bits((uint32_t)(k - half + 127) << 23) };
    return parts;
}

typedef struct dv__exp_f64 { double e, scale; } dv__exp_f64; /* the same; -1000 <= y <= 1000 */
DV_INLINE dv__exp_f64 dv__exp_parts(double y)
{
    const double shifted = y * 0x1.71547652b82fep+0 + 0x1.8p52, n = shifted - 0x1.8p52;
    const double r = (y - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    const int64_t k = (int64_t)(dv__bits_of_f64(shifted) - 0x4338000000000000u);
    const int64_t half = (int64_t)((uint64_t)(k + 2048) >> 1) - 1024; /* k >> 1, without a 64-bit arithmetic shift */
    const double q = 0x1.0p-1 + r * (0x1.555555555555bp-3 + r * (0x1.5555555555503p-5 + r * (0x1.111111110ec3fp-7 +
        r * (0x1.6c16c16c305ddp-10 + r * (0x1.a01a01b38a170p-13 + r * (0x1.a01a01364e066p-16 + r * (0x1.71ddf002824dfp-19 +
        r * (0x1.27e5b49341957p-22 + r * (0x1.af6c1db8179ebp-26 + r * 0x1.1e3d06feb704ap-29)))))))));
    const dv__exp_f64 parts = { (1.0 + (r + r * r * q)) * dv__f64_from_bits((uint64_t)(half + 1023) << 52),
        dv__f64_from_bits((uint64_t)(k - half + 1023) << 52) };
    return parts;
}

DV_INLINE float dv_expf(float x)
{
    const float low = x < -104.0f ? -104.0f : x; /* NaN passes through both */
    const dv__exp_f32 parts = dv__expf_parts(low > 89.0f ? 89.0f : low);
    return parts.e * parts.scale;
}
DV_INLINE double dv_exp(double x)
{
    const double low = x < -746.0 ? -746.0 : x;
    const dv__exp_f64 parts = dv__exp_parts(low > 710.0 ? 710.0 : low);
    return parts.e * parts.scale;
}

/* 1 / (1 + e^-x), by e^-|x|, which cannot overflow: right down to denormals on the far left. */
DV_INLINE float dv_sigmoidf(float x)
{
    const float a = -dv_fabsf(x);
    const dv__exp_f32 parts = dv__expf_parts(a < -104.0f ? -104.0f : a);
    const float e = parts.e * parts.scale;
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}
DV_INLINE double dv_sigmoid(double x)
{
    const double a = -dv_fabs(x);
    const dv__exp_f64 parts = dv__exp_parts(a < -746.0 ? -746.0 : a);
    const double e = parts.e * parts.scale;
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

/* x sigmoid(x), with x multiplied in before the last factor: right also where the sigmoid alone is a denormal. For -inf it is NaN,
 * as x / (1 + e^-x) is. */
DV_INLINE float dv_siluf(float x)
{
    const float a = -dv_fabsf(x);
    const dv__exp_f32 parts = dv__expf_parts(a < -120.0f ? -120.0f : a);
    const float scale = a < -120.0f ? 0.0f : parts.scale;
    return x * (x < 0 ? parts.e : 1.0f) / (1.0f + parts.e * scale) * (x < 0 ? scale : 1.0f);
}
DV_INLINE double dv_silu(double x)
{
    const double a = -dv_fabs(x);
    const dv__exp_f64 parts = dv__exp_parts(a < -760.0 ? -760.0 : a);
    const double scale = a < -760.0 ? 0.0 : parts.scale;
    return x * (x < 0 ? parts.e : 1.0) / (1.0 + parts.e * scale) * (x < 0 ? scale : 1.0);
}

#endif
