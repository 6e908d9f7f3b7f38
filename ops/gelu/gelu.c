/* gelu.c: x times the normal distribution's share below x, exact or by tanh, and its gradient. */
#include "../gauss.h"
#include <dovetail_elementwise.h>

struct gelu {
    const dv_tensor *x;
    dv_string approximate;
    dv_tensor *out;
};
struct gelu_backward {
    const dv_tensor *grad_output, *x;
    dv_string approximate;
    dv_tensor *grad_input;
};

/* The sigmoid of 2 root (x + cubic x^3) is the share below x, nearly. For f32 it is computed in double: the exponent is a
 * polynomial of x, whose rounding would show. */
#define ROOT 0.7978845608028654 /* sqrt(2 / pi) */
#define CUBIC 0.044715
DV_INLINE double nearly_f64(double x) { return dv_sigmoid(2 * ROOT * (x + CUBIC * x * x * x)); }
DV_INLINE float nearly_f32(float x) { return (float)nearly_f64((double)x); }
#ifdef DV_TARGET_AVX512
DV__EACH_X16(nearly_x16, nearly_f32)
#endif
/* Functions, as a comparison in the line would cost its vectors. */
DV_INLINE bool is_16(const dv_tensor *t) { return t->dtype.bits == 16; }
DV_INLINE bool is_tanh(dv_string approximate) { return approximate.data[0] == 't'; }
#define nearly_16(x) dv_sigmoid((dv_number)(2 * ROOT) * (x + (dv_number)CUBIC * x * x * x))
#define nearly(x) (is_16(frame.x) ? nearly_16(x) : DV__BY_TYPE(x, nearly_f32, nearly_f64, nearly_x16)(x))
#define BY_TANH is_tanh(frame.approximate)

DV_ELEMENTWISE(gelu_row, struct gelu, (x), (out), out = x * (BY_TANH ? nearly(x) : below_of(x, gauss_of(x))))
#define SLOPE_NEARLY(x, s) (s + 2 * x * s * (1 - s) * (dv_number)ROOT * (1 + 3 * (dv_number)CUBIC * x * x))
DV_ELEMENTWISE(
    gelu_backward_row, struct gelu_backward, (grad_output, x), (grad_input), const dv_real s = BY_TANH ? nearly(x) : gauss_of(x);
    grad_input = grad_output * (BY_TANH ? SLOPE_NEARLY(x, s) : below_of(x, s) + x * (dv_number)0.3989422804014327 * s))

#define FACTS "T in f32 f64 bf16 f16; approximate in \"none\" \"tanh\"; parallel(*s)"

DV_OPERATOR(gelu, struct gelu, (x, approximate, out), .schema = "gelu(Tensor x, str approximate=\"none\") -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; " FACTS, .gradient = "x: gelu_backward(grad, x, approximate)",
    .doc = "x times the share of a normal distribution below x; by erf, or by tanh as an approximation.",
    .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct gelu, gelu_row, .split = 8192)));
DV_OPERATOR(gelu_backward, struct gelu_backward, (grad_output, x, approximate, grad_input),
    .schema = "gelu_backward(Tensor grad_output, Tensor x, str approximate=\"none\") -> Tensor grad_input",
    .contract = "grad_output[*s]:T, x[*s]:T -> grad_input[*s]:T; " FACTS, .doc = "The gradient of gelu.",
    .kernels = DV_KERNELS(DV_ELEMENTWISE_FLOATS(struct gelu_backward, gelu_backward_row, .split = 8192)));

DV_LIBRARY_FRAGMENT(dovetail, gelu, &dv_op_gelu, &dv_op_gelu_backward);
