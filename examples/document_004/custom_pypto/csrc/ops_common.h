/* ops_common.h: what the kernels share: elements of any float type, keys in pages, and the keys that a query chooses */
#include <math.h>
#include <stdlib.h>

#include "ops_function.h"

static inline double at(const dv_tensor *t, int64_t i) { return dv_get_f64(t->data, i, dv_dtype_key(t->dtype)); }
static inline void put(const dv_tensor *t, int64_t i, double x) { dv_put_f64(t->data, i, dv_dtype_key(t->dtype), x); }

/* Where token s of sequence b is in the keys: in the pages of a block table, or in row b. */
static inline int64_t key_row(const dv_tensor *keys, const dv_tensor *table, int64_t b, int64_t s)
{
    const int64_t size = keys->shape[1];
    return table ? ((const int32_t *)table->data)[b * table->shape[1] + s / size] * size + s % size : b * size + s;
}

struct hit {
    double score;
    int64_t key;
};

/* The best first; of equal ones, the first. */
static inline int compare_hits(const void *a, const void *b)
{
    const struct hit *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score) : (x->key > y->key) - (x->key < y->key);
}
