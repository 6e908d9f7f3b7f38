/* numbers.h: for plain rows: runs of a tensor's elements as double, and back; for fast ones: one row of a tensor. */
#ifndef OPS_NUMBERS_H
#define OPS_NUMBERS_H
#include <dovetail_op.h>

/* In a decomposition: X in f32 if it has 16 bits, as kernels compute it. Squares and sums would leave the range of f16. */
#define WIDE(X) "to(" X ", if(" X ".dtype in bf16 f16, f32, " X ".dtype))"

static inline void load(double *to, const dv_tensor *t, int64_t start, int64_t n)
{
    dv_load_f64(to, t->data, start, n, dv_dtype_key(t->dtype));
}
static inline void store(const dv_tensor *t, int64_t start, const double *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dv_put_f64(t->data, start + i, dv_dtype_key(t->dtype), from[i]);
}
static inline int64_t get_int(const dv_tensor *t, int64_t i) { return dv_get_i64(t->data, i, dv_dtype_key(t->dtype)); }
static inline int64_t last_dim(const dv_tensor *t) { return t->shape[t->ndim - 1]; }

/* Elements row * n to (row + 1) * n, for dv_for_each_block(). */
static inline dv_tensor row_of(const dv_tensor *t, int64_t row, int64_t n)
{
    dv_tensor view = *t;
    view.data = (char *)t->data + row * n * (t->dtype.bits / 8);
    return view;
}

static inline double dot(const double *a, const double *b, int64_t n)
{
    double sum[4] = { 0 };
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
/* to += factor * from */
static inline void add_times(double *restrict to, double factor, const double *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += factor * from[i];
}
#endif
