/* lines.h: for fast rows that go through a line of a tensor several times: it is loaded as float, computed in blocks of DV_BLOCK,
 * and stored. */
#ifndef OPS_LINES_H
#define OPS_LINES_H
#include "numbers.h"
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
    typedef int32_t word __attribute__((aligned(2), may_alias))
/* Room for a line of n elements, in floats: whole blocks. */
static inline int64_t line_room(int64_t n) { return (n + DV_BLOCK - 1) / DV_BLOCK * DV_BLOCK; }

/* The elements of a tensor of f32 from start on, where they lie; NULL: another dtype, or n is not a number of whole blocks. */
DV_INLINE float *line_in(const dv_tensor *t, int64_t start, int64_t n)
{
    return t->dtype.bits == 32 && n % DV_BLOCK == 0 ? (float *)t->data + start : NULL;
}

/* Elements start to start + n of a tensor of f32, bf16 or f16; the last block is filled up with `pad`. */
DV_INLINE void load_line(const dv_isa *isa, float *to, const dv_tensor *t, int64_t start, int64_t n, float pad)
{
    const char *const from = (const char *)t->data + start * (t->dtype.bits / 8);
    const uint32_t dtype = dv_dtype_key(t->dtype);
    const int64_t whole = n / DV_BLOCK * DV_BLOCK;
    uint16_t rest[DV_BLOCK] = { 0 };
    if (t->dtype.bits == 32) {
        memcpy(to, from, (size_t)n * sizeof *to);
    } else {
        for (int64_t i = 0; i < whole; i += DV_BLOCK)
            dv_block_load(isa, to + i, (const uint16_t *)(const void *)from + i, dtype);
        if (whole < n)
            dv_block_load(isa, to + whole, memcpy(rest, from + 2 * whole, (size_t)(n - whole) * 2), dtype);
    }
    for (int64_t i = n; i < line_room(n); i++)
        to[i] = pad;
}
DV_INLINE void store_line(const dv_isa *isa, const dv_tensor *t, int64_t start, const float *from, int64_t n)
{
    char *const to = (char *)t->data + start * (t->dtype.bits / 8);
    const uint32_t dtype = dv_dtype_key(t->dtype);
    const int64_t whole = n / DV_BLOCK * DV_BLOCK;
    uint16_t rest[DV_BLOCK];
    if (t->dtype.bits == 32) {
        memcpy(to, from, (size_t)n * sizeof *from);
        return;
    }
    for (int64_t i = 0; i < whole; i += DV_BLOCK)
        dv_block_store(isa, (uint16_t *)(void *)to + i, from + i, dtype);
    if (whole < n) {
        dv_block_store(isa, rest, from + whole, dtype);
        memcpy(to + 2 * whole, rest, (size_t)(n - whole) * 2);
    }
}
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
/* That of a block. */
DV_INLINE double total(const float *lanes)
{
    double sum[8] = { 0 };
    for (int k = 0; k < DV_BLOCK; k += 8)
        for (int i = 0; i < 8; i++)
            sum[i] += (double)lanes[k + i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

/* The sums in the lanes of a block: sums[i] of VALUE at i, i + DV_BLOCK and so on, of n elements in whole blocks. VALUE is
 * written with LANES(x + k), 16 elements. The four vectors stay in registers; an array of sums is in memory, where each addition
 * waits for the last one. */
typedef float line_lanes __attribute__((vector_size(64), aligned(4), may_alias));
#define LANES(P) (*(const line_lanes *)(const void *)(P))
#define SUM__LANES(S, AT, VALUE)        \
    {                                   \
        const int64_t k = block + (AT); \
        S += (VALUE);                   \
    }
#define SUM_BLOCKS(SUMS, N, VALUE)                                                                                 \
    {                                                                                                              \
        line_lanes s0 = { 0 }, s1 = s0, s2 = s0, s3 = s0;                                                          \
        for (int64_t block = 0; block < (N); block += DV_BLOCK) {                                                  \
            SUM__LANES(s0, 0, VALUE) SUM__LANES(s1, 16, VALUE) SUM__LANES(s2, 32, VALUE) SUM__LANES(s3, 48, VALUE) \
        }                                                                                                          \
        memcpy(SUMS, &s0, sizeof s0), memcpy((SUMS) + 16, &s1, sizeof s1);                                         \
        memcpy((SUMS) + 32, &s2, sizeof s2), memcpy((SUMS) + 48, &s3, sizeof s3);                                  \
    }
#endif
