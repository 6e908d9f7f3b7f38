/* sparse_attention_pto.c: one layer of DeepSeek-V3.2's sparse attention over a paged cache, from hidden states to latent outputs.
 *
 * The four steps: the latent keys, the rotary keys and the indexer's keys of the new tokens go to their slots in the caches; the
 * queries are made; the indexer chooses keys; attention runs over them. All is computed in double. Rounded are only what goes
 * through a cache and the result. */
#include "../tokens.h"
#include "../topk.h"
#include <math.h>

struct layer {
    const dv_tensor *x, *w_dq, *w_uq_qr, *w_uk, *w_dkv_kr, *gamma_cq, *gamma_ckv, *sin, *cos, *cache_index;
    dv_tensor *kv_cache, *kr_cache;
    const dv_tensor *block_table, *act_seqs, *w_idx_qb, *w_idx_k, *w_idx_proj, *in_gamma_k, *in_beta_k;
    dv_tensor *index_k_cache;
    int64_t sparse_count;
    double eps;
    dv_opt_float scale_value;
    dv_tensor *out;
};

/* Sizes: of x, of the latent queries, heads, of a head's part without and with rotation, of the latent keys, the indexer's heads,
 * of the indexer's keys. `widest`: the columns of the widest weight. */
struct run {
    const struct layer *a;
    tokens queries, keys;
    int64_t lines, h, q, n, p, r, c, g, d, widest; /* a line is a token */
    double *new_keys;                              /* new_keys: [lines, c + r + d] */
};

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* to = x . w, for w [rows, columns]; `row` has room for one row. */
static void times(double *to, const double *x, const dv_tensor *w, int64_t rows, int64_t columns, double *row)
{
    memset(to, 0, (size_t)columns * sizeof(double));
    for (int64_t i = 0; i < rows; i++) {
        load(row, w, i * columns, columns);
        add_times(to, x[i], row, columns);
    }
}

static void rms(double *x, int64_t n, double eps, const dv_tensor *gamma, double *row)
{
    const double scale = 1 / sqrt(dot(x, x, n) / (double)n + eps);
    load(row, gamma, 0, n);
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale * row[i];
}

static void norm(const struct run *z, double *x, double *row)
{
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < z->d; i++)
        mean += x[i] / (double)z->d;
    for (int64_t i = 0; i < z->d; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    load(row, z->a->in_gamma_k, 0, z->d);
    for (int64_t i = 0; i < z->d; i++)
        x[i] = (x[i] - mean) / sqrt(squares / (double)z->d + 1e-6) * row[i];
    load(row, z->a->in_beta_k, 0, z->d);
    for (int64_t i = 0; i < z->d; i++)
        x[i] += row[i];
}

/* Pairs stand side by side before, and half of r apart after. */
static void rotate(const struct run *z, int64_t line, double *x, double *row)
{
    const int64_t half = z->r / 2;
    double *const cosines = row + z->r, *const sines = cosines + z->r;
    memcpy(row, x, (size_t)z->r * sizeof(double));
    load(cosines, z->a->cos, line * z->r, z->r);
    load(sines, z->a->sin, line * z->r, z->r);
    for (int64_t i = 0; i < half; i++) {
        x[i] = row[2 * i] * cosines[i] - row[2 * i + 1] * sines[i];
        x[half + i] = row[2 * i + 1] * cosines[half + i] + row[2 * i] * sines[half + i];
    }
}

/* ---- the keys of the new tokens ------------------------------------------------------------------------------------------ */

static int make_keys(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct run *const z = arg;
    double *const x = scratch, *const row = x + z->h;
    for (int64_t line = begin; line < end; line++) {
        double *const key = z->new_keys + line * (z->c + z->r + z->d), *const index = key + z->c + z->r;
        load(x, z->a->x, line * z->h, z->h);
        times(key, x, z->a->w_dkv_kr, z->h, z->c + z->r, row);
        rms(key, z->c, z->a->eps, z->a->gamma_ckv, row);
        rotate(z, line, key + z->c, row);
        times(index, x, z->a->w_idx_k, z->h, z->d, row);
        norm(z, index, row);
        rotate(z, line, index, row);
    }
    return DV_OK;
}

static int check_slots(dv_context *ctx, const struct run *z)
{
    for (int64_t i = 0; i < z->lines; i++)
        if (get_int(z->a->cache_index, i) >= z->keys.rows)
            return dv_error(ctx, DV_EINVAL, "argument 'cache_index': expected a slot below %lld, found %lld at [%lld, %lld]",
                (long long)z->keys.rows, (long long)get_int(z->a->cache_index, i), (long long)(i / z->queries.size),
                (long long)(i % z->queries.size));
    return DV_OK;
}

static void write_keys(const struct run *z)
{
    for (int64_t i = 0; i < z->lines; i++) {
        const int64_t slot = get_int(z->a->cache_index, i);
        const double *const key = z->new_keys + i * (z->c + z->r + z->d);
        if (slot < 0)
            continue;
        store(z->a->kv_cache, slot * z->c, key, z->c);
        store(z->a->kr_cache, slot * z->r, key + z->c, z->r);
        store(z->a->index_k_cache, slot * z->d, key + z->c + z->r, z->d);
    }
}

/* ---- attention of the new tokens ----------------------------------------------------------------------------------------- */

/* What is kept of one token, in doubles. */
struct token {
    double *x, *cq, *heads, *latent, *index, *weights, *out, *max, *sum, *key, *row;
    top_hit *hits;
};
static struct token token_at(const struct run *z, double *at)
{
    struct token t = { .x = at };
    t.cq = t.x + z->h;
    t.heads = t.cq + z->q;                     /* [n, p + r] */
    t.latent = t.heads + z->n * (z->p + z->r); /* [n, c] */
    t.index = t.latent + z->n * z->c;          /* [g, d] */
    t.weights = t.index + z->g * z->d;         /* [g] */
    t.out = t.weights + z->g;                  /* [n, c] */
    t.max = t.out + z->n * z->c;               /* [n] */
    t.sum = t.max + z->n;                      /* [n] */
    t.key = t.sum + z->n;                      /* [c + r] or [d] */
    t.row = t.key + z->c + z->r + z->d;
    t.hits = (top_hit *)(void *)(t.row + z->widest);
    return t;
}

static void make_query(const struct run *z, int64_t line, const struct token *t)
{
    const struct layer *const a = z->a;
    load(t->x, a->x, line * z->h, z->h);
    times(t->cq, t->x, a->w_dq, z->h, z->q, t->row);
    rms(t->cq, z->q, a->eps, a->gamma_cq, t->row);
    times(t->heads, t->cq, a->w_uq_qr, z->q, z->n * (z->p + z->r), t->row);
    for (int64_t n = 0; n < z->n; n++) {
        const dv_tensor *const w = a->w_uk;
        double *const head = t->heads + n * (z->p + z->r), *const latent = t->latent + n * z->c;
        memset(latent, 0, (size_t)z->c * sizeof(double));
        for (int64_t p = 0; p < z->p; p++) {
            load(t->row, w, (n * z->p + p) * z->c, z->c);
            add_times(latent, head[p], t->row, z->c);
        }
        rotate(z, line, head + z->p, t->row);
    }
    times(t->index, t->cq, a->w_idx_qb, z->q, z->g * z->d, t->row);
    for (int64_t g = 0; g < z->g; g++)
        rotate(z, line, t->index + g * z->d, t->row);
    times(t->weights, t->x, a->w_idx_proj, z->h, z->g, t->row);
}

static top choose(const struct run *z, const struct token *t, int64_t sequence, int64_t visible)
{
    top best = { t->hits, 0, visible < z->a->sparse_count ? visible : z->a->sparse_count };
    for (int64_t s = 0; s < visible; s++) {
        double score = 0;
        load(t->key, z->a->index_k_cache, tokens_row(&z->keys, sequence, s) * z->d, z->d);
        for (int64_t g = 0; g < z->g; g++) {
            const double product = dot(t->index + g * z->d, t->key, z->d);
            score += t->weights[g] * (product < 0 ? 0 : product);
        }
        top_add(&best, score, s);
    }
    top_sort(&best);
    return best;
}

static void attend(const struct run *z, const struct token *t, int64_t sequence, top chosen)
{
    const double scale = z->a->scale_value.has ? z->a->scale_value.value : 1 / sqrt((double)(z->p + z->r));
    memset(t->out, 0, (size_t)(z->n * (z->c + 2)) * sizeof(double));
    for (int64_t i = 0; i < chosen.size; i++) {
        const int64_t row = tokens_row(&z->keys, sequence, chosen.hits[i].index);
        load(t->key, z->a->kv_cache, row * z->c, z->c);
        load(t->key + z->c, z->a->kr_cache, row * z->r, z->r);
        for (int64_t n = 0; n < z->n; n++) {
            double *const out = t->out + n * z->c;
            const double score = scale *
                (dot(t->latent + n * z->c, t->key, z->c) + dot(t->heads + n * (z->p + z->r) + z->p, t->key + z->c, z->r));
            if (!i || score > t->max[n] || isnan(score)) { /* what was added up so far is scaled down */
                const double factor = i ? exp(t->max[n] - score) : 0;
                t->max[n] = score;
                t->sum[n] *= factor;
                for (int64_t k = 0; k < z->c; k++)
                    out[k] *= factor;
            }
            const double weight = exp(score - t->max[n]);
            t->sum[n] += weight;
            add_times(out, weight, t->key, z->c);
        }
    }
    for (int64_t i = 0; i < z->n * z->c; i++)
        t->out[i] /= chosen.size ? t->sum[i / z->c] : 1;
}

static int attend_lines(void *arg, int64_t begin, int64_t end, void *scratch)
{
    const struct run *const z = arg;
    const struct token t = token_at(z, scratch);
    for (int64_t line = begin; line < end; line++) {
        int64_t sequence;
        const int64_t visible = tokens_visible(&z->queries, &z->keys, line, 3, &sequence);
        make_query(z, line, &t);
        attend(z, &t, sequence, choose(z, &t, sequence, visible));
        store(z->a->out, line * z->n * z->c, t.out, z->n * z->c);
    }
    return DV_OK;
}

/* All errors come before the first write. */
static int npu_sparse_attention_pto_reference(dv_context *ctx, const struct layer *a)
{
    const dv_string bsnd = { "BSND", 4 };
    struct run z = { .a = a,
        .h = last_dim(a->x),
        .q = last_dim(a->w_dq),
        .n = a->w_uk->shape[0],
        .p = a->w_uk->shape[1],
        .r = last_dim(a->cos),
        .c = last_dim(a->w_uk),
        .g = last_dim(a->w_idx_proj),
        .d = last_dim(a->w_idx_k),
        .queries = tokens_of(a->x, bsnd, "x", NULL, NULL),
        .keys = tokens_of(a->kv_cache, bsnd, "act_seqs", a->act_seqs, a->block_table) };
    z.lines = z.queries.rows;
    int status = tokens_check(ctx, &z.keys);
    if (!status)
        status = check_slots(ctx, &z);
    if (status || !z.lines)
        return status;
    const int64_t longest = tokens_longest(&z.keys), most = longest < a->sparse_count ? longest : a->sparse_count;
    z.widest = larger(larger(z.n * (z.p + z.r), larger(z.g * z.d, z.g)), larger(larger(z.c + z.r, z.q), larger(z.d, 3 * z.r)));
    const int64_t room = z.h + z.q + z.n * (z.p + z.r + 2 * z.c + 2) + z.g * (z.d + 1) + z.c + z.r + z.d + z.widest + 2 * most;
    z.new_keys = dv_alloc(ctx, (size_t)(z.lines * (z.c + z.r + z.d)) * sizeof(double), 64);
    if (!z.new_keys)
        return DV_ENOMEM;
    status = dv_parallel_scratch(ctx, 0, z.lines, 1, (size_t)room * sizeof(double), make_keys, &z);
    if (status)
        return status;
    write_keys(&z);
    return dv_parallel_scratch(ctx, 0, z.lines, 1, (size_t)room * sizeof(double), attend_lines, &z);
}

DV_OPERATOR(npu_sparse_attention_pto, struct layer,
    (x, w_dq, w_uq_qr, w_uk, w_dkv_kr, gamma_cq, gamma_ckv, sin, cos, cache_index, kv_cache, kr_cache, block_table, act_seqs,
        w_idx_qb, w_idx_k, w_idx_proj, in_gamma_k, in_beta_k, index_k_cache, sparse_count, eps, scale_value, out),
    .schema =
        "npu_sparse_attention_pto(Tensor x, Tensor w_dq, Tensor w_uq_qr, Tensor w_uk, Tensor w_dkv_kr, Tensor gamma_cq, "
        "Tensor gamma_ckv, Tensor sin, Tensor cos, Tensor cache_index, Tensor(a!) kv_cache, Tensor(b!) kr_cache, Tensor "
        "block_table, Tensor act_seqs, Tensor w_idx_qb, Tensor w_idx_k, Tensor w_idx_proj, Tensor in_gamma_k, Tensor "
        "in_beta_k, Tensor(c!) index_k_cache, *, int sparse_count=2048, float eps=1e-05, float? scale_value=None) -> Tensor out",
    .contract =
        "x[b s h]:T, w_dq[h q]:T, w_uk[n p c]:T, cos[b s r]:T, sin[b s r]:T, w_uq_qr[q n*(p + r)]:T, w_dkv_kr[h c + r]:T, "
        "gamma_cq[q]:T, gamma_ckv[c]:T, cache_index[b s]:i64|i32, kv_cache[blocks size 1 c]:T, kr_cache[blocks size 1 r]:T, "
        "w_idx_proj[h g]:T, w_idx_k[h d]:T, w_idx_qb[q g*d]:T, in_gamma_k[d]:T, in_beta_k[d]:T, "
        "index_k_cache[blocks size 1 d]:T, block_table[b m]:i32, act_seqs[b]:i32 -> out[b s n c]:T; T in bf16 f16 f32 f64; "
        "r % 2 == 0; r <= d; p + r > 0; sparse_count > 0; eps >= 0.0; cache_index.values < blocks*size; "
        "block_table.values < blocks; 0 <= act_seqs.values <= m*size; m*size <= 2147483647; "
        "flops = 2*b*s*(h*(q + c + r + d + g) + q*(n*(p + r) + g*d) + n*p*c + m*size*g*d + "
        "2*n*(c + r)*min(m*size, sparse_count))",
    .doc =
        "One layer of DeepSeek-V3.2's sparse attention over a paged cache. The keys of the new tokens x are written to the slots "
        "cache_index of the three caches (a negative slot: not written); then each token attends to the sparse_count tokens that "
        "the indexer scores highest, among the first act_seqs - s + i + 1 of its sequence. The result is latent: w_uv is not "
        "applied.",
    .kernels = DV_KERNELS(
        DV_KERNEL(struct layer, "cpu", NULL, npu_sparse_attention_pto_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, sparse_attention_pto, &dv_op_npu_sparse_attention_pto);
