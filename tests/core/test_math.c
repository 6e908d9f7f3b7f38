/* dovetail_math.h against the C library in higher precision: every float (in strides by default; all of them with
 * DOVETAIL_ALL_FLOATS set) for f32, a pseudo-random walk for f64. The limits are what the header states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include "dovetail_elementwise.h"

/* Of two calls one has a large result. */
static dv_context *other_context(void)
{
    static dv_context contexts[2] = { { .size = sizeof(dv_context) },
        { .size = sizeof(dv_context), .flags = DV_CTX_EXCEEDS_CACHE } };
    static int n;
    return &contexts[n++ % 2];
}

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
    X(log, dv_logf(x), log((double)x), 1, HUGE_VAL)                        \
    X(log1p, dv_log1pf(x), log1p((double)x), 1.5, HUGE_VAL)                \
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

/* The functions that take a float, a double or a vector of 16 floats: here the vector. */
#define OF_TYPE(X)                                                                               \
    X(x16_exp, dv_exp(x), exp((double)x), 1.2, HUGE_VAL)                                         \
    X(x16_sigmoid, dv_sigmoid(x), sigmoid((double)x), 2.6, HUGE_VAL)                             \
    X(x16_silu, dv_silu(x), silu((double)x), 3.1, HUGE_VAL)                                      \
    X(x16_tanh, dv_tanh(x), tanh((double)x), 1.4, HUGE_VAL)                                      \
    X(x16_sin, dv_sin(x), sin((double)x), 2.4, HUGE_VAL)                                         \
    X(x16_cos, dv_cos(x), cos((double)x), 2.4, HUGE_VAL)                                         \
    X(x16_sqrt, dv_sqrt(x), sqrt((double)x), 0.51, HUGE_VAL)                                     \
    X(x16_abs, dv_abs(x), fabs((double)x), 0, HUGE_VAL)                                          \
    X(x16_log, dv_log(x), log((double)x), 1, HUGE_VAL)                                           \
    X(x16_log1p, dv_log1p(x), log1p((double)x), 1.5, HUGE_VAL)                                   \
    X(x16_floor, dv_floor(x), floor((double)x), 0, HUGE_VAL)                                     \
    X(x16_ceil, dv_ceil(x), ceil((double)x), 0, HUGE_VAL)                                        \
    X(x16_trunc, dv_trunc(x), trunc((double)x), 0, HUGE_VAL)                                     \
    X(x16_round, dv_round(x), rint((double)x), 0, HUGE_VAL)                                      \
    X(x16_limits, dv_min(3, dv_max(-2, dv_max(x, -2.0))), fmin(fmax((double)x, -2), 3), 0, 1e38) \
    X(x16_number, dv_select(x > 1, 1, 2) + dv_select(x > 1, 0, x * 0), x > 1 ? 1 : 2, 0, 1e38)   \
    X(x16_nonzero, dv_select(x, x, 7), x == 0 ? 7 : (double)x, 0, HUGE_VAL)                      \
    X(x16_select, dv_select((x > 1) & (x < 2), -x, x), x > 1 && x < 2 ? -(double)x : (double)x, 0, HUGE_VAL)
#ifdef DV_TARGET_AVX512
#define OF_TYPE_TEST(NAME, EXPRESSION, EXACT, LIMIT, MOST)                                                              \
    __attribute__((noinline)) DV_TARGET_AVX512 static void NAME##_of_x16(float *restrict out, const float *restrict in) \
    {                                                                                                                   \
        for (int i = 0; i < BATCH; i += 16) {                                                                           \
            const dv_f32x16 x = (dv_f32x16) * (const dv_lanes *)(in + i);                                               \
            *(dv_lanes *)(out + i) = (dv_lanes)EXPRESSION;                                                              \
        }                                                                                                               \
    }                                                                                                                   \
    static double NAME##_oracle(float x) { return EXACT; }                                                              \
    static void NAME##_of_type(void **state)                                                                            \
    {                                                                                                                   \
        (void)state;                                                                                                    \
        if (!__builtin_cpu_supports("avx512vl"))                                                                        \
            skip();                                                                                                     \
        check_f32(#NAME, NAME##_of_x16, NAME##_oracle, LIMIT, MOST);                                                    \
    }
OF_TYPE(OF_TYPE_TEST)

/* Blocks of 16-bit types: each way to convert them gives what the C functions give; of NaN, some NaN. */
static void check_isa(const dv_isa_functions *isa, uint32_t dtype)
{
    const uint32_t stride = getenv("DOVETAIL_ALL_FLOATS") ? 1 : 1031, nan = dtype == DV_DTYPE_bf16 ? 0x7f80 : 0x7c00;
    float in[DV_BLOCK], out[DV_BLOCK];
    uint16_t half[DV_BLOCK];
    for (uint32_t u = 0; u < 0x10000; u += DV_BLOCK) {
        for (uint32_t i = 0; i < DV_BLOCK; i++)
            half[i] = (uint16_t)(u + i);
        dv_block_load(isa, out, half, dtype);
        for (int i = 0; i < DV_BLOCK; i++) {
            const float exact = dv_get(half, i, dtype);
            assert_true(isnan(exact) ? isnan(out[i]) : dv__bits_of_f32(out[i]) == dv__bits_of_f32(exact));
        }
    }
    for (uint64_t u = 0; u < 0x100000000u; u += (uint64_t)DV_BLOCK * stride) {
        for (uint32_t i = 0; i < DV_BLOCK; i++)
            in[i] = dv__f32_from_bits((uint32_t)u + i * stride);
        dv_block_store(isa, half, in, dtype);
        for (int i = 0; i < DV_BLOCK; i++) {
            uint16_t exact[2]; /* room for what the compiler sees of other dtypes */
            dv_put(exact, 0, dtype, in[i]);
            assert_true(isnan(in[i]) ? (half[i] & 0x7fffu) > nan : half[i] == exact[0]);
        }
    }
}
static void conversions(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        const uint32_t dtype = k ? DV_DTYPE_f16 : DV_DTYPE_bf16;
        check_isa(&dv_isa_base, dtype);
        if (__builtin_cpu_supports("avx2"))
            check_isa(&dv_isa_avx2, dtype);
        if (__builtin_cpu_supports("avx512vl"))
            check_isa(&dv_isa_avx512, dtype);
        if (__builtin_cpu_supports("avx512bf16"))
            check_isa(&dv_isa_avx512bf16, dtype);
    }
}
#define OF_TYPES OF_TYPE(ENTRY_OF_TYPE) cmocka_unit_test(conversions),
#else
#define OF_TYPES
#endif

/* One line over tensors of several dtypes: a broadcast number, an integer, a flag; two results; an attribute. */
struct mixed {
    const dv_tensor *x, *y, *n;
    double factor;
    dv_tensor *sum, *whole;
    dv_tensor *flag;
};
#define HALF(x) ((x) * (dv_number)0.5)
DV_ELEMENTWISE(mixed, struct mixed, (x, y, n), (sum, whole, flag), sum = HALF(x) + y * (dv_number)frame.factor + n;
    whole = x * 100; flag = dv_select(x > n, y * 0 + 1, y * 0))
static dv_tensor tensor_of(void *data, uint32_t dtype, const int64_t *n)
{
    static const int64_t one = 1;
    return (dv_tensor){ data, { DV_CPU, 0 }, 1, dv_dtype_from_key(dtype), n, &one, 0 };
}
/* The rows of a line. */
#ifdef DV_TARGET_AVX512
#define ROWS_OF(ROW) { ROW##_base, ROW##_reference, ROW##_avx2, ROW##_avx512, ROW##_avx512bf16 }
#else
#define ROWS_OF(ROW) { ROW##_base, ROW##_reference }
#endif
static bool can_run(size_t row) /* base, reference, avx2, avx512, avx512bf16 */
{
#ifdef DV_TARGET_AVX512
    return row < 2 || (row == 2 && __builtin_cpu_supports("avx2")) || (row == 3 && __builtin_cpu_supports("avx512vl")) ||
        (row == 4 && __builtin_cpu_supports("avx512bf16"));
#else
    return row < 2;
#endif
}
static void one_line(void **state)
{
    int (*const rows[])(dv_context *ctx, const struct mixed *a) = ROWS_OF(mixed);
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int64_t n = 0; n < 200; n++) {
            const int64_t one = 1;
            uint16_t x[200];
            float y = 0.25f, sum[201] = { 0 };
            int16_t integer[200];
            int8_t whole[201] = { 0 };
            bool flag[201] = { 0 };
            if (!can_run(r))
                continue;
            for (int i = 0; i < 200; i++)
                x[i] = dv_f32_to_bf16((float)i / 64 - 1), integer[i] = (int16_t)(i % 5 - 2);
            sum[n] = 7, whole[n] = 7, flag[n] = true;
            const dv_tensor tx = tensor_of(x, DV_DTYPE_bf16, &n), ty = tensor_of(&y, DV_DTYPE_f32, &one),
                            tn = tensor_of(integer, DV_DTYPE_i16, &n);
            dv_tensor tsum = tensor_of(sum, DV_DTYPE_f32, &n), twhole = tensor_of(whole, DV_DTYPE_i8, &n),
                      tflag = tensor_of(flag, DV_DTYPE_bool, &n);
            assert_int_equal(rows[r](other_context(), &(struct mixed){ &tx, &ty, &tn, 3, &tsum, &twhole, &tflag }), DV_OK);
            for (int i = 0; i < n; i++) {
                const float v = dv_bf16_to_f32(x[i]), all = v * 100;
                assert_true(sum[i] == 0.5f * v + 0.75f + (float)integer[i]);
                assert_int_equal(whole[i], all > 127 ? 127 : (int)all);
                assert_int_equal(flag[i], v > (float)integer[i]);
            }
            assert_true(sum[n] == 7 && whole[n] == 7 && flag[n]);
        }
}

/* Lines of f32 in which numbers are not numbers of a vector: X(name, line, what it gives for x, i and by). */
#define LINES(X)                                                                        \
    X(sign, out = (x > 0) - (x < 0), x > 0 ? 1 : x < 0 ? -1 : 0)                        \
    X(equal, out = x == i, x == i)                                                      \
    X(count, out = dv_select((x > 0) + (i > 0) == 2, x, i), x > 0 && i > 0 ? x : i)     \
    X(negation, out = dv_select((x > 0) == 0, x, i), x > 0 ? i : x)                     \
    X(constant, const dv_real one = { 1 }; out = one - x, 1 - x)                        \
    X(hidden, out = POSITIVE(x), x > 0)                                                 \
    X(all, out = dv_splat(frame.by), by)                                                \
    X(clamp, out = dv_min(dv_max(x, -1), (dv_number)frame.by), fminf(fmaxf(x, -1), by)) \
    X(relu, out = dv_select(x > 0, x, 0), x > 0 ? x : 0)                                \
    X(flags, out = dv_select(i, 1, 0), i != 0)                                          \
    X(product, const dv_real m = x > 0; out = x * m, x > 0 ? x : 0 * x)                 \
    X(masked, out = dv_select(i, x, 0), i != 0 ? x : 0)                                 \
    X(left, out = x; if (frame.by > 0) break; out = dv_splat(9), by > 0 ? x : 9)        \
    X(chosen, out = frame.by > 0 ? x : i, by > 0 ? x : i)                               \
    X(times, for (int k = 0; k < 3; k++) out += x, 0 * i + ((x + x) + x))               \
    X(logs, out = dv_log1p(dv_exp(-dv_abs(x))) + dv_max(x, 0), logf(1 + expf(-fabsf(x))) + fmaxf(x, 0))
struct lines {
    const dv_tensor *x, *i;
    double by;
    dv_tensor *out;
};
#define POSITIVE(x) ((x) > 0)
#define LINE_OF(NAME, LINE, EXACT)                                 \
    DV_ELEMENTWISE(NAME##_line, struct lines, (x, i), (out), LINE) \
    static double NAME##_exact(float x, float i, float by)         \
    {                                                              \
        (void)x, (void)i, (void)by;                                \
        return (double)(EXACT);                                    \
    }
DV_ELEMENTWISE_SCALAR(
    plain_line, struct lines, (x, i), (out), if (x > 0 && i > 0) out = powf((float)x, 2);
    else { out = x != x ? 1 : (dv_real)(int)x; })
static double plain_exact(float x, float i, float by)
{
    (void)by;
    return x > 0 && i > 0 ? (double)(x * x) : isnan(x) ? 1 : (double)(int)x;
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion" /* 1 - x > 0 is int */
LINES(LINE_OF)
#pragma GCC diagnostic pop
typedef int (*line_row)(dv_context *ctx, const struct lines *a);
static void check_line(const char *name, const line_row *rows, size_t count, double (*exact)(float x, float i, float by))
{
    for (size_t r = 0; r < count; r++) {
        const int64_t n = 333;
        float x[333], i[333], out[333];
        for (int k = 0; k < n; k++)
            x[k] = (float)(k % 41 - 20) / 8, i[k] = (float)(k % 7 - 3), out[k] = 1e9f;
        const dv_tensor tx = tensor_of(x, DV_DTYPE_f32, &n), ti = tensor_of(i, DV_DTYPE_f32, &n);
        dv_tensor to = tensor_of(out, DV_DTYPE_f32, &n);
        for (int by = -1; can_run(r) && by < 2; by += 2) {
            assert_int_equal(rows[r](other_context(), &(struct lines){ &tx, &ti, by, &to }), DV_OK);
            for (int k = 0; k < n; k++)
                if (!(fabs((double)out[k] - exact(x[k], i[k], (float)by)) <= 1e-6))
                    fail_msg("%s, row %d: %g of %g, %g", name, (int)r, (double)out[k], (double)x[k], (double)i[k]);
        }
    }
}
static void lines(void **state)
{
    (void)state;
#define CHECK_LINE(NAME, LINE, EXACT)                                                                                            \
    check_line(#NAME, (const line_row[])ROWS_OF(NAME##_line), sizeof((const line_row[])ROWS_OF(NAME##_line)) / sizeof(line_row), \
        NAME##_exact);
    LINES(CHECK_LINE)
    CHECK_LINE(plain, , )
}

/* In place: the name of an argument stands among the inputs and the results. */
struct descent {
    dv_tensor *p;
    const dv_tensor *grad;
    double rate;
};
DV_ELEMENTWISE(descent, struct descent, (p, grad), (p), p = p - (dv_number)frame.rate * grad)
static void in_place(void **state)
{
    int (*const rows[])(dv_context *ctx, const struct descent *a) = ROWS_OF(descent);
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const int64_t n = 131;
        float p[131], grad[131];
        for (int i = 0; i < n; i++)
            p[i] = (float)i, grad[i] = (float)(i % 3);
        const dv_tensor tg = tensor_of(grad, DV_DTYPE_f32, &n);
        dv_tensor tp = tensor_of(p, DV_DTYPE_f32, &n);
        if (!can_run(r))
            continue;
        assert_int_equal(rows[r](other_context(), &(struct descent){ &tp, &tg, 0.5 }), DV_OK);
        for (int i = 0; i < n; i++)
            assert_true(p[i] == (float)i - 0.5f * grad[i]);
    }
}

/* What a contract may accept and a line cannot compute. */
static char misfit[200];
static int keep_error(dv_context *ctx, int status, const char *format, va_list args)
{
    (void)ctx;
    vsnprintf(misfit, sizeof misfit, format, args);
    return status;
}
static void misfits(void **state)
{
    const dv_services services = { .error = keep_error };
    dv_context ctx = { .services = &services };
    const int64_t n = 40, less = 39, one = 1;
    float x[40] = { 0 }, out[41] = { 0 };
    const dv_tensor tx = tensor_of(x, DV_DTYPE_f32, &n), short_x = tensor_of(x, DV_DTYPE_f32, &less),
                    one_x = tensor_of(x, DV_DTYPE_f32, &one), strange = tensor_of(x, DV_DTYPE_u16, &n);
    static const int64_t two_dims[] = { 40, 1 }, ones[] = { 1, 1 }, two = 2;
    dv_tensor to = tensor_of(out, DV_DTYPE_f32, &n), turned = tensor_of(x, DV_DTYPE_f32, two_dims), wide = tx;
    turned.ndim = 2;
    turned.strides = ones;
    wide.strides = &two;
    (void)state;
    assert_int_equal(relu_line_base(&ctx, &(struct lines){ &tx, &one_x, 0, &to }), DV_OK);
    assert_int_equal(relu_line_base(&ctx, &(struct lines){ &tx, &short_x, 0, &to }), DV_EINVAL);
    assert_string_equal(misfit,
        "an elementwise kernel: 'i' has the shape [39], which does not broadcast to [40], the shape of the first result (with "
        ".split, of a "
        "slice of it: name in the contract the dims that both have)");
    assert_int_equal(relu_line_base(&ctx, &(struct lines){ &tx, &turned, 0, &to }), DV_EINVAL);
    assert_string_equal(misfit,
        "an elementwise kernel: 'i' has the shape [40, 1], which does not broadcast to [40], the shape of the first result (with "
        ".split, of a "
        "slice of it: name in the contract the dims that both have)");
    assert_int_equal(relu_line_base(&ctx, &(struct lines){ &tx, &wide, 0, &to }), DV_EINVAL);
    assert_string_equal(misfit,
        "an elementwise kernel needs a contiguous 'i', found other strides: strided() and last_contiguous() in the contract, or "
        ".takes, allow them");
    assert_int_equal(relu_line_base(&ctx, &(struct lines){ NULL, &tx, 0, &to }), DV_EINVAL);
    assert_string_equal(misfit, "an elementwise kernel needs 'x', which is None");
    assert_int_equal(relu_line_base(&ctx, &(struct lines){ &tx, &strange, 0, &to }), DV_EINVAL);
    assert_string_equal(misfit, "an elementwise kernel needs 'i' of a number type or bool, found u16");
}

/* An element's bits are the same whatever the others of its block are. */
struct angles {
    const dv_tensor *x;
    dv_tensor *out;
};
DV_ELEMENTWISE(angles, struct angles, (x), (out), out = dv_sin(x) + dv_cos(2 * x))
static void neighbours(void **state)
{
    int (*const rows[])(dv_context *ctx, const struct angles *a) = ROWS_OF(angles);
    static const float others[] = { 300, 1e10f, -1e30f, (float)INFINITY, NAN };
    const int64_t n = DV_BLOCK;
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        float x[DV_BLOCK], alone[DV_BLOCK], out[DV_BLOCK];
        const dv_tensor tx = tensor_of(x, DV_DTYPE_f32, &n);
        dv_tensor to = tensor_of(alone, DV_DTYPE_f32, &n);
        if (!can_run(r))
            continue;
        for (int i = 0; i < DV_BLOCK; i++)
            x[i] = (float)i * 0.0931f - 2.9f;
        assert_int_equal(rows[r](other_context(), &(struct angles){ &tx, &to }), DV_OK);
        to.data = out;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
            const float own = x[5 + 7 * k];
            x[5 + 7 * k] = others[k];
            assert_int_equal(rows[r](other_context(), &(struct angles){ &tx, &to }), DV_OK);
            for (size_t i = 0; i < DV_BLOCK; i++)
                assert_true(i == 5 + 7 * k || !memcmp(&out[i], &alone[i], sizeof *out));
            x[5 + 7 * k] = own;
        }
    }
}

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
#define ENTRY_OF_TYPE(NAME, ...) cmocka_unit_test(NAME##_of_type),
    const struct CMUnitTest tests[] = { F32(ENTRY32) F64(ENTRY64) OF_TYPES cmocka_unit_test(one_line), cmocka_unit_test(lines),
        cmocka_unit_test(in_place), cmocka_unit_test(misfits), cmocka_unit_test(neighbours), cmocka_unit_test(edges) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
