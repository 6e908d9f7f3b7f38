/* layer_norm.c: (x - mean) / sqrt(variance + eps) * weight + bias over the last dim, and its gradient. */
#include "../lines.h"

struct layer_norm {
    const dv_tensor *x, *weight, *bias;
    double eps;
    dv_tensor *out;
};

DV__NOINLINE static void load_row(double *to, const dv_tensor *t, int64_t row, int64_t n) { load(to, t, row * n, n); }
DV__NOINLINE static void store_row(const dv_tensor *t, int64_t row, const double *from, int64_t n) { store(t, row * n, from, n); }
/* x -= its mean. Returns 1 / sqrt(variance + eps). */
static double normalise(double *x, int64_t n, double eps)
{
    double mean = 0, more = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        mean += x[i];
    mean /= (double)n;
    for (int64_t i = 0; i < n; i++)
        more += x[i] - mean;
    mean += more / (double)n;
    for (int64_t i = 0; i < n; i++) {
        x[i] -= mean;
        squares += x[i] * x[i];
    }
    return 1 / sqrt(squares / (double)n + eps);
}

static int layer_norm_reference(dv_context *ctx, const struct layer_norm *a)
{
    const int64_t n = last_dim(a->x), rows = dv_numel_leading(a->x, a->x->ndim - 1);
    double *const x = dv_alloc(ctx, (size_t)(3 * n + 1) * sizeof(double), 64);
    if (!x)
        return DV_ENOMEM;
    double *const weight = x + n, *const bias = weight + n;
    for (int64_t i = 0; i < n; i++)
        weight[i] = 1, bias[i] = 0;
    if (a->weight)
        load_row(weight, a->weight, 0, n);
    if (a->bias)
        load_row(bias, a->bias, 0, n);
    for (int64_t r = 0; r < rows; r++) {
        load_row(x, a->x, r, n);
        const double scale = normalise(x, n, a->eps);
        for (int64_t i = 0; i < n; i++)
            x[i] = x[i] * scale * weight[i] + bias[i];
        store_row(a->out, r, x, n);
    }
    return DV_OK;
}

/* 1 / sqrt(variance + eps) of a line with this sum; its mean is *of, and *more that a float loses. The rest of its last block,
 * which is the caller's, becomes the mean. */
DV_INLINE double spread(float *x, int64_t n, double sum, double eps, float *of, double *more)
{
    double exact = sum / (double)n, squares;
    float mean = (float)exact;
    for (int64_t i = n; i < line_room(n); i++)
        x[i] = mean;
    SUM_BLOCKS(squares, n, v = (LANES(x + k) - mean) * (LANES(x + k) - mean))
    const bool constant = exact * exact > 0x1p40 * (squares / (double)n + eps); /* but for rounding, which is all that is left */
    const bool floats_do = were_floats(squares, n, eps) && !constant;
    if (!floats_do) {
        exact = mean_again(x, n);
        mean = (float)exact;
        squares = squares_again(x, n, (double)mean);
    }
    *more = exact - (double)mean;
    double variance = squares / (double)n;
    if (floats_do && exact * exact > variance) { /* and in its sum, where that is long and all elements are near the mean */
        SUM_BLOCKS(sum, n, v = LANES(x + k) - mean)
        *more = sum / (double)n;
    }
    *of = mean;
    variance -= *more * *more;
    return 1 / sqrt((variance < 0 ? 0 : variance) + eps);
}

/* A function for each instruction set: rows call it in several places. */
#define SPREAD(ISA, TARGET)                                                                                          \
    TARGET FEW_ONCE static double spread_##ISA(float *x, int64_t n, double sum, double eps, float *of, double *more) \
    {                                                                                                                \
        return spread(x, n, sum, eps, of, more);                                                                     \
    }
FOR_EACH_ISA(SPREAD)

DV_INLINE int norm_of(dv_context *ctx, const struct layer_norm *a, const dv_isa_functions *isa, uint32_t t)
{
    const int64_t n = last_dim(a->x), rows = dv_numel_leading(a->x, a->x->ndim - 1), room = line_room(n);
    float *const floats = dv_alloc(ctx, (size_t)(3 * room + 1) * sizeof(float), 64);
    if (!floats)
        return DV_ENOMEM;
    float *const weight = floats + room, *const bias = weight + room;
    for (int64_t i = 0; i < room; i++)
        weight[i] = 1, bias[i] = 0;
    if (a->weight)
        load_line(isa, weight, a->weight, 0, n, 0);
    if (a->bias)
        load_line(isa, bias, a->bias, 0, n, 0);
    for (int64_t r = 0; r < rows; r++) {
        const struct elements from = elements_of(a->x, t, r * n, n), to = result_of(isa, ctx, a->out, t, r * n, &from);
        double sum;
        float *const there = floats_of(&from), *const x = there ? there : floats, *const out = floats_of(&to);
        SUM_BLOCKS(sum, room, keep_lanes(isa, &v, x, there, &from, k))
        float mean;
        double more;
        const double exact_scale = OF_EACH_ISA(isa, spread)(x, n, sum, a->eps, &mean, &more);
        const float scale = (float)exact_scale, shift = -(float)more * scale;
        if (!is_float_scale(exact_scale)) {
            put_scaled(a->out, r, x, (double)mean + more, exact_scale, weight, bias);
            continue;
        }
#define NORMALISED(AT) (((AT(x) - mean) * scale + shift) * AT(weight) + AT(bias))
        PUT_LINE(isa, &to, out, n, NORMALISED)
    }
    results_end(ctx);
    return DV_OK;
}
DV_INLINE int layer_norm_row(dv_context *ctx, const struct layer_norm *a, const dv_isa_functions *isa)
{
#define ROW_OF(T) norm_of(ctx, a, isa, T)
    BY_DTYPE(isa, a->x, ROW_OF);
}
DV_ISA_VARIANTS(struct layer_norm, layer_norm_row)

#define CENTRED "(" WIDE("x") " - mean(" WIDE("x") ", [-1], True))"
#define NORMAL CENTRED " / sqrt(mean(" CENTRED " * " CENTRED ", [-1], True) + eps)" /* the gradient of rsqrt has its cube */
#define WEIGHTED "if(present(weight), " NORMAL " * weight, " NORMAL ")"

DV_OPERATOR(layer_norm, struct layer_norm, (x, weight, bias, eps, out),
    .schema = "layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor out",
    .contract = "x[*s n]:T, weight[n]:T, bias[n]:T -> out[*s n]:T; T in f32 f64 bf16 f16; parallel(*s)",
    .native = "type_as(if(present(bias), " WEIGHTED " + bias, " WEIGHTED "), x)",
    .gradient = "x, weight, bias: layer_norm_backward(grad, x, weight, eps)",
    .doc = "(x - mean) / sqrt(variance + eps) * weight + bias over the last dim.",
    .kernels = DV_KERNELS(DV_BF16_KERNEL(struct layer_norm, layer_norm_row, .split = 8)
                              DV_ISA_KERNELS(struct layer_norm, layer_norm_row, "f32 bf16 f16", .split = 8),
        DV_KERNEL(struct layer_norm, "cpu", NULL, layer_norm_reference, .split = 8, .flags = DV_KERNEL_REFERENCE)));

/* ---- backward ------------------------------------------------------------------------------------------------------------
 * With y = (x - mean) r, r = 1 / sqrt(variance + eps) and g = grad * weight: grad_x = r (g - mean(g) - y mean(g y));
 * grad_weight = sum of grad y, grad_bias = sum of grad. */

struct layer_norm_backward {
    const dv_tensor *grad_output, *x, *weight;
    double eps;
    dv_tensor *grad_x, *grad_weight, *grad_bias;
};

static int layer_norm_backward_reference(dv_context *ctx, const struct layer_norm_backward *a)
{
    const int64_t n = last_dim(a->x), rows = dv_numel_leading(a->x, a->x->ndim - 1);
    double *const y = dv_alloc(ctx, (size_t)(5 * n + 1) * sizeof(double), 64);
    if (!y)
        return DV_ENOMEM;
    double *const grad = y + n, *const weight = grad + n, *const weights = weight + n, *const biases = weights + n;
    memset(weights, 0, (size_t)(2 * n) * sizeof(double));
    for (int64_t i = 0; i < n; i++)
        weight[i] = 1;
    if (a->weight)
        load_row(weight, a->weight, 0, n);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0, product = 0;
        load_row(y, a->x, r, n);
        load_row(grad, a->grad_output, r, n);
        const double scale = normalise(y, n, a->eps);
        for (int64_t i = 0; i < n; i++) {
            y[i] *= scale;
            weights[i] += grad[i] * y[i];
            biases[i] += grad[i];
            grad[i] *= weight[i];
            sum += grad[i];
            product += grad[i] * y[i];
        }
        for (int64_t i = 0; i < n; i++)
            y[i] = (grad[i] - sum / (double)n - y[i] * (product / (double)n)) * scale;
        store_row(a->grad_x, r, y, n);
    }
    store_row(a->grad_weight, 0, weights, n);
    store_row(a->grad_bias, 0, biases, n);
    return DV_OK;
}

DV_INLINE int backward_of(
    dv_context *ctx, const struct layer_norm_backward *a, const dv_isa_functions *isa, load_fn load_floats, store_fn store_floats)
{
    enum { ROWS = 64 };
    const int64_t n = last_dim(a->x), rows = dv_numel_leading(a->x, a->x->ndim - 1), room = line_room(n);
    float *const y = dv_alloc(ctx, (size_t)(5 * room + 1) * sizeof(float), 64);
    double *const all = dv_alloc(ctx, (size_t)(2 * room + 1) * sizeof(double), 64);
    if (!y || !all)
        return DV_ENOMEM;
    float *const g = y + room, *const weight = g + room, *const weights = weight + room, *const biases = weights + room;
    memset(weights, 0, (size_t)(2 * room) * sizeof *weights);
    memset(all, 0, (size_t)(2 * room) * sizeof *all);
    for (int64_t i = 0; i < room; i++)
        weight[i] = 1;
    if (a->weight)
        load_floats(weight, a->weight, 0, n, 0);
    for (int64_t r = 0; r < rows; r++) {
        float mean;
        double sum, more, product;
        load_floats(y, a->x, r * n, n, 0);
        load_floats(g, a->grad_output, r * n, n, 0);
        SUM_BLOCKS(sum, n, v = LANES(y + k))
        const double exact = OF_EACH_ISA(isa, spread)(y, n, sum, a->eps, &mean, &more);
        if (!is_float_scale(exact))
            return layer_norm_backward_reference(ctx, a);
        const float scale = (float)exact, shift = -(float)more * scale;
        for (int64_t k = 0; k < n; k += DV_BLOCK)
            DV_BLOCK_LOOP
            {
                const float d = g[k + i], v = (y[k + i] - mean) * scale + shift;
                weights[k + i] += d * v, biases[k + i] += d;
                g[k + i] = d * weight[k + i], y[k + i] = v;
            }
        SUM_BLOCKS(sum, n, v = LANES(g + k))
        SUM_BLOCKS(product, n, v = LANES(g + k) * LANES(y + k))
        const float first = (float)(sum / (double)n), second = (float)(product / (double)n);
        for (int64_t k = 0; k < n; k += DV_BLOCK)
            DV_BLOCK_LOOP
        y[k + i] = (g[k + i] - first - y[k + i] * second) * scale;
        store_floats(a->grad_x, r * n, y, n);
        for (int64_t i = 0; i < 2 * room && (r % ROWS == ROWS - 1 || r + 1 == rows); i++) /* a long sum in float loses digits */
            all[i] += (double)weights[i], weights[i] = 0;
    }
    for (int64_t i = 0; i < 2 * room; i++)
        weights[i] = (float)all[i];
    store_floats(a->grad_weight, 0, weights, n);
    store_floats(a->grad_bias, 0, biases, n);
    return DV_OK;
}
#define BACKWARD(ISA, TARGET)                                                                             \
    LOAD_LINE(ISA, TARGET)                                                                                \
    STORE_LINE(ISA, TARGET)                                                                               \
    TARGET static int layer_norm_backward_row_##ISA(dv_context *ctx, const struct layer_norm_backward *a) \
    {                                                                                                     \
        return backward_of(ctx, a, &dv_isa_##ISA, load_##ISA, store_##ISA);                               \
    }
FOR_EACH_ISA(BACKWARD)

/* Equal numbers, less the largest, are 0, and so is their variance; their mean may lose digits. */
#define SHIFTED "if(x.numel == 0, " WIDE("x") ", " WIDE("x") " - amax(" WIDE("x") ", [-1], True))"
#define OFF "(" SHIFTED " - mean(" SHIFTED ", [-1], True))"
#define SCALE "sqrt(mean(" OFF " * " OFF ", [-1], True) + eps)"
#define Y "(" OFF " / " SCALE ")"
#define G "if(present(weight), grad_output * weight, " WIDE("grad_output") ")"
DV_OPERATOR(layer_norm_backward, struct layer_norm_backward, (grad_output, x, weight, eps, grad_x, grad_weight, grad_bias),
    .schema = "layer_norm_backward(Tensor grad_output, Tensor x, Tensor? weight=None, float eps=1e-05) -> (Tensor grad_x, Tensor "
              "grad_weight, Tensor grad_bias)",
    .contract =
        "grad_output[*s n]:T, x[*s n]:T, weight[n]:T -> grad_x[*s n]:T, grad_weight[n]:T, grad_bias[n]:T; T in f32 f64 bf16 "
        "f16",
    .native = "(type_as((" G " - mean(" G ", [-1], True) - " Y " * mean(" G " * " Y ", [-1], True)) / " SCALE ", x), "
              "type_as(sum_to_size(grad_output * " Y ", [x.shape[-1]]), x), "
              "type_as(sum_to_size(" WIDE("grad_output") ", [x.shape[-1]]), x))",
    .doc = "The gradients of layer_norm with respect to x, weight and bias, also where weight or bias is None.",
    .kernels = DV_KERNELS(DV_ISA_KERNELS(struct layer_norm_backward, layer_norm_backward_row, "f32 bf16 f16", .flags = 0),
        DV_KERNEL(struct layer_norm_backward, "cpu", NULL, layer_norm_backward_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, layer_norm, &dv_op_layer_norm, &dv_op_layer_norm_backward);
