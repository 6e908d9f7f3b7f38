/* gauss.h: the share of a normal distribution below x, for fast rows. */
#ifndef OPS_GAUSS_H
#define OPS_GAUSS_H
#include <dovetail_math.h>

/* |x|, at most 14.5, where exp(-x^2 / 2) is 0, as for an infinity. */
DV_INLINE float gauss_range(float x) { return dv_fabsf(x) > 14.5f ? 14.5f : dv_fabsf(x); }

/* exp(-x^2 / 2). x^2 is not rounded: high is x without its last 12 bits, so that its square is exact; `rest` is what is left. */
DV_INLINE float gauss(float x)
{
    const float a = gauss_range(x), high = dv__f32_from_bits(dv__bits_of_f32(a) & 0xfffff000u);
    const dv__exp_f32 e = dv__expf_parts_of(-0.5f * high * high, -0.5f * (a + high) * (a - high));
    return e.e * e.scale;
}
DV_INLINE float gauss_16(float x) /* of bf16 or f16, whose square has no more bits than a float */
{
    const dv__exp_f32 e = dv__expf_parts(-0.5f * gauss_range(x) * gauss_range(x));
    return e.e * e.scale;
}

/* e = gauss(x). erfc(z) = exp(-z^2) t q(t) for z >= 0, with t = 1 / (1 + z/2): q is a polynomial, fitted with a relative error of
 * 4e-8; for results of 16 bits, of 1.4e-6. */
DV_INLINE float below_of(float x, float e, float t, float q)
{
    const float tail = 0.5f * e * t * q;
    return x < 0 ? tail : 1 - tail; /* NaN passes through */
}
DV_INLINE float gauss_t(float x) { return 1 / (1 + 0.35355339f * gauss_range(x)); }
DV_INLINE float below_fast(float x, float e)
{
    const float t = gauss_t(x);
    const float far = 0.202860539f +
        t * (-0.0270347359f + t * (0.27865914f + t * (-0.487715885f + t * (0.284823516f + t * -0.0591197837f))));
    return below_of(x, e, t, 0.28208607f + t * (0.282381389f + t * (0.243059707f + t * far)));
}
DV_INLINE float below_16(float x, float e)
{
    const float t = gauss_t(x), far = 0.0390197905f + t * (0.387624775f + t * (-0.355592727f + t * 0.087878381f));
    return below_of(x, e, t, 0.282325744f + t * (0.277660712f + t * (0.28108191f + t * far)));
}
#endif
