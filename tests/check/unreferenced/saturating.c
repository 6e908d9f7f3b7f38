/* Right operators that notice each overflow on the way: a narrow dtype has more of them than a wide one. */
#include <dovetail_op.h>

struct f {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
#define KERNELS(NAME, T, LEAST, MOST)                                                           \
    static int sum_##NAME(dv_context *ctx, const struct f *a)                                   \
    {                                                                                           \
        const int64_t k = a->x->shape[1];                                                       \
        (void)ctx;                                                                              \
        for (int64_t i = 0; i < a->x->shape[0]; i++) {                                          \
            T sum = 0;                                                                          \
            for (int64_t j = 0; j < k; j++) {                                                   \
                const T x = ((const T *)a->x->data)[i * k + j];                                 \
                if (__builtin_add_overflow(sum, x, &sum))                                       \
                    sum = x < 0 ? LEAST : MOST;                                                 \
            }                                                                                   \
            ((T *)a->out->data)[i] = sum;                                                       \
        }                                                                                       \
        return DV_OK;                                                                           \
    }                                                                                           \
    static int sum_or_0_##NAME(dv_context *ctx, const struct f *a)                              \
    {                                                                                           \
        const int64_t k = a->x->shape[1];                                                       \
        (void)ctx;                                                                              \
        for (int64_t i = 0; i < a->x->shape[0]; i++) {                                          \
            T sum = 0;                                                                          \
            bool fits = true;                                                                   \
            for (int64_t j = 0; j < k; j++)                                                     \
                fits &= !__builtin_add_overflow(sum, ((const T *)a->x->data)[i * k + j], &sum); \
            ((int64_t *)a->out->data)[i] = fits ? sum : 0;                                      \
        }                                                                                       \
        return DV_OK;                                                                           \
    }                                                                                           \
    static int scaled_##NAME(dv_context *ctx, const struct f *a)                                \
    {                                                                                           \
        (void)ctx;                                                                              \
        for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) {                                   \
            const T x = ((const T *)a->x->data)[i], y = ((const T *)a->y->data)[i];             \
            T product;                                                                          \
            if (__builtin_mul_overflow(x, y, &product))                                         \
                product = (x < 0) == (y < 0) ? MOST : LEAST;                                    \
            ((T *)a->out->data)[i] = product / 16;                                              \
        }                                                                                       \
        return DV_OK;                                                                           \
    }
KERNELS(i8, int8_t, INT8_MIN, INT8_MAX)
KERNELS(i16, int16_t, INT16_MIN, INT16_MAX)
KERNELS(i32, int32_t, INT32_MIN, INT32_MAX)
KERNELS(i64, int64_t, INT64_MIN, INT64_MAX)
#define TABLE(NAME)                                                                                        \
    DV_KERNELS(DV_KERNEL(struct f, "cpu", "i8", NAME##_i8), DV_KERNEL(struct f, "cpu", "i16", NAME##_i16), \
        DV_KERNEL(struct f, "cpu", "i32", NAME##_i32), DV_KERNEL(struct f, "cpu", "i64", NAME##_i64))

DV_OPERATOR(sum, struct f, (x, y, out), .schema = "sum(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[n k]:T, y[*s] -> out[n]:T; unused(y); T in i8 i16 i32 i64", .kernels = TABLE(sum));
DV_OPERATOR(sum_or_0, struct f, (x, y, out), .schema = "sum_or_0(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[n k]:T, y[*s] -> out[n]:i64; unused(y); T in i8 i16 i32 i64", .kernels = TABLE(sum_or_0));
DV_OPERATOR(scaled, struct f, (x, y, out), .schema = "scaled(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T; T in i8 i16 i32 i64", .kernels = TABLE(scaled));
DV_LIBRARY(saturating, &dv_op_sum, &dv_op_sum_or_0, &dv_op_scaled);
