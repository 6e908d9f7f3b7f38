/* npu_lightning_indexer_pto.c: which keys a query should look at.
 *
 * The score of a key is the sum over heads of weights * relu(query . key). The result has the sparse_count keys with the largest
 * scores that the query sees, best first; -1 where there are fewer. With sparse_mode 3 the last query sees all keys, the one
 * before it one less. */
#include "ops_common.h"

struct indexer {
    const dv_tensor *query, *key, *weights, *actual_seq_lengths_query, *actual_seq_lengths_key, *block_table;
    dv_string layout_query, layout_key;
    int64_t sparse_count, sparse_mode;
    dv_tensor *out;
};

static int64_t length(const dv_tensor *lengths, int64_t b, int64_t all)
{
    return lengths ? ((const int32_t *)lengths->data)[b] : all;
}

/* query: its row; head: of the group's first one. */
static double score(const struct indexer *a, int64_t query, int64_t heads, int64_t head, int64_t key)
{
    const int64_t n = a->query->shape[2], d = a->query->shape[3];
    double sum = 0;
    for (int64_t h = head; h < head + heads; h++) {
        double dot = 0;
        for (int64_t i = 0; i < d; i++)
            dot += at(a->query, (query * n + h) * d + i) * at(a->key, key * d + i);
        sum += at(a->weights, query * n + h) * fmax(dot, 0);
    }
    return sum;
}

static int index_keys(dv_context *ctx, const struct indexer *a)
{
    const int64_t *q = a->query->shape, groups = a->key->shape[2];
    const int64_t most = (a->block_table ? a->block_table->shape[1] : 1) * a->key->shape[1];
    struct hit *hits = dv_alloc(ctx, (size_t)(most + 1) * sizeof *hits, 64);
    int32_t *out = a->out->data;
    if (!hits)
        return DV_ENOMEM;
    for (int64_t line = 0; line < q[0] * q[1] * groups; line++, out += a->sparse_count) {
        const int64_t query = line / groups, group = line % groups, b = query / q[1], s = query % q[1];
        const int64_t queries = length(a->actual_seq_lengths_query, b, q[1]), keys = length(a->actual_seq_lengths_key, b, most);
        int64_t n = s >= queries ? 0 : a->sparse_mode == 3 ? keys - queries + s + 1 : keys;
        n = n < 0 ? 0 : n;
        for (int64_t k = 0; k < n; k++) {
            const int64_t row = key_row(a->key, a->block_table, b, k) * groups + group;
            hits[k] = (struct hit){ score(a, query, q[2] / groups, group * (q[2] / groups), row), k };
        }
        qsort(hits, (size_t)n, sizeof *hits, compare_hits);
        for (int64_t i = 0; i < a->sparse_count; i++)
            out[i] = i < n ? (int32_t)hits[i].key : -1;
    }
    return DV_OK;
}

DV_OPERATOR(npu_lightning_indexer_pto, struct indexer,
    (query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table, layout_query, layout_key, sparse_count,
        sparse_mode, out),
    .schema =
        "npu_lightning_indexer_pto(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, Tensor? "
        "actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query=\"BSND\", str layout_key=\"PA_BSND\", "
        "int sparse_count=2048, int sparse_mode=3) -> Tensor",
    .contract =
        "query[b s n1 d]:T, weights[b s n1]:W, actual_seq_lengths_query[b]:i32, 0 <= actual_seq_lengths_query.values <= s "
        "-> [b s n2 sparse_count]:i32; "
        "when layout_key == \"PA_BSND\": key[blocks block_size n2 d]:T, block_table[b m]:i32 present, "
        "block_table.values < blocks, actual_seq_lengths_key[b]:i32 present, "
        "0 <= actual_seq_lengths_key.values <= m*block_size "
        "/ \"BSND\": key[b s2 n2 d]:T, block_table absent, actual_seq_lengths_key[b]:i32, "
        "0 <= actual_seq_lengths_key.values <= s2; "
        "layout_query == \"BSND\"; n2 > 0; n1 % n2 == 0; sparse_count > 0; sparse_mode in 0 3; T in f32 f16 bf16; "
        "W == T or W == f32",
    .kernels = DV_KERNELS(DV_KERNEL(struct indexer, "cpu", NULL, index_keys)));
