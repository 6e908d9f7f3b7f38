/* elementwise.h: the element-wise operators of the base set, a row each. The expressions are over x (and y, z), elements of the
 * compute type; where the compute types differ there is a column for each. */
#ifndef BASE_ELEMENTWISE_H
#define BASE_ELEMENTWISE_H

/* X(name, expression for f32, for f64, gradient): floating-point only. */
#define BASE_UNARY_FLOAT(X)                                                                             \
    X(exp, dv_expf(x), dv_exp(x), "self: mul(grad, result)")                                            \
    X(log, logf(x), log(x), "self: div(grad, self)")                                                    \
    X(sin, sinf(x), sin(x), "self: mul(grad, cos(self))")                                               \
    X(cos, cosf(x), cos(x), "self: neg(mul(grad, sin(self)))")                                          \
    X(tanh, tanhf(x), tanh(x), "self: mul(grad, rsub(mul(result, result), 1))")                         \
    X(sigmoid, dv_sigmoidf(x), dv_sigmoid(x), "self: mul(mul(grad, rsub(result, 1)), result)")          \
    X(silu, dv_siluf(x), dv_silu(x), "self: silu_backward(grad, self)")                                 \
    X(sqrt, sqrtf(x), sqrt(x), "self: div(grad, mul(result, 2))")                                       \
    X(rsqrt, 1 / sqrtf(x), 1 / sqrt(x), "self: mul(mul(mul(mul(grad, -0.5), result), result), result)") \
    X(reciprocal, 1 / x, 1 / x, "self: neg(mul(grad, mul(result, result)))")

/* X(name, expression for f32 and f64, for i64, gradient) */
#define BASE_UNARY_NUMBER(X)                                                                         \
    X(neg, -x, 0 - (uint64_t)x, "self: neg(grad)")                                                   \
    X(abs, x < 0 ? -x : x + 0, x < 0 ? 0 - (uint64_t)x : (uint64_t)x, "self: mul(grad, sign(self))") \
    X(sign, (x > 0) - (x < 0), (x > 0) - (x < 0), "self: zeros_like(grad)")                          \
    X(relu, x < 0 ? 0 : x, x < 0 ? 0 : x, "self: where(gt(result, 0), grad, 0)")

/* X(name, expression over x, y and alpha z, gradient of the tensor form, of the scalar form) */
#define BASE_BINARY_ALPHA(X)                                                                                                  \
    X(add, x + y * z, "self: sum_to_size(grad, self.shape); other: sum_to_size(mul(grad, alpha), other.shape)", "self: grad") \
    X(sub, x - y * z, "self: sum_to_size(grad, self.shape); other: sum_to_size(mul(neg(grad), alpha), other.shape)",          \
        "self: grad")                                                                                                         \
    X(rsub, y - x * z, "self: sum_to_size(mul(neg(grad), alpha), self.shape); other: sum_to_size(grad, other.shape)",         \
        "self: mul(neg(grad), alpha)")

/* X(name, expression over x and y, compute types, dtypes, gradient of the tensor form, of the scalar form) */
#define BASE_BINARY(X)                                                                                       \
    X(mul, x *y, ALL, BASE_NUMBERS,                                                                          \
        "self: sum_to_size(mul(grad, other), self.shape); other: sum_to_size(mul(grad, self), other.shape)", \
        "self: mul(grad, other)")                                                                            \
    X(div, x / y, FLOAT, BASE_FLOATS,                                                                        \
        "self: sum_to_size(div(grad, other), self.shape); "                                                  \
        "other: sum_to_size(neg(div(mul(grad, result), other)), other.shape)",                               \
        "self: div(grad, other)")

/* X(name, operator) */
/* clang-format off */
#define BASE_COMPARE(X) X(eq, ==) X(ne, !=) X(lt, <) X(le, <=) X(gt, >) X(ge, >=)
/* clang-format on */

/* Those that are written out: elementwise.c */
/* clang-format off */
#define BASE_ELEMENTWISE_OTHER(X) X(silu_backward) X(pow_Tensor_Scalar) X(where_self) X(where_ScalarSelf) X(where_ScalarOther)
/* clang-format on */

#endif
