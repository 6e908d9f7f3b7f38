/* sparse_flash_attention.c: attention of each query over the keys that an indexer chose, and its gradient.
 *
 * out = softmax(scale_value * (query . key + query_rope . key_rope)) value, over the selected tokens. The softmax is made in one
 * pass: when a larger score comes, what was added up so far is scaled down. All in double, rounded once. */
#include "../tokens.h"
#include <math.h>

struct attention {
    const dv_tensor *query, *key, *value, *sparse_indices;
    double scale_value;
    const dv_tensor *block_table, *actual_seq_lengths_query, *actual_seq_lengths_kv, *query_rope, *key_rope;
    int64_t sparse_block_size;
    dv_string layout_query, layout_kv;
    int64_t sparse_mode;
    const dv_tensor *grad, *grad_max, *grad_sum; /* of the gradient */
    tokens queries, keys;
    int64_t heads, groups, d, r, e, lines, pieces; /* heads: of a group; a line is a query and a group; d, r, e: last dims */
    dv_tensor *out, *max, *sum;
    double *scratch;
    int64_t room; /* of a piece in scratch */
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
static int64_t line_room(const struct attention *x) { return x->heads * (x->d + x->r + x->e + 2) + x->d + x->r + x->e; }
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
            const double p = exp(z - l->max[h]);
            l->sum[h] += p;
            add_times(out, p, l->v, x->e);
        }
    }
}

/* Where softmax_max and softmax_sum have the heads of a line: [b n2 s heads] or [n2 t heads]. */
static int64_t lse_at(const struct attention *x, int64_t line)
{
    const int64_t row = line / x->groups, size = x->queries.size, b = x->queries.prefix ? 0 : row / size;
    return ((b * x->groups + line % x->groups) * size + (row - b * size)) * x->heads;
}

static int attend_lines(void *arg, int64_t begin, int64_t end)
{
    const struct attention *const x = arg;
    const struct line l = line_at(x, x->scratch + begin * x->room);
    for (int64_t line = share(x->lines, x->pieces, begin), stop = share(x->lines, x->pieces, end); line < stop; line++) {
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
    x->pieces = x->lines < 32 ? x->lines : 32;
    x->room = line_room(x) + 8;
    x->scratch = dv_alloc(ctx, (size_t)(x->room * x->pieces) * sizeof(double), 64);
    return x->scratch ? dv_parallel_for(ctx, 0, x->pieces, 1, attend_lines, x) : DV_ENOMEM;
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
    const int64_t sums = keys + values + ropes, room = line_room(&x);
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
                                                                                                     "; attention_mode == 2; "   \
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
        .kernels = DV_KERNELS(DV_KERNEL(                                                                                         \
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
