/* dovetail_math.h against the C library in higher precision: every float (in strides by default; all of them with
 * DOVETAIL_ALL_FLOATS set) for f32, a pseudo-random walk for f64. The limits are what the header states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include "dovetail_math.h"

/* Distance of found from exact in units in the last place of a float near exact. */
static double ulps_f32(float found, double exact)
{
    const float nearest = (float)exact;
    if (isnan(found) || isnan(nearest))
        return isnan(found) && isnan(nearest) ? 0 : 1e9;
    if (isinf(found) || isinf(nearest))
        return found == nearest || (isinf(nearest) && fabs((double)found) == 0x1.fffffep127) ? 0 : 1e9;
    int e;
    frexp(fabs(exact) < 0x1p-126 ? 0x1p-126 : exact, &e);
    return fabs((double)found - exact) / ldexp(1, e - 24);
}
static double ulps_f64(double found, long double exact)
{
    const double nearest = (double)exact;
    if (isnan(found) || isnan(nearest))
        return isnan(found) && isnan(nearest) ? 0 : 1e9;
    if (isinf(found) || isinf(nearest))
        return found == nearest ? 0 : 1e9;
    int e;
    frexpl(fabsl(exact) < 0x1p-1022L ? 0x1p-1022L : exact, &e);
    return (double)(fabsl((long double)found - exact) / ldexpl(1, e - 53));
}

/* X(name, dovetail's, the oracle in double, limit in ulp, largest |x|) */
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x / (1 + exp(-x)); }
#define F32(X)                                                             \
    X(exp, dv_expf(x), exp((double)x), 0.97, HUGE_VAL)                     \
    X(sigmoid, dv_sigmoidf(x), sigmoid((double)x), 2.4, HUGE_VAL)          \
    X(silu, dv_siluf(x), silu((double)x), 3.2, HUGE_VAL)                   \
    X(tanh, dv_tanhf(x), tanh((double)x), 1.4, HUGE_VAL)                   \
    X(sin, dv_sinf(x), sin((double)x), 2.4, HUGE_VAL)                      \
    X(cos, dv_cosf(x), cos((double)x), 2.4, HUGE_VAL)                      \
    X(sin_small, dv_sinf_small(x), sin((double)x), 2.4, 6400)              \
    X(sin_near, dv_sinf_near(x), sin((double)x), 2.1, 200)                 \
    X(cos_small, dv_cosf_small(x), cos((double)x), 2.4, 6400)              \
    X(bf16, dv_bf16_to_f32(dv_f32_to_bf16(x)), bf16_exact(x), 0, HUGE_VAL) \
    X(f16, dv_f16_to_f32(dv_f32_to_f16(x)), f16_exact(x), 0, HUGE_VAL)

/* Rounding to a narrower type by arithmetic: to `bits` of mantissa, with exponents from `low`. */
static double rounded(float x, int bits, int low, double most)
{
    int e;
    if (isnan(x) || isinf(x) || x == 0)
        return (double)x;
    frexp((double)x, &e);
    e = e < low ? low : e;
    const double y = ldexp(nearbyint(ldexp((double)x, bits - e)), e - bits);
    return fabs(y) > most ? copysign(HUGE_VAL, y) : y;
}
static double bf16_exact(float x) { return rounded(x, 8, -125, 0x1.fep127); }
static double f16_exact(float x) { return rounded(x, 11, -13, 65504); }

enum { BATCH = 1024 };
#if defined(__x86_64__)
#define WIDE(NAME, EXPRESSION)                                                                                      \
    __attribute__((noinline)) DV_TARGET_AVX2 static void NAME##_wide(float *restrict out, const float *restrict in) \
    {                                                                                                               \
        for (int i = 0; i < BATCH; i++) {                                                                           \
            const float x = in[i];                                                                                  \
            out[i] = EXPRESSION;                                                                                    \
        }                                                                                                           \
    }
#define HAVE_WIDE __builtin_cpu_supports("avx2")
#else
#define WIDE(NAME, EXPRESSION) \
    static void NAME##_wide(float *out, const float *in) { NAME##_base(out, in); }
#define HAVE_WIDE 0
#endif

static void check_f32(const char *name, void (*batch)(float *, const float *), double (*exact)(float), double limit, double most)
{
    const uint32_t stride = getenv("DOVETAIL_ALL_FLOATS") ? 1 : getenv("UNDER_QEMU") ? 20011 : 1031;
    float in[BATCH], out[BATCH], worst_at = 0;
    double worst = 0;
    int n = 0;
    for (uint64_t u = 0; u < 0x100000000u + BATCH * (uint64_t)stride; u += stride) {
        const float x = dv__f32_from_bits((uint32_t)u);
        if (fabs((double)x) > most || (isnan(x) && most < HUGE_VAL))
            continue;
        in[n++] = x;
        if (n < BATCH)
            continue;
        batch(out, in);
        for (n = 0; n < BATCH; n++) {
            const double e = ulps_f32(out[n], exact(in[n]));
            if (e > worst)
                worst = e, worst_at = in[n];
        }
        n = 0;
    }
    printf("%-18s %.3f ulp at %a\n", name, worst, (double)worst_at);
    assert_true(worst <= limit);
}

/* In batches, so that what is tested is the vector code. */
#define F32_TEST(NAME, EXPRESSION, EXACT, LIMIT, MOST)                                               \
    __attribute__((noinline)) static void NAME##_base(float *restrict out, const float *restrict in) \
    {                                                                                                \
        for (int i = 0; i < BATCH; i++) {                                                            \
            const float x = in[i];                                                                   \
            out[i] = EXPRESSION;                                                                     \
        }                                                                                            \
    }                                                                                                \
    WIDE(NAME, EXPRESSION)                                                                           \
    static double NAME##_oracle(float x) { return EXACT; }                                           \
    static void NAME##_f32(void **state)                                                             \
    {                                                                                                \
        (void)state;                                                                                 \
        check_f32(#NAME, NAME##_base, NAME##_oracle, LIMIT, MOST);                                   \
        if (HAVE_WIDE)                                                                               \
            check_f32(#NAME " with FMA", NAME##_wide, NAME##_oracle, LIMIT, MOST);                   \
    }
F32(F32_TEST)

/* X(name, dovetail's, the oracle, limit, largest |x|) */
#define F64(X)                                                           \
    X(exp, dv_exp(x), expl((long double)x), 0.97, 760)                   \
    X(sigmoid, dv_sigmoid(x), 1 / (1 + expl(-(long double)x)), 2.4, 760) \
    X(silu, dv_silu(x), x / (1 + expl(-(long double)x)), 3.2, 760)       \
    X(sin_small, dv_sin_small(x), sinl((long double)x), 2.3, 1e6)        \
    X(cos_small, dv_cos_small(x), cosl((long double)x), 2.3, 1e6)

/* Of all magnitudes up to most, in even numbers by exponent. */
static double next_f64(uint64_t *state, double most)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const double unit = (double)(*state >> 11) * 0x1p-53;
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const double x = *state >> 63 ? most * unit : ldexp(most * unit, -(int)(*state >> 40 & 63));
    return *state >> 62 & 1 ? -x : x;
}

static void check_f64(const char *name, double (*f)(double), long double (*exact)(double), double limit, double most)
{
    static const double special[] = { 0, -0.0, 1, -1, 0.5, 708.5, 709.7, -708.4, -745, 0x1p-1074, -0x1p-1022 };
    const int count = getenv("DOVETAIL_ALL_FLOATS") ? 50000000 : getenv("UNDER_QEMU") ? 50000 : 1000000;
    uint64_t state = 42;
    double worst = 0, worst_at = 0;
    for (int i = 0; i < count; i++) {
        const double x = i < (int)(sizeof special / sizeof *special) ? special[i] : next_f64(&state, most);
        const double e = ulps_f64(f(x), exact(x));
        if (e > worst)
            worst = e, worst_at = x;
    }
    printf("%-18s %.3f ulp at %a (f64)\n", name, worst, worst_at);
    assert_true(worst <= limit);
    assert_true(isnan(f((double)NAN)));
}

#define F64_TEST(NAME, EXPRESSION, EXACT, LIMIT, MOST)             \
    static double NAME##_ours(double x) { return EXPRESSION; }     \
    static long double NAME##_longer(double x) { return EXACT; }   \
    static void NAME##_f64(void **state)                           \
    {                                                              \
        (void)state;                                               \
        check_f64(#NAME, NAME##_ours, NAME##_longer, LIMIT, MOST); \
    }
F64(F64_TEST)

static void edges(void **state)
{
    (void)state;
    assert_true(dv_exp(HUGE_VAL) == HUGE_VAL && dv_exp(-HUGE_VAL) == 0 && dv_exp(1e300) == HUGE_VAL && dv_exp(-1e300) == 0);
    assert_true(
        dv_sigmoid(HUGE_VAL) == 1 && dv_sigmoid(-HUGE_VAL) == 0 && isnan(dv_silu(-HUGE_VAL)) && dv_silu(HUGE_VAL) == HUGE_VAL);
    assert_true(signbit(dv_tanhf(-0.0f)) && signbit(dv_sin_small(-0.0)) && signbit(dv_sinf_small(-0.0f)) &&
        signbit(dv_sinf_near(-0.0f)) && signbit(dv_siluf(-0.0f)));
    assert_true(
        isnan(dv_siluf(-HUGE_VALF)) && signbit(dv_sinf(-0.0f)) && isnan(dv_sinf(HUGE_VALF)) && isnan(dv_cosf(-HUGE_VALF)));
}

int main(void)
{
#define ENTRY32(NAME, ...) cmocka_unit_test(NAME##_f32),
#define ENTRY64(NAME, ...) cmocka_unit_test(NAME##_f64),
    const struct CMUnitTest tests[] = { F32(ENTRY32) F64(ENTRY64) cmocka_unit_test(edges) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
