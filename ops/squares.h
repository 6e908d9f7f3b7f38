/* squares.h: products by AMX (Intel's architecture manual, volume 1, chapter 18), for linear and fused_experts (product.h), the
 * indexer and sparse attention. A square is SQUARE rows, or columns, of SQUARE words; a word is a pair of bf16 or four int8. */
#ifndef OPS_SQUARES_H
#define OPS_SQUARES_H
#include "lines.h"

enum { SQUARE = 16, LINE = 64 /* bytes: of a cache's line, and of a square's row */ };

#ifdef DV_TARGET_AVX2
/* Tiles 0 to 3 are sums; 4 and 5 are rows; 6 and 7 are columns. A test puts C in place of the instructions. */
#ifndef TILES_BEGIN
#define TILES_BEGIN(CONFIG) __asm__ volatile("ldtilecfg %0" : : "m"(*(const char (*)[64])(CONFIG)))
#define TILES_END() __asm__ volatile("tilerelease")
#define TILE_ZERO(N) __asm__ volatile("tilezero %%tmm" #N::)
#define TILE_FROM(N, FROM, STRIDE) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #N : : "r"((const char *)(FROM)), "r"((int64_t)(STRIDE)) : "memory")
#define TILE_TO(N, TO, STRIDE) \
    __asm__ volatile("tilestored %%tmm" #N ", (%0,%1,1)" : : "r"((char *)(TO)), "r"((int64_t)(STRIDE)) : "memory")
#define TILE_TIMES_bf16(SUM, A, B) __asm__ volatile("tdpbf16ps %%tmm" #B ", %%tmm" #A ", %%tmm" #SUM ::)
#define TILE_TIMES_i8(SUM, A, B) __asm__ volatile("tdpbssd %%tmm" #B ", %%tmm" #A ", %%tmm" #SUM ::)
#endif
/* Between these two a thread multiplies squares. */
static inline void squares_begin(void)
{
    static const struct {
        uint8_t palette, row, none[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = { 1, 0, { 0 }, { 64, 64, 64, 64, 64, 64, 64, 64 }, { 16, 16, 16, 16, 16, 16, 16, 16 } };
    TILES_BEGIN(&config);
}
static inline void squares_end(void) { TILES_END(); }

/* One square, or two of them; all in bytes: from one row to the next, from one square to the other, and to those that follow
 * along the words. Rows have a word after the other; columns have a row of words, one of each column, after the other. */
struct squares {
    const char *at;
    int64_t row, next, step;
    bool two;
};
static inline struct squares squares_of(const void *at, int64_t row, int64_t next, int64_t step, bool two)
{
    return (struct squares){ at, row, next, step, two };
}
/* What is asked for meanwhile: so many lines of each of so many rows, one for each SQUARE words that are multiplied. */
struct ahead {
    const char *at;
    int64_t apart, rows, lines;
};
/* Where the sums are that tiles 0 to 3 have: a square of a's first and b's first square; those of a's second square are a_next
 * bytes behind it, if there are two, and those of b's second b_next. */
struct square_sums {
    char *at;
    int64_t row, a_next, b_next;
    bool a_two, b_two;
};
static inline void squares_zero(void)
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
}
#define OF_SUMS(NAME, DO)                                   \
    static inline void squares_##NAME(struct square_sums s) \
    {                                                       \
        DO(0, s.at, s.row);                                 \
        if (s.a_two)                                        \
            DO(1, s.at + s.a_next, s.row);                  \
        if (s.b_two)                                        \
            DO(2, s.at + s.b_next, s.row);                  \
        if (s.a_two && s.b_two)                             \
            DO(3, s.at + s.a_next + s.b_next, s.row);       \
    }
OF_SUMS(load, TILE_FROM)
OF_SUMS(store, TILE_TO)

/* sums += a times b, of `depth` words, a multiple of SQUARE. */
#define MULTIPLY(T)                                                                                           \
    DV_INLINE void multiply_##T(struct squares a, struct squares b, int64_t depth, struct ahead ahead)        \
    {                                                                                                         \
        for (int64_t i = 0; i < depth; i += SQUARE, a.at += a.step, b.at += b.step, ahead.at += SQUARE * 4) { \
            for (int64_t r = 0; r < ahead.rows && i < ahead.lines * SQUARE; r++)                              \
                __builtin_prefetch(ahead.at + r * ahead.apart, 0, 2);                                         \
            TILE_FROM(4, a.at, a.row);                                                                        \
            TILE_FROM(6, b.at, b.row);                                                                        \
            TILE_TIMES_##T(0, 4, 6);                                                                          \
            if (a.two) {                                                                                      \
                TILE_FROM(5, a.at + a.next, a.row);                                                           \
                TILE_TIMES_##T(1, 5, 6);                                                                      \
            }                                                                                                 \
            if (b.two) {                                                                                      \
                TILE_FROM(7, b.at + b.next, b.row);                                                           \
                TILE_TIMES_##T(2, 4, 7);                                                                      \
                if (a.two)                                                                                    \
                    TILE_TIMES_##T(3, 5, 7);                                                                  \
            }                                                                                                 \
        }                                                                                                     \
    }
MULTIPLY(bf16)
MULTIPLY(i8)

/* A square's columns become rows: taking what is even, and then what is odd, moves each index on by one bit. */
DV_TARGET_AVX512 static inline void turn_square(char *to, int64_t to_row, const char *from, int64_t from_row, int64_t rows)
{
    typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
    typedef int32_t words __attribute__((vector_size(64)));
    lanes at[SQUARE], next[SQUARE];
    (void)sizeof(words);
    for (int i = 0; i < SQUARE; i++)
        at[i] = *(const lanes *)(const void *)(from + i * from_row);
    for (int bit = 0; bit < 4; bit++) {
        for (int i = 0; i < 8; i++) {
            next[i] = EVENS(at[2 * i], at[2 * i + 1], ALL_64(, ));
            next[i + 8] = EVENS(at[2 * i], at[2 * i + 1], ALL_64(, +1));
        }
        memcpy(at, next, sizeof at);
    }
    for (int64_t t = 0; t < SQUARE && t < rows; t++)
        *(lanes *)(void *)(to + t * to_row) = at[t];
}
/* The row for bf16, with a comma behind it, as DV_BF16_KERNEL. */
#define DV_AMX_ROW(FRAME, BODY, ...) DV_KERNEL(FRAME, "cpu", "bf16", BODY##_amx, .isa = "amx-bf16", __VA_ARGS__),
#else
static inline void squares_begin(void) {}
static inline void squares_end(void) {}
#define DV_AMX_ROW(FRAME, BODY, ...)
#endif
#endif
