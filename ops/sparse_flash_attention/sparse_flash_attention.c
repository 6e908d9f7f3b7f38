/* sparse_flash_attention.c: attention of each query over the keys that an indexer chose. Declared in full; kernels come later.
 *
 * out = softmax(scale_value * (query . key + query_rope . key_rope)) value, over the selected tokens. sparse_indices name blocks
 * of sparse_block_size tokens; the first -1 ends the list; a block that begins at or after the visible length is skipped, one
 * that crosses it is cut; one that appears twice counts twice. Nothing visible, or a padded row: 0. Visible lengths are those of
 * lightning_indexer. softmax_max is of the scaled scores. */
#include <dovetail_op.h>

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

DV_OPERATOR(npu_sparse_flash_attention, struct sparse_flash_attention,
    (query, key, value, sparse_indices, scale_value, block_table, actual_seq_lengths_query, actual_seq_lengths_kv, query_rope,
        key_rope, sparse_block_size, layout_query, layout_kv, sparse_mode, pre_tokens, next_tokens, attention_mode,
        return_softmax_lse, attention_out, softmax_max, softmax_sum),
    .schema =
        "npu_sparse_flash_attention(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, float scale_value, *, "
        "Tensor? block_table=None, Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, Tensor? "
        "query_rope=None, "
        "Tensor? key_rope=None, int sparse_block_size=1, str layout_query=\"BSND\", str layout_kv=\"BSND\", int sparse_mode=3, "
        "int pre_tokens=9223372036854775807, int next_tokens=9223372036854775807, int attention_mode=2, bool "
        "return_softmax_lse=False) -> "
        "(Tensor attention_out, Tensor softmax_max, Tensor softmax_sum)",
    .contract =
        "when layout_query == \"BSND\": query[b s n1 d]:T, sparse_indices[b s n2 k]:i32, actual_seq_lengths_query[b]:i32, "
        "query_rope[b s n1 r]:T "
        "  -> attention_out[b s n1 d]:T "
        "/ \"TND\": query[t n1 d]:T, sparse_indices[t n2 k]:i32, actual_seq_lengths_query[b]:i32 present, query_rope[t n1 r]:T "
        "  -> attention_out[t n1 d]:T; "
        "when layout_kv == \"BSND\": key[b s2 n2 d]:T, value[b s2 n2 d]:T, key_rope[b s2 n2 r]:T, actual_seq_lengths_kv[b]:i32 "
        "/ \"TND\": key[u n2 d]:T, value[u n2 d]:T, key_rope[u n2 r]:T, actual_seq_lengths_kv[b]:i32 present "
        "/ \"PA_BSND\": key[blocks block_size n2 d]:T, value[blocks block_size n2 d]:T, key_rope[blocks block_size n2 r]:T, "
        "  actual_seq_lengths_kv[b]:i32 present, block_table[b m]:i32 present, not return_softmax_lse, block_size % "
        "sparse_block_size == 0; "
        "when not return_softmax_lse: -> softmax_max[0]:f32, softmax_sum[0]:f32 "
        "/ return_softmax_lse and layout_query == \"BSND\": -> softmax_max[b n2 s n1//n2]:f32, softmax_sum[b n2 s n1//n2]:f32 "
        "/ return_softmax_lse and layout_query == \"TND\": -> softmax_max[n2 t n1//n2]:f32, softmax_sum[n2 t n1//n2]:f32; "
        "layout_kv == \"PA_BSND\" or layout_kv == layout_query; present(query_rope) == present(key_rope); "
        "n2 > 0; n1 % n2 == 0; sparse_block_size > 0; sparse_mode in 0 3; attention_mode == 2; T in f32 f16 bf16",
    .doc = "Attention of each query over the tokens (or blocks of tokens) in sparse_indices, with rotary parts kept apart. Valid "
           "indices "
           "stand in front; the first -1 ends them. scale_value is the caller's. With return_softmax_lse also the largest scaled "
           "score and "
           "the sum of exponentials of each row.");

DV_LIBRARY_FRAGMENT(dovetail, sparse_flash_attention, &dv_op_npu_sparse_flash_attention);
