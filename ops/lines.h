/* lines.h: for fast rows that go through a line of a tensor several times: it is loaded as float, computed in blocks of DV_BLOCK,
 * and stored. */
#ifndef OPS_LINES_H
#define OPS_LINES_H
#include "numbers.h"
#include <float.h>
#include <dovetail_elementwise.h>

/* A vector that several operations use: gcc would load it once for each. */
#ifdef DV_TARGET_AVX2
#define IN_REGISTER(V) __asm__("" : "+v"(V))
#else
#define IN_REGISTER(V) (void)(V)
#endif

/* A += U * W, by words of 32 bits: floats, or pairs of bf16 where the processor multiplies and adds these. It takes those nearer
 * to 0 than 2^-126 for 0. */
#define TIMES_f32(A, U, W) A += U * (lanes)W
#define TIMES_bf16(A, U, W) __asm__("vdpbf16ps %2, %1, %0" : "+v"(A) : "v"(U), "v"(W))
/* The word at P in all lanes; and its types, for vectors of so many bytes. */
#define WORD(P) (*(const word *)(const void *)(P) | (words){ 0 })
#define WORD_TYPES(BYTES)                                                             \
    typedef int32_t words __attribute__((vector_size(BYTES), aligned(4), may_alias)); \
    typedef int32_t word __attribute__((aligned(1), may_alias)) /* four int8 may begin at any address */
/* Room for a line of n elements, in floats: whole blocks. */
static inline int64_t line_room(int64_t n) { return (n + DV_BLOCK - 1) / DV_BLOCK * DV_BLOCK; }

#define LANES(P) (*(dv_lanes *)(void *)(uintptr_t)(P))

/* Rows for vectors of 16 floats, and the one of these that is for bf16 alone. */
#ifdef DV_TARGET_AVX2
#define IS_X16(ISA) ((ISA) != &dv_isa_base && (ISA) != &dv_isa_avx2)
#define IS_BF16_ROW(ISA) ((ISA) == &dv_isa_avx512bf16)
#else
#define IS_X16(ISA) ((void)(ISA), false)
#define IS_BF16_ROW(ISA) ((void)(ISA), false)
#endif

/* n elements of a tensor of f32, bf16 or f16; the next one is `step` elements away. soon: what is prefetched while a result is
 * stored, or NULL; past: it goes past the caches. */
struct elements {
    char *data;
    uint32_t dtype;
    int64_t item, n, step;
    const char *soon;
    bool past;
};
DV_INLINE struct elements elements_of(const dv_tensor *t, uint32_t dtype, int64_t start, int64_t n)
{
    const int64_t item = dtype == DV_DTYPE_f32 ? 4 : 2;
    return (struct elements){ (char *)t->data + start * item, dtype, item, n, 1, NULL, false };
}
/* The elements of a result that is made from a line of an input, where one line lies behind the other. If all results are larger
 * than a cache, they would only push out what is read next. */
DV_INLINE struct elements result_of(const dv_isa_functions *isa, const dv_context *ctx, const dv_tensor *t, uint32_t dtype,
    int64_t start, const struct elements *from)
{
    enum { AHEAD = 16384 };
    struct elements to = elements_of(t, dtype, start, from->n);
    const int64_t line = from->n * from->item;
    if (IS_X16(isa) && to.n % 16 == 0 && (uintptr_t)to.data % (uintptr_t)(16 * to.item) == 0) {
        to.past = ctx->flags & DV_CTX_EXCEEDS_CACHE;
        to.soon = from->data + (line > AHEAD || !to.past ? line : AHEAD);
    }
    return to;
}
/* After the last line: other threads see what went past the caches. */
static inline void results_end(const dv_context *ctx)
{
#ifdef DV_TARGET_AVX2
    if (ctx->flags & DV_CTX_EXCEEDS_CACHE)
        __builtin_ia32_sfence();
#else
    (void)ctx;
#endif
}
/* Its elements as they lie, if they are floats in whole blocks. */
DV_INLINE float *floats_of(const struct elements *l)
{
    return l->item == 4 && l->step == 1 && l->n % DV_BLOCK == 0 ? (float *)(void *)l->data : NULL;
}

/* 16 elements from k on; those behind the end are `pad`, and are not stored. One function for all loops of an instruction set:
 * with its instructions, vectors stay in registers meanwhile. */
#ifdef __clang__
#define FEW_ONCE __attribute__((noinline, unused))
#else
#define FEW_ONCE __attribute__((noinline, noclone, unused))
#endif
#define FEW(ISA, TARGET)                                                                                 \
    TARGET FEW_ONCE static void get_few_##ISA(float *to, const struct elements *l, int64_t k, float pad) \
    {                                                                                                    \
        for (int i = 0; i < 16; i++)                                                                     \
            to[i] = k + i < l->n ? dv_get(l->data, (k + i) * l->step, l->dtype) : pad;                   \
    }                                                                                                    \
    TARGET FEW_ONCE static void put_few_##ISA(const struct elements *l, int64_t k, const float *from)    \
    {                                                                                                    \
        for (int i = 0; i < 16 && k + i < l->n; i++)                                                     \
            dv_put(l->data, (k + i) * l->step, l->dtype, from[i]);                                       \
    }
/* X(ISA, TARGET) for each instruction set: functions that rows share. */
#ifdef DV_TARGET_AVX2
#define FOR_EACH_ISA(X) X(base, ) X(avx2, DV_TARGET_AVX2) X(avx512, DV_TARGET_AVX512)
#else
#define FOR_EACH_ISA(X) X(base, )
#endif

FEW(base, )
#ifdef DV_TARGET_AVX2
FEW(avx2, DV_TARGET_AVX2)
#define OF_ISA(ISA, NAME) ((ISA) == &dv_isa_base ? NAME##_base : NAME##_avx2)
#define OF_EACH_ISA(ISA, NAME) ((ISA) == &dv_isa_base ? NAME##_base : (ISA) == &dv_isa_avx2 ? NAME##_avx2 : NAME##_avx512)
#else
#define OF_ISA(ISA, NAME) ((void)(ISA), NAME##_base)
#define OF_EACH_ISA OF_ISA
#endif
DV_INLINE void get_lanes(const dv_isa_functions *isa, dv_lanes *to, const struct elements *l, int64_t k, float pad)
{
    if (!DV__UNLIKELY(k + 16 > l->n || l->step != 1)) {
        isa->load(to, l->data + k * l->item, l->dtype);
    } else { /* of what stays in registers a copy is used */
        const struct elements copy = *l;
        float few[16];
        OF_ISA(isa, get_few)(IS_X16(isa) ? few : (float *)to, &copy, k, pad);
        if (IS_X16(isa))
            *to = LANES(few);
    }
}
DV_INLINE void put_lanes(const dv_isa_functions *isa, const struct elements *l, int64_t k, const dv_lanes *from)
{
    if (!DV__UNLIKELY(k + 16 > l->n || l->step != 1)) {
        isa->store(l->data + k * l->item, from, l->dtype);
    } else {
        const struct elements copy = *l;
        float few[16];
        if (IS_X16(isa))
            LANES(few) = *from;
        OF_ISA(isa, put_few)(&copy, k, IS_X16(isa) ? few : (const float *)from);
    }
}

/* *v = 16 elements from k on, which are kept in x if they do not lie `there`. */
DV_INLINE void keep_lanes(
    const dv_isa_functions *isa, dv_lanes *v, float *x, const float *there, const struct elements *l, int64_t k)
{
    if (IS_X16(isa)) {
        get_lanes(isa, v, l, k, 0);
        if (!there)
            LANES(x + k) = *v;
    } else { /* here v would lie in memory, as x does */
        if (!there)
            get_lanes(isa, &LANES(x + k), l, k, 0);
        *v = LANES(x + k);
    }
}

/* Elements start to start + n; the last block is filled up with `pad`. */
DV_INLINE void load_line(const dv_isa_functions *isa, float *to, const dv_tensor *t, int64_t start, int64_t n, float pad)
{
    const struct elements l = elements_of(t, dv_dtype_key(t->dtype), start, n);
    for (int64_t k = 0; k < line_room(n); k += 16)
        get_lanes(isa, &LANES(to + k), &l, k, pad);
}
DV_INLINE void store_line(const dv_isa_functions *isa, const dv_tensor *t, int64_t start, const float *from, int64_t n)
{
    const struct elements l = elements_of(t, dv_dtype_key(t->dtype), start, n);
    for (int64_t k = 0; k < n; k += 16)
        put_lanes(isa, &l, k, &LANES(from + k));
}
/* CALL with the dtype of T, as a constant where rows for vectors have several. */
#define BY_DTYPE(ISA, T, CALL)                                                     \
    do {                                                                           \
        const uint32_t dtype_of = dv_dtype_key((T)->dtype);                        \
        if ((ISA) == &dv_isa_base)                                                 \
            return CALL(dtype_of);                                                 \
        if (IS_BF16_ROW(ISA) || dtype_of == DV_DTYPE_bf16)                         \
            return CALL(DV_DTYPE_bf16);                                            \
        return dtype_of == DV_DTYPE_f16 ? CALL(DV_DTYPE_f16) : CALL(DV_DTYPE_f32); \
    } while (0)

/* Both as functions, one for each instruction set: small where a row calls them in many places. */
typedef void (*load_fn)(float *to, const dv_tensor *t, int64_t start, int64_t n, float pad);
typedef void (*store_fn)(const dv_tensor *t, int64_t start, const float *from, int64_t n);
#define LOAD_LINE(ISA, TARGET)                                                                        \
    TARGET static void load_##ISA(float *to, const dv_tensor *t, int64_t start, int64_t n, float pad) \
    {                                                                                                 \
        load_line(&dv_isa_##ISA, to, t, start, n, pad);                                               \
    }
#define STORE_LINE(ISA, TARGET)                                                                     \
    TARGET static void store_##ISA(const dv_tensor *t, int64_t start, const float *from, int64_t n) \
    {                                                                                               \
        store_line(&dv_isa_##ISA, t, start, from, n);                                               \
    }

/* The sum of a vector of n lanes, n a multiple of four. */
DV_INLINE float across(const float *lanes, int64_t n)
{
    float four[4] = { 0 };
    for (int64_t l = 0; l < n; l += 4)
        for (int i = 0; i < 4; i++)
            four[i] += lanes[l + i];
    return (four[0] + four[1]) + (four[2] + four[3]);
}
/* Every second element of two vectors: EVENS(A, B, ALL_64(, )), or those between them: ALL_64(, +1). */
#ifdef __clang__
#define EVENS(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
#define EVENS(A, B, ...) __builtin_shuffle(A, B, (words){ __VA_ARGS__ })
#endif
#define ALL_64(F, O) F 0 O, 2 O, 4 O, 6 O, 8 O, 10 O, 12 O, 14 O, 16 O, 18 O, 20 O, 22 O, 24 O, 26 O, 28 O, 30 O
#define ALL_32(F, O) F 0 O, 2 O, 4 O, 6 O, 8 O, 10 O, 12 O, 14 O
#define ALL_16(F, O) F 0 O, 2 O, 4 O, 6 O

/* Sums across lanes: the sums of neighbours of two vectors are one vector, until each vector is one number. */
#define FOLD(MANY, BYTES)                                              \
    _Pragma("GCC unroll 8") for (int i = 0; MANY < N && i < MANY; i++) \
        sum[i] = EVENS(sum[2 * i], sum[2 * i + 1], ALL_##BYTES(, )) + EVENS(sum[2 * i], sum[2 * i + 1], ALL_##BYTES(, +1))
#define ACROSS_OF(ISA, TARGET, BYTES)                                                                                            \
    TARGET static void across_##ISA(float *vectors, int64_t count)                                                               \
    {                                                                                                                            \
        typedef float lanes __attribute__((vector_size(BYTES), aligned(4), may_alias));                                          \
        typedef int32_t words __attribute__((vector_size(BYTES)));                                                               \
        enum { N = BYTES / 4 };                                                                                                  \
        (void)sizeof(words);                                                                                                     \
        for (int64_t v = 0; v < count; v += N) {                                                                                 \
            lanes sum[N];                                                                                                        \
            _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) sum[i] = *(const lanes *)(const void *)(vectors + (v + i) * N); \
            FOLD(8, BYTES);                                                                                                      \
            FOLD(4, BYTES);                                                                                                      \
            FOLD(2, BYTES);                                                                                                      \
            FOLD(1, BYTES);                                                                                                      \
            *(lanes *)(void *)(vectors + v) = sum[0];                                                                            \
        }                                                                                                                        \
    }

/* The sum of 16 lanes, in double. */
DV_INLINE double total(const float *lanes)
{
    double sum[8];
    for (int i = 0; i < 8; i++)
        sum[i] = (double)lanes[i] + (double)lanes[i + 8];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

/* A line whose elements are VALUE, a macro of what stands for one or 16 elements of an array: VALUE(AT) is AT(x) * scale. It goes
 * to OUT, where it lies if it is of floats, or to TO. */
#define AT_ONE(X) (X)[k + i]
#define AT_LANES(X) LANES((X) + k)
#define PUT_LINE(ISA, TO, OUT, N, VALUE)                                                           \
    if (IS_X16(ISA) && (TO)->soon)                                                                 \
        for (int64_t k = 0; k < (N); k += 16) {                                                    \
            const dv_lanes value = VALUE(AT_LANES);                                                \
            __builtin_prefetch((TO)->soon + k * (TO)->item);                                       \
            if ((TO)->past)                                                                        \
                (ISA)->store((TO)->data + k * (TO)->item, &value, (TO)->dtype | DV__NON_TEMPORAL); \
            else                                                                                   \
                (ISA)->store((TO)->data + k * (TO)->item, &value, (TO)->dtype);                    \
        }                                                                                          \
    else if (OUT)                                                                                  \
        for (int64_t k = 0; k < (N); k += DV_BLOCK)                                                \
            DV_BLOCK_LOOP(OUT)[k + i] = VALUE(AT_ONE);                                             \
    else                                                                                           \
        for (int64_t k = 0; k < (N); k += 16) {                                                    \
            const dv_lanes value = VALUE(AT_LANES);                                                \
            put_lanes(ISA, TO, k, &value);                                                         \
        }

/* SUM = the sum of v over n elements, in whole blocks. VALUE sets v, which are 16 elements, such as v = LANES(x + k). Parts of
 * them are summed in float, in four vectors that stay in registers (an array of sums is in memory, where each addition waits for
 * the last one), and in double all together: a long sum in float loses digits. */
enum { SUM_PART = 2048 };
#define SUM__LANES(S, AT, VALUE)        \
    {                                   \
        const int64_t k = block + (AT); \
        dv_lanes v;                     \
        VALUE;                          \
        S += v;                         \
    }
#define SUM_BLOCKS(SUM, N, VALUE)                                                             \
    {                                                                                         \
        SUM = 0;                                                                              \
        for (int64_t part = 0, end; part < (N); part = end) {                                 \
            dv_lanes s0 = { 0 }, s1 = s0, s2 = s0, s3 = s0;                                   \
            float parts[16];                                                                  \
            end = (N) - part < SUM_PART ? (N) : part + SUM_PART;                              \
            for (int64_t block = part; block < end; block += DV_BLOCK) {                      \
                SUM__LANES(s0, 0, VALUE)                                                      \
                SUM__LANES(s1, 16, VALUE) SUM__LANES(s2, 32, VALUE) SUM__LANES(s3, 48, VALUE) \
            }                                                                                 \
            LANES(parts) = (s0 + s1) + (s2 + s3);                                             \
            SUM += total(parts);                                                              \
        }                                                                                     \
    }
/* Squares that SUM_BLOCKS summed may have been too large or, beside eps as well, too small for floats. Then they are summed
 * again, in double: those of x - mean. */
static inline bool were_floats(double squares, int64_t n, double eps)
{
    return squares <= DBL_MAX && squares / (double)n + eps >= 0x1p-100;
}
DV__NOINLINE static double mean_again(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return sum / (double)n;
}
DV__NOINLINE static double squares_again(const float *x, int64_t n, double mean)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    return squares;
}
/* Row r of `to` = (x - mean) * scale * weight + bias in double, where `scale` is no float. bias: NULL is 0. */
DV__NOINLINE static void put_scaled(
    const dv_tensor *to, int64_t r, const float *x, double mean, double scale, const float *weight, const float *bias)
{
    const int64_t n = last_dim(to);
    for (int64_t i = 0; i < n; i++)
        dv_put(to->data, r * n + i, dv_dtype_key(to->dtype),
            (float)(((double)x[i] - mean) * scale * (double)weight[i] + (bias ? (double)bias[i] : 0)));
}
static inline bool is_float_scale(double scale) { return scale <= (double)FLT_MAX || !(scale <= DBL_MAX); }
#endif
