/* sparse_flash_attention.c: attention of each query over the keys that an indexer chose, and its gradient.
 *
 * out = softmax(scale_value * (query . key + query_rope . key_rope)) value, over the selected tokens. The softmax is made in one
 * pass: when a larger score comes, what was added up so far is scaled down. All in double, rounded once. The fast rows compute in
 * f32, and leave a call in which something is not finite to the reference. */
#include "../squares.h"
#include "../tokens.h"
#include <stdatomic.h>

struct attention {
    const dv_tensor *query, *key, *value, *sparse_indices;
    double scale_value;
    const dv_tensor *block_table, *actual_seq_lengths_query, *actual_seq_lengths_kv, *query_rope, *key_rope;
    int64_t sparse_block_size;
    dv_string layout_query, layout_kv;
    int64_t sparse_mode;
    const dv_tensor *grad, *grad_max, *grad_sum; /* of the gradient */
    tokens queries, keys;
    int64_t heads, groups, d, r, e, lines; /* heads: of a group; a line is a query and a group; d, r, e: last dims */
    dv_tensor *out, *max, *sum;
};

/* ---- the tokens of a line ------------------------------------------------------------------------------------------------ */

struct walk {
    const struct attention *x;
    int64_t line, sequence, visible, blocks, slot, s, end;
};

/* The first -1 ends the list. Of its first `blocks` entries, blocks that begin past the visible tokens are skipped, and one that
 * crosses their end is cut. */
static struct walk begin_walk(const struct attention *x, int64_t line)
{
    struct walk w = { .x = x, .line = line };
    w.visible = tokens_visible(&x->queries, &x->keys, line / x->groups, x->sparse_mode, &w.sequence);
    w.blocks = w.visible ? (w.visible - 1) / x->sparse_block_size + 1 : 0;
    return w;
}
/* The next token's row in the keys, counted in groups; -1: there are no more. */
static int64_t next(struct walk *w)
{
    const int64_t k = last_dim(w->x->sparse_indices), slots = w->blocks < k ? w->blocks : k;
    while (w->s == w->end) {
        const int64_t block = w->slot < slots ? get_int(w->x->sparse_indices, w->line * k + w->slot++) : -1;
        if (block < 0)
            return -1;
        if (block >= w->blocks)
            continue;
        w->s = block * w->x->sparse_block_size;
        w->end = w->visible - w->s < w->x->sparse_block_size ? w->visible : w->s + w->x->sparse_block_size;
    }
    return tokens_row(&w->x->keys, w->sequence, w->s++) * w->x->groups + w->line % w->x->groups;
}

/* ---- forward ------------------------------------------------------------------------------------------------------------- */

/* What is kept of one line, in doubles. */
struct line { double *q, *q_rope, *out, *max, *sum, *k, *k_rope, *v; };
static int64_t room_of(const struct attention *x) { return x->heads * (x->d + x->r + x->e + 2) + x->d + x->r + x->e; }
static struct line line_at(const struct attention *x, double *at)
{
    struct line l = { .q = at };
    l.q_rope = l.q + x->heads * x->d;
    l.out = l.q_rope + x->heads * x->r;
    l.max = l.out + x->heads * x->e;
    l.sum = l.max + x->heads;
    l.k = l.sum + x->heads;
    l.k_rope = l.k + x->d;
    l.v = l.k_rope + x->r;
    return l;
}
static void load_token(const struct attention *x, const struct line *l, int64_t row)
{
    load(l->k, x->key, row * x->d, x->d);
    load(l->v, x->value, row * x->e, x->e);
    if (x->key_rope)
        load(l->k_rope, x->key_rope, row * x->r, x->r);
}
static double score(const struct attention *x, const struct line *l, int64_t h)
{
    return x->scale_value * (dot(l->q + h * x->d, l->k, x->d) + dot(l->q_rope + h * x->r, l->k_rope, x->r));
}

/* Fills l: out is not yet divided by sum. */
static void attend(const struct attention *x, const struct line *l, int64_t line)
{
    struct walk w = begin_walk(x, line);
    load(l->q, x->query, line * x->heads * x->d, x->heads * x->d);
    if (x->query_rope)
        load(l->q_rope, x->query_rope, line * x->heads * x->r, x->heads * x->r);
    memset(l->out, 0, (size_t)(x->heads * (x->e + 2)) * sizeof(double));
    bool first = true;
    for (int64_t row; (row = next(&w)) >= 0; first = false) {
        load_token(x, l, row);
        for (int64_t h = 0; h < x->heads; h++) {
            const double z = score(x, l, h), before = l->max[h];
            double *const out = l->out + h * x->e;
            if (first || z > before || isnan(z)) {
                const double factor = first ? 0 : exp(before - z);
                l->max[h] = z;
                l->sum[h] *= factor;
                for (int64_t i = 0; i < x->e; i++)
                    out[i] *= factor;
            }
            const double p = z == -HUGE_VAL ? 0 : exp(z - l->max[h]);
            l->sum[h] += p;
            add_times(out, p, l->v, x->e);
        }
    }
    for (int64_t h = 0; h < x->heads && !first; h++)
        if (l->max[h] == -HUGE_VAL) /* as a softmax of nothing but -inf is */
            l->sum[h] = NAN;
}

/* Where softmax_max and softmax_sum have the heads of a line: [b n2 s heads] or [n2 t heads]. */
static int64_t lse_at(const struct attention *x, int64_t line)
{
    const int64_t row = line / x->groups, size = x->queries.size, b = x->queries.prefix ? 0 : row / size;
    return ((b * x->groups + line % x->groups) * size + (row - b * size)) * x->heads;
}

static int attend_lines(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct attention *const x = arg;
    const struct line l = line_at(x, scratch);
    for (int64_t line = begin; line < end; line++) {
        attend(x, &l, line);
        for (int64_t i = 0; i < x->heads * x->e; i++)
            l.out[i] /= l.sum[i / x->e] == 0 ? 1 : l.sum[i / x->e];
        store(x->out, line * x->heads * x->e, l.out, x->heads * x->e);
        if (dv_numel(x->max)) {
            store(x->max, lse_at(x, line), l.max, x->heads);
            store(x->sum, lse_at(x, line), l.sum, x->heads);
        }
    }
    return DV_OK;
}

static int prepare(dv_context *ctx, struct attention *x)
{
    x->queries = tokens_of(x->query, x->layout_query, "actual_seq_lengths_query", x->actual_seq_lengths_query, NULL);
    x->keys = tokens_of(x->key, x->layout_kv, "actual_seq_lengths_kv", x->actual_seq_lengths_kv, x->block_table);
    x->d = last_dim(x->key);
    x->e = last_dim(x->value);
    x->r = x->query_rope ? last_dim(x->query_rope) : 0;
    x->groups = x->key->shape[x->key->ndim - 2];
    x->heads = x->query->shape[x->query->ndim - 2] / x->groups;
    x->lines = dv_numel_leading(x->query, x->query->ndim - 2) * x->groups;
    const int status = tokens_check(ctx, &x->queries);
    return status ? status : tokens_check(ctx, &x->keys);
}

static int run(dv_context *ctx, struct attention *x)
{
    const int status = prepare(ctx, x);
    if (status || !x->lines)
        return status;
    return dv_parallel_scratch(ctx, 0, x->lines, 1, (size_t)room_of(x) * sizeof(double), attend_lines, x);
}

/* ---- fast rows ----------------------------------------------------------------------------------------------------------- */

/* Heads of a unit of work, at most; what they are rounded up to; what lies between rows of values: a power of two apart, they
 * would fall into few places of a cache. */
enum { HEADS = 128, SOME_HEADS = 32, SOME_ELEMENTS = 64, ALIGN = 16, PADDING = 16 };

/* Tokens of a part: their scores, and then their values, while they lie in a cache. Least tokens of a strip; pieces of the loop
 * for which lines are cut into strips. */
enum { PART = 256, STRIP = 2 * PART, PIECES = 8 };

/* Elements of a word: 1 or 2; tokens that are scored at once; tokens whose values are added at once; a number that divides both:
 * the last tokens of a part are filled up to a multiple of it; whether keys are asked for ahead. */
struct sizes {
    int64_t each, at_once, block, fill;
    bool ahead;
};
/* heads: of a unit; units: of a line; most: tokens that a line may select; wide, e: d + r and e in whole blocks. The tokens of
 * few lines are in strips of `length`, for more threads: these share queries[line, unit], and leave sums[line, unit, strip], of
 * `room` floats, to be added up. */
struct fast {
    struct attention *x;
    struct sizes of;
    int64_t heads, units, most, wide, e, strips, length, room;
    float *queries, *sums;
    atomic_bool infinite;
};
/* q [heads / SOME_HEADS, wide, SOME_HEADS], scores [PART, heads], out [heads, e + PADDING], tokens [at_once, wide], values
 * [block, e + PADDING], max, sum and factor [heads]. Where words are pairs of bf16, wide, tokens and block are half as many: a
 * pair of values, and of their exp(score - max), is of two tokens. */
struct unit {
    float *q, *scores, *out, *tokens, *values, *max, *sum, *factor;
    int64_t *rows, heads;
    float scale;
};

/* What is made for each instruction set. */
struct fns {
    /* Of `some` of the heads, at most SOME_HEADS, before they are scaled; of `some` of the e elements, with `count` words of p
     * and of values. */
    void (*scores)(float *scores, const float *q, int64_t heads, int64_t some, const float *keys, int64_t wide);
    void (*values)(float *out, const float *p, int64_t heads, const float *values, int64_t e, int64_t some, int64_t count);
    void (*exponentials)(const struct unit *u, int64_t count);
    load_fn load;
    store_fn store;
};

/* Pieces of the loops: over units, over units and strips, over heads. */
struct pieces {
    dv_scratch_fn queries, units;
    dv_range_fn heads;
};

/* By vectors. */
enum { AT_ONCE = 8, BLOCK = 64 };
#define AT(P) (*(lanes *)(void *)(P))
#define EACH(DO, T) DO(T, 0) DO(T, 1) DO(T, 2) DO(T, 3) DO(T, 4) DO(T, 5) DO(T, 6) DO(T, 7)
#define FOUR(DO, T) DO(T, 0) DO(T, 1) DO(T, 2) DO(T, 3)
/* One vector of heads, or two, which share what is loaded of a key. */
#define BEGIN(T, K) lanes a##K = { 0 };
#define ADD(T, K)                                    \
    {                                                \
        const words one = WORD(keys + K * wide + i); \
        TIMES_##T(a##K, u, one);                     \
    }
#define END(T, K) AT(scores + K * heads + h) = a##K;
#define BEGIN_BOTH(T, K) lanes a##K = { 0 }, b##K = { 0 };
#define ADD_BOTH(T, K) ADD_TO_BOTH(T, K, keys + K * wide + i)
#define END_BOTH(T, K) AT(scores + K * heads + h) = a##K, AT(scores + K * heads + h + n) = b##K;
#define ADD_TO_BOTH(T, K, NUMBER)  \
    {                              \
        words both = WORD(NUMBER); \
        IN_REGISTER(both);         \
        TIMES_##T(a##K, u, both);  \
        TIMES_##T(b##K, v, both);  \
    }
#define LOAD_OUT(T, H) lanes a##H = AT(out + (h + H) * step + i), b##H = AT(out + (h + H) * step + i + n);
#define ADD_OUT(T, H) ADD_TO_BOTH(T, H, p + t * heads + h + H)
#define STORE_OUT(T, H) AT(out + (h + H) * step + i) = a##H, AT(out + (h + H) * step + i + n) = b##H;
#define SCORES(ISA, TARGET, BYTES, T)                                                                                            \
    /* AT_ONCE rows of scores: lanes are heads; q is [wide, SOME_HEADS], keys are [AT_ONCE, wide]. */                            \
    TARGET static void scores_##ISA(float *scores, const float *q, int64_t heads, int64_t some, const float *keys, int64_t wide) \
    {                                                                                                                            \
        typedef float lanes __attribute__((vector_size(BYTES), aligned(4), may_alias));                                          \
        WORD_TYPES(BYTES);                                                                                                       \
        const int64_t n = BYTES / (int64_t)sizeof(float);                                                                        \
        int64_t h = 0;                                                                                                           \
        for (; BYTES == 64 && h + 2 * n <= some; h += 2 * n) { /* with 32 registers */                                           \
            EACH(BEGIN_BOTH, T)                                                                                                  \
            for (int64_t i = 0; i < wide; i++) {                                                                                 \
                const lanes u = *(const lanes *)(const void *)(q + i * SOME_HEADS + h);                                          \
                const lanes v = *(const lanes *)(const void *)(q + i * SOME_HEADS + h + n);                                      \
                EACH(ADD_BOTH, T)                                                                                                \
            }                                                                                                                    \
            EACH(END_BOTH, T)                                                                                                    \
        }                                                                                                                        \
        for (; h < some; h += n) {                                                                                               \
            EACH(BEGIN, T)                                                                                                       \
            for (int64_t i = 0; i < wide; i++) {                                                                                 \
                const lanes u = *(const lanes *)(const void *)(q + i * SOME_HEADS + h);                                          \
                EACH(ADD, T)                                                                                                     \
            }                                                                                                                    \
            EACH(END, T)                                                                                                         \
        }                                                                                                                        \
    }
#define VALUES(ISA, TARGET, BYTES, EACH_HEAD, HEADS_AT_ONCE, T)                                                   \
    /* out += p' . values: lanes are elements; p is [tokens, heads], values [tokens, step], out [heads, step]. */ \
    TARGET static void values_##ISA(                                                                              \
        float *out, const float *p, int64_t heads, const float *values, int64_t e, int64_t some, int64_t count)   \
    {                                                                                                             \
        typedef float lanes __attribute__((vector_size(BYTES), aligned(4), may_alias));                           \
        WORD_TYPES(BYTES);                                                                                        \
        const int64_t n = BYTES / (int64_t)sizeof(float), step = e + PADDING;                                     \
        for (int64_t i = 0; i < some; i += 2 * n)                                                                 \
            for (int64_t h = 0; h < heads; h += HEADS_AT_ONCE) {                                                  \
                EACH_HEAD(LOAD_OUT, T)                                                                            \
                for (int64_t t = 0; t < count; t++) {                                                             \
                    const lanes u = *(const lanes *)(const void *)(values + t * step + i);                        \
                    const lanes v = *(const lanes *)(const void *)(values + t * step + i + n);                    \
                    EACH_HEAD(ADD_OUT, T)                                                                         \
                }                                                                                                 \
                EACH_HEAD(STORE_OUT, T)                                                                           \
            }                                                                                                     \
    }
#define FNS(ISA, OF) \
    (struct fns) { scores_##ISA, values_##ISA, exponentials_##ISA, load_##OF, store_##OF }
#define FAST(ISA, TARGET, OF, UNITS, ...)                                                                      \
    TARGET static int pack_queries_##ISA(void *arg, int64_t begin, int64_t end, void *scratch)                 \
    {                                                                                                          \
        return pack_queries(arg, begin, end, scratch, FNS(ISA, OF));                                           \
    }                                                                                                          \
    TARGET static int attend_units_##ISA(void *arg, int64_t begin, int64_t end, void *scratch)                 \
    {                                                                                                          \
        return UNITS(arg, begin, end, scratch, FNS(ISA, OF));                                                  \
    }                                                                                                          \
    TARGET static int finish_heads_##ISA(void *arg, int64_t begin, int64_t end)                                \
    {                                                                                                          \
        return finish_heads(arg, begin, end, FNS(ISA, OF));                                                    \
    }                                                                                                          \
    static int sparse_flash_attention_row_##ISA(dv_context *ctx, const struct sparse_flash_attention *a)       \
    {                                                                                                          \
        return run_fast(ctx, a, (struct pieces){ pack_queries_##ISA, attend_units_##ISA, finish_heads_##ISA }, \
            (struct sizes){ __VA_ARGS__ });                                                                    \
    }
/* EACH_HEAD: of HEADS_AT_ONCE heads, with two vectors of values. */
#define FAST_ISA(ISA, TARGET, BYTES, EACH_HEAD, HEADS_AT_ONCE)                 \
    LOAD_LINE(ISA, TARGET)                                                     \
    STORE_LINE(ISA, TARGET)                                                    \
    TARGET static void exponentials_##ISA(const struct unit *u, int64_t count) \
    {                                                                          \
        exponentials(&dv_isa_##ISA, u, count, 4, false);                       \
    }                                                                          \
    SCORES(ISA, TARGET, BYTES, f32)                                            \
    VALUES(ISA, TARGET, BYTES, EACH_HEAD, HEADS_AT_ONCE, f32)                  \
    FAST(ISA, TARGET, ISA, attend_units_anywhere, 1, AT_ONCE, BLOCK, 4, true)

static struct unit unit_at(const struct fast *f, void *at)
{
    struct unit u = { .q = at };
    u.scores = u.q + f->wide * f->heads;
    u.out = u.scores + PART * f->heads;
    u.tokens = u.out + f->heads * (f->e + PADDING);
    u.values = u.tokens + f->of.at_once * f->wide;
    u.max = u.values + f->of.block / f->of.each * (f->e + PADDING);
    u.sum = u.max + f->heads;
    u.factor = u.sum + f->heads;
    u.rows = (int64_t *)(void *)(u.factor + f->heads);
    return u;
}
static int64_t unit_room(const struct fast *f)
{
    return (f->heads * (f->wide + PART + f->e + PADDING + 3) + f->of.at_once * f->wide +
               f->of.block / f->of.each * (f->e + PADDING)) *
        (int64_t)sizeof(float) +
        f->most * (int64_t)sizeof(int64_t) + 64;
}

/* Row `row` of a tensor of d and, behind line_room(d), one of r elements, as words. */
static void load_both(
    const struct fast *f, const struct fns *fns, float *to, const dv_tensor *main, const dv_tensor *rope, int64_t row)
{
    const struct attention *const x = f->x;
    if (f->of.each == 1) {
        fns->load(to, main, row * x->d, x->d, 0);
        if (rope)
            fns->load(to + line_room(x->d), rope, row * x->r, x->r, 0);
        return;
    }
    if (x->d % DV_BLOCK || x->r % DV_BLOCK)
        memset(to, 0, (size_t)f->wide * 2);
    memcpy(to, (const uint16_t *)main->data + row * x->d, (size_t)x->d * 2);
    if (rope)
        memcpy(to + line_room(x->d) / 2, (const uint16_t *)rope->data + row * x->r, (size_t)x->r * 2);
}

/* The queries of a unit's heads, transposed, in `to`: heads that are not there are 0, and so is what lies behind d and r. */
static void load_queries(const struct fast *f, const struct fns *fns, float *to, float *row, int64_t line, int64_t unit)
{
    const int64_t wide = f->wide / f->of.each, from = unit * f->heads, rest = f->x->heads - from;
    memset(to, 0, (size_t)(wide * f->heads) * sizeof(float));
    for (int64_t h = 0; h < f->heads && h < rest; h++) {
        float *const at = to + h / SOME_HEADS * SOME_HEADS * wide + h % SOME_HEADS;
        load_both(f, fns, row, f->x->query, f->x->query_rope, line * f->x->heads + from + h);
        for (int64_t i = 0; i < wide; i++)
            memcpy(&at[i * SOME_HEADS], &row[i], sizeof(float));
    }
}
static int pack_queries(void *arg, int64_t begin, int64_t end, void *scratch, struct fns fns)
{
    const struct fast *const f = arg;
    for (int64_t at = begin; at < end; at++)
        load_queries(f, &fns, f->queries + at * f->wide * f->heads, scratch, at / f->units, at % f->units);
    return DV_OK;
}

typedef uint32_t bf16_pair __attribute__((may_alias));

/* Scores of a part become exp(score - max), and 0 up to a multiple of `fill` tokens; pairs: of two tokens each, in bf16. factor:
 * what scales sums and values of the parts before, whose max was less. */
DV_INLINE void exponentials(const dv_isa_functions *isa, const struct unit *u, int64_t count, int64_t fill, bool pairs)
{
    enum { TOKENS = DV_BLOCK / ALIGN };
    for (int64_t h = 0; h < u->heads; h += ALIGN) {
        float most[ALIGN], zero[ALIGN] = { 0 }, factor[DV_BLOCK] = { 0 };
        memcpy(most, u->max + h, sizeof most);
        for (int64_t t = 0; t < count; t++) {
            float *const z = u->scores + t * u->heads + h;
            DV__VECTOR_LOOP(i, ALIGN)
            z[i] *= u->scale, most[i] = z[i] > most[i] ? z[i] : most[i], zero[i] += z[i] * 0;
        }
        DV__VECTOR_LOOP(i, ALIGN)
        factor[i] = u->max[h + i] - most[i];
        dv_block_exp(isa, factor, factor, 0);
        DV__VECTOR_LOOP(i, ALIGN) /* zero: NaN if a score is infinite; it may be one that floats cannot hold */
        u->sum[h + i] = u->sum[h + i] * factor[i] + zero[i];
        memcpy(u->max + h, most, sizeof most);
        memcpy(u->factor + h, factor, sizeof most);
    }
    for (; count % fill; count++)
        for (int64_t h = 0; h < u->heads; h++)
            u->scores[count * u->heads + h] = -(float)INFINITY;
    for (int64_t t = 0; t < count; t += TOKENS)
        for (int64_t h = 0; h < u->heads; h += ALIGN) {
            float p[DV_BLOCK], *const sum = u->sum + h, *const at = u->scores + t * u->heads + h;
            bf16_pair bits[DV_BLOCK];
            for (int c = 0; c < TOKENS; c++) {
                DV__VECTOR_LOOP(i, ALIGN)
                p[c * ALIGN + i] = at[c * u->heads + i] - u->max[h + i];
            }
            dv_block_exp(isa, p, p, 0);
            for (int c = 0; c < TOKENS; c++) {
                DV__VECTOR_LOOP(i, ALIGN)
                sum[i] += p[c * ALIGN + i];
                if (!pairs)
                    memcpy(at + c * u->heads, p + c * ALIGN, ALIGN * sizeof *p);
            }
            if (!pairs)
                continue;
            memcpy(bits, p, sizeof bits);
            for (int c = 0; c < TOKENS; c += 2) {
                bf16_pair *const to = (bf16_pair *)u->scores + (t + c) / 2 * u->heads + h;
                DV__VECTOR_LOOP(i, ALIGN) /* to the nearest, to even: no p is NaN that is used */
                to[i] = (bits[c * ALIGN + i] + 0x7fff + (bits[c * ALIGN + i] >> 16 & 1)) >> 16 |
                    ((bits[(c + 1) * ALIGN + i] + 0x7fff + (bits[(c + 1) * ALIGN + i] >> 16 & 1)) & 0xffff0000);
            }
        }
}

/* Elements of two tokens of bf16, as pairs; no second one: 0. */
DV_INLINE void load_pair(float *to, const uint16_t *one, const uint16_t *other, int64_t n)
{
    bf16_pair *const words = (bf16_pair *)to;
    for (int64_t i = 0; i < n && other; i++)
        words[i] = one[i] | (uint32_t)other[i] << 16;
    for (int64_t i = 0; i < n && !other; i++)
        words[i] = one[i];
    for (int64_t i = n; i < line_room(n); i++)
        words[i] = 0;
}

/* Rows begin to end of a tensor are wanted soon, as far as there are so many: they lie anywhere in memory. */
static void want_rows(const dv_tensor *t, const int64_t *rows, int64_t begin, int64_t end, int64_t count, int64_t n)
{
    const int64_t size = n * (t->dtype.bits / 8);
    for (int64_t c = begin; c < end && c < count; c++)
        for (int64_t i = 0; i < size; i += LINE)
            __builtin_prefetch((const char *)t->data + rows[c] * size + i);
}

/* The scores of tokens begin to end, some at a time. The next ones are asked for meanwhile, few at a time. */
DV_INLINE void score_tokens(
    const struct fast *f, const struct unit *u, const struct fns *fns, int64_t begin, int64_t end, int64_t count)
{
    const struct attention *const x = f->x;
    const int64_t wide = f->wide / f->of.each, at_once = f->of.at_once;
    for (int64_t t = begin; t < end; t += at_once) {
        for (int64_t c = 0; c < at_once; c++) /* behind the last token: the last again */
            load_both(f, fns, u->tokens + c * wide, x->key, x->key_rope, u->rows[t + c < count ? t + c : count - 1]);
        for (int64_t h = 0, some, soon = t + at_once; h < u->heads; h += some) {
            some = u->heads - h < SOME_HEADS ? u->heads - h : SOME_HEADS;
            const int64_t first = soon + h * at_once / u->heads,
                          last = f->of.ahead ? soon + (h + some) * at_once / u->heads : first;
            want_rows(x->key, u->rows, first, last, count, x->d);
            if (x->key_rope)
                want_rows(x->key_rope, u->rows, first, last, count, x->r);
            fns->scores(u->scores + (t - begin) * u->heads + h, u->q + h * wide, u->heads, some, u->tokens, wide);
        }
    }
}
/* out = out * factor + the values of tokens begin to end times exp(score - max). */
DV_INLINE void add_values(
    const struct fast *f, const struct unit *u, const struct fns *fns, int64_t begin, int64_t end, int64_t count)
{
    const struct attention *const x = f->x;
    const int64_t each = f->of.each, fill = f->of.fill, step = f->e + PADDING;
    for (int64_t h = 0; h < u->heads; h++)
        for (int64_t i = 0; i < f->e && u->factor[h] != 1; i += ALIGN) {
            DV__VECTOR_LOOP(k, ALIGN)
            u->out[h * step + i + k] *= u->factor[h];
        }
    for (int64_t t = begin; t < end; t += f->of.block) {
        const int64_t all = end - t < f->of.block ? end - t : f->of.block, filled = (all + fill - 1) / fill * fill;
        const int64_t rows = (all + each - 1) / each;
        for (int64_t c = 0; c < all; c += each) {
            float *const to = u->values + c / each * step;
            if (each == 2) {
                const uint16_t *const v = x->value->data;
                load_pair(to, v + u->rows[t + c] * x->e, c + 1 < all ? v + u->rows[t + c + 1] * x->e : NULL, x->e);
            } else {
                fns->load(to, x->value, u->rows[t + c] * x->e, x->e, 0);
            }
        }
        memset(u->values + rows * step, 0, (size_t)((filled / each - rows) * step) * sizeof(float));
        for (int64_t i = 0, some, soon = t + f->of.block; i < f->e; i += some) {
            some = f->e - i < SOME_ELEMENTS ? f->e - i : SOME_ELEMENTS;
            if (x->value->data != x->key->data) /* which are there */
                want_rows(x->value, u->rows, soon + i * f->of.block / f->e, soon + (i + some) * f->of.block / f->e, count, x->e);
            fns->values(
                u->out + i, u->scores + (t - begin) / each * u->heads, u->heads, u->values + i, f->e, some, filled / each);
        }
    }
}

/* A head's result, and what is asked for of its softmax. any: is there a token? Returns 0, or NaN where something is infinite or
 * NaN. */
DV_INLINE float finish_head(
    const struct fast *f, const struct fns *fns, int64_t line, int64_t head, float *out, float max, float sum, bool any)
{
    const struct attention *const x = f->x;
    const float scale = any ? 1 / sum : 0;
    float zeros[ALIGN] = { (max + sum) * 0 };
    for (int64_t i = 0; i < f->e; i += ALIGN) {
        DV__VECTOR_LOOP(k, ALIGN)
        out[i + k] *= scale, zeros[k] += out[i + k] * 0;
    }
    fns->store(x->out, (line * x->heads + head) * x->e, out, x->e);
    if (dv_numel(x->max)) {
        dv_put_f64(x->max->data, lse_at(x, line) + head, dv_dtype_key(x->max->dtype), any ? (double)max : 0);
        dv_put_f64(x->sum->data, lse_at(x, line) + head, dv_dtype_key(x->sum->dtype), any ? (double)sum : 0);
    }
    return any ? across(zeros, ALIGN) : 0;
}

DV_INLINE int attend_units(void *arg, int64_t begin, int64_t end, void *scratch, struct fns fns)
{
    struct fast *const f = arg;
    const struct attention *const x = f->x;
    struct unit u = unit_at(f, scratch);
    for (int64_t at = begin; at < end; at++) {
        const int64_t both = at / f->strips, line = both / f->units, unit = both % f->units, from = unit * f->heads,
                      heads = x->heads - from < f->heads ? x->heads - from : f->heads, first = at % f->strips * f->length;
        struct walk w = begin_walk(x, line);
        int64_t count = 0;
        float zero = 0;
        for (int64_t row; count < first + f->length && (row = next(&w)) >= 0;)
            u.rows[count++] = row;
        u.heads = (heads + ALIGN - 1) / ALIGN * ALIGN;
        if (f->strips > 1) {
            u.q = f->queries + both * f->wide * f->heads;
            u.out = f->sums + at * f->room;
            u.max = u.out + f->heads * (f->e + PADDING);
            u.sum = u.max + f->heads;
        } else {
            load_queries(f, &fns, u.q, u.tokens, line, unit);
        }
        memset(u.out, 0, (size_t)(u.heads * (f->e + PADDING)) * sizeof *u.out);
        u.scale = (float)x->scale_value;
        for (int64_t h = 0; h < u.heads; h++)
            u.max[h] = -(float)INFINITY, u.sum[h] = 0;
        for (int64_t t = first; t < count; t += PART) {
            const int64_t to = count - t < PART ? count : t + PART;
            score_tokens(f, &u, &fns, t, to, count);
            fns.exponentials(&u, to - t);
            add_values(f, &u, &fns, t, to, count);
        }
        for (int64_t h = 0; h < heads && f->strips == 1; h++)
            zero += finish_head(f, &fns, line, from + h, u.out + h * (f->e + PADDING), u.max[h], u.sum[h], count);
        if (zero != 0 || isnan(zero))
            atomic_store(&f->infinite, true);
    }
    return DV_OK;
}
/* Heads of all lines, whose strips are added up. One without tokens has no largest score, and 0 as its sum. */
DV_INLINE int finish_heads(void *arg, int64_t begin, int64_t end, struct fns fns)
{
    struct fast *const f = arg;
    for (int64_t at = begin; at < end; at++) {
        const int64_t line = at / f->x->heads, head = at % f->x->heads, h = head % f->heads;
        float *const first = f->sums + (line * f->units + head / f->heads) * f->strips * f->room,
                     *const maxes = first + f->heads * (f->e + PADDING) + h;
        float *const out = first + h * (f->e + PADDING), max = maxes[0], sum = 0;
        bool any = false;
        for (int64_t s = 0; s < f->strips; s++) {
            max = maxes[s * f->room] > max ? maxes[s * f->room] : max;
            any |= maxes[s * f->room + f->heads] != 0;
        }
        for (int64_t s = 0; s < f->strips && any; s++) {
            const float factor = dv_expf(maxes[s * f->room] - max);
            sum += maxes[s * f->room + f->heads] * factor;
            for (int64_t i = 0; i < f->e; i += ALIGN) {
                const float *const more = out + s * f->room + i;
                DV__VECTOR_LOOP(k, ALIGN)
                out[i + k] = more[k] * factor + (s ? out[i + k] : 0);
            }
        }
        const float zero = finish_head(f, &fns, line, head, out, max, sum, any);
        if (zero != 0 || isnan(zero))
            atomic_store(&f->infinite, true);
    }
    return DV_OK;
}

static int attend_units_anywhere(void *arg, int64_t begin, int64_t end, void *scratch, struct fns fns)
{
    return attend_units(arg, begin, end, scratch, fns);
}

/* ---- the gradient -------------------------------------------------------------------------------------------------------- */

/* Sums over all lines. */
struct sums { double *key, *value, *key_rope; };

/* With p = e / sum, e = exp(z - max): d/dz = p (grad . v - grad . out) + grad_sum e, and at the largest z also grad_max -
 * grad_sum sum. */
static void back_line(const struct attention *x, const struct line *l, const struct line *g, const struct sums *s, int64_t line)
{
    struct walk w = begin_walk(x, line);
    const int64_t at = lse_at(x, line);
    const bool lse = dv_numel(x->grad_max) > 0;
    attend(x, l, line);
    load(g->out, x->grad, line * x->heads * x->e, x->heads * x->e);
    memset(g->q, 0, (size_t)(x->heads * (x->d + x->r)) * sizeof(double));
    memset(g->max, 0, (size_t)(2 * x->heads) * sizeof(double));
    if (lse) {
        load(g->max, x->grad_max, at, x->heads);
        load(g->sum, x->grad_sum, at, x->heads);
        for (int64_t h = 0; h < x->heads; h++)
            g->max[h] -= g->sum[h] * l->sum[h]; /* used up at the first of the largest z */
    }
    for (int64_t row; (row = next(&w)) >= 0;) {
        load_token(x, l, row);
        for (int64_t h = 0; h < x->heads; h++) {
            const double *const grad = g->out + h * x->e;
            const double z = score(x, l, h), e = exp(z - l->max[h]), p = e / l->sum[h];
            double dz = p * (dot(grad, l->v, x->e) - dot(grad, l->out + h * x->e, x->e) / l->sum[h]) + g->sum[h] * e;
            if (z == l->max[h]) {
                dz += g->max[h];
                g->max[h] = 0;
            }
            dz *= x->scale_value;
            add_times(g->q + h * x->d, dz, l->k, x->d);
            add_times(g->q_rope + h * x->r, dz, l->k_rope, x->r);
            add_times(s->key + row * x->d, dz, l->q + h * x->d, x->d);
            add_times(s->key_rope + row * x->r, dz, l->q_rope + h * x->r, x->r);
            add_times(s->value + row * x->e, p, grad, x->e);
        }
    }
}

struct backward {
    const dv_tensor *grad, *grad_max, *grad_sum, *query, *key, *value, *sparse_indices;
    double scale_value;
    const dv_tensor *block_table, *actual_seq_lengths_query, *actual_seq_lengths_kv, *query_rope, *key_rope;
    int64_t sparse_block_size;
    dv_string layout_query, layout_kv;
    int64_t sparse_mode;
    dv_tensor *grad_query, *grad_key, *grad_value, *grad_query_rope, *grad_key_rope;
};

#define ATTENTION(a)                                                                                                             \
    .query = (a)->query, .key = (a)->key, .value = (a)->value, .sparse_indices = (a)->sparse_indices,                            \
    .scale_value = (a)->scale_value, .block_table = (a)->block_table, .actual_seq_lengths_query = (a)->actual_seq_lengths_query, \
    .actual_seq_lengths_kv = (a)->actual_seq_lengths_kv, .query_rope = (a)->query_rope, .key_rope = (a)->key_rope,               \
    .sparse_block_size = (a)->sparse_block_size, .layout_query = (a)->layout_query, .layout_kv = (a)->layout_kv,                 \
    .sparse_mode = (a)->sparse_mode

static int sparse_flash_attention_backward_any(dv_context *ctx, const struct backward *a)
{
    struct attention x = { ATTENTION(a), .grad = a->grad, .grad_max = a->grad_max, .grad_sum = a->grad_sum };
    const int status = prepare(ctx, &x);
    const int64_t keys = dv_numel(a->key), values = dv_numel(a->value), ropes = a->key_rope ? dv_numel(a->key_rope) : 0;
    const int64_t sums = keys + values + ropes, room = room_of(&x);
    double *const memory = status ? NULL : dv_alloc(ctx, (size_t)(sums + 2 * room + 1) * sizeof(double), 64);
    if (!memory)
        return status ? status : DV_ENOMEM;
    const struct sums s = { memory, memory + keys, memory + keys + values };
    const struct line l = line_at(&x, memory + sums), g = line_at(&x, memory + sums + room);
    memset(memory, 0, (size_t)sums * sizeof(double));
    for (int64_t line = 0; line < x.lines; line++) {
        back_line(&x, &l, &g, &s, line);
        store(a->grad_query, line * x.heads * x.d, g.q, x.heads * x.d);
        if (a->grad_query_rope)
            store(a->grad_query_rope, line * x.heads * x.r, g.q_rope, x.heads * x.r);
    }
    store(a->grad_key, 0, s.key, keys);
    store(a->grad_value, 0, s.value, values);
    if (a->grad_key_rope)
        store(a->grad_key_rope, 0, s.key_rope, ropes);
    return DV_OK;
}

/* ---- declarations -------------------------------------------------------------------------------------------------------- */

#define LENGTHS(WHICH, PRESENT, MOST) \
    "actual_seq_lengths_" WHICH "[b]:i32" PRESENT ", 0 <= actual_seq_lengths_" WHICH ".values <= " MOST
#define QUERY(BSND, TND)                                                                                                \
    "when layout_query == \"BSND\": query[b s n1 d]:T, sparse_indices[b s n2 k]:i32, query_rope[b s n1 r]:T, " LENGTHS( \
        "query", "", "s") ", lines = b*s" BSND                                                                          \
                          " / \"TND\": query[t n1 d]:T, sparse_indices[t n2 k]:i32, query_rope[t n1 r]:T, " LENGTHS(    \
                              "query", " present", "t") ", lines = t" TND "; "
#define KEY                                                                                                              \
    "when layout_kv == \"BSND\": key[b s2 n2 d]:T, value[b s2 n2 e]:T, key_rope[b s2 n2 r]:T, " LENGTHS("kv", "",        \
        "s2") ", keys = s2 "                                                                                             \
              "/ \"TND\": key[u n2 d]:T, value[u n2 e]:T, key_rope[u n2 r]:T, " LENGTHS("kv", " present",                \
                  "u") ", keys = u "                                                                                     \
                       "/ \"PA_BSND\": key[blocks block_size n2 d]:T, value[blocks block_size n2 e]:T, key_rope[blocks " \
                       "block_size n2 r]:T, " LENGTHS("kv", " present",                                                  \
                           "m*block_size") ", block_table[b m]:i32 present, block_table.values < blocks, keys = m*block_size; "
#define FACTS                                                                                                                 \
    "layout_kv == \"PA_BSND\" or layout_kv == layout_query; present(query_rope) == present(key_rope); n2 > 0; n1 % n2 == 0; " \
    "sparse_block_size > 0; sparse_mode in 0 3; keys <= 2147483647; T in f32 f16 bf16 f64"
#define LSE(SHAPE) " -> softmax_max[" SHAPE "]:if(T == f64, f64, f32), softmax_sum[" SHAPE "]:if(T == f64, f64, f32)"

struct sparse_flash_attention {
    const dv_tensor *query, *key, *value, *sparse_indices;
    double scale_value;
    const dv_tensor *block_table, *actual_seq_lengths_query, *actual_seq_lengths_kv, *query_rope, *key_rope;
    int64_t sparse_block_size;
    dv_string layout_query, layout_kv;
    int64_t sparse_mode, pre_tokens, next_tokens, attention_mode;
    bool return_softmax_lse;
    dv_tensor *attention_out, *softmax_max, *softmax_sum;
};
static int sparse_flash_attention_reference(dv_context *ctx, const struct sparse_flash_attention *a)
{
    return run(ctx, &(struct attention){ ATTENTION(a), .out = a->attention_out, .max = a->softmax_max, .sum = a->softmax_sum });
}

/* A line may select all tokens of its slots, twice if an index is there twice. */
static int run_fast(dv_context *ctx, const struct sparse_flash_attention *a, struct pieces pieces, struct sizes of)
{
    struct attention x = { ATTENTION(a), .out = a->attention_out, .max = a->softmax_max, .sum = a->softmax_sum };
    int status = prepare(ctx, &x);
    if (status || !x.lines || !x.heads)
        return status;
    struct fast f = { .x = &x, .of = of, .wide = line_room(x.d) + line_room(x.r), .e = line_room(x.e) };
    const int64_t longest = tokens_longest(&x.keys), size = x.sparse_block_size, k = last_dim(x.sparse_indices);
    const int64_t blocks = longest ? (longest - 1) / size + 1 : 0;
    f.most = (blocks < k ? blocks : k) * (size < longest ? size : longest);
    const bool many = x.lines * ((x.heads + HEADS - 1) / HEADS) >= PIECES || f.most > STRIP; /* units, or strips */
    const int64_t most_heads = many ? HEADS : HEADS / 2, filled = (x.heads + SOME_HEADS - 1) / SOME_HEADS * SOME_HEADS;
    f.heads = filled < most_heads ? filled : most_heads;
    f.units = (x.heads + f.heads - 1) / f.heads;
    const int64_t n = x.lines * f.units, wanted = (PIECES + n - 1) / n, fit = (f.most + STRIP - 1) / STRIP,
                  each = (fit + wanted - 1) / wanted;
    f.strips = each ? (fit + each - 1) / each : 1;
    f.length = f.strips > 1 ? each * STRIP : f.most;
    f.room = f.heads * (f.e + PADDING + 2);
    if (f.strips > 1) {
        f.queries = dv_alloc(ctx, (size_t)(n * f.wide * f.heads) * sizeof *f.queries, 64);
        f.sums = dv_alloc(ctx, (size_t)(n * f.strips * f.room) * sizeof *f.sums, 64);
        if (!f.queries || !f.sums)
            return DV_ENOMEM;
        status = dv_parallel_scratch(ctx, 0, n, 1, (size_t)f.wide * sizeof(float), pieces.queries, &f);
    }
    if (!status)
        status = dv_parallel_scratch(ctx, 0, n * f.strips, 1, (size_t)unit_room(&f), pieces.units, &f);
    if (!status && f.strips > 1)
        status = dv_parallel_for(ctx, 0, x.lines * x.heads, SOME_HEADS, pieces.heads, &f);
    return !status && atomic_load(&f.infinite) ? sparse_flash_attention_reference(ctx, a) : status;
}
#ifdef DV_TARGET_AVX2
FAST_ISA(avx512, DV_TARGET_AVX512, 64, EACH, 8)
FAST_ISA(avx2, DV_TARGET_AVX2, 32, FOUR, 4)

DV_TARGET_AVX512 static void exponentials_avx512bf16(const struct unit *u, int64_t count)
{
    exponentials(&dv_isa_avx512bf16, u, count, 4, true);
}
SCORES(avx512bf16, DV_TARGET_AVX512, 64, bf16)
VALUES(avx512bf16, DV_TARGET_AVX512, 64, EACH, 8, bf16)
FAST(avx512bf16, DV_TARGET_AVX512, avx512, attend_units, 2, AT_ONCE, BLOCK, 4, true) /* its loops pair values */

/* By AMX: squares of tokens and heads for the scores, of heads and elements for the values. */
enum { AT_ONCE_AMX = 2 * SQUARE };
DV_TARGET_AVX512 static void scores_amx(
    float *scores, const float *q, int64_t heads, int64_t some, const float *keys, int64_t wide)
{
    const int64_t row = heads * 4, q_row = SOME_HEADS * 4;
    const bool two = some > SQUARE;
    squares_zero();
    multiply_bf16(squares_of(keys, wide * 4, SQUARE * wide * 4, LINE, true), squares_of(q, q_row, LINE, SQUARE * q_row, two),
        wide, (struct ahead){ 0 });
    squares_store((struct square_sums){ (char *)scores, row, SQUARE * row, LINE, true, two });
}
/* p is turned: [heads / SQUARE, count / SQUARE] squares, whose rows are heads. */
DV_TARGET_AVX512 static void values_amx(
    float *out, const float *p, int64_t heads, const float *values, int64_t e, int64_t some, int64_t count)
{
    const int64_t step = (e + PADDING) * 4;
    p += PART / 2 * heads;
    for (int64_t h = 0; h < heads; h += 2 * SQUARE)
        for (int64_t i = 0; i < some; i += 2 * SQUARE) {
            const bool two = h + SQUARE < heads;
            const struct square_sums sums = { (char *)out + h * step + i * 4, step, SQUARE * step, LINE, two, true };
            squares_load(sums);
            multiply_bf16(squares_of(p + h * count, LINE, SQUARE * count * 4, SQUARE * LINE, two),
                squares_of(values + i, step, LINE, SQUARE * step, true), count, (struct ahead){ 0 });
            squares_store(sums);
        }
}
/* Pairs take half of the room of scores: they are turned into the other half. */
DV_TARGET_AVX512 static void exponentials_amx(const struct unit *u, int64_t count)
{
    const int64_t filled = (count + 2 * SQUARE - 1) / (2 * SQUARE) * SQUARE;
    exponentials(&dv_isa_avx512bf16, u, count, 2 * SQUARE, true);
    for (int64_t h = 0; h < u->heads; h += SQUARE)
        for (int64_t t = 0; t < filled; t += SQUARE)
            turn_square((char *)(u->scores + PART / 2 * u->heads + h * filled + t * SQUARE), LINE,
                (const char *)(u->scores + t * u->heads + h), u->heads * 4, SQUARE);
}
DV_TARGET_AVX512 static int attend_in_squares(void *arg, int64_t begin, int64_t end, void *scratch, struct fns fns)
{
    squares_begin();
    const int status = attend_units(arg, begin, end, scratch, fns);
    squares_end();
    return status;
}
FAST(amx, DV_TARGET_AVX512, avx512, attend_in_squares, 2, AT_ONCE_AMX, PART, 2 * SQUARE, false)
#endif
FAST_ISA(base, , 16, FOUR, 4)

#define DECLARE(NAME)                                                                                                            \
    DV_OPERATOR(NAME, struct sparse_flash_attention,                                                                             \
        (query, key, value, sparse_indices, scale_value, block_table, actual_seq_lengths_query, actual_seq_lengths_kv,           \
            query_rope, key_rope, sparse_block_size, layout_query, layout_kv, sparse_mode, pre_tokens, next_tokens,              \
            attention_mode, return_softmax_lse, attention_out, softmax_max, softmax_sum),                                        \
        .schema = #NAME                                                                                                          \
        "(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, float scale_value, *, Tensor? block_table=None, "       \
        "Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, Tensor? query_rope=None, Tensor? "           \
        "key_rope=None, int sparse_block_size=1, str layout_query=\"BSND\", str layout_kv=\"BSND\", int sparse_mode=3, "         \
        "int pre_tokens=9223372036854775807, int next_tokens=9223372036854775807, int attention_mode=2, bool "                   \
        "return_softmax_lse=False) -> (Tensor attention_out, Tensor softmax_max, Tensor softmax_sum)",                           \
        .contract = QUERY(" -> attention_out[b s n1 e]:T", " -> attention_out[t n1 e]:T") KEY                                    \
        "when not return_softmax_lse:" LSE("0") " / return_softmax_lse and layout_query == \"BSND\":" LSE(                       \
            "b n2 s n1//n2") " / return_softmax_lse and layout_query == \"TND\":" LSE("n2 t n1//n2") "; " FACTS                  \
                                                                                                     "; rounded = 0.25; "        \
                                                                                                     "attention_mode == 2; "     \
                                                                                                     "pre_tokens == "            \
                                                                                                     "9223372036854775807; "     \
                                                                                                     "next_tokens == "           \
                                                                                                     "9223372036854775807; "     \
                                                                                                     "flops = "                  \
                                                                                                     "lines*n1*min(k*sparse_"    \
                                                                                                     "block_size, keys)*2*(d + " \
                                                                                                     "e)",                       \
        .gradient = "query, key, value, query_rope, key_rope: sparse_flash_attention_backward(grads[0], grads[1], grads[2], "    \
                    "query, key, value, sparse_indices, scale_value, block_table, actual_seq_lengths_query, "                    \
                    "actual_seq_lengths_kv, query_rope, key_rope, sparse_block_size, layout_query, layout_kv, sparse_mode)",     \
        .doc = "Attention of each query over the tokens (or blocks of tokens) in sparse_indices, with rotary parts kept "        \
               "apart. Valid indices stand in front; the first -1 ends them. scale_value is the caller's. With "                 \
               "return_softmax_lse also the largest scaled score and the sum of exponentials of each row.",                      \
        .kernels = DV_KERNELS(DV_AMX_ROW(struct sparse_flash_attention, sparse_flash_attention_row)                              \
                                  DV_BF16_KERNEL(struct sparse_flash_attention, sparse_flash_attention_row)                      \
                                      DV_ISA_KERNELS(struct sparse_flash_attention, sparse_flash_attention_row, "f32 bf16 f16"), \
            DV_KERNEL(                                                                                                           \
                struct sparse_flash_attention, "cpu", NULL, sparse_flash_attention_reference, .flags = DV_KERNEL_REFERENCE)))
DECLARE(sparse_flash_attention);
DECLARE(npu_sparse_flash_attention);

DV_OPERATOR(sparse_flash_attention_backward, struct backward,
    (grad, grad_max, grad_sum, query, key, value, sparse_indices, scale_value, block_table, actual_seq_lengths_query,
        actual_seq_lengths_kv, query_rope, key_rope, sparse_block_size, layout_query, layout_kv, sparse_mode, grad_query,
        grad_key, grad_value, grad_query_rope, grad_key_rope),
    .schema = "sparse_flash_attention_backward(Tensor grad, Tensor grad_max, Tensor grad_sum, Tensor query, Tensor key, Tensor "
              "value, Tensor sparse_indices, float scale_value, Tensor? block_table, Tensor? actual_seq_lengths_query, Tensor? "
              "actual_seq_lengths_kv, Tensor? query_rope, Tensor? key_rope, int sparse_block_size, str layout_query, str "
              "layout_kv, int sparse_mode) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value, Tensor? grad_query_rope, "
              "Tensor? grad_key_rope)",
    .contract = QUERY(", grad[b s n1 e]:T", ", grad[t n1 e]:T") KEY
    "grad_max[*g]:L, grad_sum[*g]:L; L in f32 f64; numel(*g) == 0 or numel(*g) == lines*n1; -> grad_query like(query), "
    "grad_key like(key), grad_value like(value); when present(query_rope): -> grad_query_rope like(query_rope), "
    "grad_key_rope like(key_rope) / else: -> grad_query_rope absent, grad_key_rope absent; " FACTS,
    .doc = "The gradients of sparse_flash_attention; the indices are constant. grad_max and grad_sum are empty without "
           "return_softmax_lse.",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct backward, "cpu", NULL, sparse_flash_attention_backward_any, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, sparse_flash_attention, &dv_op_sparse_flash_attention, &dv_op_npu_sparse_flash_attention,
    &dv_op_sparse_flash_attention_backward);
