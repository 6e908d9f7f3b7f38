/* elementwise.c: the element-wise operators. */
#include "base.h"
#include "elementwise.h"
#include <dovetail_math.h>
#include <math.h>

/* The chunk function of one compute type. z is read only by those that have three inputs. */
#define CHUNK1(NAME, C, EXPRESSION)                              \
    static void NAME(void *to, const void *const *in, int64_t n) \
    {                                                            \
        C *restrict out = to;                                    \
        const C *restrict xs = in[0];                            \
        for (int64_t i = 0; i < n; i++) {                        \
            const C x = xs[i];                                   \
            out[i] = (C)(EXPRESSION);                            \
        }                                                        \
    }
#define CHUNK2(NAME, C, EXPRESSION)                              \
    static void NAME(void *to, const void *const *in, int64_t n) \
    {                                                            \
        C *restrict out = to;                                    \
        const C *restrict xs = in[0], *restrict ys = in[1];      \
        for (int64_t i = 0; i < n; i++) {                        \
            const C x = xs[i], y = ys[i];                        \
            out[i] = (C)(EXPRESSION);                            \
        }                                                        \
    }
#define CHUNK3(NAME, C, EXPRESSION)                                               \
    static void NAME(void *to, const void *const *in, int64_t n)                  \
    {                                                                             \
        C *restrict out = to;                                                     \
        const C *restrict xs = in[0], *restrict ys = in[1], *restrict zs = in[2]; \
        for (int64_t i = 0; i < n; i++) {                                         \
            const C x = xs[i], y = ys[i], z = zs[i];                              \
            out[i] = (C)(EXPRESSION);                                             \
        }                                                                         \
    }
/* Integers are computed as uint64_t, which wraps, where the sign does not matter. */
#define FUNCTION_ALL(NAME, CHUNK, E, INT) \
    CHUNK(NAME##_f32, float, E)           \
    CHUNK(NAME##_f64, double, E)          \
    CHUNK(NAME##_i64, INT, E)             \
    static const base_function NAME##_function = { { NAME##_f32, NAME##_f64, NAME##_i64 } };
#define FUNCTION_FLOAT(NAME, CHUNK, E32, E64) \
    CHUNK(NAME##_f32, float, E32)             \
    CHUNK(NAME##_f64, double, E64)            \
    static const base_function NAME##_function = { { NAME##_f32, NAME##_f64, NULL } };

/* ---- one input ----------------------------------------------------------------------------------------------------------- */

struct unary {
    const dv_tensor *self;
    dv_tensor *out;
};

#define UNARY(NAME, TYPES, GRADIENT)                                                            \
    static int NAME##_any(dv_context *ctx, const struct unary *a)                               \
    {                                                                                           \
        const base_input in[] = { base_tensor(a->self) };                                       \
        return base_elementwise(ctx, a->out, &NAME##_function, a->out->dtype, in, 1);           \
    }                                                                                           \
    DV_OPERATOR(NAME, struct unary, (self, out), .schema = #NAME "(Tensor self) -> Tensor out", \
        .contract = "self[*s]:T -> out[*s]:T; " TYPES "; parallel(*s)", .gradient = GRADIENT,   \
        .kernels = DV_KERNELS(DV_KERNEL(struct unary, "cpu", NULL, NAME##_any, .split = 16384)));
#define UNARY_FLOAT(NAME, E32, E64, GRADIENT) \
    FUNCTION_FLOAT(NAME, CHUNK1, E32, E64)    \
    UNARY(NAME, BASE_FLOATS, GRADIENT)
#define UNARY_NUMBER(NAME, E, INT, GRADIENT)                                                 \
    CHUNK1(NAME##_f32, float, E)                                                             \
    CHUNK1(NAME##_f64, double, E)                                                            \
    CHUNK1(NAME##_i64, int64_t, INT)                                                         \
    static const base_function NAME##_function = { { NAME##_f32, NAME##_f64, NAME##_i64 } }; \
    UNARY(NAME, BASE_NUMBERS, GRADIENT)
BASE_UNARY_FLOAT(UNARY_FLOAT)
BASE_UNARY_NUMBER(UNARY_NUMBER)

/* ---- two inputs ---------------------------------------------------------------------------------------------------------- */

struct binary {
    const dv_tensor *self, *other;
    dv_tensor *out;
};
struct binary_scalar {
    const dv_tensor *self;
    dv_scalar other;
    dv_tensor *out;
};
struct binary_alpha {
    const dv_tensor *self, *other;
    dv_scalar alpha;
    dv_tensor *out;
};
struct binary_alpha_scalar {
    const dv_tensor *self;
    dv_scalar other, alpha;
    dv_tensor *out;
};

#define BROADCASTS "self[*a]:T, other[*b]:U -> out[broadcast(*a, *b)]:"
#define KEEPS "self[*s]:T -> out[*s]:"
/* clang-format off */
#define ROW(FRAME, FN, ...) DV_KERNELS(DV_KERNEL(FRAME, "cpu", NULL, FN, __VA_ARGS__))
/* clang-format on */

#define BINARY_ALPHA(NAME, E, GRADIENT, SCALAR_GRADIENT)                                                    \
    FUNCTION_ALL(NAME, CHUNK3, E, uint64_t)                                                                 \
    static int NAME##_tensors(dv_context *ctx, const struct binary_alpha *a)                                \
    {                                                                                                       \
        const base_input in[] = { base_tensor(a->self), base_tensor(a->other), base_number(a->alpha) };     \
        return base_elementwise(ctx, a->out, &NAME##_function, a->out->dtype, in, 3);                       \
    }                                                                                                       \
    static int NAME##_scalar(dv_context *ctx, const struct binary_alpha_scalar *a)                          \
    {                                                                                                       \
        const base_input in[] = { base_tensor(a->self), base_number(a->other), base_number(a->alpha) };     \
        return base_elementwise(ctx, a->out, &NAME##_function, a->out->dtype, in, 3);                       \
    }                                                                                                       \
    DV_OPERATOR(NAME##_Tensor, struct binary_alpha, (self, other, alpha, out),                              \
        .schema = #NAME ".Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor out",              \
        .contract = BROADCASTS "promote(T, U); " BASE_PAIRS, .gradient = GRADIENT,                          \
        .kernels = ROW(struct binary_alpha, NAME##_tensors));                                               \
    DV_OPERATOR(NAME##_Scalar, struct binary_alpha_scalar, (self, other, alpha, out),                       \
        .schema = #NAME ".Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor out",                 \
        .contract = KEEPS "promote(T, other); " BASE_NUMBERS "; parallel(*s)", .gradient = SCALAR_GRADIENT, \
        .kernels = ROW(struct binary_alpha_scalar, NAME##_scalar, .split = 16384));
BASE_BINARY_ALPHA(BINARY_ALPHA)

/* clang-format off */
#define FUNCTION_OF_ALL(NAME, E) FUNCTION_ALL(NAME, CHUNK2, E, uint64_t)
#define FUNCTION_OF_FLOAT(NAME, E) FUNCTION_FLOAT(NAME, CHUNK2, E, E)
/* clang-format on */
#define BINARY(NAME, E, WHICH, TYPES, GRADIENT, SCALAR_GRADIENT)                                     \
    FUNCTION_OF_##WHICH(NAME, E) static int NAME##_tensors(dv_context *ctx, const struct binary *a)  \
    {                                                                                                \
        const base_input in[] = { base_tensor(a->self), base_tensor(a->other) };                     \
        return base_elementwise(ctx, a->out, &NAME##_function, a->out->dtype, in, 2);                \
    }                                                                                                \
    static int NAME##_scalar(dv_context *ctx, const struct binary_scalar *a)                         \
    {                                                                                                \
        const base_input in[] = { base_tensor(a->self), base_number(a->other) };                     \
        return base_elementwise(ctx, a->out, &NAME##_function, a->out->dtype, in, 2);                \
    }                                                                                                \
    DV_OPERATOR(NAME##_Tensor, struct binary, (self, other, out),                                    \
        .schema = #NAME ".Tensor(Tensor self, Tensor other) -> Tensor out",                          \
        .contract = BROADCASTS "promote(T, U); " TYPES BASE_OTHER, .gradient = GRADIENT,             \
        .kernels = ROW(struct binary, NAME##_tensors));                                              \
    DV_OPERATOR(NAME##_Scalar, struct binary_scalar, (self, other, out),                             \
        .schema = #NAME ".Scalar(Tensor self, Scalar other) -> Tensor out",                          \
        .contract = KEEPS "promote(T, other); " TYPES "; parallel(*s)", .gradient = SCALAR_GRADIENT, \
        .kernels = ROW(struct binary_scalar, NAME##_scalar, .split = 16384));
BASE_BINARY(BINARY)

/* Compared as elements of the type that both have in common, to which numbers are rounded as well. */
static dv_scalar rounded(dv_scalar s, dv_dtype t)
{
    float room; /* for an element of any of these types */
    if (s.kind != DV_SCALAR_FLOAT || t.bits != 16 || base_compute_of(t) != BASE_F32)
        return s;
    dv_put(&room, 0, dv_dtype_key(t), (float)s.as.f);
    s.as.f = (double)dv_get(&room, 0, dv_dtype_key(t));
    return s;
}

#define COMPARE(NAME, OP)                                                                                               \
    FUNCTION_ALL(NAME, CHUNK2, x OP y, int64_t)                                                                         \
    static int NAME##_tensors(dv_context *ctx, const struct binary *a)                                                  \
    {                                                                                                                   \
        const base_input in[] = { base_tensor(a->self), base_tensor(a->other) };                                        \
        return base_elementwise(ctx, a->out, &NAME##_function, base_promote(a->self, a->other), in, 2);                 \
    }                                                                                                                   \
    static int NAME##_scalar(dv_context *ctx, const struct binary_scalar *a)                                            \
    {                                                                                                                   \
        const dv_dtype t = base_promote_scalar(a->self, a->other);                                                      \
        const base_input in[] = { base_tensor(a->self), base_number(rounded(a->other, t)) };                            \
        return base_elementwise(ctx, a->out, &NAME##_function, t, in, 2);                                               \
    }                                                                                                                   \
    DV_OPERATOR(NAME##_Tensor, struct binary, (self, other, out),                                                       \
        .schema = #NAME ".Tensor(Tensor self, Tensor other) -> Tensor out", .contract = BROADCASTS "bool; " BASE_PAIRS, \
        .gradient = "self, other: non_differentiable", .kernels = ROW(struct binary, NAME##_tensors));                  \
    DV_OPERATOR(NAME##_Scalar, struct binary_scalar, (self, other, out),                                                \
        .schema = #NAME ".Scalar(Tensor self, Scalar other) -> Tensor out",                                             \
        .contract = KEEPS "bool; " BASE_NUMBERS "; parallel(*s)", .gradient = "self: non_differentiable",               \
        .kernels = ROW(struct binary_scalar, NAME##_scalar, .split = 16384));
#pragma GCC diagnostic ignored "-Wfloat-equal"
BASE_COMPARE(COMPARE)

/* ---- silu's gradient, and its own ---------------------------------------------------------------------------------------- */

struct silu_backward {
    const dv_tensor *grad_output, *self;
    dv_tensor *out;
};

DV_INLINE float silu_slope_f32(float x)
{
    const float s = dv_sigmoidf(x);
    return s * (1 + x * (1 - s));
}
DV_INLINE double silu_slope_f64(double x)
{
    const double s = dv_sigmoid(x);
    return s * (1 + x * (1 - s));
}
FUNCTION_FLOAT(silu_backward, CHUNK2, x *silu_slope_f32(y), x *silu_slope_f64(y))

static int silu_backward_any(dv_context *ctx, const struct silu_backward *a)
{
    const base_input in[] = { base_tensor(a->grad_output), base_tensor(a->self) };
    return base_elementwise(ctx, a->out, &silu_backward_function, a->out->dtype, in, 2);
}

/* silu''(x) = s (1 - s) (2 + x (1 - 2 s)) */
DV_OPERATOR(silu_backward, struct silu_backward, (grad_output, self, out),
    .schema = "silu_backward(Tensor grad_output, Tensor self) -> Tensor out",
    .contract = "grad_output[*s]:T, self[*s]:T -> out[*s]:T; " BASE_FLOATS "; parallel(*s)",
    .gradient = "grad_output: silu_backward(grad, self); "
                "self: mul(mul(grad, grad_output), mul(mul(sigmoid(self), rsub(sigmoid(self), 1)), "
                "add(mul(self, rsub(mul(sigmoid(self), 2), 1)), 2)))",
    .kernels = ROW(struct silu_backward, silu_backward_any, .split = 16384));

/* ---- powers -------------------------------------------------------------------------------------------------------------- */

struct pow {
    const dv_tensor *self;
    dv_scalar exponent;
    dv_tensor *out;
};
FUNCTION_FLOAT(pow, CHUNK2, powf(x, y), pow(x, y))

static int pow_any(dv_context *ctx, const struct pow *a)
{
    const base_input in[] = { base_tensor(a->self), base_number(a->exponent) };
    return base_elementwise(ctx, a->out, &pow_function, a->out->dtype, in, 2);
}

DV_OPERATOR(pow_Tensor_Scalar, struct pow, (self, exponent, out),
    .schema = "pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor out",
    .contract = "self[*s]:T -> out[*s]:T; " BASE_FLOATS "; parallel(*s)",
    .gradient = "self: if(exponent == 0, zeros_like(grad), mul(mul(grad, exponent), pow(self, exponent - 1)))",
    .kernels = ROW(struct pow, pow_any, .split = 4096));

/* ---- choice -------------------------------------------------------------------------------------------------------------- */

struct where {
    const dv_tensor *condition, *self, *other;
    dv_tensor *out;
};
struct where_self {
    const dv_tensor *condition;
    dv_scalar self;
    const dv_tensor *other;
    dv_tensor *out;
};
struct where_other {
    const dv_tensor *condition, *self;
    dv_scalar other;
    dv_tensor *out;
};
FUNCTION_ALL(where, CHUNK3, x != 0 ? y : z, int64_t)

static int where_tensors(dv_context *ctx, const struct where *a)
{
    const base_input in[] = { base_tensor(a->condition), base_tensor(a->self), base_tensor(a->other) };
    return base_elementwise(ctx, a->out, &where_function, a->out->dtype, in, 3);
}
static int where_scalar_self(dv_context *ctx, const struct where_self *a)
{
    const base_input in[] = { base_tensor(a->condition), base_number(a->self), base_tensor(a->other) };
    return base_elementwise(ctx, a->out, &where_function, a->out->dtype, in, 3);
}
static int where_scalar_other(dv_context *ctx, const struct where_other *a)
{
    const base_input in[] = { base_tensor(a->condition), base_tensor(a->self), base_number(a->other) };
    return base_elementwise(ctx, a->out, &where_function, a->out->dtype, in, 3);
}

DV_OPERATOR(where_self, struct where, (condition, self, other, out),
    .schema = "where.self(Tensor condition, Tensor self, Tensor other) -> Tensor out",
    .contract = "condition[*c]:bool, self[*a]:T, other[*b]:U -> out[broadcast(*c, *a, *b)]:promote(T, U); " BASE_PAIRS,
    .gradient = "condition: non_differentiable; self: sum_to_size(where(condition, grad, 0), self.shape); "
                "other: sum_to_size(where(condition, 0, grad), other.shape)",
    .kernels = ROW(struct where, where_tensors));
DV_OPERATOR(where_ScalarSelf, struct where_self, (condition, self, other, out),
    .schema = "where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor out",
    .contract = "condition[*c]:bool, other[*b]:T -> out[broadcast(*c, *b)]:promote(self, T); " BASE_NUMBERS,
    .gradient = "condition: non_differentiable; other: sum_to_size(where(condition, 0, grad), other.shape)",
    .kernels = ROW(struct where_self, where_scalar_self));
DV_OPERATOR(where_ScalarOther, struct where_other, (condition, self, other, out),
    .schema = "where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor out",
    .contract = "condition[*c]:bool, self[*a]:T -> out[broadcast(*c, *a)]:promote(T, other); " BASE_NUMBERS,
    .gradient = "condition: non_differentiable; self: sum_to_size(where(condition, grad, 0), self.shape)",
    .kernels = ROW(struct where_other, where_scalar_other));
