/* Results that are made of the high bits of integers depend on the width of the dtype: the high half of a product, a carry, the
 * first digit of a radix sort. */
#include <dovetail_op.h>

#define LOOP for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)

struct binary {
    const dv_tensor *x, *y;
    dv_tensor *out;
};
#define MULHI(name, T, WIDE, BITS)                                   \
    static int mulhi_##name(dv_context *ctx, const struct binary *a) \
    {                                                                \
        const T *x = a->x->data, *y = a->y->data;                    \
        T *out = a->out->data;                                       \
        (void)ctx;                                                   \
        LOOP out[i] = (T)((WIDE)x[i] * y[i] >> BITS);                \
        return DV_OK;                                                \
    }
__extension__ typedef __int128 int128;
MULHI(i8, int8_t, int32_t, 8)
MULHI(i16, int16_t, int32_t, 16)
MULHI(i32, int32_t, int64_t, 32)
MULHI(i64, int64_t, int128, 64)
#define KERNEL(S, NAME, T) DV_KERNEL(struct S, "cpu", #T, NAME##_##T)
#define KERNELS(S, NAME) DV_KERNELS(KERNEL(S, NAME, i8), KERNEL(S, NAME, i16), KERNEL(S, NAME, i32), KERNEL(S, NAME, i64))
DV_OPERATOR(mulhi, struct binary, (x, y, out), .schema = "mulhi(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T; parallel(*s); T in i8 i16 i32 i64", .kernels = KERNELS(binary, mulhi));

struct add {
    const dv_tensor *x, *y;
    dv_tensor *out, *over;
};
#define ADD(name, T)                                                \
    static int add_##name(dv_context *ctx, const struct add *a)     \
    {                                                               \
        const T *x = a->x->data, *y = a->y->data;                   \
        T *out = a->out->data;                                      \
        bool *over = a->over->data;                                 \
        (void)ctx;                                                  \
        LOOP over[i] = __builtin_add_overflow(x[i], y[i], &out[i]); \
        return DV_OK;                                               \
    }                                                               \
    static int fits_##name(dv_context *ctx, const struct binary *a) \
    {                                                               \
        const T *x = a->x->data, *y = a->y->data;                   \
        bool *out = a->out->data;                                   \
        T sum;                                                      \
        (void)ctx;                                                  \
        LOOP out[i] = !__builtin_add_overflow(x[i], y[i], &sum);    \
        return DV_OK;                                               \
    }
ADD(i8, int8_t)
ADD(i16, int16_t)
ADD(i32, int32_t)
ADD(i64, int64_t)
DV_OPERATOR(add, struct add, (x, y, out, over), .schema = "add(Tensor x, Tensor y) -> (Tensor out, Tensor over)",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:T, over[*s]:bool; parallel(*s); T in i8 i16 i32 i64", .kernels = KERNELS(add, add));
DV_OPERATOR(fits, struct binary, (x, y, out), .schema = "fits(Tensor x, Tensor y) -> Tensor out",
    .contract = "x[*s]:T, y[*s]:T -> out[*s]:bool; parallel(*s); T in i8 i16 i32 i64", .kernels = KERNELS(binary, fits));

struct digit {
    const dv_tensor *x;
    dv_tensor *out;
};
#define DIGIT(name, T)                                                                           \
    static int digit_##name(dv_context *ctx, const struct digit *a)                              \
    {                                                                                            \
        const T *x = a->x->data;                                                                 \
        uint8_t *out = a->out->data;                                                             \
        (void)ctx;                                                                               \
        LOOP out[i] = (uint8_t)(x[i] >> (8 * sizeof(T) - 8));                                    \
        return DV_OK;                                                                            \
    }                                                                                            \
    static int order_##name(dv_context *ctx, const struct digit *a) /* of numbers with a sign */ \
    {                                                                                            \
        const T *x = a->x->data;                                                                 \
        uint8_t *out = a->out->data;                                                             \
        (void)ctx;                                                                               \
        LOOP out[i] = (uint8_t)(x[i] >> (8 * sizeof(T) - 8)) ^ 0x80;                             \
        return DV_OK;                                                                            \
    }
DIGIT(i8, uint8_t)
DIGIT(i16, uint16_t)
DIGIT(i32, uint32_t)
DIGIT(i64, uint64_t)
DV_OPERATOR(digit, struct digit, (x, out), .schema = "digit(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:u8; parallel(*s); T in i8 i16 i32 i64", .kernels = KERNELS(digit, digit));
DV_OPERATOR(order, struct digit, (x, out), .schema = "order(Tensor x) -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:u8; parallel(*s); T in i8 i16 i32 i64", .kernels = KERNELS(digit, order));

DV_LIBRARY(high_bits, &dv_op_mulhi, &dv_op_add, &dv_op_fits, &dv_op_digit, &dv_op_order);
