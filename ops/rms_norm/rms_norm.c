/* rms_norm.c: x / sqrt(mean(x^2) + eps) * weight over the last dim, with and without a residual that is added first, and the
 * gradient. A fast row goes through a line twice: its squares are added up, then it is scaled. */
#include "../lines.h"

/* ---- forward ------------------------------------------------------------------------------------------------------------- */

struct rms_norm {
    const dv_tensor *x, *weight;
    double eps;
    dv_tensor *out;
};
struct add_rms_norm {
    const dv_tensor *x;
    dv_tensor *residual;
    const dv_tensor *weight;
    double eps;
    dv_tensor *out;
};

/* The reference, in double. The sum with the residual is rounded where it is stored, and not before it is normalised. */
static int add_rms_norm_reference(dv_context *ctx, const struct add_rms_norm *a)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    const int64_t n = last_dim(a->x), rows = dv_numel_leading(a->x, a->x->ndim - 1);
    double *const z = dv_alloc(ctx, (size_t)(n + 1) * sizeof *z, 64);
    if (!z)
        return DV_ENOMEM;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            z[i] = dv_get_f64(a->x->data, r * n + i, t);
            if (a->residual) {
                z[i] += dv_get_f64(a->residual->data, r * n + i, t);
                dv_put_f64(a->residual->data, r * n + i, t, z[i]);
            }
            sum += z[i] * z[i];
        }
        const double scale = 1 / sqrt(sum / (double)n + a->eps);
        for (int64_t i = 0; i < n; i++)
            dv_put_f64(a->out->data, r * n + i, t, z[i] * scale * dv_get_f64(a->weight->data, i, t));
    }
    return DV_OK;
}
static int rms_norm_reference(dv_context *ctx, const struct rms_norm *a)
{
    return add_rms_norm_reference(ctx, &(struct add_rms_norm){ a->x, NULL, a->weight, a->eps, a->out });
}

/* squares: those of x, as SUM_BLOCKS gave them. */
DV_INLINE double scale_of(const float *x, double squares, int64_t n, double eps)
{
    return 1 / sqrt((were_floats(squares, n, eps) ? squares : squares_again(x, n, 0)) / (double)n + eps);
}

DV_INLINE int norm_of(dv_context *ctx, const struct add_rms_norm *a, const dv_isa_functions *isa, uint32_t t)
{
    const int64_t n = last_dim(a->x), rows = dv_numel_leading(a->x, a->x->ndim - 1), room = line_room(n);
    float *const floats = dv_alloc(ctx, (size_t)(2 * room + 1) * sizeof *floats, 64);
    if (!floats)
        return DV_ENOMEM;
    float *const weight = floats + room;
    load_line(isa, weight, a->weight, 0, n, 0);
    for (int64_t r = 0; r < rows; r++) {
        const struct elements from = elements_of(a->x, t, r * n, n), to = result_of(isa, ctx, a->out, t, r * n, &from);
        const struct elements residual = a->residual ? elements_of(a->residual, t, r * n, n) : from;
        dv_lanes other;
        double squares;
        float *const there = a->residual ? NULL : floats_of(&from), *const x = there ? there : floats,
                     *const out = floats_of(&to);
        if (a->residual)
            SUM_BLOCKS(squares, room, get_lanes(isa, &LANES(x + k), &from, k, 0); get_lanes(isa, &other, &residual, k, 0);
                LANES(x + k) += other; put_lanes(isa, &residual, k, &LANES(x + k)); v = LANES(x + k) * LANES(x + k))
        else
            SUM_BLOCKS(squares, room, keep_lanes(isa, &v, x, there, &from, k); v *= v)
        const double exact = scale_of(x, squares, n, a->eps);
        const float scale = (float)exact;
        if (!is_float_scale(exact)) {
            put_scaled(a->out, r, x, 0, exact, weight, NULL);
            continue;
        }
#define SCALED(AT) (AT(x) * scale * AT(weight))
        PUT_LINE(isa, &to, out, n, SCALED)
    }
    results_end(ctx);
    return DV_OK;
}
DV_INLINE int add_rms_norm_row(dv_context *ctx, const struct add_rms_norm *a, const dv_isa_functions *isa)
{
#define ROW_OF(T) norm_of(ctx, a, isa, T)
    BY_DTYPE(isa, a->x, ROW_OF);
}
DV_ISA_VARIANTS(struct add_rms_norm, add_rms_norm_row)

/* rms_norm is the same without a residual: its rows call the code above. */
static int rms_norm_row(dv_context *ctx, const struct rms_norm *a, int (*row)(dv_context *ctx, const struct add_rms_norm *a))
{
    return row(ctx, &(struct add_rms_norm){ a->x, NULL, a->weight, a->eps, a->out });
}
DV_ISA_VARIANTS_OF(struct rms_norm, rms_norm_row, add_rms_norm_row)

#define SCALE(X) "rsqrt(mean(" X " * " X ", [-1], True) + eps)"
#define NORMAL(X) X " * " SCALE(X) " * weight"
#define FLOATS "f32 f64 bf16 f16"
#define FAST "f32 bf16 f16"

DV_OPERATOR(rms_norm, struct rms_norm, (x, weight, eps, out),
    .schema = "rms_norm(Tensor x, Tensor weight, float eps=1e-06) -> Tensor out",
    .contract = "x[*s d]:T, weight[d]:T -> out[*s d]:T; T in " FLOATS "; eps >= 0.0; parallel(*s)",
    .native = "type_as(" NORMAL(WIDE("x")) ", x)", .gradient = "x, weight: rms_norm_backward(grad, x, weight, eps)",
    .doc = "x / sqrt(mean(x * x) + eps) * weight over the last dim. bf16 and f16 are computed in float and rounded once.",
    .kernels = DV_KERNELS(DV_BF16_KERNEL(struct rms_norm, rms_norm_row, .split = 8)
                              DV_ISA_KERNELS(struct rms_norm, rms_norm_row, FAST, .split = 8),
        DV_KERNEL(struct rms_norm, "cpu", FLOATS, rms_norm_reference, .split = 8, .flags = DV_KERNEL_REFERENCE)));

DV_OPERATOR(add_rms_norm, struct add_rms_norm, (x, residual, weight, eps, out),
    .schema = "add_rms_norm(Tensor x, Tensor(a!)? residual, Tensor weight, float eps=1e-06) -> Tensor out",
    .contract = "x[*s d]:T, residual[*s d]:T, weight[d]:T -> out[*s d]:T; T in " FLOATS "; eps >= 0.0; parallel(*s)",
    .native = "out: type_as(if(present(residual), " NORMAL("(" WIDE("x") " + residual)") ", " NORMAL(
        WIDE("x")) "), x); "
                   "residual: if(present(residual), x + residual, None)",
    .doc = "residual += x, in place, then rms_norm of that; without a residual rms_norm of x. The step between the layers of a "
           "transformer.",
    .kernels = DV_KERNELS(DV_BF16_KERNEL(struct add_rms_norm, add_rms_norm_row, .split = 8)
                              DV_ISA_KERNELS(struct add_rms_norm, add_rms_norm_row, FAST, .split = 8),
        DV_KERNEL(struct add_rms_norm, "cpu", FLOATS, add_rms_norm_reference, .split = 8, .flags = DV_KERNEL_REFERENCE)));

/* ---- backward ------------------------------------------------------------------------------------------------------------
 * With r = 1 / sqrt(mean(x^2) + eps) and g = grad * weight: grad_x = r (g - x r^2 mean(g x)); grad_weight = sum of grad x r. */

struct rms_norm_backward {
    const dv_tensor *grad_output, *x, *weight;
    double eps;
    dv_tensor *grad_x, *grad_weight;
};

static int rms_norm_backward_reference(dv_context *ctx, const struct rms_norm_backward *a)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    const int64_t d = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    double *const weight_sum = dv_alloc(ctx, (size_t)(d + 1) * sizeof(double), 64);
    if (!weight_sum)
        return DV_ENOMEM;
    memset(weight_sum, 0, (size_t)d * sizeof(double));
    for (int64_t row = 0; row < rows; row++) {
        double squares = 0, products = 0;
        for (int64_t i = 0; i < d; i++) {
            const double x = dv_get_f64(a->x->data, row * d + i, t);
            squares += x * x;
            products += x * dv_get_f64(a->grad_output->data, row * d + i, t) * dv_get_f64(a->weight->data, i, t);
        }
        const double r = 1 / sqrt(squares / (double)d + a->eps), back = r * r * r * products / (double)d;
        for (int64_t i = 0; i < d; i++) {
            const double x = dv_get_f64(a->x->data, row * d + i, t), g = dv_get_f64(a->grad_output->data, row * d + i, t);
            dv_put_f64(a->grad_x->data, row * d + i, t, r * g * dv_get_f64(a->weight->data, i, t) - x * back);
            weight_sum[i] += g * x * r;
        }
    }
    for (int64_t i = 0; i < d; i++)
        dv_put_f64(a->grad_weight->data, i, t, weight_sum[i]);
    return DV_OK;
}

DV_INLINE int rms_norm_backward_row(dv_context *ctx, const struct rms_norm_backward *a, const dv_isa_functions *isa)
{
    const int64_t n = last_dim(a->x), rows = dv_numel_leading(a->x, a->x->ndim - 1), room = line_room(n);
    float *const x = dv_alloc(ctx, (size_t)(4 * room + 1) * sizeof *x, 64);
    if (!x)
        return DV_ENOMEM;
    float *const g = x + room, *const weight = g + room, *const sum = weight + room;
    memset(sum, 0, (size_t)room * sizeof *sum);
    load_line(isa, weight, a->weight, 0, n, 0);
    for (int64_t r = 0; r < rows; r++) {
        double products, squares;
        load_line(isa, x, a->x, r * n, n, 0);
        load_line(isa, g, a->grad_output, r * n, n, 0);
        SUM_BLOCKS(products, n, v = LANES(g + k) * LANES(x + k) * LANES(weight + k))
        SUM_BLOCKS(squares, n, v = LANES(x + k) * LANES(x + k))
        const double exact = scale_of(x, squares, n, a->eps);
        const float scale = (float)exact, back = (float)(exact * exact * products / (double)n);
        for (int64_t k = 0; k < n; k += DV_BLOCK)
            DV_BLOCK_LOOP
            {
                const float d = g[k + i], v = x[k + i];
                sum[k + i] += d * v * scale;
                x[k + i] = (d * weight[k + i] - v * back) * scale;
            }
        store_line(isa, a->grad_x, r * n, x, n);
    }
    store_line(isa, a->grad_weight, 0, sum, n);
    return DV_OK;
}
DV_ISA_VARIANTS(struct rms_norm_backward, rms_norm_backward_row)

#define X WIDE("x")
DV_OPERATOR(rms_norm_backward, struct rms_norm_backward, (grad_output, x, weight, eps, grad_x, grad_weight),
    .schema =
        "rms_norm_backward(Tensor grad_output, Tensor x, Tensor weight, float eps=1e-06) -> (Tensor grad_x, Tensor grad_weight)",
    .contract = "grad_output[*s d]:T, x[*s d]:T, weight[d]:T -> grad_x[*s d]:T, grad_weight[d]:T; T in " FLOATS "; eps >= 0.0",
    .native = "(type_as(" SCALE(X) " * (grad_output * weight - " X " * mean(grad_output * weight * " X ", [-1], True) / "
                                   "(mean(" X " * " X ", [-1], True) + eps)), x), type_as(sum_to_size(grad_output * " X
                                   " * " SCALE(X) ", weight.shape), weight))",
    .doc = "The gradients of rms_norm with respect to x and weight.",
    .kernels = DV_KERNELS(DV_BF16_KERNEL(struct rms_norm_backward, rms_norm_backward_row, .flags = 0)
                              DV_ISA_KERNELS(struct rms_norm_backward, rms_norm_backward_row, FAST, .flags = 0),
        DV_KERNEL(struct rms_norm_backward, "cpu", FLOATS, rms_norm_backward_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, rms_norm, &dv_op_rms_norm, &dv_op_add_rms_norm, &dv_op_rms_norm_backward);
