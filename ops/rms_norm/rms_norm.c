/* rms_norm.c: x / sqrt(mean(x^2) + eps) * weight over the last dim, with and without a residual that is added first, and the
 * gradient.
 *
 * A row is gone through twice: its squares are added up in DV_BLOCK lanes, then it is scaled. Both are steps of dv_blocks(). */
#include "../numbers.h"
#include <dovetail_math.h>

struct lanes_f32 { float squares[DV_BLOCK], products[DV_BLOCK], scale, back, *weight_sum; };
struct lanes_f64 { double squares[DV_BLOCK], products[DV_BLOCK], scale, back, *weight_sum; };
union lanes {
    struct lanes_f32 f32;
    struct lanes_f64 f64;
};

static double total_f32(const float *x)
{
    double sum = 0;
    for (int i = 0; i < DV_BLOCK; i++)
        sum += (double)x[i];
    return sum;
}
static double total_f64(const double *x)
{
    double sum = 0;
    for (int i = 0; i < DV_BLOCK; i++)
        sum += x[i];
    return sum;
}

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

/* The reference, in double. z: the normalised input. */
static void reference(const dv_tensor *z, const dv_tensor *weight, double eps, const dv_tensor *out)
{
    const uint32_t t = dv_dtype_key(z->dtype);
    const int64_t d = z->shape[z->ndim - 1], rows = dv_numel_leading(z, z->ndim - 1);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < d; i++)
            sum += dv_get_f64(z->data, r * d + i, t) * dv_get_f64(z->data, r * d + i, t);
        const double scale = 1 / sqrt(sum / (double)d + eps);
        for (int64_t i = 0; i < d; i++)
            dv_put_f64(out->data, r * d + i, t, dv_get_f64(z->data, r * d + i, t) * scale * dv_get_f64(weight->data, i, t));
    }
}
static int rms_norm_reference(dv_context *ctx, const struct rms_norm *a)
{
    (void)ctx;
    reference(a->x, a->weight, a->eps, a->out);
    return DV_OK;
}
static int add_rms_norm_reference(dv_context *ctx, const struct add_rms_norm *a)
{
    const uint32_t t = dv_dtype_key(a->x->dtype);
    (void)ctx;
    for (int64_t i = 0, n = dv_numel(a->x); a->residual && i < n; i++)
        dv_put_f64(a->residual->data, i, t, dv_get_f64(a->residual->data, i, t) + dv_get_f64(a->x->data, i, t));
    reference(a->residual ? a->residual : a->x, a->weight, a->eps, a->out);
    return DV_OK;
}

#define FORWARD(F, T)                                                         \
    DV_INLINE void squares_##F(T *const *out, const T *const *in, void *with) \
    {                                                                         \
        T *const sum = ((struct lanes_##F *)with)->squares;                   \
        (void)out;                                                            \
        DV_BLOCK_LOOP                                                         \
        sum[i] += in[0][i] * in[0][i];                                        \
    }                                                                         \
    DV_INLINE void scale_##F(T *const *out, const T *const *in, void *with)   \
    {                                                                         \
        const T scale = ((struct lanes_##F *)with)->scale;                    \
        DV_BLOCK_LOOP                                                         \
        out[0][i] = in[0][i] * scale * in[1][i];                              \
    }                                                                         \
    DV_INLINE void add_##F(T *const *out, const T *const *in, void *with)     \
    {                                                                         \
        (void)with;                                                           \
        DV_BLOCK_LOOP                                                         \
        out[0][i] = in[0][i] + in[1][i];                                      \
    }
FORWARD(f32, float)
FORWARD(f64, double)

/* Adds up the squares of a row (already in lanes), and makes the factor for it. */
static void settle(union lanes *l, bool f64, int64_t d, double eps)
{
    if (f64)
        l->f64.scale = 1 / sqrt(total_f64(l->f64.squares) / (double)d + eps);
    else
        l->f32.scale = (float)(1 / sqrt(total_f32(l->f32.squares) / (double)d + eps));
}

DV_INLINE void normalise(const dv_tensor *z, const dv_tensor *weight, double eps, const dv_tensor *out, int64_t row, int64_t d)
{
    union lanes l;
    dv_tensor in = row_of(z, row, d), to = row_of(out, row, d);
    memset(&l, 0, sizeof l);
    dv_blocks(z->dtype, d, NULL, 0, DV_IN(&in), &l, squares_f32, squares_f64);
    settle(&l, z->dtype.bits == 64, d, eps);
    dv_blocks(z->dtype, d, DV_OUT(&to), DV_IN(&in, weight), &l, scale_f32, scale_f64);
}

DV_INLINE int add_rms_norm_row(dv_context *ctx, const struct add_rms_norm *a)
{
    const int64_t d = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    const dv_tensor *const z = a->residual ? a->residual : a->x;
    (void)ctx;
    for (int64_t r = 0; r < rows; r++) {
        if (a->residual) {
            dv_tensor x = row_of(a->x, r, d), residual = row_of(a->residual, r, d);
            dv_blocks(x.dtype, d, DV_OUT(&residual), DV_IN(&residual, &x), NULL, add_f32, add_f64);
        }
        normalise(z, a->weight, a->eps, a->out, r, d);
    }
    return DV_OK;
}
DV_ISAS(struct add_rms_norm, add_rms_norm_row)

/* rms_norm is the same without a residual: its rows call the code above. */
#define WITHOUT_RESIDUAL(ISA)                                                                                \
    static int rms_norm_row_##ISA(dv_context *ctx, const struct rms_norm *a)                                 \
    {                                                                                                        \
        return add_rms_norm_row_##ISA(ctx, &(struct add_rms_norm){ a->x, NULL, a->weight, a->eps, a->out }); \
    }
#ifdef DV_TARGET_AVX2
WITHOUT_RESIDUAL(avx512)
WITHOUT_RESIDUAL(avx2)
#endif
WITHOUT_RESIDUAL(base)

#define FLOATS "f32 f64 bf16 f16"

DV_OPERATOR(rms_norm, struct rms_norm, (x, weight, eps, out),
    .schema = "rms_norm(Tensor x, Tensor weight, float eps=1e-06) -> Tensor out",
    .contract = "x[*s d]:T, weight[d]:T -> out[*s d]:T; T in " FLOATS "; parallel(*s)",
    .native = "x * rsqrt(mean(x * x, [-1], True) + eps) * weight",
    .gradient = "x, weight: rms_norm_backward(grad, x, weight, eps)",
    .doc = "x / sqrt(mean(x * x) + eps) * weight over the last dim. bf16 and f16 are computed in float and rounded once.",
    .kernels = DV_KERNELS(DV_ISA_ROWS(struct rms_norm, rms_norm_row, FLOATS, .split = 8),
        DV_KERNEL(struct rms_norm, "cpu", FLOATS, rms_norm_reference, .flags = DV_KERNEL_REFERENCE)));

DV_OPERATOR(add_rms_norm, struct add_rms_norm, (x, residual, weight, eps, out),
    .schema = "add_rms_norm(Tensor x, Tensor(a!)? residual, Tensor weight, float eps=1e-06) -> Tensor out",
    .contract = "x[*s d]:T, residual[*s d]:T, weight[d]:T -> out[*s d]:T; T in " FLOATS "; parallel(*s)",
    .native =
        "out: if(present(residual), (x + residual) * rsqrt(mean((x + residual) * (x + residual), [-1], True) + eps) * weight, "
        "x * rsqrt(mean(x * x, [-1], True) + eps) * weight); residual: if(present(residual), x + residual, None)",
    .doc = "residual += x, in place, then rms_norm of that; without a residual rms_norm of x. The step between the layers of a "
           "transformer.",
    .kernels = DV_KERNELS(DV_ISA_ROWS(struct add_rms_norm, add_rms_norm_row, FLOATS, .split = 8),
        DV_KERNEL(struct add_rms_norm, "cpu", FLOATS, add_rms_norm_reference, .flags = DV_KERNEL_REFERENCE)));

/* ---- backward ------------------------------------------------------------
 * With r
 * = 1 / sqrt(mean(x^2) + eps) and g = grad * weight: grad_x = r g - x r^3 mean(g x); grad_weight = sum of grad x r. */

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

#define BACKWARD(F, T)                                                                                                  \
    DV_INLINE void sums_##F(T *const *out, const T *const *in, void *with)                                              \
    {                                                                                                                   \
        T *const squares = ((struct lanes_##F *)with)->squares, *const products = ((struct lanes_##F *)with)->products; \
        (void)out;                                                                                                      \
        DV_BLOCK_LOOP                                                                                                   \
        {                                                                                                               \
            squares[i] += in[1][i] * in[1][i];                                                                          \
            products[i] += in[0][i] * in[1][i] * in[2][i];                                                              \
        }                                                                                                               \
    }                                                                                                                   \
    DV_INLINE void back_##F(T *const *out, const T *const *in, void *with)                                              \
    {                                                                                                                   \
        struct lanes_##F *const l = with;                                                                               \
        const T scale = l->scale, back = l->back;                                                                       \
        T *const sum = l->weight_sum;                                                                                   \
        DV_BLOCK_LOOP                                                                                                   \
        {                                                                                                               \
            const T g = in[0][i], x = in[1][i];                                                                         \
            out[0][i] = scale * g * in[2][i] - x * back;                                                                \
            sum[i] += g * x * scale;                                                                                    \
        }                                                                                                               \
        l->weight_sum += DV_BLOCK;                                                                                      \
    }                                                                                                                   \
    DV_INLINE void copy_##F(T *const *out, const T *const *in, void *with)                                              \
    {                                                                                                                   \
        struct lanes_##F *const l = with;                                                                               \
        const T *const sum = l->weight_sum;                                                                             \
        (void)in;                                                                                                       \
        DV_BLOCK_LOOP                                                                                                   \
        out[0][i] = sum[i];                                                                                             \
        l->weight_sum += DV_BLOCK;                                                                                      \
    }
BACKWARD(f32, float)
BACKWARD(f64, double)

DV_INLINE int rms_norm_backward_row(dv_context *ctx, const struct rms_norm_backward *a)
{
    const int64_t d = a->x->shape[a->x->ndim - 1], rows = dv_numel_leading(a->x, a->x->ndim - 1);
    const size_t padded = (size_t)(d + DV_BLOCK) * sizeof(double);
    const bool f64 = a->x->dtype.bits == 64;
    void *const weight_sum = dv_alloc(ctx, padded, 64);
    union lanes l;
    if (!weight_sum)
        return DV_ENOMEM;
    memset(weight_sum, 0, padded);
    for (int64_t row = 0; row < rows; row++) {
        dv_tensor grad = row_of(a->grad_output, row, d), x = row_of(a->x, row, d), out = row_of(a->grad_x, row, d);
        memset(&l, 0, sizeof l);
        dv_blocks(x.dtype, d, NULL, 0, DV_IN(&grad, &x, a->weight), &l, sums_f32, sums_f64);
        settle(&l, f64, d, a->eps);
        if (f64)
            l.f64.back = l.f64.scale * l.f64.scale * l.f64.scale * total_f64(l.f64.products) / (double)d,
            l.f64.weight_sum = weight_sum;
        else
            l.f32.back = (float)((double)l.f32.scale * (double)l.f32.scale * (double)l.f32.scale * total_f32(l.f32.products) /
                (double)d),
            l.f32.weight_sum = weight_sum;
        dv_blocks(x.dtype, d, DV_OUT(&out), DV_IN(&grad, &x, a->weight), &l, back_f32, back_f64);
    }
    if (f64)
        l.f64.weight_sum = weight_sum;
    else
        l.f32.weight_sum = weight_sum;
    dv_blocks(a->x->dtype, d, DV_OUT(a->grad_weight), NULL, 0, &l, copy_f32, copy_f64);
    return DV_OK;
}
DV_ISAS(struct rms_norm_backward, rms_norm_backward_row)

DV_OPERATOR(rms_norm_backward, struct rms_norm_backward, (grad_output, x, weight, eps, grad_x, grad_weight),
    .schema =
        "rms_norm_backward(Tensor grad_output, Tensor x, Tensor weight, float eps=1e-06) -> (Tensor grad_x, Tensor grad_weight)",
    .contract = "grad_output[*s d]:T, x[*s d]:T, weight[d]:T -> grad_x[*s d]:T, grad_weight[d]:T; T in " FLOATS,
    .native =
        "(rsqrt(mean(x * x, [-1], True) + eps) * (grad_output * weight - x * mean(grad_output * weight * x, [-1], True) / "
        "(mean(x * x, [-1], True) + eps)), sum_to_size(grad_output * x * rsqrt(mean(x * x, [-1], True) + eps), weight.shape))",
    .doc = "The gradients of rms_norm with respect to x and weight.",
    .kernels = DV_KERNELS(DV_ISA_ROWS(struct rms_norm_backward, rms_norm_backward_row, FLOATS, .flags = 0),
        DV_KERNEL(struct rms_norm_backward, "cpu", FLOATS, rms_norm_backward_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, rms_norm, &dv_op_rms_norm, &dv_op_add_rms_norm, &dv_op_rms_norm_backward);
