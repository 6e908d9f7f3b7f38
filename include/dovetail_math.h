/* dovetail_math.h: elementary functions for kernels, in forms that gcc and clang turn into vector code.
 *
 * A call to expf() in a loop is a call to libm for each element. The functions here are straight-line C without branch, table or
 * call, so a loop over them vectorises at -O3 -fno-math-errno -fno-trapping-math for the instruction set of the function around
 * the loop. Compile with -ffp-contract=fast, so that a*b + c is one instruction where the processor has FMA; `dovetail build`
 * passes all these flags. Under -ffast-math the results are wrong.
 *
 * Every function treats NaN, infinities and denormals as the C library does. The error written beside each is the largest that
 * was measured by tests/core/test_math.c, against the correctly rounded result, over all floats (f32) or many millions of points
 * (f64), with and without FMA; in units in the last place.
 */
#ifndef DOVETAIL_MATH_H
#define DOVETAIL_MATH_H

#include "dovetail_op.h"
#include <math.h>

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

/* ---- Loops over elements ------------------------------------------------------------------------------------------------- */

/* For elementwise rows. The step is written once for float, and once for double if f64 is wanted; bf16 and f16 are converted to
 * float and back. A step computes exactly DV_BLOCK elements, so it compiles to vectors without a scalar remainder (the last
 * elements are computed in a copy), and one function serves all dtypes, which keeps the code small.
 *
 *     DV_INLINE void step_f32(float *const *out, const float *const *in, void *with)
 *     {
 *         DV_BLOCK_LOOP
 *             out[0][i] = dv_sigmoidf(in[0][i]);
 *     }
 *     DV_INLINE int sigmoid_row(dv_context *ctx, const struct sigmoid *a)
 *     {
 *         dv_blocks(a->x->dtype, dv_numel(a->x), DV_OUT(a->out), DV_IN(a->x), NULL, step_f32, step_f64);
 *         return DV_OK;
 *     }
 *
 * At most four inputs and four outputs; `with` is passed to the step, for parameters or sums. An output may be one of the inputs,
 * but may not overlap an input in another way. */
enum { DV_BLOCK = 64, DV__MOST = 4 };
#define DV_OUT(...) (dv_tensor *const[]){ __VA_ARGS__ }, (int)(sizeof((dv_tensor *const[]){ __VA_ARGS__ }) / sizeof(void *))
#define DV_IN(...) \
    (const dv_tensor *const[]){ __VA_ARGS__ }, (int)(sizeof((const dv_tensor *const[]){ __VA_ARGS__ }) / sizeof(void *))
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* without optimisation nothing is vectorised: expected */
#define DV_BLOCK_LOOP _Pragma("clang loop vectorize(assume_safety) unroll(disable)") for (int i = 0; i < DV_BLOCK; i++)
#elif defined(__GNUC__)
#define DV_BLOCK_LOOP _Pragma("GCC ivdep") _Pragma("GCC unroll 1") for (int i = 0; i < DV_BLOCK; i++)
#else
#define DV_BLOCK_LOOP for (int i = 0; i < DV_BLOCK; i++)
#endif
typedef void (*dv_step_f32)(float *const *out, const float *const *in, void *with);
typedef void (*dv_step_f64)(double *const *out, const double *const *in, void *with);

/* DV_BLOCK elements of a 16-bit type to float and back. */
DV_INLINE void dv_block_load(float *to, const uint16_t *from, uint32_t dtype)
{
    if (dtype == DV_DTYPE_bf16)
        DV_BLOCK_LOOP
    to[i] = dv_bf16_to_f32(from[i]);
    else DV_BLOCK_LOOP to[i] = dv_f16_to_f32(from[i]);
}
DV_INLINE void dv_block_store(uint16_t *to, const float *from, uint32_t dtype)
{
    if (dtype == DV_DTYPE_bf16)
        DV_BLOCK_LOOP
    to[i] = dv_f32_to_bf16(from[i]);
    else DV_BLOCK_LOOP to[i] = dv_f32_to_f16(from[i]);
}

DV_INLINE void dv_blocks(dv_dtype type, int64_t n, dv_tensor *const *out, int nout, const dv_tensor *const *in, int nin,
    void *with, dv_step_f32 f32, dv_step_f64 f64)
{
    _Alignas(64) float in_f32[DV__MOST][DV_BLOCK], out_f32[DV__MOST][DV_BLOCK];
    _Alignas(64) double in_rest[DV__MOST][DV_BLOCK], out_rest[DV__MOST][DV_BLOCK];
    const uint32_t dtype = dv_dtype_key(type);
    const bool half = type.bits == 16;
    const size_t item = type.bits / 8;
    const void *from[DV__MOST] = { NULL };
    void *to[DV__MOST] = { NULL };
    for (int64_t at = 0; at < n; at += DV_BLOCK) {
        const bool whole = n - at >= DV_BLOCK;
        const size_t bytes = (size_t)(whole ? DV_BLOCK : n - at) * item, skip = (size_t)at * item;
        for (int k = 0; k < nin; k++) {
            from[k] = (const char *)in[k]->data + skip;
            if (!whole)
                from[k] = memcpy(memset(in_rest[k], 0, sizeof in_rest[k]), from[k], bytes);
            if (half) {
                dv_block_load(in_f32[k], (const uint16_t *)from[k], dtype);
                from[k] = in_f32[k];
            }
        }
        for (int k = 0; k < nout; k++)
            to[k] = half ? (void *)out_f32[k] : whole ? (void *)((char *)out[k]->data + skip) : (void *)out_rest[k];
        if (f64 && dtype == DV_DTYPE_f64)
            f64((double *const *)to, (const double *const *)from, with);
        else
            f32((float *const *)to, (const float *const *)from, with);
        for (int k = 0; k < nout; k++) {
            void *const end = whole ? (void *)((char *)out[k]->data + skip) : (void *)out_rest[k];
            if (half)
                dv_block_store((uint16_t *)end, out_f32[k], dtype);
            if (!whole)
                memcpy((char *)out[k]->data + skip, end, bytes);
        }
    }
}

/* ---- exp and its family -------------------------------------------------------------------------------------------------- */

/* e^y is e * scale, where scale is a power of two, multiplied last: e has full precision even where e^y is a denormal or nearly
 * infinite. -150 <= y <= 150. The idea: e^y = 2^n e^r with |r| <= ln(2)/2; adding 1.5 * 2^23 rounds to an integer and leaves it
 * in the low bits. */
typedef struct dv__exp_f32 { float e, scale; } dv__exp_f32;
DV_INLINE dv__exp_f32 dv__expf_parts_of(float y, float rest) /* of y + rest, which is not rounded; |rest| < 0.06 */
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
    const uint64_t half = ((k + 2048) >> 1) - 1024; /* k >> 1, without a 64-bit arithmetic shift; for NaN any value */
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
    return a < 0.625f ? (x == 0 ? x : x + x * t * q) : x != x ? x : signed_far;
}

/* ---- sine and cosine ----------------------------------------------------------------------------------------------------- */

/* sin(r) for |r| <= pi/2 */
DV_INLINE float dv__sinf_reduced(float r)
{
    const float t = r * r;
    return r +
        r * t * (-0.1666666663f + t * (0.008333331311f + t * (-0.0001984089228f + t * (2.752651812e-6f + t * -2.390735907e-8f))));
}

/* For |x| <= DV_SINF_SMALL: x minus the nearest multiple of pi, subtracted in parts of 12 bits, so that each product of a part
 * with the multiple is exact. */
#define DV_SINF_SMALL 6400.0f
DV_INLINE float dv_sinf_small(float x) /* 2.4 ulp */
{
    const float shifted = x * 0x1.45f306p-2f + 0x1.8p23f, n = shifted - 0x1.8p23f;
    const float r = (((x - n * 0x1.92p+1f) - n * 0x1.fb4p-11f) - n * 0x1.444p-23f) - n * 0x1.68c234p-38f;
    const float s = dv__sinf_reduced(r);
    return x == 0 ? x : dv__f32_from_bits(dv__bits_of_f32(s) ^ dv__bits_of_f32(shifted) << 31);
}
/* For |x| <= DV_SINF_NEAR, which covers most angles, in fewer steps: the multiples have 6 bits, so parts of 18, 18 and 24 bits
 * suffice. */
#define DV_SINF_NEAR 200.0f
DV_INLINE float dv_sinf_near(float x) /* 2.1 ulp */
{
    const float shifted = x * 0x1.45f306p-2f + 0x1.8p23f, n = shifted - 0x1.8p23f;
    const float r = ((x - n * 0x1.921f8p+1f) - n * 0x1.aa22p-18f) - n * 0x1.68c234p-38f, t = r * r;
    const float s = r + r * t * (-0.1666665971f + t * (0.008333069272f + t * (-0.0001980977686f + t * 2.606095677e-6f)));
    const uint32_t bits = dv__bits_of_f32(s) |
        (dv__bits_of_f32(r) & 0x80000000u); /* for r = -0 the sum is +0: s has the sign of r */
    return dv__f32_from_bits(bits ^ dv__bits_of_f32(shifted) << 31);
}
/* The same with the odd multiples of pi/2: cos(m pi/2 + r) is sin(r), or -sin(r) when m % 4 is 1. */
DV_INLINE float dv_cosf_small(float x) /* 2.4 ulp */
{
    const float shifted = (x * 0x1.45f306p-2f - 0.5f) + 0x1.8p23f, m = 2 * (shifted - 0x1.8p23f) + 1;
    const float r = (((x - m * 0x1.92p+0f) - m * 0x1.fb4p-12f) - m * 0x1.444p-24f) - m * 0x1.68c234p-39f;
    const float s = dv__sinf_reduced(r);
    return dv__f32_from_bits(dv__bits_of_f32(s) ^ ~dv__bits_of_f32(shifted) << 31);
}

/* sin(|x| + quarter * pi/2) for 1 <= |x| < infinity, exactly reduced (Payne and Hanek): |x| is m 2^e with an integer m. Only 96
 * bits of 2/pi matter: higher bits give multiples of 4 times pi/2, and lower bits too little to count. */
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

/* For every x. If almost all x are small, test for that and use the faster functions above. */
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

/* f64, for |x| <= DV_SIN_SMALL; beyond it use the C library. */
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
    const double half = 0.5 * t, one = 1.0 - half; /* 1 - t/2 loses the low bits of t/2: put them back */
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

#endif
