/* dovetail_math.h: elementary functions for kernels, in forms that gcc and clang turn into vector code.
 *
 * A call to expf() in a loop is a call to libm for each element. The functions here are straight-line C without branch, table or
 * call, so a loop over them vectorises at -O3 -fno-math-errno -fno-trapping-math for the instruction set of the function around
 * the loop. Compile with -ffp-contract=fast, so that a*b + c is one instruction where the processor has FMA; `dovetail build`
 * passes all these flags. -ffast-math and its parts, under which the results would be wrong, are refused.
 *
 * Every function treats NaN, infinities and denormals as the C library does. The error written beside each is the largest that
 * was measured by tests/core/test_math.c, against the correctly rounded result, over all floats (f32) or many millions of points
 * (f64), with and without FMA; in units in the last place.
 */
#ifndef DOVETAIL_MATH_H
#define DOVETAIL_MATH_H

#include "dovetail_op.h"
#include <math.h>

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error \
    "dovetail_math.h: with -ffast-math, -Ofast or parts of these its functions give wrong numbers; -ffp-contract=fast is what they need"
#endif

/* clang has no macro by which a header can detect -funsafe-math-optimizations or its parts, so reassociation, which would
 * break sums, is turned off from here on. */
#if defined(__clang__) && __clang_major__ >= 11
#pragma clang fp reassociate(off)
#endif

#if defined(__clang__)
#define DV__UNUSED __attribute__((unused))
#define DV__NOINLINE __attribute__((noinline, unused)) /* not inlined: all callers share one function */
#elif defined(__GNUC__)
#define DV__UNUSED __attribute__((unused))
/* noipa: gcc does not clear the upper halves of vector registers before a call of a function that it knows to leave them
 * unchanged. SSE instructions would be slow then. */
#define DV__NOINLINE __attribute__((noipa, unused))
#else
#define DV__UNUSED
#define DV__NOINLINE
#endif

#if defined(__GNUC__)
#define DV__UNLIKELY(X) __builtin_expect(X, 0)
#else
#define DV__UNLIKELY(X) (X)
#endif

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

/* Begins a loop that the compiler vectorises: over the 16 floats of a vector, or over a block's elements. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* without optimisation clang vectorises nothing, and would warn */
#define DV__VECTOR_LOOP(I, N) _Pragma("clang loop vectorize(assume_safety) unroll(disable)") for (int I = 0; I < (N); I++)
#elif defined(__GNUC__)
#define DV__VECTOR_LOOP(I, N) _Pragma("GCC ivdep") _Pragma("GCC unroll 1") for (int I = 0; I < (N); I++)
#else
#define DV__VECTOR_LOOP(I, N) for (int I = 0; I < (N); I++)
#endif

/* ---- exp and its family -------------------------------------------------------------------------------------------------- */

/* e^y is e * scale, where scale is a power of two, multiplied last: e has full precision even where e^y is a denormal or nearly
 * infinite. -150 <= y <= 150. The idea: e^y = 2^n e^r with |r| <= ln(2)/2; adding 1.5 * 2^23 rounds to an integer and leaves it
 * in the low bits. */
typedef struct dv__exp_f32 { float e, scale; } dv__exp_f32;
DV_INLINE dv__exp_f32 dv__expf_parts_of(
    float y, float rest) /* the parts of e^(y + rest), a sum that is not rounded; |rest| < 0.06 */
{
    const float shifted = y * 0x1.715476p+0f + 0x1.8p23f, n = shifted - 0x1.8p23f;
    const float r = ((y - n * 0x1.62e4p-1f) + rest) - n * 0x1.7f7d1cp-20f;
    const int32_t k = (int32_t)(dv__bits_of_f32(shifted) - 0x4b400000u), half = k >> 1;
    const float q = 0.4999999343f + r * (0.1666652040f + r * (0.04166839047f + r * (0.008368745253f + r * 0.001381455828f)));
    const dv__exp_f32 parts = { (1.0f + (r + r * r * q)) * dv__f32_from_bits((uint32_t)(half + 127) << 23),
        dv__f32_from_bits((uint32_t)(k - half + 127) << 23) };
    return parts;
}
DV_INLINE dv__exp_f32 dv__expf_parts(float y) { return dv__expf_parts_of(y, -0.0f); } /* adding -0 changes nothing: no code */

typedef struct dv__exp_f64 { double e, scale; } dv__exp_f64; /* the same; -1000 <= y <= 1000 */
DV_INLINE dv__exp_f64 dv__exp_parts(double y)
{
    const double shifted = y * 0x1.71547652b82fep+0 + 0x1.8p52, n = shifted - 0x1.8p52;
    const double r = (y - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    const uint64_t k = dv__bits_of_f64(shifted) - 0x4338000000000000u;
    const uint64_t half = ((k + 2048) >> 1) - 1024; /* k >> 1 without a 64-bit arithmetic shift; any value for NaN */
    const double q = 0x1.0p-1 +
        r *
            (0x1.555555555555bp-3 +
                r *
                    (0x1.5555555555503p-5 +
                        r *
                            (0x1.111111110ec3fp-7 +
                                r *
                                    (0x1.6c16c16c305ddp-10 +
                                        r *
                                            (0x1.a01a01b38a170p-13 +
                                                r *
                                                    (0x1.a01a01364e066p-16 +
                                                        r *
                                                            (0x1.71ddf002824dfp-19 +
                                                                r *
                                                                    (0x1.27e5b49341957p-22 +
                                                                        r *
                                                                            (0x1.af6c1db8179ebp-26 +
                                                                                r * 0x1.1e3d06feb704ap-29)))))))));
    const dv__exp_f64 parts = { (1.0 + (r + r * r * q)) * dv__f64_from_bits((half + 1023) << 52),
        dv__f64_from_bits((k - half + 1023) << 52) };
    return parts;
}

DV_INLINE float dv_expf(float x) /* 0.97 ulp */
{
    const float low = x < -104.0f ? -104.0f : x; /* NaN passes through both */
    const dv__exp_f32 parts = dv__expf_parts(low > 89.0f ? 89.0f : low);
    return parts.e * parts.scale;
}
DV_INLINE double dv_exp(double x) /* 0.93 ulp */
{
    const double low = x < -746.0 ? -746.0 : x;
    const dv__exp_f64 parts = dv__exp_parts(low > 710.0 ? 710.0 : low);
    return parts.e * parts.scale;
}

/* 1 / (1 + e^-x), computed from e^-|x|, which cannot overflow: accurate down to denormals for very negative x. */
DV_INLINE float dv_sigmoidf(float x) /* 2.4 ulp */
{
    const float a = -dv_fabsf(x);
    const dv__exp_f32 parts = dv__expf_parts(a < -104.0f ? -104.0f : a);
    const float e = parts.e * parts.scale;
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}
DV_INLINE double dv_sigmoid(double x) /* 2.4 ulp */
{
    const double a = -dv_fabs(x);
    const dv__exp_f64 parts = dv__exp_parts(a < -746.0 ? -746.0 : a);
    const double e = parts.e * parts.scale;
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

/* x sigmoid(x), with x multiplied before the last factor: accurate even where the sigmoid alone is a denormal. For -inf it is
 * NaN, as x / (1 + e^-x) is. */
DV_INLINE float dv_siluf(float x) /* 3.2 ulp */
{
    const float a = -dv_fabsf(x);
    const dv__exp_f32 parts = dv__expf_parts(a < -120.0f ? -120.0f : a);
    const float scale = a < -120.0f ? 0.0f : parts.scale;
    return x * (x < 0 ? parts.e : 1.0f) / (1.0f + parts.e * scale) * (x < 0 ? scale : 1.0f);
}
DV_INLINE double dv_silu(double x) /* 3.0 ulp */
{
    const double a = -dv_fabs(x);
    const dv__exp_f64 parts = dv__exp_parts(a < -760.0 ? -760.0 : a);
    const double scale = a < -760.0 ? 0.0 : parts.scale;
    return x * (x < 0 ? parts.e : 1.0) / (1.0 + parts.e * scale) * (x < 0 ? scale : 1.0);
}

/* tanh: a polynomial near 0, where 1 - 2 / (e^2|x| + 1) would cancel. */
DV_INLINE float dv_tanhf(float x) /* 1.4 ulp */
{
    const float a = dv_fabsf(x), t = x * x;
    const dv__exp_f32 parts = dv__expf_parts(a > 10.0f ? 20.0f : 2 * a);
    const float far = 1.0f - 2.0f / (parts.e * parts.scale + 1.0f), signed_far = x < 0 ? -far : far;
    const float q = -0.3333328128f + t * (0.1333142033f + t * (-0.05373779432f + t * (0.02063253558f + t * -0.005697373287f)));
    const float near = x == 0 ? x : x + x * t * q, other = x != x ? x : signed_far;
    return a < 0.625f ? near : other;
}

/* ---- logarithms ---------------------------------------------------------------------------------------------------------- */

/* Computes the logarithm of x = m 2^k, with m near 1, as k ln(2) + log(m). */
DV_INLINE float dv_logf(float x) /* 0.9 ulp */
{
    const bool denormal = x < 0x1p-126f;
    const float scaled = denormal ? x * 0x1p23f : x;
    const int32_t k = (int32_t)(dv__bits_of_f32(scaled) - 0x3f3504f3u) >> 23; /* m is from sqrt(1/2) to sqrt(2) */
    const float f = dv__f32_from_bits(dv__bits_of_f32(scaled) - ((uint32_t)k << 23)) - 1, n = (float)k - (denormal ? 23.0f : 0);
    const float far = -0.166678026f +
        f * (0.142490581f + f * (-0.124256872f + f * (0.116854198f + f * (-0.114797339f + f * 0.0697161183f))));
    const float q = f * f * f * (0.333333313f + f * (-0.24999997f + f * (0.200007156f + f * far)));
    const float sum = n * 0x1.62e4p-1f + (f + ((q - 0.5f * f * f) + n * 0x1.7f7d1cp-20f));
    const float other = x == 0 ? -HUGE_VALF : x < 0 ? dv__f32_from_bits(0x7fc00000u) : x;
    return ((x > 0) & (x < HUGE_VALF)) ? sum : other;
}
DV_INLINE float dv_log1pf(float x) /* 1.5 ulp */
{
    const float u = 1 + x, rest = (x - (u - 1)) / u; /* x - (u - 1) is the part of x that the rounding of u = 1 + x has lost */
    const float all = dv_logf(u) + (((u > 0) & (u < HUGE_VALF)) ? rest : 0);
    return dv__f32_from_bits(dv__bits_of_f32(all) | (dv__bits_of_f32(x) & 0x80000000u)); /* of -0, too */
}

/* ---- sine and cosine ----------------------------------------------------------------------------------------------------- */

/* sin(r) for |r| <= pi/2 */
DV_INLINE float dv__sinf_reduced(float r)
{
    const float t = r * r;
    return r +
        r * t * (-0.1666666663f + t * (0.008333331311f + t * (-0.0001984089228f + t * (2.752651812e-6f + t * -2.390735907e-8f))));
}

/* Returns sin(x) for |x| <= DV_SINF_SMALL. The nearest multiple of pi is subtracted in parts of 12 bits, so that each
 * product of a part with the multiple is exact. */
#define DV_SINF_SMALL 6400.0f
DV_INLINE float dv_sinf_small(float x) /* 2.4 ulp */
{
    const float shifted = x * 0x1.45f306p-2f + 0x1.8p23f, n = shifted - 0x1.8p23f;
    const float r = (((x - n * 0x1.92p+1f) - n * 0x1.fb4p-11f) - n * 0x1.444p-23f) - n * 0x1.68c234p-38f;
    const float s = dv__sinf_reduced(r);
    return x == 0 ? x : dv__f32_from_bits(dv__bits_of_f32(s) ^ dv__bits_of_f32(shifted) << 31);
}
/* Returns sin(x) for |x| <= DV_SINF_NEAR, which covers most angles, in fewer steps: the multiples have 6 bits, so parts of
 * 18, 18 and 24 bits suffice. */
#define DV_SINF_NEAR 200.0f
DV_INLINE float dv_sinf_near(float x) /* 2.1 ulp */
{
    const float shifted = x * 0x1.45f306p-2f + 0x1.8p23f, n = shifted - 0x1.8p23f;
    const float r = ((x - n * 0x1.921f8p+1f) - n * 0x1.aa22p-18f) - n * 0x1.68c234p-38f, t = r * r;
    const float s = r + r * t * (-0.1666665971f + t * (0.008333069272f + t * (-0.0001980977686f + t * 2.606095677e-6f)));
    const uint32_t bits = dv__bits_of_f32(s) |
        (dv__bits_of_f32(r) & 0x80000000u); /* s gets the sign of r, since the sum is +0 for r = -0 */
    return dv__f32_from_bits(bits ^ dv__bits_of_f32(shifted) << 31);
}
/* Returns cos(x) for |x| <= DV_SINF_SMALL, by the odd multiples of pi/2: cos(m pi/2 + r) is sin(r), or -sin(r) if m % 4 is
 * 1. */
DV_INLINE float dv_cosf_small(float x) /* 2.4 ulp */
{
    const float shifted = (x * 0x1.45f306p-2f - 0.5f) + 0x1.8p23f, m = 2 * (shifted - 0x1.8p23f) + 1;
    const float r = (((x - m * 0x1.92p+0f) - m * 0x1.fb4p-12f) - m * 0x1.444p-24f) - m * 0x1.68c234p-39f;
    const float s = dv__sinf_reduced(r);
    return dv__f32_from_bits(dv__bits_of_f32(s) ^ ~dv__bits_of_f32(shifted) << 31);
}

/* Returns sin(|x| + quarter pi/2) for 1 <= |x| < infinity, exactly reduced (Payne and Hanek): |x| is m 2^e with an integer
 * m. Only 96 bits of 2/pi matter: higher bits give multiples of 4 times pi/2, and lower bits contribute too little. */
DV_INLINE float dv__sinf_large(float x, uint32_t quarter)
{
    static const uint32_t two_over_pi[8] = { 0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041,
        0xfe5163ab };
    const uint32_t bits = dv__bits_of_f32(x), exponent = bits >> 23 & 255;
    const uint32_t at = (exponent < 120 ? 120 : exponent > 254 ? 254 : exponent) - 120, word = at >> 5, shift = at & 31;
    const uint64_t m = (bits & 0x7fffffu) | 0x800000u;
    const uint64_t a = ((uint64_t)two_over_pi[word] << 32 | two_over_pi[word + 1]) << shift >> 32;
    const uint64_t b = ((uint64_t)two_over_pi[word + 1] << 32 | two_over_pi[word + 2]) << shift >> 32;
    const uint64_t c = ((uint64_t)two_over_pi[word + 2] << 32 | two_over_pi[word + 3]) << shift >> 32;
    const uint64_t turns = ((m * (a & 0xffffffffu)) << 32) + m * (b & 0xffffffffu) +
        (m * (c & 0xffffffffu) >> 32); /* quarters * 2^62 */
    const uint64_t q = (turns + 0x2000000000000000u) >> 62;
    const double r = (double)(int64_t)(turns - (q << 62)) * 0x1.921fb54442d18p-62;
    const uint32_t quadrant = (uint32_t)q + quarter;
    const float s = dv__sinf_reduced((float)(quadrant & 1 ? 0x1.921fb54442d18p+0 - dv_fabs(r) : r));
    return quadrant & 2 ? -s : s;
}

/* dv_sinf() and dv_cosf() are for every x. They do not vectorise: if almost all x are small, test for that and call the
 * faster functions above. */
DV_INLINE float dv_sinf(float x) /* 2.4 ulp */
{
    const float a = dv_fabsf(x), large = dv__sinf_large(x, 0), small = dv_sinf_small(a > DV_SINF_SMALL ? 0 : x);
    return a <= DV_SINF_SMALL ? small : !(a < HUGE_VALF) ? x - x : x < 0 ? -large : large;
}
DV_INLINE float dv_cosf(float x) /* 2.4 ulp */
{
    const float a = dv_fabsf(x), large = dv__sinf_large(x, 1), small = dv_cosf_small(a > DV_SINF_SMALL ? 0 : x);
    return a <= DV_SINF_SMALL ? small : !(a < HUGE_VALF) ? x - x : large;
}

/* Computes the sine and cosine of a double with |x| <= DV_SIN_SMALL; for larger x use the C library. */
#define DV_SIN_SMALL 1e6
/* clang-format off */
typedef struct dv__sincos_f64 { double sin, cos; uint64_t quadrant; } dv__sincos_f64;
/* clang-format on */
DV_INLINE dv__sincos_f64 dv__sincos(double x)
{
    const double shifted = x * 0x1.45f306dc9c883p-1 + 0x1.8p52, n = shifted - 0x1.8p52;
    const double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69, t = r * r;
    const double s = -0x1.5555555555555p-3 +
        t *
            (0x1.111111111110bp-7 +
                t *
                    (-0x1.a01a01a018ab3p-13 +
                        t *
                            (0x1.71de3a5335625p-19 +
                                t * (-0x1.ae645292e039ep-26 + t * (0x1.61208f337ff69p-33 + t * -0x1.aaa381268c7f1p-41)))));
    const double c = 0x1.5555555555555p-5 +
        t *
            (-0x1.6c16c16c16c10p-10 +
                t *
                    (0x1.a01a01a018dbfp-16 +
                        t *
                            (-0x1.27e4fb75fa937p-22 +
                                t * (0x1.1eed8ca05ffd2p-29 + t * (-0x1.9393347b470a5p-37 + t * 0x1.aac3f4420cf13p-45)))));
    const double half = 0.5 * t, one = 1.0 - half; /* 1 - t/2 loses the low bits of t/2, which are added again below */
    const dv__sincos_f64 both = { r + r * t * s, one + (((1.0 - one) - half) + t * t * c), dv__bits_of_f64(shifted) };
    return both;
}
DV_INLINE double dv_sin_small(double x) /* 2.3 ulp */
{
    const dv__sincos_f64 v = dv__sincos(x);
    return x == 0 ? x : dv__f64_from_bits(dv__bits_of_f64(v.quadrant & 1 ? v.cos : v.sin) ^ v.quadrant >> 1 << 63);
}
DV_INLINE double dv_cos_small(double x) /* 2.3 ulp */
{
    const dv__sincos_f64 v = dv__sincos(x);
    return dv__f64_from_bits(dv__bits_of_f64(v.quadrant & 1 ? v.sin : v.cos) ^ (v.quadrant + 1) >> 1 << 63);
}

/* The functions that dv_sin() and dv_cos() call. Few angles are large, and their reduction is long and does not vectorise. A
 * step of dovetail_elementwise.h has a variable dv__large_angle for each element. The step computes a block as if all angles
 * were small, and sets the variable of each element whose angle is not small. It then computes those elements again, where
 * dv__large_angle is this constant. */
typedef struct dv__no_large_angle { int none; } dv__no_large_angle;
static const dv__no_large_angle dv__large_angle DV__UNUSED = { 0 };
DV__NOINLINE static float dv__sinf_any(float x, const void *far) { return (void)far, dv_sinf(x); }
DV__NOINLINE static float dv__cosf_any(float x, const void *far) { return (void)far, dv_cosf(x); }
DV__NOINLINE static double dv__sin_any(double x, const void *far) /* calls the C library if x is large */
{
    return (void)far, dv_fabs(x) <= DV_SIN_SMALL ? dv_sin_small(x) : sin(x);
}
DV__NOINLINE static double dv__cos_any(double x, const void *far)
{
    return (void)far, dv_fabs(x) <= DV_SIN_SMALL ? dv_cos_small(x) : cos(x);
}
#define DV__FLAG_LARGE_ANGLE(NAME, TYPE, SMALL, ABS, MOST) \
    DV_INLINE TYPE NAME(TYPE x, const void *far)           \
    {                                                      \
        *(int32_t *)(uintptr_t)far |= !(ABS(x) <= MOST);   \
        return SMALL(x);                                   \
    }
DV__FLAG_LARGE_ANGLE(dv__sinf_flagging, float, dv_sinf_small, dv_fabsf, DV_SINF_SMALL)
DV__FLAG_LARGE_ANGLE(dv__cosf_flagging, float, dv_cosf_small, dv_fabsf, DV_SINF_SMALL)
DV__FLAG_LARGE_ANGLE(dv__sin_flagging, double, dv_sin_small, dv_fabs, DV_SIN_SMALL)
DV__FLAG_LARGE_ANGLE(dv__cos_flagging, double, dv_cos_small, dv_fabs, DV_SIN_SMALL)
DV_INLINE double dv__tanh_f64(double x) { return tanh(x); }

/* ---- The same for 16 floats at once, of AVX-512 --------------------------------------------------------------------------- */

#ifdef DV_TARGET_AVX512
typedef float dv_f32x16 __attribute__((vector_size(64)));
typedef int32_t dv_i32x16 __attribute__((vector_size(64)));
typedef uint32_t dv__u32x16 __attribute__((vector_size(64)));
#define DV__X16 DV_TARGET_AVX512 static inline __attribute__((always_inline))

DV__X16 dv_f32x16 dv__splat_x16(float x) { return x - (dv_f32x16){ 0 }; }
/* dv__min_x16() and dv__max_x16() return the smaller and the larger lane; for a NaN and a number, the lane of the second
 * argument. */
DV__X16 dv_f32x16 dv__min_x16(dv_f32x16 a, dv_f32x16 b)
{
    dv_f32x16 least;
    __asm__("vminps %2, %1, %0" : "=v"(least) : "v"(a), "v"(b));
    return least;
}
DV__X16 dv_f32x16 dv__max_x16(dv_f32x16 a, dv_f32x16 b)
{
    dv_f32x16 most;
    __asm__("vmaxps %2, %1, %0" : "=v"(most) : "v"(a), "v"(b));
    return most;
}
DV__X16 dv_f32x16 dv__select_x16(dv_i32x16 which, dv_f32x16 a, dv_f32x16 b)
{
    return (dv_f32x16)((which & (dv_i32x16)a) | (~which & (dv_i32x16)b));
}
DV__X16 dv_f32x16 dv__fabs_x16(dv_f32x16 x) { return (dv_f32x16)((dv_i32x16)x & 0x7fffffff); }
DV__X16 dv_f32x16 dv__sqrt_x16(dv_f32x16 x)
{
    dv_f32x16 root;
    __asm__("vsqrtps %1, %0" : "=v"(root) : "v"(x));
    return root;
}
DV__X16 dv_f32x16 dv__times_power_x16(dv_f32x16 x, dv_f32x16 n) /* x * 2^floor(n) */
{
    dv_f32x16 product;
    __asm__("vscalefps %2, %1, %0" : "=v"(product) : "v"(x), "v"(n));
    return product;
}

/* scale * e^y is e * 2^floor(n), for -200 <= y <= 200. Adding 1.5 * 2^19 rounds to a multiple of 1/16 and leaves its last four
 * bits at the end: they find a power of two in a table in a register, so that three terms of the series suffice for the rest. */
typedef struct dv__exp_x16 { dv_f32x16 e, n; } dv__exp_x16;
DV__X16 dv_f32x16 dv__power_x16(dv_f32x16 shifted, float scale) /* scale * 2^(i/16), i the last four bits */
{
    const dv_f32x16 powers = { 0x1p0f, 0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f, 0x1.306fep0f, 0x1.3dea64p0f, 0x1.4bfdaep0f,
        0x1.5ab07ep0f, 0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f, 0x1.ae89fap0f, 0x1.c199bep0f, 0x1.d5818ep0f,
        0x1.ea4afap0f };
    dv_f32x16 power;
    __asm__("vpermps %2, %1, %0" : "=v"(power) : "v"(shifted), "v"(scale * powers));
    return power;
}
DV__X16 dv__exp_x16 dv__exp_parts_x16(dv_f32x16 y, float scale)
{
    const dv_f32x16 shifted = y * 0x1.715476p+0f + 0x1.8p19f, n = shifted - 0x1.8p19f;
    const dv_f32x16 r = (y - n * 0x1.62ep-1f) - n * 0x1.0bfbe8p-15f, q = r * (1.0f + r * (0.5f + r * 0.16666667f));
    const dv_f32x16 power = dv__power_x16(shifted, scale);
    return (dv__exp_x16){ power + power * q, n };
}
DV__X16 dv_f32x16 dv__expf_x16(dv_f32x16 x) /* 1.1 ulp */
{
    const dv__exp_x16 parts = dv__exp_parts_x16(dv__max_x16(dv__splat_x16(-200), dv__min_x16(dv__splat_x16(200), x)), 1);
    return dv__times_power_x16(parts.e, parts.n);
}
/* 2^-64 (1 + e^-x) for -140 <= x <= 140; at -140 it is infinite. */
DV__X16 dv_f32x16 dv__sigmoid_x16_below(dv_f32x16 x)
{
    const dv__exp_x16 parts = dv__exp_parts_x16(-x, 0x1p-64f);
    return 0x1p-64f + dv__times_power_x16(parts.e, parts.n);
}
DV__X16 dv_f32x16 dv__sigmoidf_x16(dv_f32x16 x) /* 3.3 ulp */
{
    const dv_f32x16 near = dv__max_x16(dv__splat_x16(-140), dv__min_x16(dv__splat_x16(140), x));
    return 0x1p-64f / dv__sigmoid_x16_below(near);
}
DV__X16 dv_f32x16 dv__siluf_x16(dv_f32x16 x) /* 3.1 ulp */
{
    dv_f32x16 near, y;
    __asm__("vrangeps $2, %2, %1, %0" : "=v"(near) : "v"(x), "v"(dv__splat_x16(140))); /* min(|x|, 140) with the sign of x */
    y = x / dv__sigmoid_x16_below(near) * 0x1p-64f;
    __asm__("vcmpltps %1, %2, %%k1\n\tvmovaps %1, %0%{%%k1%}" /* lanes with x > 2^60 get x, since the division would overflow */
        : "+v"(y)
        : "v"(x), "v"(dv__splat_x16(0x1p60f))
        : "k1");
    return y;
}

/* Defines a function of 16 floats that calls a function of one float for each. */
#define DV__EACH_X16(NAME, FUNCTION)    \
    DV__X16 dv_f32x16 NAME(dv_f32x16 x) \
    {                                   \
        float each[16];                 \
        memcpy(each, &x, sizeof each);  \
        DV__VECTOR_LOOP(i, 16)          \
        each[i] = FUNCTION(each[i]);    \
        memcpy(&x, each, sizeof each);  \
        return x;                       \
    }

/* As for one float. */
DV__X16 dv_f32x16 dv__tanhf_x16(dv_f32x16 x)
{
    const dv_f32x16 a = dv__fabs_x16(x), t = x * x, e = dv__expf_x16(dv__min_x16(dv__splat_x16(20), 2.0f * a));
    const dv_f32x16 far = 1.0f - 2.0f / (e + 1.0f);
    const dv_f32x16 q = -0.3333328128f +
        t * (0.1333142033f + t * (-0.05373779432f + t * (0.02063253558f + t * -0.005697373287f)));
    const dv_f32x16 size = dv__select_x16((dv_i32x16)(a < 0.625f), a + a * t * q, far);
    return (dv_f32x16)((dv_i32x16)size | ((dv_i32x16)x & INT32_MIN));
}
DV__X16 dv_f32x16 dv__logf_x16(dv_f32x16 x)
{
    const dv_f32x16 infinity = dv__splat_x16(HUGE_VALF);
    const dv_i32x16 denormal = (dv_i32x16)(x < 0x1p-126f);
    const dv_f32x16 scaled = dv__select_x16(denormal, x * 0x1p23f, x);
    const dv_i32x16 k = (dv_i32x16)((dv__u32x16)scaled - 0x3f3504f3u) >> 23;
    const dv_f32x16 f = (dv_f32x16)((dv__u32x16)scaled - ((dv__u32x16)k << 23)) - 1.0f;
    const dv_f32x16 n = __builtin_convertvector(k, dv_f32x16) - (dv_f32x16)(denormal & (dv_i32x16)dv__splat_x16(23));
    const dv_f32x16 far = -0.166678026f +
        f * (0.142490581f + f * (-0.124256872f + f * (0.116854198f + f * (-0.114797339f + f * 0.0697161183f))));
    const dv_f32x16 q = f * f * f * (0.333333313f + f * (-0.24999997f + f * (0.200007156f + f * far)));
    const dv_f32x16 sum = n * 0x1.62e4p-1f + (f + ((q - 0.5f * f * f) + n * 0x1.7f7d1cp-20f));
    const dv_f32x16 other = dv__select_x16(
        (dv_i32x16)(x == 0), -infinity, dv__select_x16((dv_i32x16)(x < 0), dv__splat_x16(NAN), x));
    return dv__select_x16((dv_i32x16)(x > 0) & (dv_i32x16)(x < infinity), sum, other);
}
DV__X16 dv_f32x16 dv__log1pf_x16(dv_f32x16 x)
{
    const dv_f32x16 u = 1.0f + x;
    dv_f32x16 near; /* 1 / u to 14 bits, which a Newton step below makes 28 */
    __asm__("vrcp14ps %1, %0" : "=v"(near) : "v"(u));
    const dv_f32x16 rest = (x - (u - 1.0f)) * (near * (2.0f - u * near));
    const dv_i32x16 there = (dv_i32x16)(u > 0) & (dv_i32x16)(u < dv__splat_x16(HUGE_VALF));
    return dv__select_x16((dv_i32x16)(x == 0), x, dv__logf_x16(u) + (dv_f32x16)(there & (dv_i32x16)rest));
}

/* Sine and cosine for 16 floats, by the same reduction as for one float. s: the sine of the reduced angle; odd: has the sign
 * in its lowest bit. */
DV__X16 dv_f32x16 dv__signed_x16(dv_f32x16 s, dv_f32x16 odd) { return (dv_f32x16)((dv__u32x16)s ^ (dv__u32x16)odd << 31); }
DV__X16 dv_f32x16 dv__sinf_reduced_x16(dv_f32x16 r)
{
    const dv_f32x16 t = r * r;
    return r +
        r * t * (-0.1666666663f + t * (0.008333331311f + t * (-0.0001984089228f + t * (2.752651812e-6f + t * -2.390735907e-8f))));
}
DV__X16 dv_f32x16 dv__minus_times_x16(dv_f32x16 x, dv_f32x16 n, float y) /* x - n * y, rounded once whatever the compiler does */
{
    __asm__("vfnmadd231ps %2, %1, %0" : "+v"(x) : "v"(n), "v"(dv__splat_x16(y)));
    return x;
}
/* x - n * pi by three parts of pi: the first is exact, since x and n times 24 bits of pi are multiples of 2^-22, or of x's last
 * bit. Adding 0 makes t * q a 0 whose sign keeps that of -0. */
DV__X16 dv_f32x16 dv__sinf_small_x16(dv_f32x16 x)
{
    const dv_f32x16 shifted = x * 0x1.45f306p-2f + 0x1.8p23f, n = shifted - 0x1.8p23f;
    const dv_f32x16 near = dv__minus_times_x16(dv__minus_times_x16(x, n, 0x1.921fb4p+1f), n, 0x1.4442dp-23f);
    const dv_f32x16 r = dv__minus_times_x16(near, n, 0x1.846988p-47f), t = r * r;
    const dv_f32x16 q = -0.1666665971f + t * (0.008333069272f + t * (-0.0001980977686f + t * 2.606095677e-6f));
    return dv__signed_x16(r + r * (t * q + 0.0f), shifted);
}
DV__X16 dv_f32x16 dv__cosf_small_x16(dv_f32x16 x)
{
    const dv_f32x16 shifted = (x * 0x1.45f306p-2f - 0.5f) + 0x1.8p23f, m = 2 * (shifted - 0x1.8p23f) + 1;
    const dv_f32x16 r = (((x - m * 0x1.92p+0f) - m * 0x1.fb4p-12f) - m * 0x1.444p-24f) - m * 0x1.68c234p-39f;
    return dv__signed_x16(dv__sinf_reduced_x16(r), (dv_f32x16) ~(dv_i32x16)shifted);
}
DV__X16 uint32_t dv__outside_x16(
    dv_f32x16 x, float most) /* returns a mask with a bit for each lane for which |x| <= most does not hold */
{
    uint32_t outside;
    __asm__("vcmpnleps %1, %2, %%k1\n\tkmovw %%k1, %0" : "=r"(outside) : "v"(dv__splat_x16(most)), "v"(dv__fabs_x16(x)) : "k1");
    return outside;
}
/* Replaces in y each lane whose bit is set in `rest` by the function of one float. */
#define DV__LARGE_ANGLE_X16(NAME, ANY)                                                                       \
    DV_TARGET_AVX512 DV__NOINLINE static void NAME(float *y, const float *x, uint32_t rest, const void *far) \
    {                                                                                                        \
        for (; rest; rest &= rest - 1)                                                                       \
            y[__builtin_ctz(rest)] = ANY(x[__builtin_ctz(rest)], far);                                       \
    }
DV__LARGE_ANGLE_X16(dv__sinf_large_lanes, dv__sinf_any)
DV__LARGE_ANGLE_X16(dv__cosf_large_lanes, dv__cosf_any)
#define DV__ANGLE_X16(NAME, SMALL, FAR)                                   \
    DV__X16 dv_f32x16 NAME(dv_f32x16 x, const void *far)                  \
    {                                                                     \
        dv_f32x16 y = SMALL(x);                                           \
        const uint32_t rest = dv__outside_x16(x, DV_SINF_SMALL);          \
        if (DV__UNLIKELY(rest)) {                                         \
            float each[16], copy[16]; /* so that x stays in a register */ \
            memcpy(each, &y, sizeof each), memcpy(copy, &x, sizeof copy); \
            FAR(each, copy, rest, far);                                   \
            memcpy(&y, each, sizeof each);                                \
        }                                                                 \
        return y;                                                         \
    }
DV__ANGLE_X16(dv__sinf_x16, dv__sinf_small_x16, dv__sinf_large_lanes)
DV__ANGLE_X16(dv__cosf_x16, dv__cosf_small_x16, dv__cosf_large_lanes)

/* Defines a function that rounds 16 floats to integers. WAY: 9 down, 10 up, 11 towards 0, 8 to the nearest, halves to even. */
#define DV__ROUND_X16(NAME, WAY)                                         \
    DV__X16 dv_f32x16 NAME(dv_f32x16 x)                                  \
    {                                                                    \
        dv_f32x16 whole;                                                 \
        __asm__("vrndscaleps $" #WAY ", %1, %0" : "=v"(whole) : "v"(x)); \
        return whole;                                                    \
    }
DV__ROUND_X16(dv__floor_x16, 9)
DV__ROUND_X16(dv__ceil_x16, 10)
DV__ROUND_X16(dv__trunc_x16, 11)
DV__ROUND_X16(dv__round_x16, 8)

/* The functions of two arguments where one or both are a number instead of a vector, and conditions that are numbers. */
#define DV__MIXED_X16(NAME)                                                                       \
    DV__X16 dv_f32x16 NAME##_xn(dv_f32x16 a, float b) { return NAME##_x16(a, dv__splat_x16(b)); } \
    DV__X16 dv_f32x16 NAME##_nx(float a, dv_f32x16 b) { return NAME##_x16(dv__splat_x16(a), b); }
DV__MIXED_X16(dv__min)
DV__MIXED_X16(dv__max)
DV__X16 dv_f32x16 dv__select_xn(dv_i32x16 which, dv_f32x16 a, float b) { return dv__select_x16(which, a, dv__splat_x16(b)); }
DV__X16 dv_f32x16 dv__select_nx(dv_i32x16 which, float a, dv_f32x16 b) { return dv__select_x16(which, dv__splat_x16(a), b); }
DV__X16 dv_f32x16 dv__select_nn(dv_i32x16 which, float a, float b)
{
    return dv__select_x16(which, dv__splat_x16(a), dv__splat_x16(b));
}
DV__X16 dv_f32x16 dv__number_x16(double x) { return dv__splat_x16((float)x); }
DV__X16 dv_i32x16 dv__which_x16(dv_i32x16 which) { return which; }
DV__X16 dv_i32x16 dv__nonzero_x16(dv_f32x16 x) { return (dv_i32x16)(x != 0); }
#define DV__OF_X16(FUNCTION) \
    dv_f32x16:               \
    FUNCTION,
#define DV__OF_TYPES_X16(NAME)                   \
    void (*)(dv_f32x16, dv_f32x16)               \
        : NAME##_x16, void (*)(dv_f32x16, float) \
        : NAME##_xn, void (*)(dv_f32x16, double) \
        : NAME##_xn, void (*)(float, dv_f32x16) : NAME##_nx, void (*)(double, dv_f32x16) : NAME##_nx,
#define DV__SELECT_OF(WHICH) _Generic((WHICH), dv_i32x16: dv__select_nn, dv_f32x16: dv__select_nn, default: dv__select_f32)
#define DV__WHICH_X16 \
    dv_i32x16:        \
    dv__which_x16, dv_f32x16 : dv__nonzero_x16,
#else
#define DV__OF_X16(FUNCTION)
#define DV__OF_TYPES_X16(NAME)
#define DV__SELECT_OF(WHICH) dv__select_f32
#define DV__WHICH_X16
#endif

/* ---- By the type of x: float, double, or a vector of 16 floats --------------------------------------------------------------
 */

#define DV__BY_TYPE(X, F32, F64, X16) _Generic((X), DV__OF_X16(X16) float: F32, default: F64)
#define dv_exp(x) DV__BY_TYPE(x, dv_expf, (dv_exp), dv__expf_x16)(x)
#define dv_sigmoid(x) DV__BY_TYPE(x, dv_sigmoidf, (dv_sigmoid), dv__sigmoidf_x16)(x)
#define dv_silu(x) DV__BY_TYPE(x, dv_siluf, (dv_silu), dv__siluf_x16)(x)
#define dv_tanh(x) DV__BY_TYPE(x, dv_tanhf, dv__tanh_f64, dv__tanhf_x16)(x)
#define DV__LARGE_ANGLE(NOTING, ANY) _Generic(dv__large_angle, int32_t: NOTING, default: ANY)
#define dv_sin(x)                                                                                                    \
    DV__BY_TYPE(x, DV__LARGE_ANGLE(dv__sinf_flagging, dv__sinf_any), DV__LARGE_ANGLE(dv__sin_flagging, dv__sin_any), \
        dv__sinf_x16)(x, &dv__large_angle)
#define dv_cos(x)                                                                                                    \
    DV__BY_TYPE(x, DV__LARGE_ANGLE(dv__cosf_flagging, dv__cosf_any), DV__LARGE_ANGLE(dv__cos_flagging, dv__cos_any), \
        dv__cosf_x16)(x, &dv__large_angle)
#define dv_abs(x) DV__BY_TYPE(x, dv_fabsf, dv_fabs, dv__fabs_x16)(x)
#define dv_sqrt(x) DV__BY_TYPE(x, sqrtf, sqrt, dv__sqrt_x16)(x)
#define dv_log(x) DV__BY_TYPE(x, dv_logf, log, dv__logf_x16)(x)
#define dv_log1p(x) DV__BY_TYPE(x, dv_log1pf, log1p, dv__log1pf_x16)(x)
#define dv_floor(x) DV__BY_TYPE(x, floorf, floor, dv__floor_x16)(x)
#define dv_ceil(x) DV__BY_TYPE(x, ceilf, ceil, dv__ceil_x16)(x)
#define dv_trunc(x) DV__BY_TYPE(x, truncf, trunc, dv__trunc_x16)(x)
#define dv_round(x) DV__BY_TYPE(x, rintf, rint, dv__round_x16)(x) /* rounds to the nearest integer, halves to even */

/* Converts x to the type REAL: float, double, or a vector of 16 floats. */
DV_INLINE float dv__number_f32(double x) { return (float)x; }
DV_INLINE double dv__number_f64(double x) { return x; }
#define DV__NUMBER(REAL, x) DV__BY_TYPE(*(REAL *)0, dv__number_f32, dv__number_f64, dv__number_x16)(x)

/* Selects a function by the types of two arguments, of which one may be a number instead of a vector: dv_max(x, 0). If one
 * is a double, both are computed as double. */
#define DV__BY_TYPES(A, B, F32, NAME)                                     \
    _Generic((void (*)(__typeof__((A) * 1.0f), __typeof__((B) * 1.0f)))0, \
        DV__OF_TYPES_X16(NAME) void (*)(float, float): F32,               \
        default: NAME##_f64)
/* The smaller and the larger of two numbers; if one is NaN, the second argument. */
DV_INLINE float dv__min_f32(float a, float b) { return a < b ? a : b; }
DV_INLINE float dv__max_f32(float a, float b) { return a > b ? a : b; }
DV_INLINE double dv__min_f64(double a, double b) { return a < b ? a : b; }
DV_INLINE double dv__max_f64(double a, double b) { return a > b ? a : b; }
#define dv_min(a, b) DV__BY_TYPES(a, b, dv__min_f32, dv__min)(a, b)
#define dv_max(a, b) DV__BY_TYPES(a, b, dv__max_f32, dv__max)(a, b)

/* dv_select(which, a, b): a where the condition holds, else b, as in dv_select(x > 0, x, 0). Comparisons are combined by &
 * and |; a number holds if it is not 0. */
DV_INLINE float dv__select_f32(int which, float a, float b) { return which ? a : b; }
DV_INLINE double dv__select_f64(int which, double a, double b) { return which ? a : b; }
DV_INLINE int dv__which(int which) { return which; }
DV_INLINE int dv__nonzero_f32(float x) { return x != 0; }
DV_INLINE int dv__nonzero_f64(double x) { return x != 0; }
#define DV__WHICH(X) _Generic((X), DV__WHICH_X16 float: dv__nonzero_f32, double: dv__nonzero_f64, default: dv__which)(X)
#define dv_select(which, a, b) DV__BY_TYPES(a, b, DV__SELECT_OF(which), dv__select)(DV__WHICH(which), a, b)

#endif
