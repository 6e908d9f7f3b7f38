/* gelu.c: x times the normal distribution's share below x, exact or by tanh, and its gradient. */
#include "../gauss.h"
#include <dovetail_elementwise.h>
#include "../numbers.h"

static const double root = 0.7978845608028654 /* sqrt(2 / pi) */, cubic = 0.044715;

/* The share of the distribution below x: in forms that keep their accuracy far below 0, where 1 + erf and 1 + tanh cancel. */
static double below(double x, bool by_tanh)
{
    return by_tanh ? 1 / (1 + exp(-2 * root * (x + cubic * x * x * x))) : 0.5 * erfc(x * -0.7071067811865476);
}
static double gelu_of(double x, bool by_tanh) { return x * below(x, by_tanh); }
static double slope_of(double x, bool by_tanh)
{
    const double s = below(x, by_tanh);
    if (!by_tanh)
        return s + x * 0.3989422804014327 * exp(-0.5 * x * x);
    return s + 2 * x * s * (1 - s) * root * (1 + 3 * cubic * x * x);
}

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

static int gelu_reference(dv_context *ctx, const struct gelu *a)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        dv_put_f64(a->out->data, i, t, gelu_of(dv_get_f64(a->x->data, i, t), a->approximate.data[0] == 't'));
    return DV_OK;
}
static int gelu_backward_reference(dv_context *ctx, const struct gelu_backward *a)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        dv_put_f64(a->grad_input->data, i, t,
            dv_get_f64(a->grad_output->data, i, t) * slope_of(dv_get_f64(a->x->data, i, t), a->approximate.data[0] == 't'));
    return DV_OK;
}

/* ---- fast rows, of all types but f64 ------------------------------------------------------------------------------------- */

#define LOOP(IN, T, EXPRESSION)          \
    DV_BLOCK_LOOP                        \
    {                                    \
        const T x = (T)in[IN][i];        \
        out[0][i] = (float)(EXPRESSION); \
    }
/* Of argument IN: an expression of T for f32, and one of float for bf16 and f16, which `is_16` says by not being NULL. */
#define STEP(NAME, IN, T, EXPRESSION, EXPRESSION_16)                            \
    DV_INLINE void NAME(float *const *out, const float *const *in, void *is_16) \
    {                                                                           \
        if (is_16)                                                              \
            LOOP(IN, float, EXPRESSION_16)                                      \
        else                                                                    \
            LOOP(IN, T, EXPRESSION)                                             \
    }
/* By tanh in double: the exponent is a polynomial of x, whose rounding would show. */
#define SIGMOID dv_sigmoid(2 * root * (x + cubic * x * x * x))
#define SIGMOID_16 dv_sigmoidf(2 * (float)root * (x + (float)cubic * x * x * x))
#define SLOPE(S) (S + 2 * x * S * (1 - S) * root * (1 + 3 * cubic * x * x))
#define SLOPE_16(S) (S + 2 * x * S * (1 - S) * (float)root * (1 + 3 * (float)cubic * x * x))
STEP(exact, 0, float, x *below_fast(x, gauss(x)), x *below_16(x, gauss_16(x)))
STEP(by_tanh, 0, double, x *SIGMOID, x *SIGMOID_16)
STEP(exact_backward, 1, float, in[0][i] * (below_fast(x, gauss(x)) + x * 0.39894228f * gauss(x)),
    in[0][i] * (below_16(x, gauss_16(x)) + x * 0.39894228f * gauss_16(x)))
STEP(by_tanh_backward, 1, double, (double)in[0][i] * SLOPE(SIGMOID), in[0][i] * SLOPE_16(SIGMOID_16))

DV_INLINE int gelu_row(dv_context *ctx, const struct gelu *a, const dv_isa *isa)
{
    void *const is_16 = a->x->dtype.bits == 16 ? a->out : NULL;
    (void)ctx;
    if (a->approximate.data[0] == 't')
        dv_blocks(isa, dv_numel(a->x), DV_OUT(a->out), DV_IN(a->x), is_16, by_tanh, NULL);
    else
        dv_blocks(isa, dv_numel(a->x), DV_OUT(a->out), DV_IN(a->x), is_16, exact, NULL);
    return DV_OK;
}
DV_INLINE int gelu_backward_row(dv_context *ctx, const struct gelu_backward *a, const dv_isa *isa)
{
    void *const is_16 = a->x->dtype.bits == 16 ? a->grad_input : NULL;
    (void)ctx;
    if (a->approximate.data[0] == 't')
        dv_blocks(isa, dv_numel(a->x), DV_OUT(a->grad_input), DV_IN(a->grad_output, a->x), is_16, by_tanh_backward, NULL);
    else
        dv_blocks(isa, dv_numel(a->x), DV_OUT(a->grad_input), DV_IN(a->grad_output, a->x), is_16, exact_backward, NULL);
    return DV_OK;
}
DV_ISAS(struct gelu, gelu_row)
DV_ISAS(struct gelu_backward, gelu_backward_row)

#define FACTS "T in f32 f64 bf16 f16; approximate in \"none\" \"tanh\"; parallel(*s)"
#define ROWS(FRAME, FAST, FN)                                                                                   \
    DV_KERNELS(DV_BF16_ROW(FRAME, FAST, .split = 8192) DV_ISA_ROWS(FRAME, FAST, "f32 bf16 f16", .split = 8192), \
        DV_KERNEL(FRAME, "cpu", NULL, FN, .split = 4096, .flags = DV_KERNEL_REFERENCE))

DV_OPERATOR(gelu, struct gelu, (x, approximate, out), .schema = "gelu(Tensor x, str approximate=\"none\") -> Tensor out",
    .contract = "x[*s]:T -> out[*s]:T; " FACTS, .gradient = "x: gelu_backward(grad, x, approximate)",
    .doc = "x times the share of a normal distribution below x; by erf, or by tanh as an approximation.",
    .kernels = ROWS(struct gelu, gelu_row, gelu_reference));
DV_OPERATOR(gelu_backward, struct gelu_backward, (grad_output, x, approximate, grad_input),
    .schema = "gelu_backward(Tensor grad_output, Tensor x, str approximate=\"none\") -> Tensor grad_input",
    .contract = "grad_output[*s]:T, x[*s]:T -> grad_input[*s]:T; " FACTS, .doc = "The gradient of gelu.",
    .kernels = ROWS(struct gelu_backward, gelu_backward_row, gelu_backward_reference));

DV_LIBRARY_FRAGMENT(dovetail, gelu, &dv_op_gelu, &dv_op_gelu_backward);
