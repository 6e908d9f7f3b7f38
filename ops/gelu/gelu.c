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

/* By erf, the exact form, and by tanh: the sigmoid of 2 root (x + cubic x^3) is the share below x, nearly. For f32 the second is
 * computed in double: the exponent is a polynomial of x, whose rounding would show. */
#define ROOT 0.7978845608028654 /* sqrt(2 / pi) */
#define CUBIC 0.044715
#define NEARLY(x, number) dv_sigmoid((number)(2 * ROOT) * (x + (number)CUBIC * x * x * x))
#define SLOPE(x, s, number) (s + 2 * x * s * (1 - s) * (number)ROOT * (1 + 3 * (number)CUBIC * x * x))
/* Beyond 50 the slope is 0 or 1: there x^2 would be infinite, and that times 0 is NaN. */
#define BOUNDED(x, number) dv_max((number) - 50, dv_min((number)50, x))
DV_INLINE double nearly_f64(double x) { return x * NEARLY(x, double); }
DV_INLINE double slope_f64(double x)
{
    const double y = BOUNDED(x, double);
    return SLOPE(y, NEARLY(y, double), double);
}
DV_INLINE float nearly_f32(float x) { return (float)nearly_f64((double)x); }
DV_INLINE float slope_f32(float x) { return (float)slope_f64((double)x); }
#ifdef DV_TARGET_AVX512
DV__EACH_X16(nearly_x16, nearly_f32)
DV__EACH_X16(slope_x16, slope_f32)
#endif

/* A function, as a comparison in the line would cost its vectors. */
DV_INLINE bool is_16(const dv_tensor *t) { return t->dtype.bits == 16; }

DV_ELEMENTWISE(erf_row, struct gelu, (x), (out), out = gelu_of(x, is_16(frame.x)))
DV_ELEMENTWISE(tanh_row, struct gelu, (x), (out), out = DV__BY_TYPE(x, nearly_f32, nearly_f64, nearly_x16)(x))
DV_ELEMENTWISE(tanh_16_row, struct gelu, (x), (out), out = x * NEARLY(x, dv_number))

DV_ELEMENTWISE(erf_slope, struct gelu_backward, (grad_output, x), (grad_input), const dv_real e = gauss_of(x);
    grad_input = grad_output * (below_of(x, e) + x * (dv_number)0.3989422804014327 * e))
DV_ELEMENTWISE(tanh_slope, struct gelu_backward, (grad_output, x), (grad_input),
    grad_input = grad_output * DV__BY_TYPE(x, slope_f32, slope_f64, slope_x16)(x))
DV_ELEMENTWISE(tanh_16_slope, struct gelu_backward, (grad_output, x), (grad_input), const dv_real y = BOUNDED(x, dv_number);
    const dv_real s = NEARLY(y, dv_number); grad_input = grad_output * SLOPE(y, s, dv_number))

/* The row that the call is for. */
#define CHOOSE(FRAME, NAME)                                                                                           \
    typedef int (*NAME##_fn)(dv_context *, const FRAME *);                                                            \
    static int NAME##_row(dv_context *ctx, const FRAME *a, NAME##_fn by_erf, NAME##_fn by_tanh, NAME##_fn by_tanh_16) \
    {                                                                                                                 \
        return (a->approximate.data[0] == 'n' ? by_erf : a->x->dtype.bits == 16 ? by_tanh_16 : by_tanh)(ctx, a);      \
    }
CHOOSE(struct gelu, gelu)
DV_ISA_VARIANTS_OF(struct gelu, gelu_row, erf_row, tanh_row, tanh_16_row)
static int gelu_row_reference(dv_context *ctx, const struct gelu *a)
{
    return gelu_row(ctx, a, erf_row_reference, tanh_row_reference, tanh_row_reference);
}
CHOOSE(struct gelu_backward, gelu_backward)
DV_ISA_VARIANTS_OF(struct gelu_backward, gelu_backward_row, erf_slope, tanh_slope, tanh_16_slope)
static int gelu_backward_row_reference(dv_context *ctx, const struct gelu_backward *a)
{
    return gelu_backward_row(ctx, a, erf_slope_reference, tanh_slope_reference, tanh_slope_reference);
}

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
