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
/* e = gauss(x). erfc(z) = exp(-z^2) t q(t) for z >= 0, with t = 1 / (1 + z/2): q is a polynomial, fitted with a relative error of
 * 4e-8. */
DV_INLINE float below(float x, float e)
{
    const float t = 1 / (1 + 0.35355339f * gauss_range(x));
    const float far = 0.202860539f +
        t * (-0.0270347359f + t * (0.27865914f + t * (-0.487715885f + t * (0.284823516f + t * -0.0591197837f))));
    const float tail = 0.5f * e * t * (0.28208607f + t * (0.282381389f + t * (0.243059707f + t * far)));
    return x < 0 ? tail : 1 - tail; /* NaN passes through */
}

DV_INLINE double gauss_f64(double x) { return exp(-0.5 * x * x); }
DV_INLINE double below_f64(double x, double e)
{
    (void)e;
    return 0.5 * erfc(x * -0.7071067811865476); /* 1 + erf would cancel far below 0 */
}

/* 16 floats at once. erfc(z) = exp(-z^2) q(1 + sqrt(2) z): q is a polynomial in each quarter between two powers of two, with a
 * relative error of 1e-7; its coefficients are found in tables by the first bits of 1 + sqrt(2) z. */
#ifdef DV_TARGET_AVX512
DV__X16 dv_f32x16 gauss_range_x16(dv_f32x16 x)
{
    dv_f32x16 a;
    __asm__("vrangeps $10, %2, %1, %0" : "=v"(a) : "v"(x), "v"(dv__splat_x16(14.5f))); /* the lesser of both sizes */
    return a;
}
DV__X16 dv_f32x16 gauss_x16(dv_f32x16 x)
{
    const dv_f32x16 a = gauss_range_x16(x), square = a * a, shifted = square * -0x1.715476p-1f + 0x1.8p19f;
    const dv_f32x16 n = shifted - 0x1.8p19f, power = dv__power_x16(shifted, 1);
    dv_f32x16 rest = a;
    __asm__("vfmsub213ps %2, %1, %0" : "+v"(rest) : "v"(a), "v"(square));         /* a * a - square */
    const dv_f32x16 r = ((square + n * 0x1.62ep0f) + rest) + n * 0x1.0bfbe8p-14f; /* -2 of what the power leaves */
    return dv__times_power_x16(power + power * (r * (-0.5f + r * (0.125f - r * 0.020833334f))), n);
}
static const float gauss_table[6][16] = {
    { 0.230760321f, 0.185231671f, 0.153651938f, 0.130724728f, 0.106345162f, 0.084803395f, 0.0703426972f, 0.0600156747f,
        0.0491225496f, 0.0395066962f, 0.0330189727f, 0.0283526611f, 0.453793228f, 0.379604429f, 0.323356181f, 0.279770583f },
    { -0.110491879f, -0.0747868642f, -0.0532254204f, -0.0394492634f, -0.0267342441f, -0.0173270162f, -0.0120574636f,
        -0.00884039048f, -0.00596191129f, -0.0038753394f, -0.00271462742f, -0.00200503296f, -0.342218131f, -0.256590635f,
        -0.196844682f, -0.154143035f },
    { 0.0463213995f, 0.027176816f, 0.0169471614f, 0.0111195398f, 0.0063871583f, 0.00341577479f, 0.00201327889f, 0.00127655163f,
        0.000713556539f, 0.000376632583f, 0.000221715425f, 0.000141097262f, 0.205506936f, 0.14169091f, 0.100163803f,
        0.0724475235f },
    { -0.0175290983f, -0.00907538272f, -0.005031229f, -0.00295673707f, -0.00145905558f, -0.000651783426f, -0.000328055583f,
        -0.000180897405f, -8.42811423e-05f, -3.62777864e-05f, -1.79926501e-05f, -9.88158899e-06f, -0.105509505f, -0.0678185821f,
        -0.0447472632f, -0.0302503724f },
    { 0.00615971815f, 0.00284540863f, 0.00141564256f, 0.000751071901f, 0.00032540533f, 0.000122137018f, 5.27144512e-05f,
        2.53549952e-05f, 1.00246762e-05f, 3.51060839e-06f, 1.46496268e-06f, 6.93747211e-07f, 0.0482582785f, 0.029161904f,
        0.0181035139f, 0.011525793f },
    { -0.00199670112f, -0.000832495221f, -0.000375378295f, -0.000181304713f, -6.87640204e-05f, -2.19825597e-05f, -8.21291451e-06f,
        -3.4688378e-06f, -1.15401235e-06f, -3.32267746e-07f, -1.17390776e-07f, -4.81258198e-08f, -0.0199635476f, -0.0114168739f,
        -0.00671091862f, -0.00404817145f },
};
/* The same for results of 16 bits, with a relative error of 2^-15. */
static const float gauss_table_16[4][16] = {
    { 0.230757341f, 0.185230285f, 0.153651252f, 0.13072437f, 0.106342629f, 0.0848024413f, 0.0703422874f, 0.0600154772f,
        0.0491213016f, 0.0395062566f, 0.0330187902f, 0.0283525735f, 0.453791767f, 0.379603535f, 0.323355615f, 0.279770225f },
    { -0.110492289f, -0.0747869238f, -0.0532254055f, -0.0394492373f, -0.0267340112f, -0.0173269138f, -0.012057418f,
        -0.00884036999f, -0.00596179068f, -0.00387530262f, -0.00271461392f, -0.00200502737f, -0.342219025f, -0.256591022f,
        -0.196844861f, -0.15414311f },
    { 0.0467057787f, 0.0273544658f, 0.0170355737f, 0.0111664571f, 0.00646840082f, 0.00344628398f, 0.00202645035f, 0.00128288788f,
        0.000723570993f, 0.000380140933f, 0.000223179741f, 0.000141790792f, 0.206260085f, 0.14214614f, 0.100446463f,
        0.0726275146f },
    { -0.0176242422f, -0.00911757909f, -0.00505111786f, -0.00296666054f, -0.00147461437f, -0.00065690733f, -0.000330005976f,
        -0.000181731375f, -8.5403015e-05f, -3.66038585e-05f, -1.81084797e-05f, -9.92923742e-06f, -0.105693765f, -0.0679325536f,
        -0.044818677f, -0.0302957706f },
};
/* exp(-a^2 / 2), for those: nothing is kept of what is rounded. */
DV__X16 dv_f32x16 gauss_16_x16(dv_f32x16 a)
{
    const dv_f32x16 square = a * a, shifted = square * -0x1.715476p-1f + 0x1.8p19f, n = shifted - 0x1.8p19f;
    const dv_f32x16 r = square + n * 0x1.62e43p0f; /* twice the rest, negative */
    const dv_f32x16 power = dv__power_x16(shifted, 1);
    return dv__times_power_x16(power + power * (r * (-0.5f + r * 0.125f)), n);
}
/* The share below -a, where e = exp(-a^2 / 2). */
DV__X16 dv_f32x16 tail_x16(dv_f32x16 a, dv_f32x16 e, const float (*table)[16], int terms)
{
    const dv_i32x16 bits = (dv_i32x16)(1.0f + a), at = bits >> 21;
    const dv_f32x16 d = (dv_f32x16)bits - (dv_f32x16)((bits & -0x200000) | 0x100000);
    dv_f32x16 q = { 0 }, coefficient;
    for (int i = terms - 1; i >= 0; i--) {
        memcpy(&coefficient, table[i], sizeof coefficient);
        __asm__("vpermps %2, %1, %0" : "=v"(coefficient) : "v"(at), "vm"(coefficient));
        q = i == terms - 1 ? coefficient : coefficient + d * q;
    }
    return e * q;
}
DV__X16 dv_f32x16 below_x16(dv_f32x16 x, dv_f32x16 e)
{
    const dv_f32x16 tail = tail_x16(gauss_range_x16(x), e, gauss_table, 6);
    return dv__select_x16(x < 0, tail, 1.0f - tail);
}
/* x times the share below it is max(x, 0) - |x| tail(|x|). The first of these by an instruction that looks up what to give for
 * each kind of number, from 28 bits on: of -infinity NaN, as -infinity times 0 is. */
DV__X16 dv_f32x16 gelu_x16(dv_f32x16 x, bool of_16)
{
    const dv_f32x16 a = gauss_range_x16(x);
    dv_f32x16 tail;
    if (of_16) {
        tail = tail_x16(a, gauss_16_x16(a), gauss_table_16, 4);
        __asm__ volatile(""); /* or both would be computed */
    } else {
        tail = tail_x16(a, gauss_x16(x), gauss_table, 6);
    }
    const dv_i32x16 kinds = (dv_i32x16){ 0 } + 0x17131122;
    dv_f32x16 positive = x;
    __asm__("vfixupimmps $0, %2, %1, %0" : "+v"(positive) : "v"(x), "v"(kinds));
    return positive - a * tail;
}
#endif
DV_INLINE float gelu_f32(float x, bool of_16) { return (void)of_16, x * below(x, gauss(x)); }
DV_INLINE double gelu_f64(double x, bool of_16) { return (void)of_16, x * below_f64(x, 0); }
#define gauss_of(x) DV__BY_TYPE(x, gauss, gauss_f64, gauss_x16)(x)
#define below_of(x, e) DV__BY_TYPE(x, below, below_f64, below_x16)(x, e)
#define gelu_of(x, of_16) DV__BY_TYPE(x, gelu_f32, gelu_f64, gelu_x16)(x, of_16)
#endif
