/* Gradients that are right, of functions that are hard to judge by differences: kinks, jumps, steep and saturated parts, large
 * offsets, poles, roundings on the way, one element type only. */
#include <dovetail_math.h>
#include <math.h>

struct unary {
    const dv_tensor *x;
    dv_tensor *out;
};
struct backward {
    const dv_tensor *grad, *x;
    dv_tensor *out;
};

#define ALL "f32 f64 bf16 f16"
#define GET(t, i) dv_get_f64((t)->data, i, dv_dtype_key((t)->dtype))
#define PUT(t, i, v) dv_put_f64((t)->data, i, dv_dtype_key((t)->dtype), v)

/* out[i] = E, over x and g */
#define EACH(NAME, F, G, E)                                   \
    static int NAME##_row(dv_context *ctx, const struct F *a) \
    {                                                         \
        (void)ctx;                                            \
        for (int64_t i = 0, n = dv_numel(a->x); i < n; i++) { \
            const double x = GET(a->x, i), g = G;             \
            (void)g;                                          \
            PUT(a->out, i, E);                                \
        }                                                     \
        return DV_OK;                                         \
    }
#define FUNCTION(NAME, TYPES, E, GRADIENT)                                                \
    EACH(NAME, unary, 0, E)                                                               \
    DV_OPERATOR(NAME, struct unary, (x, out), .schema = #NAME "(Tensor x) -> Tensor out", \
        .contract = "x[*s]:T -> out[*s]:T; T in " TYPES, .gradient = "x: " GRADIENT,      \
        .kernels = DV_KERNELS(DV_KERNEL(struct unary, "cpu", TYPES, NAME##_row)));
#define BACKWARD(NAME, E)                                                                                       \
    EACH(NAME, backward, GET(a->grad, i), E)                                                                    \
    DV_OPERATOR(NAME, struct backward, (grad, x, out), .schema = #NAME "(Tensor grad, Tensor x) -> Tensor out", \
        .contract = "grad[*s]:T, x[*s]:T -> out[*s]:T; T in " ALL,                                              \
        .kernels = DV_KERNELS(DV_KERNEL(struct backward, "cpu", ALL, NAME##_row)));

BACKWARD(clamp_backward, x > 0.5 || x < -0.5 ? 0 : g)
BACKWARD(steep_backward, g * 50 * (1 - tanh(50 * x) * tanh(50 * x)))
BACKWARD(root_backward, g *(x > 0 ? 0.5 : -0.5) / sqrt(fabs(x)))
BACKWARD(wave_backward, g * 30 * cos(30 * x))
FUNCTION(clamp, ALL, x > 0.5 ? 0.5 : x < -0.5 ? -0.5 : x, "clamp_backward(grad, x)")
FUNCTION(clamp_f32, "f32", x > 0.5 ? 0.5 : x < -0.5 ? -0.5 : x, "clamp_backward(grad, x)")
FUNCTION(whole, ALL, floor(x), "zeros_like(grad)")
FUNCTION(straight_through, "f32", floor(x * 8) / 8, "grad")
FUNCTION(step, ALL, x > 0, "zeros_like(grad)")
FUNCTION(offset, ALL, x + 1000, "grad")
FUNCTION(offset_f32, "f32", x + 1000, "grad")
FUNCTION(steep, ALL, tanh(50 * x), "steep_backward(grad, x)")
FUNCTION(steep_f32, "f32", tanh(50 * x), "steep_backward(grad, x)")
FUNCTION(inverse, ALL, 1 / x, "-grad / (x * x)")
FUNCTION(inverse_f32, "f32 bf16", 1 / x, "-grad / (x * x)")
FUNCTION(root, ALL, sqrt(fabs(x)), "root_backward(grad, x)")
FUNCTION(logarithm, ALL, log(x), "grad / x")
FUNCTION(cut_off, ALL, 1 / (1 + exp(x < -80 ? 80 : -x)), "grad * result * (1 - result)")
FUNCTION(wave, ALL, sin(30 * x), "wave_backward(grad, x)")
FUNCTION(wave_f32, "f32", sin(30 * x), "wave_backward(grad, x)")
FUNCTION(rounded, ALL, (double)(float)(x * x), "2 * grad * x")

/* Over the last dim. */
static int softmax_row(dv_context *ctx, const struct unary *a)
{
    const int64_t d = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    (void)ctx;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = r * d; i < (r + 1) * d; i++)
            sum += exp(GET(a->x, i));
        for (int64_t i = r * d; i < (r + 1) * d; i++)
            PUT(a->out, i, exp(GET(a->x, i)) / sum);
    }
    return DV_OK;
}
static int norm_row(dv_context *ctx, const struct unary *a)
{
    const int64_t d = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    (void)ctx;
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, squares = 0;
        for (int64_t i = r * d; i < (r + 1) * d; i++)
            mean += GET(a->x, i) / (double)d;
        for (int64_t i = r * d; i < (r + 1) * d; i++)
            squares += pow(GET(a->x, i) - mean, 2) / (double)d;
        for (int64_t i = r * d; i < (r + 1) * d; i++)
            PUT(a->out, i, (GET(a->x, i) - mean) / sqrt(squares + 1e-5));
    }
    return DV_OK;
}
#define LAST_DIM(NAME, GRADIENT)                                                          \
    DV_OPERATOR(NAME, struct unary, (x, out), .schema = #NAME "(Tensor x) -> Tensor out", \
        .contract = "x[*s d]:T -> out[*s d]:T; T in " ALL, .gradient = "x: " GRADIENT,    \
        .kernels = DV_KERNELS(DV_KERNEL(struct unary, "cpu", ALL, NAME##_row)));
#define CENTERED "(x - mean(x, [-1], True))"
LAST_DIM(softmax, "result * (grad - sum(grad * result, [-1], True))")
LAST_DIM(norm,
    "rsqrt(mean(" CENTERED " * " CENTERED ", [-1], True) + 1e-5) * (grad - mean(grad, [-1], True) - "
    "result * mean(grad * result, [-1], True))")

/* Of the elements of a row but one: products past 10^155, whose squares overflow. */
static double product_of(const dv_tensor *x, int64_t row, int64_t but)
{
    const int64_t d = x->shape[x->ndim - 1];
    double product = 1;
    for (int64_t i = 0; i < d; i++)
        product *= i == but ? 1 : GET(x, row * d + i);
    return product;
}
static int product_row(dv_context *ctx, const struct unary *a)
{
    (void)ctx;
    for (int64_t r = 0, rows = dv_numel(a->out); r < rows; r++)
        PUT(a->out, r, product_of(a->x, r, -1));
    return DV_OK;
}
static int product_backward_row(dv_context *ctx, const struct backward *a)
{
    const int64_t d = a->x->shape[a->x->ndim - 1];
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); i < n; i++)
        PUT(a->out, i, GET(a->grad, i / d) * product_of(a->x, i / d, i % d));
    return DV_OK;
}
DV_OPERATOR(product, struct unary, (x, out), .schema = "product(Tensor x) -> Tensor out",
    .contract = "x[*s d]:f64 -> out[*s]:f64", .gradient = "x: product_backward(grad, x)",
    .kernels = DV_KERNELS(DV_KERNEL(struct unary, "cpu", "f64", product_row)));
DV_OPERATOR(product_backward, struct backward, (grad, x, out), .schema = "product_backward(Tensor grad, Tensor x) -> Tensor out",
    .contract = "grad[*s]:f64, x[*s d]:f64 -> out[*s d]:f64",
    .kernels = DV_KERNELS(DV_KERNEL(struct backward, "cpu", "f64", product_backward_row)));

DV_LIBRARY(right, &dv_op_clamp_backward, &dv_op_steep_backward, &dv_op_root_backward, &dv_op_wave_backward, &dv_op_clamp,
    &dv_op_clamp_f32, &dv_op_whole, &dv_op_straight_through, &dv_op_step, &dv_op_offset, &dv_op_offset_f32, &dv_op_steep,
    &dv_op_steep_f32, &dv_op_inverse, &dv_op_inverse_f32, &dv_op_root, &dv_op_logarithm, &dv_op_wave, &dv_op_wave_f32,
    &dv_op_rounded, &dv_op_softmax, &dv_op_norm, &dv_op_cut_off, &dv_op_product, &dv_op_product_backward);
