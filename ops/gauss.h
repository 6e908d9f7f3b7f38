/* gauss.h: the share of a normal distribution below x, for fast rows. */
#ifndef OPS_GAUSS_H
#define OPS_GAUSS_H
#include <dovetail_math.h>

/* erfc(z) = exp(-z^2) t q(t) for z >= 0, with t = 1 / (1 + z/2): q is a polynomial, fitted to 4e-9 relative at Chebyshev points.
 * Here z^2 = x^2 / 2, which is not rounded: high is x without its last 12 bits, so that its square is exact; what is left of the
 * square is small, and a cubic gives its exponential. */
DV_INLINE float gauss(float to) /* exp(-to^2 / 2) */
{
    const float x = dv_fabsf(to) > 20 ? 20 : to; /* both give 0 */
    const float high = dv__f32_from_bits(dv__bits_of_f32(x) & 0xfffff000u), rest = -0.5f * (x + high) * (x - high);
    return dv_expf(-0.5f * high * high) * (1 + rest * (1 + rest * (0.5f + rest * 0.16666667f)));
}
DV_INLINE float below_fast(float x, float e)
{
    const float t = 1 / (1 + 0.35355339f * dv_fabsf(x));
    const float q = 0.28209046f +
        t *
            (0.28220605f +
                t *
                    (0.24565457f +
                        t *
                            (0.18283442f +
                                t *
                                    (0.06494855f +
                                        t *
                                            (0.01122568f +
                                                t *
                                                    (0.01684741f +
                                                        t *
                                                            (-0.33081743f +
                                                                t * (0.40923778f + t * (-0.20182843f + t * 0.03760095f)))))))));
    const float tail = 0.5f * e * t * q;
    return x < 0 ? tail : 1 - tail; /* NaN passes through */
}
#endif
