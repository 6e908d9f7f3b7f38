/* lightning_indexer.c: which keys a query should look at. Declared in full; kernels come later.
 *
 * For query t and each visible key s: I[t, s] = sum over heads h of weights[t, h] * relu(query[t, h] . key[s]); the result are
 * the sparse_count keys with the largest I, best first, the lower index first among equals, then -1 (and value -inf). Visible:
 * sparse_mode 0: the first act_k; 3: the first act_k - act_q + t + 1 (causal, aligned at the bottom right). */
#include <dovetail_op.h>

struct lightning_indexer {
    const dv_tensor *query, *key, *weights, *actual_seq_lengths_query, *actual_seq_lengths_key, *block_table;
    dv_string layout_query, layout_key;
    int64_t sparse_count, sparse_mode, pre_tokens, next_tokens;
    bool return_value;
    dv_tensor *sparse_indices, *sparse_values;
};

DV_OPERATOR(lightning_indexer, struct lightning_indexer,
    (query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table, layout_query, layout_key, sparse_count,
        sparse_mode, pre_tokens, next_tokens, return_value, sparse_indices, sparse_values),
    .schema =
        "lightning_indexer(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, "
        "Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query=\"BSND\", str layout_key=\"BSND\", "
        "int sparse_count=2048, int sparse_mode=3, int pre_tokens=9223372036854775807, int next_tokens=9223372036854775807, "
        "bool return_value=False) -> (Tensor sparse_indices, Tensor sparse_values)",
    .contract = "when layout_query == \"BSND\": query[b s n1 d]:T, weights[b s n1]:W, actual_seq_lengths_query[b]:i32 "
                "  -> sparse_indices[b s n2 sparse_count]:i32, sparse_values[b s n2 if(return_value, sparse_count, 0)]:T "
                "/ \"TND\": query[t n1 d]:T, weights[t n1]:W, actual_seq_lengths_query[b]:i32 present "
                "  -> sparse_indices[t n2 sparse_count]:i32, sparse_values[t n2 if(return_value, sparse_count, 0)]:T; "
                "when layout_key == \"BSND\": key[b s2 n2 d]:T, actual_seq_lengths_key[b]:i32 "
                "/ \"TND\": key[u n2 d]:T, actual_seq_lengths_key[b]:i32 present "
                "/ \"PA_BSND\": key[blocks block_size n2 d]:T, actual_seq_lengths_key[b]:i32 present, block_table[b m]:i32 "
                "present, not return_value; "
                "layout_key == \"PA_BSND\" or layout_key == layout_query; "
                "T in f32 f16 bf16; W == T or W == f32; n2 > 0; n1 % n2 == 0; sparse_count > 0; sparse_mode in 0 3",
    .doc = "For each query the indices of the sparse_count keys with the largest score, best first; ties go to the lower index, "
           "missing "
           "ones are -1. Indices are positions in the sequence, not slots. Lengths are per batch for BSND and PA_BSND, and "
           "inclusive "
           "prefix sums for TND. There is no scale inside: weights carry it.");

DV_LIBRARY_FRAGMENT(dovetail, lightning_indexer, &dv_op_lightning_indexer);
