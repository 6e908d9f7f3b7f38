/* product.h: rows of x times rows of w, summed in float: the core of linear and fused_experts.
 *
 * The lanes of a vector run along k: each pair of a row of x and one of w has a vector of sums, which stays in a register while
 * it goes along their words, and is summed across its lanes at the end. A group of rows of x is packed first, in the order in
 * which they are read: a vector of each row of a tile, then the next vector of each. Rows of w are read where they lie if they
 * are words there; else they are loaded.
 *
 * One or two rows of x meet rows of w as memory is read fastest: one after the other, or a few at once. More rows of x are taken
 * in tiles of a few of them and DOTS rows of w, which stay in the first cache while all rows of x meet them. Meanwhile the next
 * rows of w are prefetched.
 *
 * With AMX, bf16 is multiplied in squares: 16 rows of x and 16 rows of w, of which it takes 16 words at once. Rows of x are
 * filled up to 16, and their packed words lie as it reads them: a word of each row, then the next word of each.
 *
 * Words have 32 bits: a float, or a pair of bf16 where the processor multiplies and adds these. It takes those nearer to 0 than
 * 2^-126 for 0. */
#ifndef OPS_PRODUCT_H
#define OPS_PRODUCT_H
#include "squares.h"

/* Rows of x in a group at most. Rows of w in a block, and in a tile. Words of a row that a tile takes at once. GAP words are
 * between rows that are loaded: if these were a power of two apart, all would fall into few places of a cache. */
enum { FEW = 2, GROUP = 128, COLUMNS = 96, DOTS = 6, DEPTH = 512, GAP = 16, MOST_LANES = 16, FEW_AHEAD = 4096 };

/* Rows of w: the first, and how many elements the next one is away. What tiles prefetch: so many lines of each of DOTS rows,
 * which are so many bytes apart. */
struct rows {
    const void *at;
    int64_t stride;
    const char *soon;
    int64_t apart, lines;
};
/* What is made for each instruction set. A packed row of x is `room` words long. */
typedef void (*few_fn)(const float *x, int64_t rows, struct rows w, int64_t count, int64_t depth, float *sums);
typedef struct product_isa {
    int64_t lanes, each, tile; /* elements of a word: 1 or 2; rows of x in a tile: the rest are in tiles of half as many */
    int64_t fill;              /* packed rows are filled up to a multiple of it */
    int64_t group, span;       /* rows of a group at most, and words of it that lie in the second cache */
    load_fn load;
    store_fn store;
    few_fn few, few_of_halves; /* sums[count][rows], a vector each; _of_halves: w is of bf16, words are floats */
    /* sums[rows][DOTS], a vector each, of `depth` words from word `at` of the packed rows on, a multiple of lanes: they begin
     * at 0, or are added to */
    void (*tiles)(const float *x, int64_t room, int64_t rows, struct rows w, int64_t at, bool begin, int64_t depth, float *sums);
    void (*across)(float *vectors, int64_t n);               /* the sums of n vectors, a multiple of lanes, take their place */
    void (*bytes)(float *to, const int8_t *from, int64_t n); /* as words */
    /* In place of tiles and few: the product with one or two times SQUARE rows of w, each square where it is added to, in
     * squares[two or one][rows / SQUARE]; when the words end here, to sums[rows][COLUMNS], too. `fewer` is for FEW rows. */
    void (*squares)(const float *x, int64_t room, int64_t rows, struct rows w, int64_t at, int64_t depth, bool two,
        float *squares, float *sums);
    const struct product_isa *fewer;
} product_isa;
/* What serves so many rows of x: all functions below that are given their number ask for it. */
static inline const product_isa *product_for(const product_isa *isa, int64_t rows)
{
    return isa->fewer && rows <= FEW ? isa->fewer : isa;
}

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
/* Are they of bf16, and words floats? */
static inline bool is_halves(const product_isa *isa, const factor *w)
{
    return !w->load && isa->each == 1 && dv_dtype_key(w->q->dtype) == DV_DTYPE_bf16;
}

/* n in parts of `of`: how many these are; n filled up to whole ones. */
static inline int64_t up(int64_t n, int64_t of) { return (n + of - 1) / of; }
static inline int64_t whole(int64_t n, int64_t of) { return up(n, of) * of; }
/* The words of a row of k numbers; the room of a packed row, and of some; how many rows are a group. */
static inline int64_t words_of(const product_isa *isa, int64_t k) { return up(k, isa->each); }
static inline int64_t packed_room(const product_isa *isa, int64_t k) { return line_room(words_of(isa, k)); }
static inline int64_t packed_size(const product_isa *isa, int64_t k, int64_t rows)
{
    return whole(rows, product_for(isa, rows)->fill) * packed_room(isa, k);
}
static inline int64_t group_rows(const product_isa *isa, int64_t rows)
{
    return rows > isa->group ? up(rows, up(rows, isa->group)) : rows; /* all are nearly alike */
}
/* Words of rows t to t + some, which are `stride` bytes apart, from word `at` on: it begins a vector, or a square, and so does t.
 */
static inline void put_packed(const product_isa *isa, float *packed, int64_t room, int64_t rows, int64_t t, int64_t some,
    int64_t at, const void *words, int64_t stride, int64_t bytes)
{
    isa = product_for(isa, rows);
    const char *from = words;
#ifdef DV_TARGET_AVX2
    for (int64_t i = 0; isa->squares && i < bytes; i += LINE) {
        _Alignas(64) char square[SQUARE][LINE] = { { 0 } };
        for (int64_t r = 0; r < some; r++)
            memcpy(square[r], from + r * stride + i, (size_t)(bytes - i < LINE ? bytes - i : LINE));
        turn_square((char *)(packed + t * room + (at * 4 + i) / LINE * SQUARE * SQUARE), LINE, square[0], LINE, SQUARE);
    }
    if (isa->squares)
        return;
#endif
    const int64_t vector = isa->lanes * 4;
    for (; some; some--, t++, from += stride) {
        int64_t tile = isa->tile, first = t / tile * tile;
        for (; rows - first < tile || t - first >= tile; tile /= 2) /* the rest: half a tile, and half of that */
            first += t - first >= tile ? tile : 0;
        char *to = (char *)(packed + first * room + at * tile + (t - first) * isa->lanes);
        for (int64_t i = 0; i < bytes; i += vector, to += tile * vector) {
            const int64_t n = bytes - i < vector ? bytes - i : vector;
            if (n == 64) /* one instruction or two */
                memcpy(to, from + i, 64);
            else
                memcpy(to, from + i, (size_t)n);
        }
    }
}
/* Before rows of k numbers are put, their ends become 0. */
static inline void clear_packed(const product_isa *isa, float *packed, int64_t k, int64_t rows)
{
    if (k % (isa->each * DV_BLOCK))
        memset(packed, 0, (size_t)packed_size(isa, k, rows) * sizeof *packed);
}
/* n numbers as words. They are rounded already where these are pairs. */
static inline const void *as_words(const product_isa *isa, uint16_t *half, const float *numbers, int64_t n)
{
    const dv_tensor pairs = { .data = half, .dtype = dv_dtype_from_key(DV_DTYPE_bf16) };
    if (isa->each == 1)
        return numbers;
    isa->store(&pairs, 0, numbers, n);
    return half;
}
/* Rows at[begin .. end) of x, of a group of `rows`, times times[row] and rounded to the type of x unless `times` is NULL. begin
 * is a multiple of SQUARE. */
static inline void pack(const product_isa *isa, float *to, const dv_tensor *x, int64_t k, const int64_t *at, const float *times,
    int64_t rows, int64_t begin, int64_t end)
{
    const int64_t room = packed_room(isa, k), size = x->dtype.bits / 8, together = product_for(isa, rows)->fill;
    const bool words = !times && size * isa->each == 4;
    float numbers[DV_BLOCK];
    _Alignas(64) uint16_t half[DV_BLOCK], lines[SQUARE * DV_BLOCK * 2];
    const dv_tensor rounded = { .data = half, .dtype = x->dtype };
    for (int64_t t = begin, some; t < end; t += some) {
        some = end - t < together ? end - t : together;
        if (words && together == 1)
            put_packed(isa, to, room, rows, t, 1, 0, (const char *)x->data + at[t] * k * size, 0, k * size);
        for (int64_t from = 0; from < k && (!words || together > 1); from += DV_BLOCK) {
            const int64_t n = k - from < DV_BLOCK ? k - from : DV_BLOCK, bytes = n * 4 / isa->each;
            const void *line = lines;
            for (int64_t r = 0; r < some; r++) {
                line = (const char *)x->data + (at[t + r] * k + from) * size;
                if (!words) {
                    isa->load(numbers, x, at[t + r] * k + from, n, 0);
                    for (int64_t i = 0; times && i < n; i++)
                        numbers[i] *= times[t + r];
                    if (times && isa->each == 1 && size == 2) {
                        isa->store(&rounded, 0, numbers, n);
                        isa->load(numbers, &rounded, 0, n, 0);
                    }
                    line = as_words(isa, half, numbers, n);
                }
                if (together > 1)
                    memcpy(lines + r * DV_BLOCK * 2, line, (size_t)bytes);
            }
            put_packed(isa, to, room, rows, t, some, from / isa->each, together > 1 ? lines : line, DV_BLOCK * 4, bytes);
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

/* Words at to at + n of `count` <= DOTS rows of w. */
static inline void load_rows(
    const product_isa *isa, const factor *w, int64_t from, int64_t step, int64_t count, int64_t at, int64_t n, float *lines)
{
    for (int64_t i = 0; i < count; i++)
        load_factor(isa, w, from + i * step, at, n, lines + i * (DEPTH + GAP));
    memset(lines + count * (DEPTH + GAP), 0, (size_t)((DOTS - count) * (DEPTH + GAP)) * sizeof *lines);
}
static inline const void *place_of(const product_isa *isa, const factor *w, int64_t row, int64_t at)
{
    return (const char *)w->q->data + (row * w->k + at * isa->each) * (w->q->dtype.bits / 8);
}
/* Each of n vectors becomes its sum. */
static inline void sum_vectors(const product_isa *isa, float *vectors, int64_t n)
{
    const int64_t all = whole(n, isa->lanes);
    memset(vectors + n * isa->lanes, 0, (size_t)((all - n) * isa->lanes) * sizeof *vectors);
    isa->across(vectors, all);
}

/* The product of FEW rows of x at most with rows of w that are read where they lie. */
static inline void product_few(
    const product_isa *isa, const factor *w, int64_t from, int64_t step, int64_t count, const float *x, int64_t rows, float *sums)
{
    _Alignas(64) float vectors[(FEW * COLUMNS + MOST_LANES) * MOST_LANES];
    const struct rows all = { place_of(isa, w, from, 0), step * w->k / isa->each, NULL, 0, 0 };
    (has_words(isa, w) ? isa->few : isa->few_of_halves)(x, rows, all, count, words_of(isa, w->k), vectors);
    sum_vectors(isa, vectors, rows * count);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t c = 0; c < count; c++)
            sums[t * COLUMNS + c] = vectors[c * rows + t];
}
/* vectors[rows][DOTS]: the product of words begin to end with DOTS rows of w, or with `some`, whose number is less. */
static inline void product_of_tile(const product_isa *isa, const factor *w, int64_t from, int64_t step, int64_t some,
    int64_t next, int64_t begin, int64_t end, const float *x, int64_t rows, float *vectors)
{
    const int64_t depth = whole(up(end - begin, up(end - begin, DEPTH)), GAP);
    const int64_t size = w->q->dtype.bits / 8, apart = step * w->k * size;
    _Alignas(64) float lines[DOTS * (DEPTH + GAP)];
    for (int64_t at = begin, n; at < end; at += n) {
        n = end - at < depth ? end - at : depth;
        const bool in_place = some == DOTS && n >= isa->lanes && has_words(isa, w);
        if (in_place)
            n = n / isa->lanes * isa->lanes;
        else
            load_rows(isa, w, from, step, some, at, n, lines);
        const struct rows now = {
            .at = in_place ? place_of(isa, w, from, at) : lines,
            .stride = in_place ? apart / 4 : DEPTH + GAP,
            .soon = at + n < end ? place_of(isa, w, from, at + n) : place_of(isa, w, next, begin),
            .apart = apart,
            .lines = w->load ? 0 : up(n * isa->each * size, LINE),
        };
        isa->tiles(x, packed_room(isa, w->k), rows, now, at, at == begin, whole(n, isa->lanes), vectors);
    }
}
/* The product by squares. Rows of w are read where they lie, two squares of them at a time, if there are so many. */
static inline void product_of_squares(const product_isa *isa, const factor *w, int64_t from, int64_t step, int64_t count,
    int64_t next, const float *x, int64_t rows, float *sums)
{
    const int64_t k = words_of(isa, w->k), size = w->q->dtype.bits / 8, apart = step * w->k * size;
    enum { BESIDE = DEPTH / 4, LOADED = DEPTH / 2 }; /* words at once, in place and loaded */
    _Alignas(64) float squares[2 * GROUP * SQUARE], lines[2 * SQUARE * (LOADED + GAP)];
    squares_begin();
    for (int64_t c = 0, some; c < count; c += some) {
        const bool words = has_words(isa, w) && count - c >= SQUARE, two = count - c >= 2 * SQUARE;
        some = two ? 2 * SQUARE : count - c < SQUARE ? count - c : SQUARE;
        for (int64_t at = 0, n; at < k; at += n) {
            const bool in_place = words && k - at >= SQUARE;
            const int64_t most = in_place ? BESIDE : LOADED;
            n = k - at < most ? k - at : most;
            if (in_place)
                n = n / SQUARE * SQUARE;
            for (int64_t i = 0; i < whole(some, SQUARE) && !in_place; i++)
                if (i < some)
                    load_factor(isa, w, from + (c + i) * step, at, n, lines + i * (LOADED + GAP));
                else
                    memset(lines + i * (LOADED + GAP), 0, (size_t)line_room(n) * sizeof *lines);
            const struct rows now = {
                .at = in_place ? place_of(isa, w, from + c * step, at) : lines,
                .stride = in_place ? apart / 4 : LOADED + GAP,
                .soon = at + n < k ? place_of(isa, w, from + c * step, at + n)
                                   : place_of(isa, w, c + some < count ? from + (c + some) * step : next, 0),
                .apart = apart,
                .lines = w->load ? 0 : up(n * isa->each * size, LINE),
            };
            isa->squares(x, packed_room(isa, w->k), rows, now, at, whole(n, SQUARE), two, squares, at + n < k ? NULL : sums + c);
        }
    }
    squares_end();
}
/* Rows from, from + step, ... of w, count <= COLUMNS of them, times a packed group: sums[rows][COLUMNS]. Words are taken in spans
 * whose part of x lies in the second cache. next: the row of w that will be wanted then; it is asked for. */
static inline void product(const product_isa *isa, const factor *w, int64_t from, int64_t step, int64_t count, int64_t next,
    const float *x, int64_t rows, float *sums)
{
    isa = product_for(isa, rows);
    const int64_t k = words_of(isa, w->k), span = k ? whole(up(k, up(k * rows, isa->span)), GAP) : 0;
    _Alignas(64) float vectors[(GROUP * DOTS + MOST_LANES) * MOST_LANES];
    if (!isa->squares || !k || count < COLUMNS)
        memset(sums, 0, (size_t)(rows * COLUMNS) * sizeof *sums);
    if (isa->squares) {
        product_of_squares(isa, w, from, step, count, next, x, rows, sums);
        return;
    }
    if (rows <= FEW && k && (has_words(isa, w) || is_halves(isa, w))) {
        product_few(isa, w, from, step, count, x, rows, sums);
        return;
    }
    for (int64_t at = 0; at < k; at += span)
        for (int64_t c = 0; c < count; c += DOTS) {
            const int64_t some = count - c < DOTS ? count - c : DOTS, end = at + span < k ? at + span : k;
            product_of_tile(isa, w, from + c * step, step, some, c + DOTS < count ? from + (c + DOTS) * step : next, at, end, x,
                rows, vectors);
            sum_vectors(isa, vectors, rows * DOTS);
            for (int64_t t = 0; t < rows; t++)
                for (int64_t i = 0; i < DOTS; i++)
                    sums[t * COLUMNS + c + i] += vectors[t * DOTS + i];
        }
}

/* ---- for each instruction set --------------------------------------------------------------------------------------------- */

/* Intel's processors read memory fastest by a few rows at once, AMD's by one row after the other. */
static inline bool reads_together(void)
{
#ifdef DV_TARGET_AVX2
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}
#define LANES_AT(P) (*(const lanes *)(const void *)(P))
#define LANES_OF(P) (*(lanes *)(void *)(P))
/* Words, or, as floats, elements of w that are of bf16. */
#define LOAD_f32(P) LANES_AT(P)
#define LOAD_pairs(P) LANES_AT(P)
#define LOAD_halves(P) (lanes)(__builtin_convertvector(*(const halves *)(const void *)(P), words) << 16)
#define TIMES_pairs TIMES_bf16
#define TIMES_halves TIMES_f32
/* Each of so many rows of x: a letter, and a number. */
#define EACH_1(DO, ...) DO(a, 0, __VA_ARGS__)
#define EACH_2(DO, ...) EACH_1(DO, __VA_ARGS__) DO(b, 1, __VA_ARGS__)
#define EACH_4(DO, ...) EACH_2(DO, __VA_ARGS__) DO(c, 2, __VA_ARGS__) DO(d, 3, __VA_ARGS__)
#define SIX(DO, ...) \
    DO(0, __VA_ARGS__) DO(1, __VA_ARGS__) DO(2, __VA_ARGS__) DO(3, __VA_ARGS__) DO(4, __VA_ARGS__) DO(5, __VA_ARGS__)
#define FOUR(DO, ...) DO(0, __VA_ARGS__) DO(1, __VA_ARGS__) DO(2, __VA_ARGS__) DO(3, __VA_ARGS__)
#define SUM_AT(R, C) LANES_OF(sums + ((R) * DOTS + (C)) * n)
#define TILE_BEGIN(A, R, _)                                                                                      \
    lanes A##0 = { 0 }, A##1 = A##0, A##2 = A##0, A##3 = A##0, A##4 = A##0, A##5 = A##0;                         \
    if (!begin)                                                                                                  \
        A##0 = SUM_AT(R, 0), A##1 = SUM_AT(R, 1), A##2 = SUM_AT(R, 2), A##3 = SUM_AT(R, 3), A##4 = SUM_AT(R, 4), \
        A##5 = SUM_AT(R, 5);
#define TILE_END(A, R, _) \
    SUM_AT(R, 0) = A##0, SUM_AT(R, 1) = A##1, SUM_AT(R, 2) = A##2, SUM_AT(R, 3) = A##3, SUM_AT(R, 4) = A##4, SUM_AT(R, 5) = A##5;
#define TILE_LOAD(A, R, _) const lanes A = LANES_AT(from + R * n);
#define TILE_ADD(A, R, C, T) TIMES_##T(A##C, A, one);
#define TILE_COLUMN(C, EACH, T)                                     \
    {                                                               \
        lanes one = LOAD_##T((C < 3 ? row : half) + C % 3 * apart); \
        IN_REGISTER(one);                                           \
        EACH(TILE_ADD, C, T)                                        \
    }
#define TILES(R, EACH, BYTES, T)                                                        \
    for (; t + R <= rows; t += R, sums += R * DOTS * n) {                               \
        const float *from = x + t * room + at * R;                                      \
        const char *row = w.at, *half = row + 3 * apart, *const stop = row + depth * 4; \
        EACH(TILE_BEGIN, T)                                                             \
        for (; row < stop; row += BYTES, half += BYTES, from += R * n) {                \
            EACH(TILE_LOAD, T)                                                          \
            PREFETCH(BYTES)                                                             \
            SIX(TILE_COLUMN, EACH, T)                                                   \
        }                                                                               \
        EACH(TILE_END, T)                                                               \
    }
/* Lines of w ahead: a line of each of the DOTS rows, then the next of each. They are spread evenly over all tiles: at once they
 * would be too many, and be dropped. */
#define PREFETCH(BYTES)                                                \
    for (turn += DOTS * BYTES; turn >= turns && left; turn -= turns) { \
        __builtin_prefetch(soon, 0, 3);                                \
        soon += soon_apart;                                            \
        if (--left % DOTS == 0)                                        \
            soon -= DOTS * soon_apart - LINE;                          \
    }
/* R rows of x with W of w, four vectors at a time; then one at a time, and what is left. A##V##_##J are sums of vectors V, with
 * row J of w. */
#define WIDE_1(DO, ...) DO(0, __VA_ARGS__)
#define WIDE_4(DO, ...) DO(0, __VA_ARGS__) DO(1, __VA_ARGS__) DO(2, __VA_ARGS__) DO(3, __VA_ARGS__)
#define FEW_SUMS(A, R, J) lanes A##0_##J = { 0 }, A##1_##J = A##0_##J, A##2_##J = A##0_##J, A##3_##J = A##0_##J;
#define FEW_BEGIN(J, EACH) EACH(FEW_SUMS, J)
#define FEW_ADD(A, R, V, J, ALL, T) TIMES_##T(A##V##_##J, LANES_AT(from + (V * ALL + R) * n), one);
#define FEW_VECTOR(J, V, W, R, EACH, T) \
    {                                   \
        lanes one = LOAD_##T(W);        \
        IN_REGISTER(one);               \
        EACH(FEW_ADD, V, J, R, T)       \
    }
#define FEW_WHOLE(J, V, R, EACH, T)                                                   \
    __builtin_prefetch((const char *)(row + J * w.stride + i + V * n) + ahead, 0, 2); \
    FEW_VECTOR(J, V, row + J * w.stride + i + V * n, R, EACH, T)
#define FEW_STEP(V, WIDE, R, EACH, T) WIDE(FEW_WHOLE, V, R, EACH, T)
#define FEW_ONE(J, R, EACH, T) FEW_VECTOR(J, 0, row + J * w.stride + i, R, EACH, T)
#define FEW_REST(J, R, EACH, T)                                             \
    memcpy(few, row + J * w.stride + i, (size_t)(depth - i) * sizeof *few); \
    FEW_VECTOR(J, 0, few, R, EACH, T)
#define FEW_SUM(A, R, J, ALL) LANES_OF(sums + ((c + J) * ALL + R) * n) = (A##0_##J + A##1_##J) + (A##2_##J + A##3_##J);
#define FEW_END(J, R, EACH) EACH(FEW_SUM, J, R)
#define FEW_ROWS(W, WIDE, R, EACH, T, C_TYPE)                          \
    for (; c + W <= count; c += W) {                                   \
        const C_TYPE *const row = (const C_TYPE *)w.at + c * w.stride; \
        const float *from = x;                                         \
        int64_t i = 0;                                                 \
        WIDE(FEW_BEGIN, EACH)                                          \
        for (; i + 4 * n <= depth; i += 4 * n, from += 4 * R * n) {    \
            FOUR(FEW_STEP, WIDE, R, EACH, T)                           \
        }                                                              \
        for (; i + n <= depth; i += n, from += R * n) {                \
            WIDE(FEW_ONE, R, EACH, T)                                  \
        }                                                              \
        if (i < depth) {                                               \
            C_TYPE few[MOST_LANES] = { 0 };                            \
            WIDE(FEW_REST, R, EACH, T)                                 \
        }                                                              \
        WIDE(FEW_END, R, EACH)                                         \
    }
#define VECTOR_TYPES(BYTES)                                                                 \
    typedef float lanes __attribute__((vector_size(BYTES), aligned(2), may_alias));         \
    typedef uint32_t words __attribute__((vector_size(BYTES)));                             \
    typedef uint16_t halves __attribute__((vector_size(BYTES / 2), aligned(2), may_alias)); \
    const int64_t n = BYTES / (int64_t)sizeof(float);                                       \
    (void)sizeof(words), (void)sizeof(halves)
#define TILES_OF(ISA, TARGET, BYTES, T)                                                                                \
    TARGET static void tiles_##ISA(                                                                                    \
        const float *x, int64_t room, int64_t rows, struct rows w, int64_t at, bool begin, int64_t depth, float *sums) \
    {                                                                                                                  \
        VECTOR_TYPES(BYTES);                                                                                           \
        const int64_t apart = w.stride * (int64_t)sizeof(float), soon_apart = w.apart;                                 \
        const char *soon = w.soon;                                                                                     \
        const int64_t tile = BYTES == 64 ? 4 : 2, turns = (rows + tile - 1) / tile * LINE;                             \
        int64_t t = 0, left = w.lines * DOTS, turn = 0;                                                                \
        if (BYTES == 64)                                                                                               \
            TILES(4, EACH_4, BYTES, T)                                                                                 \
        TILES(2, EACH_2, BYTES, T)                                                                                     \
        TILES(1, EACH_1, BYTES, T)                                                                                     \
    }
#define FEW_OF(ISA, TARGET, BYTES, T, C_TYPE)                                                                                  \
    TARGET static void few_##T##_##ISA(const float *x, int64_t rows, struct rows w, int64_t count, int64_t depth, float *sums) \
    {                                                                                                                          \
        VECTOR_TYPES(BYTES);                                                                                                   \
        int64_t c = 0, ahead = 4 * w.stride * (int64_t)sizeof(C_TYPE); /* the next four rows */                                \
        if (BYTES == 64 && rows == 1 && reads_together())                                                                      \
            FEW_ROWS(4, WIDE_4, 1, EACH_1, T, C_TYPE)                                                                          \
        ahead = FEW_AHEAD;                                                                                                     \
        if (rows == 1)                                                                                                         \
            FEW_ROWS(1, WIDE_1, 1, EACH_1, T, C_TYPE)                                                                          \
        else                                                                                                                   \
            FEW_ROWS(1, WIDE_1, 2, EACH_2, T, C_TYPE)                                                                          \
    }

#define PRODUCT_ISA(ISA, TARGET, BYTES)                                                                           \
    LOAD_LINE(ISA, TARGET)                                                                                        \
    STORE_LINE(ISA, TARGET)                                                                                       \
    TILES_OF(ISA, TARGET, BYTES, f32)                                                                             \
    FEW_OF(ISA, TARGET, BYTES, f32, float)                                                                        \
    FEW_OF(ISA, TARGET, BYTES, halves, uint16_t)                                                                  \
    ACROSS_OF(ISA, TARGET, BYTES)                                                                                 \
    TARGET static void bytes_##ISA(float *to, const int8_t *from, int64_t n)                                      \
    {                                                                                                             \
        for (int64_t i = 0; i < n; i++)                                                                           \
            to[i] = (float)from[i];                                                                               \
    }                                                                                                             \
    static const product_isa product_##ISA = { BYTES / (int64_t)sizeof(float), 1, BYTES == 64 ? 4 : 2, 1,         \
        BYTES == 64 ? GROUP / 2 : GROUP, BYTES == 64 ? 1 << 18 : 1 << 17, load_##ISA, store_##ISA, few_f32_##ISA, \
        few_halves_##ISA, tiles_##ISA, across_##ISA, bytes_##ISA, NULL, NULL };
#ifdef DV_TARGET_AVX2
PRODUCT_ISA(avx512, DV_TARGET_AVX512, 64)
PRODUCT_ISA(avx2, DV_TARGET_AVX2, 32)

TILES_OF(avx512bf16, DV_TARGET_AVX512, 64, pairs)
FEW_OF(avx512bf16, DV_TARGET_AVX512, 64, pairs, float)
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
static const product_isa product_avx512bf16 = { 16, 2, 4, 1, GROUP, 1 << 17, load_avx512, store_avx512, few_pairs_avx512bf16,
    NULL, tiles_avx512bf16, across_avx512, bytes_avx512bf16, NULL, NULL };

/* Squares of w are rows of sums, and those of x are columns; at the end they are turned. */
DV_TARGET_AVX512 static void squares_amx(
    const float *x, int64_t room, int64_t rows, struct rows w, int64_t at, int64_t depth, bool two, float *squares, float *sums)
{
    const int64_t passes = up(rows, 2 * SQUARE), all = two ? 2 * SQUARE : SQUARE;
    enum { ONE = SQUARE * LINE, GROUPS = GROUP * LINE }; /* bytes: of a square, and of all that are one row of w */
    for (int64_t t = 0, pass = 0; t < rows; t += 2 * SQUARE, pass++) {
        const int64_t begin = all * pass / passes, end = all * (pass + 1) / passes;
        char *const to = (char *)(squares + t * SQUARE);
        const bool both = rows - t > SQUARE;
        const struct square_sums now = { to, LINE, GROUPS, ONE, two, both };
        if (at)
            squares_load(now);
        else
            squares_zero();
        multiply_bf16(squares_of(w.at, w.stride * 4, SQUARE * w.stride * 4, LINE, two),
            squares_of(x + t * room + at * SQUARE, LINE, SQUARE * room * 4, ONE, both), depth,
            (struct ahead){ w.soon + begin * w.apart, w.apart, end - begin, w.lines });
        squares_store(now);
        for (int64_t r = 0; r < 2 && sums && t + r * SQUARE < rows; r++)
            for (int64_t c = 0; c <= two; c++)
                turn_square((char *)(sums + (t + r * SQUARE) * COLUMNS + c * SQUARE), COLUMNS * 4, to + r * ONE + c * GROUPS,
                    LINE, rows - t - r * SQUARE);
    }
}
static const product_isa product_amx = { 1, 2, SQUARE, SQUARE, GROUP, 1 << 17, load_avx512, store_avx512, NULL, NULL, NULL, NULL,
    bytes_avx512bf16, squares_amx, &product_avx512bf16 };
#endif
PRODUCT_ISA(base, , 16)

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
#ifdef DV_TARGET_AVX2
#define PRODUCT_AMX(DO) DO(amx, avx512bf16)
#else
#define PRODUCT_AMX(DO)
#endif
#define PRODUCT_ROWS(FRAME, BODY, ...)   \
    DV_AMX_ROW(FRAME, BODY, __VA_ARGS__) \
    DV_BF16_KERNEL(FRAME, BODY, __VA_ARGS__) DV_ISA_KERNELS(FRAME, BODY, "f32 bf16 f16", __VA_ARGS__)
#endif
