/* matmul.c: products of matrices, and of stacks of matrices that broadcast. Row by row, in float (double for f64). */
#include "base.h"

struct matmul {
    const dv_tensor *self, *other;
    dv_tensor *out;
};

/* c[n] += sum over k of a[k] b[k][n] */
static void row_f32(float *restrict c, const float *restrict a, const float *restrict b, int64_t k, int64_t n)
{
    for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < n; j++)
            c[j] += a[p] * b[p * n + j];
}
static void row_f64(double *restrict c, const double *restrict a, const double *restrict b, int64_t k, int64_t n)
{
    for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < n; j++)
            c[j] += a[p] * b[p * n + j];
}

/* Which matrix of a stack stands at index i of the result's stack. */
static int64_t matrix_at(const dv_tensor *t, const dv_tensor *out, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int32_t d = out->ndim - 3; d >= 0; d--) {
        const int32_t e = d - (out->ndim - t->ndim);
        const int64_t index = i % out->shape[d];
        i /= out->shape[d];
        if (e < 0)
            continue;
        at += t->shape[e] == 1 ? 0 : index * stride;
        stride *= t->shape[e];
    }
    return at;
}

static int matmul_any(dv_context *ctx, const struct matmul *a)
{
    const enum base_compute c = base_compute_of(a->out->dtype);
    const size_t item = c == BASE_F64 ? sizeof(double) : sizeof(float);
    const int64_t m = a->out->shape[a->out->ndim - 2], n = a->out->shape[a->out->ndim - 1], k = a->self->shape[a->self->ndim - 1];
    const int64_t stack = dv_numel_leading(a->out, a->out->ndim - 2);
    char *const left = dv_alloc(ctx, (size_t)(k + n + k * n) * item + 1, 64);
    if (!left)
        return DV_ENOMEM;
    char *const result = left + (size_t)k * item, *const right = result + (size_t)n * item;
    int64_t loaded = -1;
    for (int64_t s = 0; s < stack; s++) {
        const int64_t self = matrix_at(a->self, a->out, s), other = matrix_at(a->other, a->out, s);
        if (other != loaded)
            base_load(right, c, a->other->data, a->other->dtype, other * k * n, k * n);
        loaded = other;
        for (int64_t i = 0; i < m; i++) {
            base_load(left, c, a->self->data, a->self->dtype, (self * m + i) * k, k);
            memset(result, 0, (size_t)n * item);
            if (c == BASE_F64)
                row_f64((double *)(void *)result, (const double *)(const void *)left, (const double *)(const void *)right, k, n);
            else
                row_f32((float *)(void *)result, (const float *)(const void *)left, (const float *)(const void *)right, k, n);
            base_store(a->out->data, a->out->dtype, (s * m + i) * n, c, result, n);
        }
    }
    return DV_OK;
}

DV_OPERATOR(matmul, struct matmul, (self, other, out), .schema = "matmul(Tensor self, Tensor other) -> Tensor out",
    .contract = "self[*p m k]:T, other[*q k n]:T -> out[broadcast(*p, *q) m n]:T; " BASE_FLOATS
                "; sum(k); flops = 2*max(numel(*p), numel(*q))*m*n*k",
    .gradient = "self: sum_to_size(matmul(grad, transpose(other, -1, -2)), self.shape); "
                "other: sum_to_size(matmul(transpose(self, -1, -2), grad), other.shape)",
    .doc = "Products of matrices; of stacks of them with broadcasting. Vectors are written as matrices of one row or column.",
    .kernels = DV_KERNELS(DV_KERNEL(struct matmul, "cpu", NULL, matmul_any)));
