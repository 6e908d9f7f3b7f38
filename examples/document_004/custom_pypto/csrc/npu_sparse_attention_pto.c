/* npu_sparse_attention_pto.c: a layer of DeepSeek-V3.2's sparse attention: it projects x, writes the new keys to the caches, and
 * each query attends to the 2048 keys that the indexer prefers. The result is in the latent space: w_uv is not applied.
 *
 * The weights are plain matrices (ND). All is computed in double; what goes to the caches is rounded there. */
#include "ops_common.h"

enum { CHOSEN = 2048 };

struct layer {
    const dv_tensor *x, *w_dq, *w_uq_qr, *w_uk, *w_dkv_kr, *gamma_cq, *gamma_ckv, *sin, *cos, *cache_index;
    dv_tensor *kv_cache, *kr_cache;
    const dv_tensor *block_table, *act_seqs, *w_idx_qb, *w_idx_k, *w_idx_proj, *in_gamma_k, *in_beta_k;
    dv_tensor *index_k_cache, *out;
};

/* The sizes, and a line's vectors. */
struct line {
    int64_t b, s, h, r, n, dn, dr, c, ni, di;
    double *x, *cq, *q, *q_latent, *kv, *idx_q, *idx_k, *weights, *p;
    struct hit *hits;
};

static void multiply(double *to, const double *x, int64_t n, const dv_tensor *w)
{
    const int64_t columns = w->shape[1];
    for (int64_t j = 0; j < columns; j++)
        to[j] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < columns; j++)
            to[j] += x[i] * at(w, i * columns + j);
}

static void rms_norm(double *x, int64_t n, const dv_tensor *gamma)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (int64_t i = 0; i < n; i++)
        x[i] *= at(gamma, i) / sqrt(squares / (double)n + 1e-5);
}

static void layer_norm(double *x, int64_t n, const dv_tensor *gamma, const dv_tensor *beta)
{
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++)
        x[i] = (x[i] - mean) / sqrt(variance + 1e-6) * at(gamma, i) + at(beta, i);
}

/* Pairs (x[0], x[1]), (x[2], x[3])... are rotated; the first numbers of all pairs come first in the result. */
static void rotate(const struct layer *a, int64_t token, double *x, int64_t n, double *scratch)
{
    for (int64_t i = 0; i < n / 2; i++) {
        const int64_t first = token * n + i, second = first + n / 2;
        scratch[i] = x[2 * i] * at(a->cos, first) - x[2 * i + 1] * at(a->sin, first);
        scratch[i + n / 2] = x[2 * i + 1] * at(a->cos, second) + x[2 * i] * at(a->sin, second);
    }
    memcpy(x, scratch, (size_t)n * sizeof *x);
}

static void write_row(const dv_tensor *cache, int64_t row, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        put(cache, row * n + i, x[i]);
}

static double dot_row(const dv_tensor *cache, int64_t row, const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * at(cache, row * n + i);
    return sum;
}

static void load_token(const struct layer *a, const struct line *l, int64_t token)
{
    for (int64_t i = 0; i < l->h; i++)
        l->x[i] = at(a->x, token * l->h + i);
}

/* The token's keys, at their place in the caches. */
static void write_keys(const struct layer *a, const struct line *l, int64_t token)
{
    const int64_t row = ((const int32_t *)a->cache_index->data)[token];
    load_token(a, l, token);
    multiply(l->kv, l->x, l->h, a->w_dkv_kr);
    rms_norm(l->kv, l->c, a->gamma_ckv);
    rotate(a, token, l->kv + l->c, l->dr, l->p);
    multiply(l->idx_k, l->x, l->h, a->w_idx_k);
    layer_norm(l->idx_k, l->di, a->in_gamma_k, a->in_beta_k);
    rotate(a, token, l->idx_k, l->dr, l->p);
    write_row(a->kv_cache, row, l->kv, l->c);
    write_row(a->kr_cache, row, l->kv + l->c, l->dr);
    write_row(a->index_k_cache, row, l->idx_k, l->di);
}

/* The queries of attention (with w_uk absorbed) and of the indexer. */
static void make_queries(const struct layer *a, const struct line *l, int64_t token)
{
    const int64_t d = l->dn + l->dr;
    load_token(a, l, token);
    multiply(l->cq, l->x, l->h, a->w_dq);
    rms_norm(l->cq, l->r, a->gamma_cq);
    multiply(l->q, l->cq, l->r, a->w_uq_qr);
    for (int64_t h = 0; h < l->n; h++) {
        rotate(a, token, l->q + h * d + l->dn, l->dr, l->p);
        for (int64_t j = 0; j < l->c; j++) {
            l->q_latent[h * l->c + j] = 0;
            for (int64_t i = 0; i < l->dn; i++)
                l->q_latent[h * l->c + j] += l->q[h * d + i] * at(a->w_uk, (h * l->dn + i) * l->c + j);
        }
    }
    multiply(l->idx_q, l->cq, l->r, a->w_idx_qb);
    for (int64_t h = 0; h < l->ni; h++)
        rotate(a, token, l->idx_q + h * l->di, l->dr, l->p);
    multiply(l->weights, l->x, l->h, a->w_idx_proj);
}

/* The indexer's choice of n keys; how many it is. */
static int64_t choose(const struct layer *a, const struct line *l, int64_t b, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        const int64_t row = key_row(a->kv_cache, a->block_table, b, k);
        double score = 0;
        for (int64_t h = 0; h < l->ni; h++)
            score += l->weights[h] * fmax(dot_row(a->index_k_cache, row, l->idx_q + h * l->di, l->di), 0);
        l->hits[k] = (struct hit){ score, k };
    }
    qsort(l->hits, (size_t)n, sizeof *l->hits, compare_hits);
    return n < CHOSEN ? n : CHOSEN;
}

static void attend(const struct layer *a, const struct line *l, int64_t token, int64_t b, int64_t n)
{
    const double scale = 1 / sqrt((double)(l->dn + l->dr));
    for (int64_t h = 0; h < l->n; h++) {
        double most = -INFINITY, sum = 0;
        for (int64_t k = 0; k < n; k++) {
            const int64_t row = key_row(a->kv_cache, a->block_table, b, l->hits[k].key);
            l->p[k] = scale *
                (dot_row(a->kv_cache, row, l->q_latent + h * l->c, l->c) +
                    dot_row(a->kr_cache, row, l->q + h * (l->dn + l->dr) + l->dn, l->dr));
            most = fmax(most, l->p[k]);
        }
        for (int64_t k = 0; k < n; k++)
            sum += l->p[k] = exp(l->p[k] - most);
        for (int64_t j = 0; j < l->c; j++) {
            double value = 0;
            for (int64_t k = 0; k < n; k++)
                value += l->p[k] / sum * at(a->kv_cache, key_row(a->kv_cache, a->block_table, b, l->hits[k].key) * l->c + j);
            put(a->out, (token * l->n + h) * l->c + j, value);
        }
    }
}

static int run_layer(dv_context *ctx, const struct layer *a)
{
    struct line l = { a->x->shape[0], a->x->shape[1], a->x->shape[2], a->w_dq->shape[1], a->w_uk->shape[0], a->w_uk->shape[1],
        a->sin->shape[2], a->w_uk->shape[2], a->w_idx_proj->shape[1], a->in_gamma_k->shape[0], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    const int64_t most = a->block_table->shape[1] * a->kv_cache->shape[1], scratch = most > l.dr ? most : l.dr;
    double **const parts[] = { &l.x, &l.cq, &l.q, &l.q_latent, &l.kv, &l.idx_q, &l.idx_k, &l.weights, &l.p };
    const int64_t sizes[] = { l.h, l.r, l.n * (l.dn + l.dr), l.n * l.c, l.c + l.dr, l.ni * l.di, l.di, l.ni, scratch };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!(*parts[i] = dv_alloc(ctx, (size_t)(sizes[i] + 1) * sizeof(double), 64)))
            return DV_ENOMEM;
    l.hits = dv_alloc(ctx, (size_t)(most + 1) * sizeof *l.hits, 64);
    if (!l.hits)
        return DV_ENOMEM;
    for (int64_t token = 0; token < l.b * l.s; token++)
        write_keys(a, &l, token);
    for (int64_t token = 0; token < l.b * l.s; token++) {
        const int64_t b = token / l.s, n = ((const int32_t *)a->act_seqs->data)[b] - l.s + token % l.s + 1;
        make_queries(a, &l, token);
        attend(a, &l, token, b, choose(a, &l, b, n < 0 ? 0 : n));
    }
    return DV_OK;
}

DV_OPERATOR(npu_sparse_attention_pto, struct layer,
    (x, w_dq, w_uq_qr, w_uk, w_dkv_kr, gamma_cq, gamma_ckv, sin, cos, cache_index, kv_cache, kr_cache, block_table, act_seqs,
        w_idx_qb, w_idx_k, w_idx_proj, in_gamma_k, in_beta_k, index_k_cache, out),
    .schema =
        "npu_sparse_attention_pto(Tensor x, Tensor w_dq, Tensor w_uq_qr, Tensor w_uk, Tensor w_dkv_kr, Tensor gamma_cq, Tensor "
        "gamma_ckv, Tensor sin, Tensor cos, Tensor cache_index, Tensor(a!) kv_cache, Tensor(b!) kr_cache, Tensor block_table, "
        "Tensor act_seqs, Tensor w_idx_qb, Tensor w_idx_k, Tensor w_idx_proj, Tensor in_gamma_k, Tensor in_beta_k, Tensor(c!) "
        "index_k_cache) -> Tensor",
    .contract =
        "x[b s h]:T, w_dq[h r]:T, w_uk[n dn c]:T, sin[b s dr]:T, cos[b s dr]:T, w_uq_qr[r n*(dn + dr)]:T, "
        "w_dkv_kr[h c + dr]:T, gamma_cq[r]:T, gamma_ckv[c]:T, cache_index[b s]:i32, 0 <= cache_index.values < blocks*size, "
        "kv_cache[blocks size 1 c]:T, kr_cache[blocks size 1 dr]:T, block_table[b m]:i32, block_table.values < blocks, "
        "act_seqs[b]:i32, 0 <= act_seqs.values <= m*size, w_idx_proj[h ni]:T, in_gamma_k[di]:T, in_beta_k[di]:T, "
        "w_idx_k[h di]:T, w_idx_qb[r ni*di]:T, index_k_cache[blocks size 1 di]:T -> [b s n c]:T; dr % 2 == 0; dr <= di; "
        "T in f32 f16 bf16",
    .kernels = DV_KERNELS(DV_KERNEL(struct layer, "cpu", NULL, run_layer)));
