/* advance_step.c: one step of decoding: the sampled tokens become the next inputs, and each sequence gets its next slot in the
 * paged cache. One kernel under the three signatures that are published: vLLM's (integers first), torch_npu's (tensors first) and
 * aclnnAdvanceStepV2's (which also names the tokens of speculative decoding).
 *
 * For a sequence i < num_queries at position p = seq_lens[i]: input_tokens = sampled, input_positions = p, seq_lens = p + 1,
 * slot_mapping = block_tables[i][p / block_size] * block_size + p % block_size. Rows from num_queries on are padding: token and
 * position 0, slot -1, seq_lens untouched. Slots are computed in 64 bits. */
#include "../numbers.h"

struct step {
    int64_t num_seqs, num_queries, block_size;
    const dv_tensor *input_tokens, *sampled_token_ids, *input_positions, *seq_lens, *slot_mapping, *block_tables;
};

static void put(const dv_tensor *t, int64_t i, int64_t x)
{
    if (t->dtype.bits == 64)
        ((int64_t *)t->data)[i] = x;
    else
        ((int32_t *)t->data)[i] = (int32_t)x;
}

/* Everything is checked before anything is written: a step that fails leaves the tensors as they were. */
static int check(dv_context *ctx, const struct step *s)
{
    const int64_t columns = s->block_tables->shape[1], stride = s->block_tables->strides[0];
    for (int64_t i = 0; i < s->num_queries; i++) {
        const int64_t p = get_int(s->seq_lens, i);
        if (p < 0 || p / s->block_size >= columns)
            return dv_error(ctx, DV_EINVAL, "sequence %lld has length %lld: 'block_tables' has room for %lld blocks of %lld",
                (long long)i, (long long)p, (long long)columns, (long long)s->block_size);
        const int64_t block = get_int(s->block_tables, i * stride + p / s->block_size);
        int64_t slot;
        if (block < 0 || __builtin_mul_overflow(block, s->block_size, &slot) ||
            __builtin_add_overflow(slot, p % s->block_size, &slot))
            return dv_error(
                ctx, DV_EINVAL, "sequence %lld: block %lld of 'block_tables' is not valid", (long long)i, (long long)block);
        if (s->slot_mapping->dtype.bits == 32 && slot > INT32_MAX)
            return dv_error(ctx, DV_EINVAL, "sequence %lld: slot %lld does not fit into 'slot_mapping', of i32", (long long)i,
                (long long)slot);
    }
    return DV_OK;
}

static int advance(dv_context *ctx, const struct step *s)
{
    const int64_t stride = s->block_tables->strides[0];
    const int status = check(ctx, s);
    if (status)
        return status;
    for (int64_t i = 0; i < s->num_queries; i++) {
        const int64_t p = get_int(s->seq_lens, i);
        put(s->input_tokens, i, get_int(s->sampled_token_ids, i));
        put(s->input_positions, i, p);
        put(s->seq_lens, i, p + 1);
        put(s->slot_mapping, i, get_int(s->block_tables, i * stride + p / s->block_size) * s->block_size + p % s->block_size);
    }
    for (int64_t i = s->num_queries; i < s->num_seqs; i++) {
        put(s->input_tokens, i, 0);
        put(s->input_positions, i, 0);
        put(s->slot_mapping, i, -1);
    }
    return DV_OK;
}

#define STEP(a)                                                                                                  \
    &(struct step){ (a)->num_seqs, (a)->num_queries, (a)->block_size, (a)->input_tokens, (a)->sampled_token_ids, \
        (a)->input_positions, (a)->seq_lens, (a)->slot_mapping, (a)->block_tables }
#define TENSORS                                        \
    const dv_tensor *sampled_token_ids, *block_tables; \
    dv_tensor *input_tokens, *input_positions, *seq_lens, *slot_mapping
/* vLLM gives the sampled tokens as [q, 1], vllm-mindspore as [q]. */
#define SIZES                                                                                                                 \
    "rank(*one) <= 1; numel(*one) == 1; num_seqs >= 0; 0 <= num_queries <= num_seqs; block_size > 0; q == num_queries; n == " \
    "num_seqs"
#define DOC                                                                                                                    \
    "One step of decoding with a paged cache: the sampled tokens become inputs, positions and lengths grow by one, slots are " \
    "looked "                                                                                                                  \
    "up in block_tables. Rows from num_queries on are padding. A length outside block_tables is an error, and nothing is "     \
    "written."

/* vllm::advance_step_flashattn: tokens, positions and slots i64; lengths and block tables i32 (vllm-mindspore: tokens i32 too) */
struct ints_first {
    int64_t num_seqs, num_queries, block_size;
    TENSORS;
};
static int advance_ints_first(dv_context *ctx, const struct ints_first *a) { return advance(ctx, STEP(a)); }

#define INTS_FIRST(NAME)                                                                                                       \
    DV_OPERATOR(NAME, struct ints_first,                                                                                       \
        (num_seqs, num_queries, block_size, input_tokens, sampled_token_ids, input_positions, seq_lens, slot_mapping,          \
            block_tables),                                                                                                     \
        .schema = #NAME                                                                                                        \
        "(SymInt num_seqs, SymInt num_queries, int block_size, Tensor(a!) input_tokens, Tensor sampled_token_ids, "            \
        "Tensor(b!) input_positions, Tensor(c!) seq_lens, Tensor(d!) slot_mapping, Tensor block_tables) -> ()",                \
        .contract = "input_tokens[n]:I, sampled_token_ids[q *one]:I, input_positions[n]:I, seq_lens[n]:J, slot_mapping[n]:I, " \
                    "block_tables[n m]:J; I in i64 i32; J in i32 i64; " SIZES "; last_contiguous(block_tables)",               \
        .doc = DOC, .kernels = DV_KERNELS(DV_KERNEL(struct ints_first, "cpu", NULL, advance_ints_first)))
INTS_FIRST(advance_step);
INTS_FIRST(adv_step_flash);

/* torch_npu.npu_advance_step_flashattn: the same, tensors first */
struct tensors_first {
    TENSORS;
    int64_t num_seqs, num_queries, block_size;
};
static int advance_tensors_first(dv_context *ctx, const struct tensors_first *a) { return advance(ctx, STEP(a)); }

DV_OPERATOR(advance_step_tensors, struct tensors_first,
    (input_tokens, sampled_token_ids, input_positions, seq_lens, slot_mapping, block_tables, num_seqs, num_queries, block_size),
    .schema = "advance_step.tensors(Tensor(a!) input_tokens, Tensor sampled_token_ids, Tensor(b!) input_positions, Tensor(c!) "
              "seq_lens, "
              "Tensor(d!) slot_mapping, Tensor block_tables, SymInt num_seqs, SymInt num_queries, int block_size) -> ()",
    .contract = "input_tokens[n]:I, sampled_token_ids[q *one]:I, input_positions[n]:I, seq_lens[n]:J, slot_mapping[n]:I, "
                "block_tables[n m]:J; "
                "I in i64 i32; J in i32 i64; " SIZES "; last_contiguous(block_tables)",
    .doc = DOC, .kernels = DV_KERNELS(DV_KERNEL(struct tensors_first, "cpu", NULL, advance_tensors_first)));

/* aclnnAdvanceStepV2: with the tokens of speculative decoding. Its published formula is that of the other two, and says nothing
 * about them: they must be absent. */
struct speculative {
    TENSORS;
    int64_t num_seqs, num_queries, block_size;
    const dv_tensor *spec_token, *accepted_num;
};
static int advance_speculative(dv_context *ctx, const struct speculative *a) { return advance(ctx, STEP(a)); }

DV_OPERATOR(advance_step_v2, struct speculative,
    (input_tokens, sampled_token_ids, input_positions, seq_lens, slot_mapping, block_tables, num_seqs, num_queries, block_size,
        spec_token, accepted_num),
    .schema =
        "advance_step.v2(Tensor(a!) input_tokens, Tensor sampled_token_ids, Tensor(b!) input_positions, Tensor(c!) seq_lens, "
        "Tensor(d!) slot_mapping, Tensor block_tables, SymInt num_seqs, SymInt num_queries, int block_size, *, Tensor? "
        "spec_token=None, "
        "Tensor? accepted_num=None) -> ()",
    .contract = "input_tokens[n]:I, sampled_token_ids[q *one]:I, input_positions[n]:I, seq_lens[n]:J, slot_mapping[n]:I, "
                "block_tables[n m]:J, "
                "spec_token absent, accepted_num absent; I in i64 i32; J in i32 i64; " SIZES "; last_contiguous(block_tables)",
    .doc = DOC, .kernels = DV_KERNELS(DV_KERNEL(struct speculative, "cpu", NULL, advance_speculative)));

DV_LIBRARY_FRAGMENT(
    dovetail, advance_step, &dv_op_advance_step, &dv_op_adv_step_flash, &dv_op_advance_step_tensors, &dv_op_advance_step_v2);
