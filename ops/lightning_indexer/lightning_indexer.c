/* lightning_indexer.c: which keys a query should look at, and the gradient of the scores that it returns.
 *
 * The score of key s for query t is the sum over heads h of weights[t, h] * relu(query[t, h] . key[s]). The results are the
 * sparse_count keys with the largest scores among those that the query sees. In the int8 and fp8 form each row of query and key
 * has a scale, which are factors of the score. The reference computes all in double and rounds once; the fast rows have scores in
 * f32, and do a line over in double if one of its scores is not finite, or all are so small that f32 loses digits. */

#include "../squares.h"
#include "../tokens.h"
#include "../topk.h"

struct indexer {
    const dv_tensor *query, *key, *weights, *query_scale, *key_scale;
    tokens queries, keys;
    int64_t mode, heads, groups, d, lines, count; /* heads: of a group; a line is a query and a group */
    dv_tensor *indices, *values;
    size_t room; /* bytes of a piece of index_lines() */
};

static double relu(double x) { return x < 0 ? 0 : x; }

static void write_line(const struct indexer *x, int64_t line, const top *t)
{
    const int64_t values = x->values ? last_dim(x->values) : 0;
    int32_t *const to = (int32_t *)x->indices->data + line * x->count;
    memset(to, 0xff, (size_t)x->count * sizeof *to);
    for (int64_t i = 0; i < t->size; i++)
        to[i] = (int32_t)t->hits[i].index;
    for (int64_t i = 0; i < values; i++)
        dv_put_f64(x->values->data, line * x->count + i, dv_dtype_key(x->values->dtype),
            i < t->size ? t->hits[i].score : -(double)INFINITY);
}

static void index_line(const struct indexer *x, int64_t line, void *scratch)
{
    double *const q = scratch, *const k = q + x->heads * x->d, *const w = k + x->d, *const scale = w + x->heads;
    const int64_t row = line / x->groups, group = line % x->groups;
    int64_t sequence;
    const int64_t n = tokens_visible(&x->queries, &x->keys, row, x->mode, &sequence);
    top t = { (top_hit *)(void *)(scale + x->heads + 1), 0, n < x->count ? n : x->count };
    load(q, x->query, line * x->heads * x->d, x->heads * x->d);
    load(w, x->weights, line * x->heads, x->heads);
    if (x->query_scale) {
        load(scale, x->query_scale, line * x->heads, x->heads);
        for (int64_t h = 0; h < x->heads; h++)
            w[h] *= scale[h];
    }
    for (int64_t s = 0; s < n; s++) {
        const int64_t at = tokens_row(&x->keys, sequence, s) * x->groups + group;
        double score = 0;
        load(k, x->key, at * x->d, x->d);
        for (int64_t h = 0; h < x->heads; h++)
            score += w[h] * relu(dot(q + h * x->d, k, x->d));
        if (x->key_scale) {
            load(scale, x->key_scale, at, 1);
            score *= scale[0];
        }
        top_add(&t, score, s);
    }
    top_sort(&t);
    write_line(x, line, &t);
}
static int index_lines(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct indexer *const x = arg;
    for (int64_t line = begin; line < end; line++)
        index_line(x, line, scratch);
    return DV_OK;
}

static int prepare(dv_context *ctx, struct indexer *x)
{
    const dv_tensor *const q = x->query;
    const int status = tokens_check(ctx, &x->queries);
    x->d = last_dim(q);
    x->groups = x->key->shape[x->key->ndim - 2];
    x->heads = q->shape[q->ndim - 2] / x->groups;
    x->lines = dv_numel_leading(q, q->ndim - 2) * x->groups;
    x->count = last_dim(x->indices);
    return status ? status : tokens_check(ctx, &x->keys);
}

/* Checks, and the room that index_line() takes. */
static int begin(dv_context *ctx, struct indexer *x)
{
    const int status = prepare(ctx, x);
    if (status || !x->lines)
        return status;
    const int64_t longest = tokens_longest(&x->keys);
    x->room = (size_t)((x->heads + 1) * x->d + 2 * x->heads + 2) * sizeof(double) +
        top_room(longest < x->count ? longest : x->count);
    return DV_OK;
}
static int run_indexer(dv_context *ctx, struct indexer *x)
{
    const int status = begin(ctx, x);
    return status || !x->lines ? status : dv_parallel_scratch(ctx, 0, x->lines, 1, x->room, index_lines, x);
}

/* ---- fast rows: the scores of some lines, in pieces of their keys; then the best of each line ---------------------------- */

/* Keys that are scored at once; keys of a unit of work, a multiple of that, of the lanes of all vectors and of SQUARE; what heads
 * are rounded up to: two of the widest vectors, or of squares; the words of a small product. */
enum { KEYS = 6, UNIT = 240, ALIGN = 32, SMALL = 16 };

/* The scores of n keys, n a multiple of KEYS up to UNIT. Lanes are heads: q is [heads / all, depth, all], of words of 32 bits,
 * where `all` are two vectors; w is [heads], and behind it are the sums' first values, where there are some; each key is [depth].
 * Where keys are multiplied in squares, n is a multiple of SQUARE, and as many keys are equally far from each other. */
typedef void (*scores_fn)(float *scores, float *q, float *w, int64_t heads, const float *const *keys, int64_t n, int64_t depth);

/* How an instruction set does it: a word is a float, a pair of bf16, or four int8.
 * small: as `scores`, where heads times depth is at most SMALL, and n is a multiple of the lanes; NULL: there is none.
 * largest: the bits of the largest magnitude; for NaN they are above those of infinity. */
typedef struct scorer {
    int64_t each, lanes, step, fill; /* elements of a word; n is a multiple of step; words of a row, of fill */
    scores_fn scores, small;
    load_fn load;
    int32_t (*largest)(const float *scores, int64_t n);
    top_reach_fn reach;
} scorer;

struct scoring {
    struct indexer x;
    const scorer *by;
    int64_t first, lines, longest, units, heads, depth, step, packed; /* units: of a line; heads: of whole vectors; step: n is a
                                                                         multiple of it; then sizes */
    float *scores, *queries;                                          /* scores: [lines, longest]; queries: [lines, packed] */
};

/* vpdpbusd multiplies bytes without a sign by those with one: bytes of a key are taken 128 larger, and sums begin at -128 times
 * those of q. */
#define TIMES_i8(A, U, W) __asm__("vpdpbusd %1, %2, %0" : "+v"(A) : "v"(U), "v"(W))
#define SUMS_f32 lanes
#define SUMS_bf16 lanes
#define SUMS_i8 words
#define FIRST_f32(P) (lanes){ 0 }
#define FIRST_bf16(P) FIRST_f32(P)
#define FIRST_i8(P) (words) AT(P)
enum { FLIP_f32 = 0, FLIP_bf16 = 0, FLIP_i8 = ~0x7f7f7f7f };
/* As integers, floats from -FLT_MAX to -0 are the least. What is -infinite stays: it may be a sum that floats cannot hold. */
enum { BITS_OF_MINUS_FLT_MAX = ~0x00800000 };
#define RELU_f32(V) (lanes)((words)V & ((words)V > BITS_OF_MINUS_FLT_MAX))
#define RELU_bf16(V) RELU_f32(V)
#define RELU_i8(V) __builtin_convertvector(V & ~(V < (words){ 0 }), lanes)

#define AT(P) (*(lanes *)(void *)(P))
#define NAME(T, K) const word *const k##K = (const void *)keys[s + K];
#define BEGIN(T, K) SUMS_##T a##K = FIRST_##T(first + h), b##K = FIRST_##T(first + h + n);
#define ADD(T, K)                    \
    {                                \
        words both = WORD(k##K + i); \
        IN_REGISTER(both);           \
        both ^= (int)FLIP_##T;       \
        TIMES_##T(a##K, u, both);    \
        TIMES_##T(b##K, v, both);    \
    }
/* One product at a time, without a condition: the compiler would fuse some of the products with their sums and not others, and
 * equal keys must have equal scores. */
#define END(T, K)                                                               \
    {                                                                           \
        const lanes more = AT(sums + (s + K) * n) + RELU_##T(a##K) * AT(w + h); \
        AT(sums + (s + K) * n) = more + RELU_##T(b##K) * AT(w + h + n);         \
    }
#define EACH(DO, T) DO(T, 0) DO(T, 1) DO(T, 2) DO(T, 3) DO(T, 4) DO(T, 5)
#define SCORES(ISA, TARGET, BYTES, T, EACH_WORD, SMALL_SCORES, LOAD, REACH)                                                      \
    TARGET static void scores_##ISA(                                                                                             \
        float *scores, float *q, float *w, int64_t heads, const float *const *keys, int64_t count, int64_t depth)                \
    {                                                                                                                            \
        typedef float lanes __attribute__((vector_size(BYTES), aligned(4), may_alias));                                          \
        WORD_TYPES(BYTES);                                                                                                       \
        const int64_t n = BYTES / (int64_t)sizeof(float), all = (count + n - 1) / n * n;                                         \
        _Alignas(64) float sums[UNIT * BYTES / (int64_t)sizeof(float)];                                                          \
        float *const first = w + heads;                                                                                          \
        (void)first;                                                                                                             \
        memset(sums, 0, (size_t)(all * n) * sizeof *sums);                                                                       \
        for (int64_t h = 0; h < heads; h += 2 * n, q += 2 * n * depth)                                                           \
            for (int64_t s = 0; s < count; s += KEYS) {                                                                          \
                EACH(NAME, T)                                                                                                    \
                EACH(BEGIN, T)                                                                                                   \
                for (int64_t c = 0; !h && c < KEYS && s + 2 * KEYS < count; c++) /* the keys after the next */                   \
                    for (int64_t i = 0; i < depth; i += 16)                                                                      \
                        __builtin_prefetch(keys[s + 2 * KEYS + c] + i);                                                          \
                for (int64_t i = 0; i < depth; i++) {                                                                            \
                    const lanes u = AT(q + i * 2 * n), v = AT(q + i * 2 * n + n);                                                \
                    EACH(ADD, T)                                                                                                 \
                }                                                                                                                \
                EACH(END, T)                                                                                                     \
            }                                                                                                                    \
        across_##LOAD(sums, all);                                                                                                \
        memcpy(scores, sums, (size_t)count * sizeof *scores);                                                                    \
    }                                                                                                                            \
    static const scorer scorer_##ISA = { EACH_WORD, BYTES / 4, KEYS, 1, scores_##ISA, SMALL_SCORES, load_##LOAD, largest_##LOAD, \
        REACH };

/* By AMX: squares of keys and of heads; then sums over heads, whose lanes are heads. Products are added up while the next ones
 * are multiplied. */
#define SQUARES(ISA, T, EACH_WORD)                                                                                             \
    struct products_##ISA { /* of `some` keys from s on, with 2 * SQUARE heads from h on */                                    \
        _Alignas(64) float of[2 * SQUARE][2][SQUARE];                                                                          \
        int64_t s, some, h;                                                                                                    \
    };                                                                                                                         \
    DV_TARGET_AVX512 static inline void add_##ISA(float *sums, const struct products_##ISA *p, const float *w)                 \
    {                                                                                                                          \
        typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));                                           \
        typedef int32_t words __attribute__((vector_size(64), aligned(4), may_alias));                                         \
        (void)sizeof(words);                                                                                                   \
        const lanes u = *(const lanes *)(const void *)(w + p->h), v = *(const lanes *)(const void *)(w + p->h + SQUARE);       \
        for (int64_t i = 0; i < p->some; i++) {                                                                                \
            float *const to = sums + (p->s + i) * SQUARE;                                                                      \
            const lanes more = AT(to) + RELU_##T(*(const SUMS_##T *)(const void *)p->of[i][0]) * u;                            \
            AT(to) = more + RELU_##T(*(const SUMS_##T *)(const void *)p->of[i][1]) * v;                                        \
        }                                                                                                                      \
    }                                                                                                                          \
    DV_TARGET_AVX512 static void scores_##ISA(                                                                                 \
        float *scores, float *q, float *w, int64_t heads, const float *const *keys, int64_t count, int64_t depth)              \
    {                                                                                                                          \
        enum { ROW = 2 * SQUARE * 4 };                                                                                         \
        _Alignas(64) float sums[UNIT * SQUARE];                                                                                \
        struct products_##ISA products[2];                                                                                     \
        int turn = 0;                                                                                                          \
        products[1].s = products[1].some = products[1].h = 0;                                                                  \
        memset(sums, 0, (size_t)(count * SQUARE) * sizeof *sums);                                                              \
        squares_begin();                                                                                                       \
        for (int64_t s = 0, some; s < count; s += some) {                                                                      \
            const char *const key = (const char *)keys[s];                                                                     \
            const int64_t row = (const char *)keys[s + 1] - key;                                                               \
            const bool two = s + SQUARE < count && (const char *)keys[s + SQUARE + 1] - (const char *)keys[s + SQUARE] == row; \
            const int64_t next = two ? (const char *)keys[s + SQUARE] - key : 0;                                               \
            some = two ? 2 * SQUARE : SQUARE;                                                                                  \
            for (int64_t h = 0; h < heads; h += 2 * SQUARE, turn = !turn) {                                                    \
                struct products_##ISA *const p = &products[turn];                                                              \
                p->s = s, p->some = some, p->h = h;                                                                            \
                squares_zero();                                                                                                \
                multiply_##T(squares_of(key, row, next, LINE, two), squares_of(q + h * depth, ROW, LINE, SQUARE * ROW, true),  \
                    depth, (struct ahead){ 0 });                                                                               \
                add_##ISA(sums, &products[!turn], w);                                                                          \
                squares_store((struct square_sums){ (char *)p->of, ROW, SQUARE * ROW, LINE, two, true });                      \
            }                                                                                                                  \
        }                                                                                                                      \
        squares_end();                                                                                                         \
        add_##ISA(sums, &products[!turn], w);                                                                                  \
        across_avx512(sums, count);                                                                                            \
        memcpy(scores, sums, (size_t)count * sizeof *scores);                                                                  \
    }                                                                                                                          \
    static const scorer scorer_##ISA = { EACH_WORD, SQUARE, SQUARE, SQUARE, scores_##ISA, NULL, load_avx512, largest_avx512,   \
        top_reach_avx512 };

/* Where a key is small, what is done around its product costs more than the product: here lanes are keys. */
#define SMALL_OF(ISA, TARGET, BYTES)                                                                              \
    TARGET static void small_##ISA(                                                                               \
        float *scores, float *q, float *w, int64_t heads, const float *const *keys, int64_t count, int64_t depth) \
    {                                                                                                             \
        typedef float lanes __attribute__((vector_size(BYTES), aligned(4), may_alias));                           \
        typedef int32_t words __attribute__((vector_size(BYTES)));                                                \
        const int64_t n = BYTES / (int64_t)sizeof(float);                                                         \
        for (int64_t s = 0; s < count; s += n) {                                                                  \
            lanes sums = { 0 };                                                                                   \
            for (int64_t h = 0; h < heads; h++) {                                                                 \
                lanes a = { 0 };                                                                                  \
                for (int64_t i = 0; i < depth; i++) {                                                             \
                    float k[BYTES / sizeof(float)];                                                               \
                    for (int64_t l = 0; l < n; l++)                                                               \
                        k[l] = keys[s + l][i];                                                                    \
                    a += AT(k) * q[i * 2 * n + h];                                                                \
                }                                                                                                 \
                sums += RELU_f32(a) * w[h];                                                                       \
            }                                                                                                     \
            AT(scores + s) = sums;                                                                                \
        }                                                                                                         \
    }
#define LARGEST(ISA, TARGET)                                            \
    TARGET static int32_t largest_##ISA(const float *scores, int64_t n) \
    {                                                                   \
        int32_t most = 0;                                               \
        for (int64_t s = 0; s < n; s++) {                               \
            int32_t bits;                                               \
            memcpy(&bits, &scores[s], sizeof bits);                     \
            bits &= INT32_MAX;                                          \
            most = bits > most ? bits : most;                           \
        }                                                               \
        return most;                                                    \
    }

/* A row of x as words, and zeros up to a whole one. */
static void load_words(const struct scoring *p, float *to, const dv_tensor *x, int64_t start)
{
    const int64_t size = x->dtype.bits / 8;
    if (p->by->each == 1) {
        p->by->load(to, x, start, p->x.d, 0);
    } else {
        memset(to, 0, (size_t)p->depth * sizeof *to);
        memcpy(to, (const char *)x->data + start * size, (size_t)(p->x.d * size));
    }
}
/* A line's query, transposed, and its weights: heads that are not there weigh nothing. */
static void load_query(const struct scoring *p, int64_t line, float *q, float *row)
{
    const struct indexer *const x = &p->x;
    const int64_t all = 2 * p->by->lanes;
    float *const w = q + p->heads * p->depth;
    memset(q, 0, (size_t)p->packed * sizeof *q);
    for (int64_t h = 0; h < x->heads; h++) {
        const int64_t at = line * x->heads + h;
        float *const to = q + h / all * all * p->depth + h % all;
        int32_t sum = 0;
        double scale = 1;
        if (x->query_scale)
            load(&scale, x->query_scale, at, 1);
        w[h] = (float)(dv_get_f64(x->weights->data, at, dv_dtype_key(x->weights->dtype)) * scale);
        load_words(p, row, x->query, at * x->d);
        for (int64_t i = 0; i < p->depth; i++)
            memcpy(&to[i * all], &row[i], sizeof *to);
        for (int64_t i = 0; i < x->d && p->by->each == 4; i++)
            sum -= 128 * ((const int8_t *)row)[i];
        memcpy(&w[p->heads + h], &sum, sizeof sum);
    }
}
static int load_queries(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct scoring *const p = arg;
    for (int64_t line = begin; line < end; line++)
        load_query(p, p->first + line, p->queries + line * p->packed, scratch);
    return DV_OK;
}

/* The rows of `count` keys of a sequence from key `from` on, in the tensor of keys. */
static void key_rows(const struct indexer *x, int64_t *rows, int64_t sequence, int64_t from, int64_t count, int64_t group)
{
    for (int64_t s = 0; s < count;) {
        int64_t row = tokens_row(&x->keys, sequence, from + s) * x->groups + group, end = count; /* of a page */
        if (!x->keys.prefix && x->keys.size - (from + s) % x->keys.size < count - s)
            end = s + x->keys.size - (from + s) % x->keys.size;
        for (; s < end; s++, row += x->groups)
            rows[s] = row;
    }
}

/* SQUARE keys that are not equally far from each other are copied. */
static void space_keys(const struct scoring *p, const float **keys, float *room)
{
    const int64_t wide = line_room(p->x.d), row = (const char *)keys[1] - (const char *)keys[0];
    int64_t s = 2;
    while (s < SQUARE && (const char *)keys[s] - (const char *)keys[s - 1] == row)
        s++;
    for (int64_t i = 0; s < SQUARE && i < SQUARE; i++) {
        if (keys[i] != room + i * wide)
            memcpy(room + i * wide, keys[i], (size_t)p->depth * sizeof *room);
        keys[i] = room + i * wide;
    }
}

static int score_units(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct scoring *const p = arg;
    const struct indexer *const x = &p->x;
    const dv_tensor *const key = x->key, *const scale = x->key_scale;
    const int64_t wide = line_room(x->d), bytes = x->d * (key->dtype.bits / 8);
    const int64_t full = p->by->each * p->by->fill;
    const bool in_place = key->dtype.bits * p->by->each == 32 && x->d % full == 0; /* words are where the key lies */
    float *const room = scratch;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t line = unit / p->units, from = unit % p->units * UNIT;
        float *const q = p->queries + line * p->packed, *const scores = p->scores + line * p->longest + from;
        int64_t sequence, rows[UNIT];
        const int64_t n = tokens_visible(&x->queries, &x->keys, (p->first + line) / x->groups, x->mode, &sequence);
        const int64_t count = n - from < UNIT ? n - from : UNIT;
        const float *keys[UNIT];
        float sums[UNIT];
        if (count <= 0)
            continue;
        key_rows(x, rows, sequence, from, count, (p->first + line) % x->groups);
        for (int64_t s = 0; s < count; s++) {
            keys[s] = in_place ? (const float *)(const void *)((const char *)key->data + rows[s] * bytes) : room + s * wide;
            if (!in_place)
                load_words(p, room + s * wide, key, rows[s] * x->d);
        }
        const int64_t padded = (count + p->step - 1) / p->step * p->step;
        for (int64_t s = count; s < padded; s++) /* behind the last key: the last key again */
            keys[s] = keys[count - 1];
        for (int64_t s = 0; p->by->fill > 1 && s < padded; s += SQUARE)
            space_keys(p, keys + s, room + s * wide);
        if (p->step == p->by->step)
            p->by->scores(sums, q, q + p->heads * p->depth, p->heads, keys, padded, p->depth);
        else
            p->by->small(sums, q, q + p->heads * p->depth, x->heads, keys, padded, p->depth);
        memcpy(scores, sums, (size_t)count * sizeof *scores);
        for (int64_t s = 0; scale && s < count; s++)
            scores[s] *= (float)dv_get_f64(scale->data, rows[s], dv_dtype_key(scale->dtype));
    }
    return DV_OK;
}

/* Where no score of a line is larger, products of query and key are so small that float loses digits of them. */
static float least_score(const struct indexer *x, int64_t line)
{
    const int64_t size = x->heads * x->d;
    int64_t zeros = 0;
    double weight = 0;
    if (x->query->dtype.bits == 8) /* products of integers */
        return 0;
    while (zeros < size && !(fabs(dv_get_f64(x->query->data, line * size + zeros, dv_dtype_key(x->query->dtype))) > 0))
        zeros++;
    if (zeros == size)
        return 0;
    for (int64_t h = 0; h < x->heads; h++)
        weight = fmax(weight, fabs(dv_get_f64(x->weights->data, line * x->heads + h, dv_dtype_key(x->weights->dtype))));
    return (float)(weight * 0x1p-80);
}

static int choose_lines(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct scoring *const p = arg;
    const struct indexer *const x = &p->x;
    for (int64_t line = begin; line < end; line++) {
        int64_t sequence;
        const int64_t n = tokens_visible(&x->queries, &x->keys, (p->first + line) / x->groups, x->mode, &sequence);
        const float *const scores = p->scores + line * p->longest;
        top t = { scratch, 0, n < x->count ? n : x->count };
        const int32_t bits = p->by->largest(scores, n);
        float most;
        memcpy(&most, &bits, sizeof most);
        if (isfinite(most) && most >= least_score(x, p->first + line)) {
            top_choose(&t, scores, n, p->by->reach);
            write_line(x, p->first + line, &t);
        } else {
            index_line(x, p->first + line, scratch);
        }
    }
    return DV_OK;
}

static int run_fast(dv_context *ctx, struct indexer x, const scorer *by)
{
    int status = begin(ctx, &x);
    if (status || !x.lines)
        return status;
    struct scoring p = { .x = x,
        .by = by,
        .longest = tokens_longest(&x.keys),
        .heads = ((x.heads ? x.heads : 1) + ALIGN - 1) / ALIGN * ALIGN,
        .depth = (x.d + by->each * by->fill - 1) / (by->each * by->fill) * by->fill };
    p.step = by->small && x.heads * x.d <= SMALL ? by->lanes : by->step;
    p.packed = p.heads * (p.depth + 2);
    const size_t row = (size_t)line_room(x.d) * sizeof(float),
                 unit = row * (size_t)(p.longest < UNIT ? p.longest + SQUARE : UNIT);
    p.units = (p.longest + UNIT - 1) / UNIT;
    p.lines = 4194304 / (p.longest + p.packed) + 1; /* at once: 16 MB of scores and queries */
    p.lines = x.lines < p.lines ? x.lines : p.lines;
    p.scores = dv_alloc(ctx, (size_t)(p.lines * p.longest + 1) * sizeof *p.scores, 64);
    p.queries = dv_alloc(ctx, (size_t)(p.lines * p.packed) * sizeof *p.queries, 64);
    if (!p.scores || !p.queries)
        return DV_ENOMEM;
    for (const int64_t most = p.lines; !status && p.first < x.lines; p.first += most) {
        p.lines = x.lines - p.first < most ? x.lines - p.first : most;
        status = dv_parallel_scratch(ctx, 0, p.lines, 1, row, load_queries, &p);
        if (!status)
            status = dv_parallel_scratch(ctx, 0, p.lines * p.units, 1, unit, score_units, &p);
        if (!status)
            status = dv_parallel_scratch(ctx, 0, p.lines, 1, x.room, choose_lines, &p);
    }
    return status;
}
#define ISA_OF(ISA, TARGET, BYTES, REACH) \
    LOAD_LINE(ISA, TARGET)                \
    ACROSS_OF(ISA, TARGET, BYTES)         \
    LARGEST(ISA, TARGET)                  \
    SMALL_OF(ISA, TARGET, BYTES)          \
    SCORES(ISA, TARGET, BYTES, f32, 1, small_##ISA, ISA, REACH)
#ifdef DV_TARGET_AVX2
ISA_OF(avx512, DV_TARGET_AVX512, 64, top_reach_avx512)
SCORES(avx512bf16, DV_TARGET_AVX512, 64, bf16, 2, NULL, avx512, top_reach_avx512)
SCORES(avx512vnni, DV_TARGET_AVX512, 64, i8, 4, NULL, avx512, top_reach_avx512)
SQUARES(amx, bf16, 2)
SQUARES(amx_i8, i8, 4)
ISA_OF(avx2, DV_TARGET_AVX2, 32, top_reach)
#endif
ISA_OF(base, , 16, top_reach)

/* ---- the gradient -------------------------------------------------------------------------------------------------------- */

struct backward {
    const dv_tensor *grad_values, *sparse_indices, *query, *key, *weights, *actual_seq_lengths_query, *actual_seq_lengths_key,
        *block_table;
    dv_string layout_query, layout_key;
    dv_tensor *grad_query, *grad_key, *grad_weights;
};

/* Position `s` of an indices tensor must be a key of the sequence. */
static int check_index(dv_context *ctx, const struct indexer *x, int64_t sequence, int64_t s)
{
    const int64_t n = sequence < x->queries.sequences ? tokens_length(&x->keys, sequence) : 0;
    return s < n ? DV_OK
                 : dv_error(ctx, DV_EINVAL, "argument 'sparse_indices': expected a position below %lld, found %lld", (long long)n,
                       (long long)s);
}

/* z = q_h . k: d/dw_h = relu(z), and with c = grad * w_h where z > 0: d/dq_h = c k, d/dk = c q_h. */
static int lightning_indexer_backward_any(dv_context *ctx, const struct backward *a)
{
    struct indexer x = { .query = a->query,
        .key = a->key,
        .weights = a->weights,
        .queries = tokens_of(a->query, a->layout_query, "actual_seq_lengths_query", a->actual_seq_lengths_query, NULL),
        .keys = tokens_of(a->key, a->layout_key, "actual_seq_lengths_key", a->actual_seq_lengths_key, a->block_table),
        .indices = (dv_tensor *)(uintptr_t)a->sparse_indices };
    const int status = prepare(ctx, &x);
    const int64_t size = x.heads * x.d, keys = dv_numel(a->key), values = last_dim(a->grad_values);
    double *const grad_k = status ? NULL : dv_alloc(ctx, (size_t)(keys + 2 * size + x.d + 2 * x.heads + 1) * sizeof(double), 64);
    if (!grad_k)
        return status ? status : DV_ENOMEM;
    double *const grad_q = grad_k + keys, *const q = grad_q + size, *const k = q + size, *const w = k + x.d,
                  *grad_w = w + x.heads;
    memset(grad_k, 0, (size_t)keys * sizeof(double));
    for (int64_t line = 0; line < x.lines; line++) {
        int64_t sequence;
        tokens_visible(&x.queries, &x.keys, line / x.groups, 0, &sequence);
        memset(grad_q, 0, (size_t)size * sizeof(double));
        memset(grad_w, 0, (size_t)x.heads * sizeof(double));
        load(q, x.query, line * size, size);
        load(w, x.weights, line * x.heads, x.heads);
        for (int64_t j = 0; j < values; j++) {
            const int64_t s = ((const int32_t *)a->sparse_indices->data)[line * x.count + j];
            if (s < 0)
                continue;
            const int bad = check_index(ctx, &x, sequence, s);
            if (bad)
                return bad;
            const int64_t at = (tokens_row(&x.keys, sequence, s) * x.groups + line % x.groups) * x.d;
            const double grad = dv_get_f64(a->grad_values->data, line * values + j, dv_dtype_key(a->grad_values->dtype));
            load(k, x.key, at, x.d);
            for (int64_t h = 0; h < x.heads; h++) {
                const double z = dot(q + h * x.d, k, x.d), c = z > 0 ? grad * w[h] : 0;
                grad_w[h] += grad * relu(z);
                add_times(grad_q + h * x.d, c, k, x.d);
                add_times(grad_k + at, c, q + h * x.d, x.d);
            }
        }
        store(a->grad_query, line * size, grad_q, size);
        store(a->grad_weights, line * x.heads, grad_w, x.heads);
    }
    store(a->grad_key, 0, grad_k, keys);
    return DV_OK;
}

/* ---- declarations -------------------------------------------------------------------------------------------------------- */

/* The texts that all forms share. COUNT: names of results with their last dim; VALUES of the values, if there are some. */
#define TENSORS "Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, "
#define LAYOUTS(KEY) "str layout_query=\"BSND\", str layout_key=\"" KEY "\""
#define BOTH_TOKENS ", int pre_tokens=9223372036854775807, int next_tokens=9223372036854775807"
#define LENGTHS(WHICH, MOST) "actual_seq_lengths_" WHICH "[b]:i32, 0 <= actual_seq_lengths_" WHICH ".values <= " MOST
#define PRESENT(WHICH, MOST) "actual_seq_lengths_" WHICH "[b]:i32 present, 0 <= actual_seq_lengths_" WHICH ".values <= " MOST
#define PAGED "block_table[b m]:i32 present, block_table.values < blocks"
#define SIZES "n2 > 0; n1 % n2 == 0; layout_key == \"PA_BSND\" or layout_key == layout_query; keys <= 2147483647"
#define KEY(EXTRA_BSND, EXTRA_TND, EXTRA_PAGED)                                                            \
    "when layout_key == \"BSND\": key[b s2 n2 d]:T, " EXTRA_BSND LENGTHS(                                  \
        "key", "s2") ", keys = s2 "                                                                        \
                     "/ \"TND\": key[u n2 d]:T, " EXTRA_TND PRESENT(                                       \
                         "key", "u") ", keys = u "                                                         \
                                     "/ \"PA_BSND\": key[blocks block_size n2 d]:T, " EXTRA_PAGED PRESENT( \
                                         "key", "m*block_size") ", " PAGED ", keys = m*block_size; "
#define QUERY(BSND, TND)                                                                     \
    "when layout_query == \"BSND\": query[b s n1 d]:T, weights[b s n1]:W, " LENGTHS("query", \
        "s") ", lines = b*s" BSND "/ \"TND\": query[t n1 d]:T, weights[t n1]:W, " PRESENT("query", "t") ", lines = t" TND "; "
#define VALUES "if(return_value, sparse_count, 0)]:T"
#define FLOATS "T in f32 f16 bf16 f64; W == T or W == f32; "
#define LIMITS "sparse_count > 0; sparse_mode in 0 3; flops = lines*n1*(2*d + 2)*keys"
#define ALL_TOKENS "; pre_tokens == 9223372036854775807; next_tokens == 9223372036854775807"
#define DOC                                                                                                                     \
    "For each query the indices of the sparse_count keys with the largest scores, best first; ties go to the lower index, "     \
    "missing ones are -1 (value -inf), NaN ranks first. A score is the sum over heads of weights * relu(query . key). Indices " \
    "are positions in the sequence, not slots. Lengths are per sequence for BSND and PA_BSND, and inclusive prefix sums for "   \
    "TND. There is no scale inside: weights carry it."

#define INDEXER(a)                                                                                                         \
    .query = (a)->query, .key = (a)->key, .weights = (a)->weights,                                                         \
    .queries = tokens_of((a)->query, (a)->layout_query, "actual_seq_lengths_query", (a)->actual_seq_lengths_query, NULL),  \
    .keys = tokens_of((a)->key, (a)->layout_key, "actual_seq_lengths_key", (a)->actual_seq_lengths_key, (a)->block_table), \
    .mode = (a)->sparse_mode, .indices = (a)->sparse_indices
#define ROWS(FRAME, FN) DV_KERNELS(DV_KERNEL(FRAME, "cpu", NULL, FN, .flags = DV_KERNEL_REFERENCE))
#ifdef DV_TARGET_AVX2
#define EACH_ISA(DO) DO(amx) DO(avx512bf16) DO(avx512) DO(avx2) DO(base)
#define I8_ROW(FRAME, FAST, ISA, NAME) DV_KERNEL(FRAME, "cpu", "i8", FAST##_##ISA, .isa = NAME, .when = "d <= 32768"),
#define I8_ROWS(FRAME, FAST) I8_ROW(FRAME, FAST, amx_i8, "amx-int8") I8_ROW(FRAME, FAST, avx512vnni, "avx512vnni")
#else
#define EACH_ISA(DO) DO(base)
#define I8_ROWS(FRAME, FAST)
#endif
#define FAST_ROWS(FRAME, FAST, FN)                                                                              \
    DV_KERNELS(DV_AMX_ROW(FRAME, FAST) DV_BF16_KERNEL(FRAME, FAST) DV_ISA_KERNELS(FRAME, FAST, "f32 bf16 f16"), \
        DV_KERNEL(FRAME, "cpu", NULL, FN, .flags = DV_KERNEL_REFERENCE))

struct lightning_indexer {
    const dv_tensor *query, *key, *weights, *actual_seq_lengths_query, *actual_seq_lengths_key, *block_table;
    dv_string layout_query, layout_key;
    int64_t sparse_count, sparse_mode, pre_tokens, next_tokens;
    bool return_value;
    dv_tensor *sparse_indices, *sparse_values;
};
static int lightning_indexer_reference(dv_context *ctx, const struct lightning_indexer *a)
{
    return run_indexer(ctx, &(struct indexer){ INDEXER(a), .values = a->sparse_values });
}
#define ROW(ISA)                                                                                         \
    static int lightning_indexer_row_##ISA(dv_context *ctx, const struct lightning_indexer *a)           \
    {                                                                                                    \
        return run_fast(ctx, (struct indexer){ INDEXER(a), .values = a->sparse_values }, &scorer_##ISA); \
    }
EACH_ISA(ROW)

#define DECLARE(NAME)                                                                                                  \
    DV_OPERATOR(NAME, struct lightning_indexer,                                                                        \
        (query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table, layout_query, layout_key, \
            sparse_count, sparse_mode, pre_tokens, next_tokens, return_value, sparse_indices, sparse_values),          \
        .schema = #NAME "(Tensor query, Tensor key, Tensor weights, *, " TENSORS LAYOUTS(                              \
            "BSND") ", int sparse_count=2048, int sparse_mode=3" BOTH_TOKENS                                           \
                    ", bool return_value=False) -> (Tensor sparse_indices, Tensor sparse_values)",                     \
        .contract = QUERY(" -> sparse_indices[b s n2 sparse_count]:i32, sparse_values[b s n2 " VALUES,                 \
            " -> sparse_indices[t n2 sparse_count]:i32, sparse_values[t n2 " VALUES) KEY("", "", "") FLOATS SIZES      \
        "; " LIMITS ALL_TOKENS,                                                                                        \
        .gradient = "query, key, weights: lightning_indexer_backward(grads[1], sparse_indices, query, key, weights, "  \
                    "actual_seq_lengths_query, actual_seq_lengths_key, block_table, layout_query, layout_key)",        \
        .doc = DOC, .kernels = FAST_ROWS(struct lightning_indexer, lightning_indexer_row, lightning_indexer_reference))
DECLARE(lightning_indexer);
DECLARE(npu_lightning_indexer);

struct lightning_indexer_pto {
    const dv_tensor *query, *key, *weights, *actual_seq_lengths_query, *actual_seq_lengths_key, *block_table;
    dv_string layout_query, layout_key;
    int64_t sparse_count, sparse_mode;
    dv_tensor *sparse_indices;
};
static int npu_lightning_indexer_pto_reference(dv_context *ctx, const struct lightning_indexer_pto *a)
{
    return run_indexer(ctx, &(struct indexer){ INDEXER(a) });
}
#define PTO_ROW(ISA)                                                                                       \
    static int npu_lightning_indexer_pto_row_##ISA(dv_context *ctx, const struct lightning_indexer_pto *a) \
    {                                                                                                      \
        return run_fast(ctx, (struct indexer){ INDEXER(a) }, &scorer_##ISA);                               \
    }
EACH_ISA(PTO_ROW)
DV_OPERATOR(npu_lightning_indexer_pto, struct lightning_indexer_pto,
    (query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table, layout_query, layout_key, sparse_count,
        sparse_mode, sparse_indices),
    .schema = "npu_lightning_indexer_pto(Tensor query, Tensor key, Tensor weights, *, " TENSORS LAYOUTS(
        "PA_BSND") ", int sparse_count=2048, int sparse_mode=3) -> Tensor sparse_indices",
    .contract = QUERY(" -> sparse_indices[b s n2 sparse_count]:i32", " -> sparse_indices[t n2 sparse_count]:i32") KEY("", "", "")
        FLOATS SIZES "; " LIMITS,
    .doc = "lightning_indexer without values, with the defaults of the pypto operator of this name.",
    .kernels = FAST_ROWS(struct lightning_indexer_pto, npu_lightning_indexer_pto_row, npu_lightning_indexer_pto_reference));

struct lightning_indexer_quant {
    const dv_tensor *query, *key, *weights, *query_dequant_scale, *key_dequant_scale, *actual_seq_lengths_query,
        *actual_seq_lengths_key, *block_table;
    int64_t query_quant_mode, key_quant_mode;
    dv_string layout_query, layout_key;
    int64_t sparse_count, sparse_mode;
    dv_tensor *sparse_indices;
};
#define QUANTISED_INDEXER(a) INDEXER(a), .query_scale = (a)->query_dequant_scale, .key_scale = (a)->key_dequant_scale
static int npu_lightning_indexer_quant_reference(dv_context *ctx, const struct lightning_indexer_quant *a)
{
    return run_indexer(ctx, &(struct indexer){ QUANTISED_INDEXER(a) });
}
#ifdef DV_TARGET_AVX2
#define I8_FAST(ISA)                                                                                           \
    static int npu_lightning_indexer_quant_row_##ISA(dv_context *ctx, const struct lightning_indexer_quant *a) \
    {                                                                                                          \
        return run_fast(ctx, (struct indexer){ QUANTISED_INDEXER(a) }, &scorer_##ISA);                         \
    }
I8_FAST(avx512vnni)
I8_FAST(amx_i8)
#endif
DV_OPERATOR(npu_lightning_indexer_quant, struct lightning_indexer_quant,
    (query, key, weights, query_dequant_scale, key_dequant_scale, actual_seq_lengths_query, actual_seq_lengths_key, block_table,
        query_quant_mode, key_quant_mode, layout_query, layout_key, sparse_count, sparse_mode, sparse_indices),
    .schema = "npu_lightning_indexer_quant(Tensor query, Tensor key, Tensor weights, Tensor query_dequant_scale, Tensor "
              "key_dequant_scale, *, " TENSORS "int query_quant_mode=0, int key_quant_mode=0, " LAYOUTS(
                  "BSND") ", int sparse_count=2048, int sparse_mode=3) -> Tensor sparse_indices",
    .contract = QUERY(", query_dequant_scale[b s n1]:S -> sparse_indices[b s n2 sparse_count]:i32",
        ", query_dequant_scale[t n1]:S -> sparse_indices[t n2 sparse_count]:i32")
        KEY("key_dequant_scale[b s2 n2]:S, ", "key_dequant_scale[u n2]:S, ",
            "key_dequant_scale[blocks block_size n2]:S, ") "T in i8 f8_e4m3fn; W in f16 f32 bf16; S in f16 f32; query_quant_mode "
                                                           "== 0; key_quant_mode == 0; " SIZES "; " LIMITS,
    .doc = "lightning_indexer of int8 or fp8 queries and keys, with a scale for each row of them (quant mode 0): the score is "
           "key_scale * sum over heads of weights * query_scale * relu(query . key).",
    .kernels = DV_KERNELS(I8_ROWS(struct lightning_indexer_quant, npu_lightning_indexer_quant_row) DV_KERNEL(
        struct lightning_indexer_quant, "cpu", NULL, npu_lightning_indexer_quant_reference, .flags = DV_KERNEL_REFERENCE)));

DV_OPERATOR(lightning_indexer_backward, struct backward,
    (grad_values, sparse_indices, query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table,
        layout_query, layout_key, grad_query, grad_key, grad_weights),
    .schema = "lightning_indexer_backward(Tensor grad_values, Tensor sparse_indices, Tensor query, Tensor key, Tensor weights, "
              "Tensor? actual_seq_lengths_query, Tensor? actual_seq_lengths_key, Tensor? block_table, str layout_query, str "
              "layout_key) -> (Tensor grad_query, Tensor grad_key, Tensor grad_weights)",
    .contract = QUERY(
        ", grad_values[b s n2 v]:T, sparse_indices[b s n2 c]:i32 -> grad_query like(query), grad_weights like(weights)",
        ", grad_values[t n2 v]:T, sparse_indices[t n2 c]:i32 -> grad_query like(query), grad_weights like(weights)")
        KEY("", "", "") "-> grad_key like(key); v == 0 or v == c; sparse_indices.values < keys; " FLOATS SIZES,
    .doc = "The gradients of lightning_indexer's sparse_values with respect to query, key and weights; the indices are constant.",
    .kernels = ROWS(struct backward, lightning_indexer_backward_any));

DV_LIBRARY_FRAGMENT(dovetail, lightning_indexer, &dv_op_lightning_indexer, &dv_op_npu_lightning_indexer,
    &dv_op_npu_lightning_indexer_pto, &dv_op_npu_lightning_indexer_quant, &dv_op_lightning_indexer_backward);
