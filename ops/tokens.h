/* tokens.h: where the tokens of several sequences lie in one tensor: the layouts BSND, TND and PA_BSND.
 *
 * A tensor is a list of rows, one for each token; token s of sequence b is row tokens_row(t, b, s).
 *   BSND     [sequences, size, ...]; sequence b uses the first lengths[b] of its rows, or all if there are no lengths
 *   TND      [size, ...]; lengths are inclusive prefix sums: sequence b ends before row lengths[b]
 *   PA_BSND  [pages, size, ...]; block_table[b] lists the pages of sequence b, which has lengths[b] tokens */
#ifndef OPS_TOKENS_H
#define OPS_TOKENS_H
#include "numbers.h"

typedef struct tokens {
    const dv_tensor *lengths, *block_table; /* NULL: none */
    const char *name;                       /* of the argument `lengths`, for messages */
    int64_t sequences, size, pages, rows;
    bool prefix;
} tokens;

static inline tokens tokens_of(
    const dv_tensor *t, dv_string layout, const char *name, const dv_tensor *lengths, const dv_tensor *block_table)
{
    const bool prefix = layout.data[0] == 'T';
    const int64_t size = t->shape[prefix ? 0 : 1], pages = t->shape[0];
    return (tokens){ lengths, block_table, name, prefix || block_table ? lengths->shape[0] : pages, size, pages,
        prefix ? size : pages * size, prefix };
}
static inline int64_t tokens_begin(const tokens *t, int64_t b) { return t->prefix && b ? get_int(t->lengths, b - 1) : 0; }
static inline int64_t tokens_length(const tokens *t, int64_t b)
{
    return t->lengths ? get_int(t->lengths, b) - tokens_begin(t, b) : t->size;
}
static inline int64_t tokens_row(const tokens *t, int64_t b, int64_t s)
{
    if (t->prefix)
        return tokens_begin(t, b) + s;
    return (t->block_table ? get_int(t->block_table, b * t->block_table->shape[1] + s / t->size) : b) * t->size + s % t->size;
}
static inline int64_t tokens_longest(const tokens *t)
{
    int64_t most = 0;
    for (int64_t b = 0; b < t->sequences; b++)
        most = tokens_length(t, b) > most ? tokens_length(t, b) : most;
    return most;
}

/* Are all lengths, and all pages that they use, inside the tensors? Entries past a sequence's length are not read. */
static inline int tokens_check(dv_context *ctx, const tokens *t)
{
    const int64_t columns = t->block_table ? t->block_table->shape[1] : 1;
    for (int64_t b = 0; t->lengths && b < t->sequences; b++) {
        const int64_t from = tokens_begin(t, b), to = get_int(t->lengths, b);
        if (to < from || to > columns * t->size)
            return dv_error(ctx, DV_EINVAL, "argument '%s': expected %s from %lld to %lld, found %lld at [%lld]", t->name,
                t->prefix ? "a prefix sum" : "a length", (long long)from, (long long)(columns * t->size), (long long)to,
                (long long)b);
        for (int64_t p = 0; t->block_table && p * t->size < to; p++) {
            const int64_t page = get_int(t->block_table, b * columns + p);
            if (page < 0 || page >= t->pages)
                return dv_error(ctx, DV_EINVAL,
                    "argument 'block_table': expected a page from 0 to %lld, found %lld at [%lld, %lld]", (long long)t->pages - 1,
                    (long long)page, (long long)b, (long long)p);
        }
    }
    return DV_OK;
}

/* How many keys of which sequence a query sees. `row` is the query's row in its tensor. sparse_mode 0: all keys of its sequence;
 * 3: causal, the last query sees the last key. None if the query is padding. */
static inline int64_t tokens_visible(const tokens *query, const tokens *key, int64_t row, int64_t sparse_mode, int64_t *sequence)
{
    int64_t low = 0, high = query->sequences;
    while (query->prefix && low < high) { /* the first sequence that ends after the row */
        const int64_t middle = (low + high) / 2;
        if (get_int(query->lengths, middle) > row)
            high = middle;
        else
            low = middle + 1;
    }
    *sequence = query->prefix ? low : row / query->size;
    if (*sequence == query->sequences)
        return 0;
    const int64_t s = query->prefix ? row - tokens_begin(query, low) : row % query->size;
    const int64_t queries = tokens_length(query, *sequence), keys = tokens_length(key, *sequence);
    const int64_t n = sparse_mode == 3 ? keys - queries + s + 1 : keys;
    return s >= queries || n < 0 ? 0 : n;
}

#endif
