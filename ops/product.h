/* product.h: rows of x times rows of w, summed in float: the core of linear and fused_experts.
 *
 * A group of rows of x is packed first, in one of two forms. Up to `few` rows lie one behind the other: the lanes of a vector run
 * along k. More rows are transposed: lanes are rows of x, in panels of two vectors (the last may be of one), with zeros for the
 * rows that are not there; each element of w meets all of them, and nothing is summed across lanes. The sums of a block of w lie
 * in panels too (one for all rows in the first form): that of row t + l and column c is sums[COLUMNS * t + c * width + l] in the
 * panel that begins at t. A single panel reads w where it lies, if it has words there; else blocks of w are loaded, and stay in
 * the first cache.
 *
 * Rows are of words of 32 bits: a float, or a pair of bf16 where the processor multiplies and adds these. It takes those nearer
 * to 0 than 2^-126 for 0. */
#ifndef OPS_PRODUCT_H
#define OPS_PRODUCT_H
#include "lines.h"

/* Rows of x in a group at most; in one of the first form: of floats, of floats where w must be loaded, of pairs; and where that
 * reads w in place. Rows of w in a block, and at once in the first form; words of a row of w that are loaded at once, and how far
 * apart (FAR in the first form): no power of two, which would put all rows into few places of a cache; bytes of a cache line, and
 * lines of a row that are prefetched. Several panels are read for each block of w, mostly from the second cache or the third:
 * hence large blocks. */
enum {
    GROUP = 256,
    FEW = 8,
    FEW_LOADED = 24,
    FEW_PAIRS = 4,
    IN_PLACE = 8,
    COLUMNS = 96,
    DOTS = 8,
    DEPTH = 256,
    STRIDE = DEPTH + 16,
    FAR = 512,
    FAR_STRIDE = FAR + 16,
    LINE = 64,
    SOON = DEPTH * (int)sizeof(float) / LINE
};
enum { MOST_LANES = 16, MOST_SUMS = COLUMNS * GROUP + DV_BLOCK };

typedef void (*dots_fn)(
    const float *x, int64_t room, int64_t rows, const void *w, int64_t stride, int64_t depth, bool far, float *sums);

/* What is made for each instruction set. */
typedef struct product_isa {
    int64_t lanes, each, few, at_once; /* elements of a word: 1 or 2; rows of the first form at most; rows of w that a panel of
                                          two vectors takes at once */
    load_fn load;
    store_fn store;
    /* Adds to sums[rows][DOTS], a vector each: lane l has the products of elements l, l + lanes, ... of a row of x and one of w.
     * Rows of x are `room` apart, those of w, of words or bf16, `stride`; depth is a multiple of DV_BLOCK. far: rows of w
     * come from memory, which is read fastest one row after the other. */
    dots_fn dots, dots_bf16;
    /* sums[count][width] += x[depth][width], one or two vectors wide, times w[count][depth], rows `apart` bytes apart. Meanwhile
     * the first SOON lines of count rows at `next`, `stride` bytes apart, are prefetched; 0: none. */
    void (*panel)(const float *x, int64_t width, const void *w, int64_t apart, int64_t count, int64_t depth, float *sums,
        uintptr_t next, int64_t stride);
    void (*bytes)(float *to, const int8_t *from, int64_t n); /* as words */
} product_isa;

/* A matrix of rows of k numbers. Where it is not its elements, `load` loads n of them, from element `at` of a row on, as float.
 */
typedef struct factor {
    const dv_tensor *q;
    int64_t k;
    void (*load)(float *to, const void *of, int64_t row, int64_t at, int64_t n);
    const void *of;
} factor;

/* Are the numbers of w words where they lie? */
static inline bool has_words(const product_isa *isa, const factor *w)
{
    return !w->load && w->k % isa->each == 0 && w->q->dtype.bits * isa->each == 32;
}
/* What multiplies with this matrix. Where rows of w are loaded, the first form is the faster one for more rows of x. */
static inline product_isa product_for(const product_isa *isa, const factor *w)
{
    product_isa mine = *isa;
    if (isa->each == 1 && !has_words(isa, w))
        mine.few = FEW_LOADED;
    return mine;
}

static inline int64_t group_width(const product_isa *isa, int64_t rows)
{
    return rows <= isa->few ? rows : (rows + isa->lanes - 1) / isa->lanes * isa->lanes;
}
/* The width of the panel at row t of a group. */
static inline int64_t panel_width(const product_isa *isa, int64_t width, int64_t t)
{
    return width <= isa->few || width - t < 2 * isa->lanes ? width - t : 2 * isa->lanes;
}
/* The words of a row of k numbers. */
static inline int64_t words_of(const product_isa *isa, int64_t k) { return (k + isa->each - 1) / isa->each; }
static inline int64_t packed_room(const product_isa *isa, int64_t rows, int64_t k)
{
    return rows <= isa->few ? rows * line_room(words_of(isa, k)) : group_width(isa, rows) * words_of(isa, k);
}
/* The row in lane l of the panel at t gets its number c: rounded already where words are pairs. */
static inline void put_packed(
    const product_isa *isa, float *packed, int64_t all, int64_t t, int64_t width, int64_t l, int64_t k, int64_t c, float number)
{
    const int64_t depth = words_of(isa, k), word = c / isa->each;
    float *const to = packed + (all <= isa->few ? l * line_room(depth) + word : t * depth + word * width + l);
    if (isa->each == 1)
        *to = number;
    else
        memcpy((char *)to + c % 2 * 2, (const char *)&number + 2, 2);
}
/* n numbers from element `start` of x on as words, and zeros up to a whole block of these. */
static inline void pack_words(const product_isa *isa, float *to, const dv_tensor *x, int64_t start, int64_t n, const float *times)
{
    float pairs[2 * DV_BLOCK] = { 0 }, *const numbers = isa->each == 1 ? to : pairs;
    const dv_tensor half = { .data = isa->each == 1 ? (void *)(uint16_t[DV_BLOCK]){ 0 } : to, .dtype = x->dtype };
    isa->load(numbers, x, start, n, 0);
    for (int64_t i = 0; times && i < n; i++)
        numbers[i] *= *times;
    if (isa->each == 2 || (times && x->dtype.bits == 16))
        isa->store(&half, 0, numbers, isa->each * DV_BLOCK);
    if (isa->each == 1 && times && x->dtype.bits == 16)
        isa->load(to, &half, 0, n, 0);
}
/* Rows at[0 .. rows) of x, times times[row] and rounded to the type of x unless `times` is NULL. */
static inline void pack(
    const product_isa *isa, float *to, const dv_tensor *x, int64_t k, const int64_t *at, const float *times, int64_t rows)
{
    const int64_t all = group_width(isa, rows), depth = words_of(isa, k);
    float lines[2 * MOST_LANES][DV_BLOCK];
    for (int64_t t = 0, width; t < all; t += width) {
        width = rows <= isa->few ? 1 : panel_width(isa, all, t);
        for (int64_t from = 0; from < depth; from += DV_BLOCK) {
            const int64_t n = depth - from < DV_BLOCK ? depth - from : DV_BLOCK, first = from * isa->each;
            const int64_t some = k - first < isa->each * DV_BLOCK ? k - first : isa->each * DV_BLOCK;
            for (int64_t l = 0; l < width; l++) {
                float *const line = rows <= isa->few ? to + t * line_room(depth) + from : lines[l];
                if (t + l < rows)
                    pack_words(isa, line, x, at[t + l] * k + first, some, times ? &times[t + l] : NULL);
                else
                    memset(line, 0, sizeof lines[l]);
            }
            if (rows > isa->few)
                for (int64_t i = 0; i < n; i++)
                    for (int64_t l = 0; l < width; l++)
                        to[t * depth + (from + i) * width + l] = lines[l][i];
        }
    }
}

/* Words at to at + n of a row of w, and zeros up to a whole block. */
static inline void load_factor(const product_isa *isa, const factor *w, int64_t row, int64_t at, int64_t n, float *to)
{
    const int64_t first = row * w->k + at * isa->each, rest = w->k - at * isa->each,
                  some = n * isa->each < rest ? n * isa->each : rest;
    const size_t used = (size_t)(some * 4 / isa->each);
    if (w->load)
        w->load(to, w->of, row, at, n);
    else if (w->q->dtype.bits == 8)
        isa->bytes(to, (const int8_t *)w->q->data + first, some);
    else if (isa->each == 2)
        memcpy(to, (const uint16_t *)w->q->data + first, (size_t)some * 2);
    else
        isa->load(to, w->q, first, n, 0);
    memset((char *)to + used, 0, (size_t)line_room(n) * sizeof *to - used);
}

/* How a block of whole rows of w is multiplied where it lies; NULL: it is loaded as float first, which pays where there are more
 * rows of x that use it. */
static inline dots_fn dots_in_place(const product_isa *isa, const factor *w, int64_t rows)
{
    if (w->load || rows > (isa->each == 2 ? FEW_PAIRS : IN_PLACE) || (rows > 2 && w->q->dtype.bits * isa->each < 32))
        return NULL;
    switch (dv_dtype_key(w->q->dtype)) {
    case DV_DTYPE_f32: return isa->dots;
    case DV_DTYPE_bf16: return isa->dots_bf16;
    default: return NULL;
    }
}

/* The first form: sums[c * rows + t] for DOTS columns at most. */
static inline void product_few(
    const product_isa *isa, const factor *w, int64_t from, int64_t step, int64_t count, const float *x, int64_t rows, float *sums)
{
    const int64_t k = words_of(isa, w->k), each = isa->each;
    _Alignas(64) float lines[DOTS * FAR_STRIDE], vectors[FEW_LOADED * DOTS * MOST_LANES];
    memset(vectors, 0, (size_t)(rows * DOTS * isa->lanes) * sizeof *vectors);
    const dots_fn in_place = count < DOTS || w->k % (each * DV_BLOCK) ? NULL : dots_in_place(isa, w, rows);
    if (in_place)
        in_place(x, k, rows, (const char *)w->q->data + from * w->k * (w->q->dtype.bits / 8), step * k, k, rows <= 2, vectors);
    for (int64_t at = 0; at < k && !in_place; at += FAR) {
        const int64_t n = k - at < FAR ? k - at : FAR;
        for (int64_t c = 0; c < count; c++)
            load_factor(isa, w, from + c * step, at, n, lines + c * FAR_STRIDE);
        for (int64_t c = count; c < DOTS; c++)
            memset(lines + c * FAR_STRIDE, 0, FAR * sizeof *lines);
        isa->dots(x + at, line_room(k), rows, lines, FAR_STRIDE, line_room(n), false, vectors);
    }
    for (int64_t t = 0; t < rows; t++)
        for (int64_t c = 0; c < count; c++)
            sums[c * rows + t] = across(vectors + (t * DOTS + c) * isa->lanes, isa->lanes);
}

/* The rows of w where they lie, as many at once as a panel takes, times a group of one panel; how many that are. */
static inline int64_t product_in_place(
    const product_isa *isa, const factor *w, int64_t from, int64_t step, int64_t count, const float *x, int64_t rows, float *sums)
{
    const int64_t k = words_of(isa, w->k), all = group_width(isa, rows), apart = step * k * 4, some = isa->at_once;
    int64_t c = 0;
    if (all > 2 * isa->lanes || !has_words(isa, w))
        return 0;
    for (const char *row = (const char *)w->q->data + from * k * 4; c + some <= count; c += some, row += some * apart)
        for (int64_t at = 0; at < k; at += DEPTH)
            isa->panel(x + at * all, all, row + at * 4, apart, some, k - at < DEPTH ? k - at : DEPTH, sums + c * all,
                (uintptr_t)row + (uintptr_t)(at + DEPTH < k ? (at + DEPTH) * 4 : some * apart), apart);
    return c;
}

/* Rows from, from + step, ... of w, count <= COLUMNS of them, times a packed group: sums of MOST_SUMS floats. */
static inline void product(
    const product_isa *isa, const factor *w, int64_t from, int64_t step, int64_t count, const float *x, int64_t rows, float *sums)
{
    const int64_t k = words_of(isa, w->k), all = group_width(isa, rows), size = w->q->dtype.bits / 8;
    _Alignas(64) float lines[COLUMNS * STRIDE];
    memset(sums, 0, (size_t)(COLUMNS * all) * sizeof *sums);
    for (int64_t c = 0; rows <= isa->few && c < count; c += DOTS)
        product_few(isa, w, from + c * step, step, count - c < DOTS ? count - c : DOTS, x, rows, sums + c * rows);
    if (rows <= isa->few)
        return;
    const int64_t done = product_in_place(isa, w, from, step, count, x, rows, sums);
    from += done * step;
    count -= done;
    sums += done * all;
    /* One panel meets the rows of w while they are in the first cache; several meet more of them at a time. */
    const int64_t block = all <= 2 * isa->lanes ? isa->at_once : COLUMNS;
    for (int64_t at = 0; at < k; at += DEPTH)
        for (int64_t c = 0; c < count; c += block) {
            const int64_t n = k - at < DEPTH ? k - at : DEPTH, some = count - c < block ? count - c : block;
            const int64_t soon = at + DEPTH < k ? (at + DEPTH) * isa->each : COLUMNS * step * w->k;
            for (int64_t i = 0; i < some; i++)
                load_factor(isa, w, from + (c + i) * step, at, n, lines + i * STRIDE);
            memset(lines + some * STRIDE, 0, (size_t)((block - some) * STRIDE) * sizeof *lines);
            for (int64_t t = 0, width; t < all; t += width) {
                width = panel_width(isa, all, t);
                isa->panel(x + t * k + at * width, width, lines, STRIDE * 4, some, n, sums + COLUMNS * t + c * width,
                    t || w->load ? 0 : (uintptr_t)w->q->data + (uintptr_t)(((from + c * step) * w->k + soon) * size),
                    step * w->k * size);
            }
        }
}
/* ---- for each instruction set --------------------------------------------------------------------------------------------- */

#define LANES_AT(P) (*(const lanes *)(const void *)(P))
#define EIGHT(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define SIX(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#define TWELVE(DO) SIX(DO) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
/* Words of w with one vector or two of rows of x. */
#define BEGIN_ONE(C) lanes a##C = { 0 };
#define ADD_ONE(MULTIPLY, C)                            \
    {                                                   \
        const words both = WORD(w + C * apart + i * 4); \
        MULTIPLY(a##C, u, both);                        \
    }
#define ADD_ONE_f32(C) ADD_ONE(TIMES_f32, C)
#define ADD_ONE_pairs(C) ADD_ONE(TIMES_bf16, C)
#define END_ONE(C) *(lanes *)(void *)(sums + C * width) += a##C;
#define BEGIN_TWO(C) lanes a##C = { 0 }, b##C = { 0 };
#define ADD_TWO(MULTIPLY, C)                      \
    {                                             \
        words both = WORD(w + C * apart + i * 4); \
        IN_REGISTER(both);                        \
        MULTIPLY(a##C, u, both);                  \
        MULTIPLY(b##C, v, both);                  \
    }
#define ADD_TWO_f32(C) ADD_TWO(TIMES_f32, C)
#define ADD_TWO_pairs(C) ADD_TWO(TIMES_bf16, C)
#define END_TWO(C) *(lanes *)(void *)(sums + C * width) += a##C, *(lanes *)(void *)(sums + C * width + n) += b##C;

/* One row of x with DOTS of w; two share what is loaded of w, where there are 32 registers. */
#define BEGIN_SINGLE(C) lanes a##C = LANES_AT(sums + C * n);
#define ADD_SINGLE(MULTIPLY, LOAD, C)         \
    {                                         \
        lanes one = LOAD(w + C * stride + i); \
        MULTIPLY(a##C, u, one);               \
    }
#define END_SINGLE(C) *(lanes *)(void *)(sums + C * n) = a##C;
#define BEGIN_PAIR(C) lanes a##C = LANES_AT(sums + C * n), b##C = LANES_AT(sums + (DOTS + C) * n);
#define ADD_PAIR(MULTIPLY, LOAD, C)            \
    {                                          \
        lanes both = LOAD(w + C * stride + i); \
        IN_REGISTER(both);                     \
        MULTIPLY(a##C, u, both);               \
        MULTIPLY(b##C, v, both);               \
    }
#define END_PAIR(C) *(lanes *)(void *)(sums + C * n) = a##C, *(lanes *)(void *)(sums + (DOTS + C) * n) = b##C;

/* Words, or elements of w as float, and sums with them. */
#define LOAD_f32(P) LANES_AT(P)
#define LOAD_bf16(P) (lanes)(__builtin_convertvector(*(const halves *)(const void *)(P), words) << 16)
#define ADD_SINGLE_f32(C) ADD_SINGLE(TIMES_f32, LOAD_f32, C)
#define ADD_SINGLE_bf16(C) ADD_SINGLE(TIMES_f32, LOAD_bf16, C)
#define ADD_SINGLE_pairs(C) ADD_SINGLE(TIMES_bf16, LOAD_f32, C)
#define ADD_PAIR_f32(C) ADD_PAIR(TIMES_f32, LOAD_f32, C)
#define ADD_PAIR_bf16(C) ADD_PAIR(TIMES_f32, LOAD_bf16, C)
#define ADD_PAIR_pairs(C) ADD_PAIR(TIMES_bf16, LOAD_f32, C)
/* Two rows of x (or twice one) with one of w, four vectors at a time. */
#define BEGIN_FAR(I) lanes a##I = { 0 }, b##I = { 0 };
#define ADD_FAR(MULTIPLY, LOAD, I)                                                \
    {                                                                             \
        const lanes u = LANES_AT(one + i + I * n), v = LANES_AT(two + i + I * n); \
        lanes both = LOAD(row + i + I * n);                                       \
        MULTIPLY(a##I, u, both);                                                  \
        MULTIPLY(b##I, v, both);                                                  \
    }
#define ADD_FAR_f32(I) ADD_FAR(TIMES_f32, LOAD_f32, I)
#define ADD_FAR_bf16(I) ADD_FAR(TIMES_f32, LOAD_bf16, I)
#define ADD_FAR_pairs(I) ADD_FAR(TIMES_bf16, LOAD_f32, I)
#define FOUR(DO) DO(0) DO(1) DO(2) DO(3)
#define DOTS_OF(ISA, TARGET, BYTES, T, C_TYPE)                                                                              \
    TARGET static void dots_##T##_##ISA(                                                                                    \
        const float *x, int64_t room, int64_t rows, const void *from, int64_t stride, int64_t depth, bool far, float *sums) \
    {                                                                                                                       \
        typedef float lanes __attribute__((vector_size(BYTES), aligned(2), may_alias));                                     \
        typedef uint32_t words __attribute__((vector_size(BYTES)));                                                         \
        typedef uint16_t halves __attribute__((vector_size(BYTES / 2), aligned(2), may_alias));                             \
        const int64_t n = BYTES / (int64_t)sizeof(float);                                                                   \
        const C_TYPE *const w = from;                                                                                       \
        int64_t t = 0;                                                                                                      \
        (void)sizeof(words), (void)sizeof(halves);                                                                          \
        for (int64_t c = 0; far && c < DOTS; c++) {                                                                         \
            const C_TYPE *const row = w + c * stride;                                                                       \
            for (t = 0; t < rows; t += 2) {                                                                                 \
                const float *const one = x + t * room, *const two = t + 1 < rows ? one + room : one;                        \
                FOUR(BEGIN_FAR)                                                                                             \
                for (int64_t i = 0; i < depth; i += 4 * n) {                                                                \
                    FOUR(ADD_FAR_##T)                                                                                       \
                }                                                                                                           \
                *(lanes *)(void *)(sums + (t * DOTS + c) * n) += (a0 + a1) + (a2 + a3);                                     \
                if (two != one)                                                                                             \
                    *(lanes *)(void *)(sums + ((t + 1) * DOTS + c) * n) += (b0 + b1) + (b2 + b3);                           \
            }                                                                                                               \
        }                                                                                                                   \
        t = far ? rows : 0;                                                                                                 \
        for (; BYTES == 64 && t + 2 <= rows; t += 2, sums += 2 * DOTS * n, x += 2 * room) {                                 \
            EIGHT(BEGIN_PAIR)                                                                                               \
            for (int64_t i = 0; i < depth; i += n) {                                                                        \
                const lanes u = LANES_AT(x + i), v = LANES_AT(x + room + i);                                                \
                EIGHT(ADD_PAIR_##T)                                                                                         \
            }                                                                                                               \
            EIGHT(END_PAIR)                                                                                                 \
        }                                                                                                                   \
        for (; t < rows; t++, sums += DOTS * n, x += room) {                                                                \
            EIGHT(BEGIN_SINGLE)                                                                                             \
            for (int64_t i = 0; i < depth; i += n) {                                                                        \
                const lanes u = LANES_AT(x + i);                                                                            \
                EIGHT(ADD_SINGLE_##T)                                                                                       \
            }                                                                                                               \
            EIGHT(END_SINGLE)                                                                                               \
        }                                                                                                                   \
    }

/* In step i: a line of those that are needed soon. */
#define SOON_LINE(AT_ONCE)          \
    if (next && i < AT_ONCE * SOON) \
        __builtin_prefetch((const void *)(next + (uintptr_t)(i / SOON * stride + i % SOON * LINE)), 0, 2);
#define PANEL_OF(ISA, TARGET, BYTES, T, EACH, AT_ONCE)                                                                           \
    TARGET static void panel_##ISA(const float *x, int64_t width, const void *rows, int64_t apart, int64_t count, int64_t depth, \
        float *sums, uintptr_t next, int64_t stride)                                                                             \
    {                                                                                                                            \
        typedef float lanes __attribute__((vector_size(BYTES), aligned(4), may_alias));                                          \
        WORD_TYPES(BYTES);                                                                                                       \
        const char *w = rows;                                                                                                    \
        const int64_t n = BYTES / (int64_t)sizeof(float);                                                                        \
        for (int64_t c = 0; c < count;                                                                                           \
            c += AT_ONCE, w += AT_ONCE * apart, sums += AT_ONCE * width, next += (uintptr_t)(next ? AT_ONCE * stride : 0)) {     \
            const float *from = x;                                                                                               \
            if (width == n) {                                                                                                    \
                EACH(BEGIN_ONE)                                                                                                  \
                for (int64_t i = 0; i < depth; i++, from += n) {                                                                 \
                    const lanes u = LANES_AT(from);                                                                              \
                    SOON_LINE(AT_ONCE)                                                                                           \
                    EACH(ADD_ONE_##T)                                                                                            \
                }                                                                                                                \
                EACH(END_ONE)                                                                                                    \
            } else {                                                                                                             \
                EACH(BEGIN_TWO)                                                                                                  \
                for (int64_t i = 0; i < depth; i++, from += 2 * n) {                                                             \
                    const lanes u = LANES_AT(from), v = LANES_AT(from + n);                                                      \
                    SOON_LINE(AT_ONCE)                                                                                           \
                    EACH(ADD_TWO_##T)                                                                                            \
                }                                                                                                                \
                EACH(END_TWO)                                                                                                    \
            }                                                                                                                    \
        }                                                                                                                        \
    }

#define PRODUCT_ISA(ISA, TARGET, BYTES, EACH, AT_ONCE, MOST)                                                              \
    LOAD_LINE(ISA, TARGET)                                                                                                \
    STORE_LINE(ISA, TARGET)                                                                                               \
    DOTS_OF(ISA, TARGET, BYTES, f32, float)                                                                               \
    DOTS_OF(ISA, TARGET, BYTES, bf16, uint16_t)                                                                           \
    PANEL_OF(ISA, TARGET, BYTES, f32, EACH, AT_ONCE)                                                                      \
    TARGET static void bytes_##ISA(float *to, const int8_t *from, int64_t n)                                              \
    {                                                                                                                     \
        for (int64_t i = 0; i < n; i++)                                                                                   \
            to[i] = (float)from[i];                                                                                       \
    }                                                                                                                     \
    static const product_isa product_##ISA = { BYTES / (int64_t)sizeof(float), 1, MOST, AT_ONCE, load_##ISA, store_##ISA, \
        dots_f32_##ISA, dots_bf16_##ISA, panel_##ISA, bytes_##ISA };
#ifdef DV_TARGET_AVX2
PRODUCT_ISA(avx512, DV_TARGET_AVX512, 64, TWELVE, 12, FEW)
PRODUCT_ISA(avx2, DV_TARGET_AVX2, 32, SIX, 6, FEW)

DOTS_OF(avx512bf16, DV_TARGET_AVX512, 64, pairs, float)
PANEL_OF(avx512bf16, DV_TARGET_AVX512, 64, pairs, TWELVE, 12)
DV_TARGET_AVX512 static void bytes_avx512bf16(float *to, const int8_t *from, int64_t n)
{
    typedef uint16_t half __attribute__((may_alias));
    for (int64_t i = 0; i < n; i++) {
        const float number = (float)from[i]; /* of 8 bits: bf16 has it exactly */
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        ((half *)(void *)to)[i] = (uint16_t)(bits >> 16);
    }
}
static const product_isa product_avx512bf16 = { 16, 2, FEW_PAIRS, 12, load_avx512, store_avx512, dots_pairs_avx512bf16,
    dots_pairs_avx512bf16, panel_avx512bf16, bytes_avx512bf16 };
#endif
PRODUCT_ISA(base, , 16, SIX, 6, FEW_LOADED)

/* One whose words are floats, for a matrix whose numbers bf16 does not have. */
static inline const product_isa *product_of_floats(const product_isa *isa)
{
#ifdef DV_TARGET_AVX2
    return isa->each == 2 ? &product_avx512 : isa;
#else
    return isa;
#endif
}

/* DO(instruction set, target) for each of them, and the rows that it makes. */
#ifdef DV_TARGET_AVX2
#define PRODUCT_EACH(DO) DO(avx512bf16, DV_TARGET_AVX512) DO(avx512, DV_TARGET_AVX512) DO(avx2, DV_TARGET_AVX2) DO(base, )
#else
#define PRODUCT_EACH(DO) DO(base, )
#endif
#define PRODUCT_ROWS(FRAME, BODY, ...) DV_BF16_ROW(FRAME, BODY, __VA_ARGS__) DV_ISA_ROWS(FRAME, BODY, "f32 bf16 f16", __VA_ARGS__)
#endif
